#!/usr/bin/env bash
# What the rest of a supernet costs the path that is active: steps of one arch in its space against the same network
# frozen, in turns. CPU seconds of the process; on a machine with a GPU also `digits`, `nlp.c3` (data set `ende`, or
# ENDE=FILE.tsv.gz) and `cv.c3` (`cifar10_jpeg.npz` in $SENNIT_DATA) there, elsewhere the kept result of such a run. Two
# idle cores, about 3 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

export OMP_NUM_THREADS=1
kept=benchmarks/results/active_path_H200.json
"$PY" benchmarks/active_path.py --seconds 40 --out "$out/cpu.json" >&2 || true
gpu=$kept
if on_gpus 1 "$kept"; then
    gpu=$out/gpu.json
    "$PY" benchmarks/active_path.py digits cv.c3 nlp.c3 --device cuda ${ENDE:+--data "$ENDE"} --out "$gpu" >&2 || true
fi
value() { # FILE EXPRESSION
    "$PY" -c "import json, sys; held = json.load(open(sys.argv[1])); rows = {r['recipe']: r for r in held['rows']}; print($2)" "$1" || true
}

for result in "$out/cpu.json" "$gpu"; do
    recipes="cv.c3-small digits nlp.c3-small"
    [[ $result == "$gpu" ]] && recipes="cv.c3 digits nlp.c3"
    echo "on $(value "$result" "', '.join(held['fingerprint'].get('gpus', ['CPU']))"), commit $(value "$result" "held['commit'][:12]")"
    figure "recipes measured" "$(value "$result" "' '.join(sorted(rows))")" "==" "$recipes"
    for recipe in $recipes; do
        figure "$recipe, ms frozen / ms in the supernet" "$(value "$result" "round(rows['$recipe']['frozen_by_supernet'], 3)")" ">=" 0.97
        echo "  (steps/s: $(value "$result" "', '.join(f'{way} {rate:.2f}' for way, rate in rows['$recipe']['steps_per_s'].items())"))"
    done
done

finish
