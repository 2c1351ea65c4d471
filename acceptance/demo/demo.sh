#!/usr/bin/env bash
# The main job: `make demo` trains `digits` on 2 workers and on 1, searches, retrains, exports and loads the export in
# plain PyTorch. On 2 CPU cores, at most 5 minutes once the packages are there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

# the demo writes to runs/demo, which is removed first: old figures cannot be read by mistake
rm -rf runs/demo
status=0
make demo >&2 || status=$?
figure "exit code of make demo" "$status" "==" 0
value() { "$PY" -c 'import json, sys; print(json.load(open("runs/demo/demo.json"))[sys.argv[1]])' "$1" 2> /dev/null || true; }

median=$(value accuracy_random_median)
figure "hashes on 1 and 2 workers are equal" "$(value equal_hashes)" "==" True
figure "accuracy of the best network, retrained (mean of 5 seeds)" "$(value accuracy_retrained)" ">=" 0.975
figure "  and above the median of 20 random networks" "$(value accuracy_retrained)" ">" "${median:-nothing}"
figure "accuracy in plain PyTorch is the exported one" "$(value export_equal)" "==" True
figure "seconds" "$(value seconds)" "<=" 300

finish
