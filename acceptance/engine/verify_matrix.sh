#!/usr/bin/env bash
# Equal bits on any placement: workload × workers × micro-batches × shared policy × optimizer × clipping × plan, as a
# pairwise covering set (every pair of values of two factors meets, every value at least twice) of at most 40 runs.
# Each is the plain loop and the pipeline on one recipe, 200 subnets: weights, optimizer and losses must be equal, and
# the checker must find nothing in either access log. Then a scheduler with the published rule (finished at this stage)
# and unequal partitions, which hashes and checker must catch. On 2 CPU cores, at most 30 minutes (two runs at a time).
#
#     verify_matrix.sh                  the covering set
#     verify_matrix.sh --full LOG       the full product, 2,916 runs of 12 subnets: hours. LOG (JSONL) is added to, and
#                                       what stands there is not run again.
#     ... --workloads digits ...        only these; logs of several machines are joined by `cat`
#     ... --steps N, --jobs N           other lengths, for a trial
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

"$PY" acceptance/engine/verify_matrix.py --out "$out" "$@" || true
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$out/figures.json" "$1"; }
[[ -e $out/figures.json ]] || { echo "the runs did not end; see above" >&2; exit 1; }

if [[ $(value mode) == covering ]]; then
    figure "runs" "$(value runs)" "<=" 40
    figure "pairs of values that never meet" "$(value pairs_missing)" "==" 0
    figure "least runs with one value" "$(value least)" ">=" 2
    figure "minutes" "$(value minutes)" "<=" 30
else
    figure "runs" "$(value runs)" "==" "$(value wanted)"
fi
figure "runs with equal hashes" "$(value equal)" "==" "$(value wanted)"
figure "violations in access logs" "$(value violations)" "==" 0
figure "runs that failed" "$(value failed)" "==" 0
figure "broken scheduler: violations" "$(value broken_violations)" ">" 0
figure "broken scheduler: weights" "$(value broken_weights)" "!=" "$(value broken_plain_weights)"

finish
