#!/usr/bin/env bash
# The report page of a real `digits` run on 2 workers and of a simulated run on 64 workers, opened from disk in Chromium
# at 1400 and at 400 pixels; --keep FOLDER keeps the pages and pictures. With Chromium (Debian: chromium), about a minute.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

if [[ ${1:-} == --keep ]]; then
    out=$2
    mkdir -p "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi

rm -rf "$out/digits"
"$PY" -m sennit train recipes/digits.toml --workers 2 --steps 240 --out "$out/digits" >&2
"$PY" -m sennit report "$out/digits" --html "$out/digits.html" >&2
"$PY" -m sennit simulate --space 64x72 --workers 64 -M 8 --subnets 100 --in-flight 16 --no-levers \
    --trace "$out/simulated.jsonl" >&2
"$PY" -m sennit report "$out/simulated.jsonl" --html "$out/simulated.html" >&2
PYTHONPATH=. "$PY" acceptance/report/shots.py "$out" "$out/digits.html" "$out/simulated.html" > "$out/pages.jsonl"

value() { "$PY" -c '
import json, sys
pages = {(p["page"], p["width"]): p for p in map(json.loads, open(sys.argv[1]))}
print(eval(sys.argv[2]))' "$out/pages.jsonl" "$1"; }
lines() { grep -c '"kind"' "$1"; }
gaps() { # idle intervals of at least 1 % of the makespan, counted without sennit
    "$PY" - "$1" << 'END'
import json, sys
spans = [json.loads(line) for line in open(sys.argv[1]) if '"kind"' in line]
begins, ends = min(s["start"] for s in spans), max(s["end"] for s in spans)
count = 0
for worker in {s["worker"] for s in spans}:
    own = sorted((s["start"], s["end"]) for s in spans if s["worker"] == worker)
    edges = [begins, *(t for span in own for t in span), ends]
    count += sum(b - a >= (ends - begins) / 100 - 1e-9 for a, b in zip(edges[::2], edges[1::2]))
print(count)
END
}

for page in digits simulated; do
    trace=$out/digits/trace.jsonl
    [[ $page == digits ]] || trace=$out/simulated.jsonl
    for width in 1400 400; do
        it="pages['$page', $width]"
        figure "$page at $width px: tasks on the page" "$(value "$it['tasks']")" "==" "$(lines "$trace")"
        figure "  drawn" "$(value "$it['drawn']")" ">" 0
        figure "  idle intervals of 1 % or more" "$(value "$it['intervals']")" "==" "$(gaps "$trace")"
        figure "  of these without a cause" "$(value "$it['unnamed']")" "==" 0
        figure "  width needed" "$(value "$it['wide']")" "<=" "$width"
        figure "  problems" "$(value "$it['problems']")" "==" "[]"
    done
done
figure "tasks of the simulated run" "$(value "pages['simulated', 1400]['tasks']")" ">=" 100000

finish
