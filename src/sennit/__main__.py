"""`python -m sennit`."""

from __future__ import annotations

import sys

from sennit.cli import main

if __name__ == "__main__":
    sys.exit(main())
