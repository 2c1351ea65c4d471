#!/usr/bin/env bash
# The README's plain loop: the first Python block below its heading "The plain loop" is run as it stands there, and must
# print the hashes of weights and optimizer that `sennit train` gives on 2 workers. On any CPU, about half a minute.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

awk '/^#/ && !inside { below = tolower($0) ~ /plain loop/ }
     below && /^```python/ { inside = 1; next }
     inside && /^```/ { exit }
     inside' README.md > "$out/loop.py"
# the loop names recipes/digits.toml, so it runs at the root
"$PY" "$out/loop.py" > "$out/loop.txt"
"$PY" -m sennit train recipes/digits.toml --workers 2 --steps 64 --out "$out/run" --json > "$out/run.json" 2> "$out/run.err" \
    || { cat "$out/run.err" "$out/run.json" >&2; exit 1; }
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$out/run.json" "$1"; }

figure "lines of the plain loop" "$(wc -l < "$out/loop.py")" "<=" 27
figure "code lines of the plain loop" "$(grep -c '[^[:space:]]' "$out/loop.py")" ">" 5
figure "lines it prints" "$(wc -l < "$out/loop.txt")" "==" 2
figure "subnets of the pipeline" "$(value steps)" "==" 64
figure "workers of the pipeline" "$(value workers)" "==" 2
figure "weights of the plain loop" "$(sed -n 1p "$out/loop.txt")" "==" "$(value weights_sha256)"
figure "optimizer of the plain loop" "$(sed -n 2p "$out/loop.txt")" "==" "$(value optimizer_sha256)"

finish
