#!/usr/bin/env bash
# A supernet that with its optimizer state is more than 4 times the budget of its device: `nlp.c1` at full width under 11
# GiB. At least .95 of what forwards read is there when they become ready, tasks wait for layers at most .05 of the time,
# hashes are those of `plain --offload`. On one NVIDIA GPU with 96 GiB of host memory, about 5 minutes (and the data set
# `ende`, see `sennit data`; or ENDE=FILE.tsv.gz). On any other machine it looks at the kept result of such a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

kept=benchmarks/results/cache_nlp.c1_H200.json
if on_gpus 1 "$kept"; then
    result=$out/result.json
    "$PY" benchmarks/cache.py --out "$result" --only "next-use;lru;none;plain" ${ENDE:+--data "$ENDE"} >&2 || true
else
    result=$kept
fi
value() { "$PY" -c "import json, sys; held = json.load(open(sys.argv[1])); run = {r['name']: r for r in held['runs'] if 'why' not in r}; print($1)" "$result" || true; }

echo "on $(value "', '.join(held['fingerprint']['gpus'])"), commit $(value "held['commit'][:12]"), $(value "held['recipe']")"
figure "layers with their state, times the budgets" "$(value "round(held['times the budgets'], 2)")" ">=" 4
figure "least subnets" "$(value "min(r['steps'] for r in held['runs'])")" ">=" 40
figure "hits" "$(value "round(run['next-use']['slots']['hits'] / run['next-use']['slots']['reads'], 4)")" ">=" 0.95
figure "  with LRU" "$(value "round(run['lru']['slots']['hits'] / run['lru']['slots']['reads'], 4)")" "<=" "$(value "run['next-use']['slots']['hits'] / run['next-use']['slots']['reads']")"
figure "  with nothing fetched ahead" "$(value "round(run['none']['slots']['hits'] / run['none']['slots']['reads'], 4)")" "<=" "$(value "run['next-use']['slots']['hits'] / run['next-use']['slots']['reads']")"
figure "stalls, part of the time" "$(value "round(run['next-use']['stall_share'], 4)")" "<=" 0.05
figure "bytes fetched, LRU / next-use" "$(value "round(run['lru']['fetched_per_subnet'] / run['next-use']['fetched_per_subnet'], 2)")" ">=" 1
figure "ms per subnet" "$(value "round(run['next-use']['ms_per_subnet'], 1)")" ">" 0
figure "  of plain --offload" "$(value "round(run['plain']['ms_per_subnet'], 1)")" ">" 0
for what in weights optimizer losses; do
    figure "hashes of $what" "$(value "len({r['${what}_sha256'] for r in run.values()})")" "==" 1
done

finish
