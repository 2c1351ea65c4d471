#!/usr/bin/env bash
# Workers on virtual devices against the simulator: 8 workers, 200 subnets, every policy that workers run; makespans within
# 5 % of those simulated on a host whose times per task and message are measured first (`sennit.runtime.host_times`), and, at the
# recorded moments, the recorded order of tasks. It waits more than it computes, and wants idle cores. A block waits
# 20 ms. 14 minutes; SUBNETS, WAIT and ONLY make it shorter.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PY" acceptance/schedules/virtual.py --out "$out/runs" --subnets "${SUBNETS:-200}" --wait "${WAIT:-0.02}" \
    ${ONLY:+--only "$ONLY"} | tee "$out/rows.jsonl" >&2
value() { "$PY" -c "import json, sys; rows = [json.loads(line) for line in open(sys.argv[1])]; print($1)" "$out/rows.jsonl"; }

[ -n "${ONLY:-}" ] || figure "policies" "$(value 'len(rows)')" "==" 10
for i in $(seq 0 $(($(value 'len(rows)') - 1))); do
    name=$(value "rows[$i]['policy']")
    echo "$name: makespan over one simulated without host times: $(value "round(rows[$i]['ratio_free'], 4)")"
    figure "$name: makespan over the simulated one, less 1" "$(value "round(abs(rows[$i]['ratio'] - 1), 4)")" "<=" 0.05
    figure "$name: tasks in the simulated order" "$(value "round(rows[$i]['same_order'], 4)")" ">=" 1
done

finish
