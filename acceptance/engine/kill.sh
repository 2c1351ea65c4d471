#!/usr/bin/env bash
# 20 SIGKILLs at random moments of random processes (launcher, worker or loader) of a `digits` run of 300 subnets, each
# time resumed on another number of workers: the hashes at the end are those of the uninterrupted run, and no process,
# port, lock or shared memory is left after any kill. On 2 CPU cores, 3 to 10 minutes.
#
#     kill.sh [--kills N] [--steps S] [--seed X]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

"$PY" acceptance/engine/kill.py --out "$out" "$@" || true
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out/figures.json" "$1"; }
[[ -e $out/figures.json ]] || { echo "the runs did not end; see above" >&2; exit 1; }

wanted=$(value wanted)
figure "kills whose run ended with the hashes of the uninterrupted one" "$(value good)/$wanted" "==" "${wanted:-20}/${wanted:-20}"
figure "runs brought to their end" "$(value runs)" ">=" 1
figure "kinds of process that were killed" "$(value killed)" "==" 3
figure "runs with other hashes" "$(value different)" "==" 0
figure "resumes that failed" "$(value failed)" "==" 0
figure "seconds from the kill of a launcher or worker until all have stopped with a message, at most" "$(value seconds_worker)" "<=" 1
figure "  from the kill of a loader" "$(value seconds_loader)" "<=" 6
figure "  and from there until the launcher has gone, too" "$(value seconds_exit)" "<=" 2
figure "deaths that the message does not explain" "$(value unexplained)" "==" 0
figure "processes left" "$(value processes)" "==" 0
figure "ports left" "$(value ports)" "==" 0
figure "locks left" "$(value locks)" "==" 0
figure "shared-memory segments left" "$(value segments)" "==" 0
figure "files in run folders that do not belong there" "$(value files)" "==" 0

finish
