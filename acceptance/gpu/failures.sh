#!/usr/bin/env bash
# Runs in trouble: a budget that is too little (refused before the run, or seen midway where each subnet is cut in its own
# way), a device that is full midway (by a limit on this process, by another program that takes all memory, from the start)
# and host memory that CUDA refuses to register. Each ends with the hashes of the plain loop, or stops with exit code 1 (2 if
# the input is refused), a message of at most 40 lines and a folder from which the run goes on to these hashes. On one
# NVIDIA GPU that nobody else uses and 16 cores, about 6 minutes. On a machine without GPU it looks at the kept result of
# such a run.
#
#     failures.sh                                   on a GPU
#     failures.sh --device cpu --steps 80 --width 64    what of it can be rehearsed without one
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

kept=benchmarks/results/failures_H200.json
if [[ " $* " == *" --device cpu "* ]] || on_gpus 1 "$kept"; then
    "$PY" acceptance/gpu/failures.py --out "$out" "$@" >&2 || true
    result=$out/result.json
else
    result=$kept
fi
value() { "$PY" -c "import json, sys; held = json.load(open(sys.argv[1])); cases = held['cases']; case = {c['case']: c for c in cases}; print($1)" "$result" || true; }

echo "on $(value "held['gpu']") ($(value "held['device']")), commit $(value "held['commit'][:12]"), $(value "held['steps']") subnets"
wanted="full full-budget full-once full-once-budget full-two-workers little little-later"
if [[ $(value "held['device']") == cuda ]]; then wanted="full full-budget full-once full-once-budget full-two-workers hog hog-budget hog-first little little-later unpinned unpinned-budget"; fi
figure "cases" "$(value "' '.join(sorted(case))")" "==" "$wanted"
for name in $(value "' '.join(case)"); do
    echo "  $name: $(value "'finished' if not case['$name']['exit'] else 'stopped with exit code %d after %s, then went on' % (case['$name']['exit'], case['$name']['checkpoint'] or 'nothing')"), $(value "'%d task(s) run again' % case['$name']['again']")"
done
figure "cases that end with the right hashes, at once or resumed" "$(value "sum(c['equal'] for c in cases)")" "==" "$(wc -w <<< "$wanted")"
figure "exit codes" "$(value "sorted({c['exit'] for c in cases} - {0, 1, 2})")" "==" "[]"
figure "exit code of a budget that is too little" "$(value "case['little']['exit']")" "==" 2
figure "exit code of one that shows midway" "$(value "case['little-later']['exit']")" "==" 1
figure "exit code of a device that stays full" "$(value "case['full']['exit']")" "==" 1
figure "  and its checkpoint" "$(value "case['full']['checkpoint']")" "!=" None
figure "longest message, in lines" "$(value "max(c['lines'] for c in cases)")" "<=" 40
figure "messages that are tracebacks" "$(value "sum(c['traceback'] for c in cases)")" "==" 0
figure "tasks run again where the device was full once" "$(value "min(c['again'] for c in cases if c['case'].startswith('full-once'))")" ">=" 2
if [[ $(value "held['device']") == cuda ]]; then
    figure "runs without pinned memory that finished and told so" "$(value "sum(not c['exit'] and c['pinned'] is False and c['pinning_told'] for c in cases if c['case'].startswith('unpinned'))")" "==" 2
    figure "runs disturbed by another program, which got all memory" "$(value "sum(c.get('device_was_full', False) for c in cases)")" "==" 3
fi

finish
