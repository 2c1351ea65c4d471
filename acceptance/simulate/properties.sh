#!/usr/bin/env bash
# 5,000 random cases of the simulator (spaces, costs, links, memory, every schedule, every limit in flight) without a
# deadlock, a broken rule or a makespan below the bound; and every rule, broken on purpose, is noticed. A minute.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PY" acceptance/simulate/properties.py 5000 >"$out/found.json"
value() { "$PY" -c "import json, sys; found = json.load(open(sys.argv[1])); print($1)" "$out/found.json"; }

figure "random cases" "$(value "found['cases']")" ">=" 5000
figure "schedules among them" "$(value "len(found['schedules'])")" "==" 10
figure "deadlocks" "$(value "found['deadlocks']")" "==" 0
figure "cases with a broken rule" "$(value "found['violations']")" "==" 0
figure "makespans below the bound" "$(value "found['below the bound']")" "==" 0
figure "rules broken on purpose" "$(value "found['rules broken']")" ">=" 15
figure "of these not noticed" "$(value "len(found['not noticed'])")" "==" 0

finish
