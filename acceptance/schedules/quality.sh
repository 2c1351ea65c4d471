#!/usr/bin/env bash
# Quality for time: the kept results of 27 runs each of `digits` and `nlp.c3-small` (BSP, ASP, CSP; 3 seeds; 1, 2 and 4
# workers; see benchmarks/quality.py), as tables, and two short runs on 1 and 2 workers now. What CSP trains and what is
# searched from it is the same on any number of workers; not so with BSP and ASP. A minute.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
value() { "$PY" acceptance/schedules/quality_table.py "$1" "$2"; }

for space in digits nlp.c3-small; do
    kept=benchmarks/results/quality_${space}_2cores.jsonl
    echo "$space, kept ($kept):"
    value "$kept" table
    figure "$space: rows" "$(value "$kept" rows)" "==" 27
    figure "$space: weights of CSP on 1, 2 and 4 workers, seed by seed" "$(value "$kept" same:CSP)" "==" "1 1 1"
    figure "$space: scores of what was searched from them" "$(value "$kept" scores:CSP)" "==" "1 1 1"
    for rule in BSP ASP; do
        figure "$space: weights of $rule on 1, 2 and 4 workers" "$(value "$kept" same:$rule)" "==" "3 3 3"
    done
done

"$PY" benchmarks/quality.py --recipe recipes/digits.toml --out "$out/now.jsonl" --seeds 0 --workers 1,2 --steps 120 \
    --every 60 --budget 8 >&2
echo "digits, 120 subnets, run now:"
value "$out/now.jsonl" table
figure "weights of CSP on 1 and 2 workers" "$(value "$out/now.jsonl" same:CSP)" "==" 1
figure "weights of BSP on 1 and 2 workers" "$(value "$out/now.jsonl" same:BSP)" "==" 2
figure "weights of ASP on 1 and 2 workers" "$(value "$out/now.jsonl" same:ASP)" "==" 2

finish
