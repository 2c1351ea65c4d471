#!/usr/bin/env bash
# BSP, ASP and CSP on `nlp.c3`, M = 1, 2, 4: the kept result of two GPUs (ms per subnet, bubble measured and simulated,
# last loss, hashes), four virtual devices with waits made of that result, and real runs of `nlp.c3-small` on 1, 2 and 4
# workers of this CPU for the hashes. CSP and `bulk:4` do not depend on the number of workers; bulks per worker and
# asynchronous runs do. 6 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
kept=benchmarks/results/nlp_c3_sync_rules_2xH200.json
value() { "$PY" acceptance/schedules/table.py "$1" "$2"; }

"$PY" benchmarks/sync_rules.py --device virtual --waits "$kept" --recipe recipes/nlp.c3-small.toml --workers 4 \
    --steps "${STEPS:-60}" --only "CSP;BSP (GPipe);ASP (PipeDream)" --out "$out/virtual.json" >&2
"$PY" acceptance/schedules/rules.py > "$out/cpu.jsonl"

echo "two GPUs, kept ($kept):"
value "$kept" table
for rule in CSP "BSP (GPipe)" "ASP (PipeDream)"; do
    figure "$rule: numbers of micro-batches on 2 GPUs" "$(value "$kept" "micro-batches:$rule")" "==" "1 2 4"
done
for rule in CSP bulk:4 "BSP (GPipe)" "ASP (PipeDream)"; do
    figure "$rule: numbers of GPUs with hashes" "$(value "$kept" "workers:$rule")" "==" "1 2"
done
figure "CSP: hashes on 1 and 2 GPUs" "$(value "$kept" "hashes:CSP")" "==" 1
figure "bulk:4: hashes on 1 and 2 GPUs" "$(value "$kept" "hashes:bulk:4")" "==" 1
figure "BSP: hashes on 1 and 2 GPUs" "$(value "$kept" "hashes:BSP (GPipe)")" "==" 2
figure "ASP: hashes on 1 and 2 GPUs" "$(value "$kept" "hashes:ASP (PipeDream)")" "==" 2
figure "2 GPUs: largest difference of bubbles, measured and simulated" "$(value "$kept" apart)" "<=" 0.05
echo "four virtual devices, run now:"
value "$out/virtual.json" table
figure "rows of them" "$(value "$out/virtual.json" rows)" "==" 9
figure "largest difference of bubbles, measured and simulated" "$(value "$out/virtual.json" apart)" "<=" 0.05
echo "workers of this CPU, run now:"
cat "$out/cpu.jsonl"
for rule in csp bulk:4 bulk-per-worker asp:stash; do
    figure "$rule: numbers of workers with hashes" "$(value "$out/cpu.jsonl" "workers:$rule")" "==" "1 2 4"
done
for rule in csp bulk:4; do
    figure "$rule: hashes on 1, 2 and 4 workers" "$(value "$out/cpu.jsonl" "hashes:$rule")" "==" 1
done
for rule in bulk-per-worker asp:stash; do
    figure "$rule: hashes on 1, 2 and 4 workers" "$(value "$out/cpu.jsonl" "hashes:$rule")" "==" 3
done

finish
