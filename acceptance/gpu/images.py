"""`cv.c1` with dropout as a setting: its candidates have a fixed one."""

from __future__ import annotations

from torch import nn

from sennit.space.ready.cv.nasnet import NasNetSpace


class Images(NasNetSpace):
    """All 48 candidates; every dropout of the network is `dropout`."""

    def __init__(self, width: int, blocks: int, dropout: float) -> None:
        super().__init__(48, width, blocks, channels=1, dropout=dropout)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
