#!/usr/bin/env bash
# Equal bits on GPUs: executor x budget x partition x workers x precision x dropout x split backward x clipping x workload
# as a pairwise covering set, 200 subnets each, against the plain loop on the same device. All kinds of candidates of
# `nlp.c3`, `cv.c1` and `digits` are among them, under deterministic kernels; access logs are checked. `kept` is graphs with
# `--activations keep`. On two NVIDIA GPUs and 32 cores 3 minutes, on one and 16 cores about 8; where workers cannot share
# a GPU, rows with more workers than GPUs are listed as not run.
# On a machine without GPU it looks at the kept result of such a run.
#
#     covering.sh                       the set, with a log in a temporary folder
#     covering.sh --log FILE            rows are added to FILE as they finish, and what stands there is not run again
#     ... --rows A:B, --minutes N       only some rows; none begun later: go on with the same FILE
#     ... --workers 1                   the covering set of one worker
#     ... --device cpu --steps 20       a rehearsal, with a stand-in for graphs
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

kept=benchmarks/results/covering_2xH200.jsonl
also='' # rows of the set with graphs that keep activations alone (--executors kept), beside those in the set above
least=100
[[ " $* " == *" --device cpu "* ]] && least=1 # a stand-in replays fewer
if [[ " $* " == *" --device cpu "* ]] || on_gpus 1 "$kept"; then
    "$PY" acceptance/gpu/covering.py --out "$out" --log "$out/rows.jsonl" "$@" >&2 || true
else
    "$PY" acceptance/gpu/covering.py --out "$out" --log "$kept" --only-figures
    also=benchmarks/results/covering_kept_2xH200.jsonl
fi
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$out/figures.json" "$1"; }
[[ -e $out/figures.json ]] || { echo "the rows did not end; see above" >&2; exit 1; }

echo "on $(value gpus) ($(value device)), commit $(value commits), $(value steps) subnets"
figure "rows that ran" "$(value ran)" "==" "$(value wanted)"
figure "rows whose hashes differ" "$(value different)" "==" 0
figure "violations in access logs" "$(value violations)" "==" 0
figure "rows that failed" "$(value failed)" "==" 0
figure "pairs of values that have not met, of $(value pairs)" "$(value pairs_missing)" "==" 0
figure "rows under deterministic kernels" "$(value deterministic)" "==" "$(value wanted)"
figure "least fetches of a row with a budget" "$(value fetches)" ">" 0
figure "kinds of candidates met ($(value kinds_met_by_workload))" "$(value kinds_met)" "==" 100
figure "kinds replayed from graphs ($(value kinds_replayed_by_workload))" "$(value kinds_replayed)" ">=" "$least"
echo "rows of several workers with a GPU each: $(value one_each)"
echo "left to eager runs: $(value eager)"
if [[ -n $also ]]; then
    "$PY" acceptance/gpu/covering.py --executors kept --out "$out" --log "$also" --only-figures
    echo "graphs that keep activations, commit $(value commits), $(value steps) subnets"
    figure "their rows that ran, of $(value wanted)" "$(value ran)" ">=" 8
    figure "their rows whose hashes differ" "$(value different)" "==" 0
    figure "their violations in access logs" "$(value violations)" "==" 0
    figure "their rows that failed" "$(value failed)" "==" 0
fi

finish
