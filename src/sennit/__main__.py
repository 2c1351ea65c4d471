"""`python -m sennit`."""

from __future__ import annotations

from sennit.cli import entry

if __name__ == "__main__":
    entry()
