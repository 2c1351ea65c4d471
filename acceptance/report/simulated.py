"""A trace of 64 stages and a hundred thousand tasks: causal order on a space of 64 blocks. Usage: simulated.py FILE"""

from __future__ import annotations

import sys
from pathlib import Path

from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun
from sennit.simulate.spans import write_spans
from sennit.trace.span import Span

BLOCKS, CANDIDATES, M, SUBNETS, IN_FLIGHT = 64, 72, 8, 100, 16

spans: list[Span] = []
space = SpaceLoad(blocks=BLOCKS, candidates=CANDIDATES, workers=BLOCKS, micro_batches=M, subnets_wanted=SUBNETS)
found = SpaceRun(space=space, in_flight=IN_FLIGHT).report(with_levers=False, watch=spans.append)
facts = {"workers": BLOCKS, "schedule": "csp", "micro_batches": M, "candidates": CANDIDATES, **found}
write_spans(Path(sys.argv[1]), facts, spans)
