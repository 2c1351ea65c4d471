#!/usr/bin/env bash
# A search that is killed goes on to the identical sequence: `digits` is trained for 200 subnets, evolution makes 200
# evaluations without a break, and again with SIGKILLs at random moments; the logs must be equal byte for byte. The best
# network is exported: its accuracy, from the search, from the export and in plain PyTorch without sennit, is the same
# bit for bit. On any CPU, about 3 minutes.
#
#     resume.sh [--kills N] [--steps S] [--budget B] [--seed X]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

"$PY" acceptance/search/resume.py --out "$out" "$@" || true
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out/figures.json" "$1"; }
[[ -e $out/figures.json ]] || { echo "the runs did not end; see above" >&2; exit 1; }

figure "evaluations" "$(value evaluations)" "==" "$(value budget)"
figure "kills" "$(value kills)" ">=" 3
figure "kills between the first and the last result" "$(value kills_inside)" ">=" 1
figure "log of the killed search, sha256" "$(value log_killed)" "==" "$(value log_whole)"
figure "accuracy of the export" "$(value accuracy_exported)" "==" "$(value accuracy_searched)"
figure "accuracy in plain PyTorch" "$(value accuracy_plain)" "==" "$(value accuracy_searched)"

finish
