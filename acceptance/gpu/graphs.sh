#!/usr/bin/env bash
# Layers replayed from CUDA graphs: the host's time per layer falls by a factor of 5 or more, weights and losses are
# those of eager layers and of the plain loop. On one NVIDIA GPU, about 3 minutes (and the data set `ende`, see `sennit
# data`; or ENDE=FILE.tsv.gz). On any other machine it looks at the kept result of such a run; the two timelines are
# kept beside it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

kept=benchmarks/results/graphs_nlp.c3_H200.json
if on_gpus 1 "$kept"; then
    result=$out/result.json
    "$PY" benchmarks/graphs.py --out "$result" --layers 6 --steps 100 ${ENDE:+--data "$ENDE"} >&2 || true
else
    result=$kept
fi
value() { "$PY" -c "import json, sys; held = json.load(open(sys.argv[1])); runs, host = held['runs'], held['host']; print($1)" "$result" || true; }

echo "on $(value "', '.join(held['fingerprint']['gpus'])"), commit $(value "held['commit'][:12]")"
figure "host time per layer, eager / graphs" "$(value "round(host['eager / graphs'], 2)")" ">=" 5
figure "layers timed" "$(value "host['layers timed']")" ">=" 100
figure "layers compared" "$(value "host.get('layers compared', host.get('compared'))")" ">=" 100
figure "all of their bits equal" "$(value "host['equal']")" "==" True
figure "runs" "$(value "', '.join(sorted(f\"{r['engine']} {r['executor']}\" for r in runs))")" "==" "pipeline eager, pipeline graphs, plain eager"
for what in weights optimizer losses; do
    figure "hashes of $what" "$(value "len({r['${what}_sha256'] for r in runs})")" "==" 1
done
figure "timelines that are kept" "$(ls benchmarks/results/timelines/{eager,graphs}.json.gz | wc -l)" "==" 2

finish
