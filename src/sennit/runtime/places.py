"""`Places`: first-fit places in a block of memory, whatever memory it is."""

from __future__ import annotations

from sennit.memory.layout import BOUNDARY


class Places:
    """Offsets in so many bytes.

    Attributes:
        free: `(offset, length)` of what is free, by offset.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[tuple[int, int]] = [(0, size)]

    def take(self, nbytes: int) -> int | None:
        """Offset of a free place, or None if there is none now."""
        need = _rounded(nbytes)
        for i, (offset, length) in enumerate(self.free):
            if length >= need:
                if length == need:
                    del self.free[i]
                else:
                    self.free[i] = (offset + need, length - need)
                return offset
        return None

    def give(self, offset: int, nbytes: int) -> None:
        """Give a place back; neighbours grow together."""
        i = 0
        while i < len(self.free) and self.free[i][0] < offset:
            i += 1
        self.free.insert(i, (offset, _rounded(nbytes)))
        for at in (i, i - 1):
            if 0 <= at < len(self.free) - 1 and sum(self.free[at]) == self.free[at + 1][0]:
                self.free[at] = (self.free[at][0], self.free[at][1] + self.free[at + 1][1])
                del self.free[at + 1]


def _rounded(nbytes: int) -> int:
    return max(BOUNDARY, -(-nbytes // BOUNDARY) * BOUNDARY)
