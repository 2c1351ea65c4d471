#!/usr/bin/env bash
# The simulator's speed and the scheduler's decisions, on one core: 1,000 stages x 1,000 micro-batches, 8 stages x 10,000
# subnets, 48 blocks with 64 subnets in flight, and 1,000,000 subnets against 10,000. Seconds of the process. 3 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PY" benchmarks/simulate_speed.py | tee "$out/cases.jsonl" >&2
value() { "$PY" -c "import json, sys; c = {x['case']: x for x in map(json.loads, open(sys.argv[1]))}; print($1)" "$out/cases.jsonl"; }

figure "seconds for 1,000 stages x 1,000 micro-batches" "$(value "c['static']['cpu_s']")" "<=" 60
figure "tasks of that" "$(value "c['static']['tasks']")" "==" 2000000
figure "seconds for 8 stages x 10,000 subnets x M = 8" "$(value "c['stream']['cpu_s']")" "<=" 60
figure "tasks of that" "$(value "c['stream']['tasks']")" "==" 1280000
figure "tasks per second of that" "$(value "c['stream']['tasks_per_s']")" ">=" 30000
figure "median decision with 64 in flight and 48 blocks, us" "$(value "c['decision']['decision_median_us']")" "<=" 5
figure "peak memory of 1,000,000 subnets against 10,000" "$(value "round(c['long']['peak_mib'] / c['small']['peak_mib'], 3)")" "<=" 1.1
figure "median decision of 1,000,000 subnets against 10,000" "$(value "round(c['long']['decision_median_us'] / c['long']['fresh_median_us'], 3)")" "<=" 1.1

finish
