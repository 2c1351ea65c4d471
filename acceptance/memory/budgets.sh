#!/usr/bin/env bash
# Slots of a device with a budget, on CPU "devices": every budget from one subnet's layers up gives the bits of a run
# without one; what is read is there when its task becomes ready; too little is refused with what would do. `nlp.c3-small`,
# 40 subnets, 1 and 2 workers. Two cores, about 3 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1
steps=40

train() { # train NAME OPTIONS...
    local name=$1
    shift
    "$PY" -m sennit train recipes/nlp.c3-small.toml --steps $steps --out "$out/$name" "$@" > /dev/null 2> "$out/$name.txt"
}
value() { "$PY" -c "import json, sys; held = json.load(open(sys.argv[1] + '/result.json')); print($2)" "$out/$1"; }
hashes() { value "$1" "', '.join(held[what + '_sha256'][:12] for what in ('weights', 'optimizer', 'losses'))"; }

train all
code=0
train little --budget 0.0001 || code=$?
figure "exit code of a budget that is too little" "$code" "==" 2
figure "  lines of its message" "$(wc -l < "$out/little.txt")" "<=" 40
least=$(grep -o -- '--budget [0-9.]* (' "$out/little.txt" | tail -1 | tr -dc '0-9.')
echo "  (it says that --budget $least would do)"
for workers in 1 2; do
    for times in 1 1.5 3; do
        name=$workers-$times
        train "$name" --workers $workers --budget "$("$PY" -c "print($least * $times)")"
        figure "$workers worker(s), $times x the least budget: hashes as without" "$(hashes "$name")" "==" "$(hashes all)"
        echo "  (hits $(value "$name" "round(held['slots']['hits'] / held['slots']['reads'], 4)"), $(value "$name" "round(held['slots']['fetched_bytes'] / $steps / 2**20, 2)") MiB fetched a subnet)"
    done
done
figure "hits at 1.5 x, 2 workers" "$(value 2-1.5 "round(held['slots']['hits'] / held['slots']['reads'], 4)")" ">=" 0.95

finish
