#!/usr/bin/env bash
# What the rest of a supernet costs the path that is active: steps of one arch in its space against the same network
# frozen, in turns. CPU seconds of the process; on a machine with a GPU also `nlp.c3` (data set `ende`, or
# ENDE=FILE.tsv.gz) and `cv.c3` there. Two idle cores, about 3 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

export OMP_NUM_THREADS=1
"$PY" benchmarks/active_path.py --seconds 40 > "$out/rows.jsonl" || true
if (($("$PY" -c 'import torch; print(torch.cuda.device_count())'))); then
    "$PY" benchmarks/active_path.py nlp.c3 cv.c3 --device cuda ${ENDE:+--data "$ENDE"} >> "$out/rows.jsonl" || true
else
    echo "no GPU: nlp.c3 and cv.c3 at full width are NOT MEASURED HERE" >&2
fi
value() { "$PY" -c "import json, sys; rows = {r['recipe']: r for r in map(json.loads, open(sys.argv[1]))}; print($1)" "$out/rows.jsonl"; }

figure "recipes measured" "$(value 'len(rows)')" ">=" 3
for recipe in $(value '" ".join(rows)'); do
    figure "$recipe, ms frozen / ms in the supernet" "$(value "round(rows['$recipe']['frozen_by_supernet'], 3)")" ">=" 0.97
    echo "  (steps/s: $(value "', '.join(f'{way} {rate:.2f}' for way, rate in rows['$recipe']['steps_per_s'].items())"))"
done

finish
