#!/usr/bin/env bash
# The two tables of bubbles under causal order, cell by cell, through `sennit simulate`: by stage (49 cells) and by layer
# with chunks and few subnets in flight (56 cells). Each must be at most .02 above the table. Two minutes on 2 cores.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PY" acceptance/simulate/tables.py "$out/cells.jsonl" || true
value() { "$PY" -c "import json, sys; cells = [json.loads(line) for line in open(sys.argv[1])]; print($1)" "$out/cells.jsonl"; }

figure "cells by stage" "$(value "sum(c['table'] == 'stage' for c in cells)")" "==" 49
figure "cells by layer" "$(value "sum(c['table'] == 'layer' for c in cells)")" "==" 56
figure "largest excess by stage" "$(value "round(max(c['bubble'] - c['wanted'] for c in cells if c['table'] == 'stage'), 4)")" "<=" 0.02
figure "largest excess by layer" "$(value "round(max(c['bubble'] - c['wanted'] for c in cells if c['table'] == 'layer'), 4)")" "<=" 0.02
figure "cells below their lower bound" "$(value "sum(c['bubble'] < c['bubble_at_bound'] - 1e-9 for c in cells)")" "==" 0

finish
