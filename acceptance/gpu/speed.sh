#!/usr/bin/env bash
# The speed table of a recipe: bash acceptance/gpu/speed.sh [RECIPE [BATCH [others]]], by default nlp.c1 and the recipe's
# batch; with `others` that of what causal order is compared with: BSP, ASP, swapping, and two chunks.
# On the GPUs of this machine, 1, 2 or 4, about 10 minutes; needs the data set (`sennit data fetch ende`, or
# ENDE=FILE.tsv.gz; for cv.* CIFAR10=cifar10_jpeg.npz). On any other machine it looks at the kept results of such runs.
# Weights, optimizer and losses of every run whose rule does not depend on the placement are those of the plain loop, or,
# where a command had no time for that of their recipe, of all other such runs of it in the command; the simulator is
# within 10 % of what was measured of `stages`, causal order and replicas; what was measured is at most 1.25 times the
# limit, for causal stages or replicas, whichever is quicker; causal order beats the plain loop on one GPU 1.7 times on
# two and 2.2 times on four, where choices alone conflict 2.0 and 3.0 times (docs/speed.md shows what strict stages wait
# for, and how much of that one GPU has by itself). No row was left out by all commands on it. Of a row that several have
# measured the last counts. `layers`, a task for each layer, measures prices and is no point.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

recipe=${1:-nlp.c1}
batch=${2:-0}
which=${3:-causal}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

gpus=$("$PY" -c 'import torch; print(torch.cuda.device_count())')
if ((gpus >= 1)); then
    # one padded length, so that layers are captured before anything is timed, as many as come now and then
    case $recipe in
        cv.*) data=${CIFAR10:-} more=(--warm 192) ;;
        nlp.c[01]) data=${ENDE:-} more=(--lengths 64 --warm 160) ;;
        *) data=${ENDE:-} more=(--lengths 64 --warm 384) ;;
    esac
    # M micro-batches; the base has one
    case $gpus in
        1) m=1,4 on=1 rows="plain, eager;layers, kept;stages, kept" M='' ;;
        2 | 3) m=1,2 on=1,2 M=2 ;;
        *) m=1,4 on=1,4 M=4 ;;
    esac
    if [[ -n $M ]]; then
        n=${on#1,}
        rows="plain, eager, M = 1, 1;plain, eager, M = $M, 1;layers, kept, M = $M, 1;stages, kept, M = $M, 1"
        rows+=";stages split, kept, M = $M, 1;CSP 1 split, kept, M = $M, $n;CSP 2, delayed:8, kept, M = 1, $n"
        rows+=";DDP, kept, M = $M, $n"
        if [[ $which == others ]]; then
            more+=(--budget 11)
            rows="plain, eager, M = 1, 1;layers, kept, M = $M, 1;stages, kept, M = $M, 1;CSP 2, kept, M = $M, $n"
            rows+=";BSP (GPipe), kept, M = $M, $n;ASP (PipeDream), kept, M = $M, $n"
            rows+=";VPipe-like swapping, kept, M = $M, $n"
        fi
    fi
    results=$out/result.json
    "$PY" -m benchmarks.speed --recipe "recipes/$recipe.toml" --batch "$batch" --micro-batches "$m" --on "$on" \
        --only "$rows" --out "$results" --executors kept --chunks 1:split,2 "${more[@]}" ${data:+--data "$data"} >&2 || true
else
    shopt -s nullglob
    results=$(printf '%s\n' benchmarks/results/speed_*.json)
    echo "this machine has no GPU: NOT MEASURED HERE; what follows stands in ${results//$'\n'/, }" >&2
    # commands on one recipe and batch belong together
    results=$("$PY" -c "
import json, sys
found = {}
for path in sys.argv[1:]:
    found.setdefault(json.load(open(path))['title'], []).append(path)
print('\n'.join(map(' '.join, found.values())))" $results)
fi

value() { # of a result; `rows` are those measured, by key, with their ratios
    "$PY" -c "
import json, sys
from benchmarks.speed.table import HASHES, joined, latest
files = [json.load(open(path)) for path in sys.argv[1].split()]
held, rows = files[0], latest(joined(files))
def unlike():  # recipes whose rows in one command have several hashes
    found = {}
    for n, file in enumerate(files):
        for r in file['rows']:
            if 'ms' in r and (r['sync'] == 'csp' or r['sync'].startswith('bulk:')):
                key = n, r['micro_batches'], r['shared'], r['sync']
                found.setdefault(key, set()).add(tuple(r[h] for h in HASHES))
    return sum(len(hashes) > 1 for hashes in found.values())
def best(name, workers, shared, what):
    found = [r for r in rows if r['name'].split()[0] == name and r['workers'] == workers and (r['shared'] == 'strict') == shared]
    return max((round(r[what], 3) for r in found if r[what]), default='not measured')
print($1)" "$result" || true
}

# judge NAME WORKERS: limit of the rows of that name on so many devices, or of replicas, and their prediction
judge() {
    local limits="[round(r['limit / ms'], 3) for r in rows if r['name'].split()[0] in ('$1', 'DDP') and r['workers'] == $2 and r['limit / ms']]"
    figure "$1 or replicas on $2, limit / measured, the best" "$(value "max($limits, default='not measured')")" ">=" 0.8
    local said="[r['predicted / ms'] for r in rows if r['name'].split()[0] in ('$1', 'DDP') and r['workers'] == $2 and r['predicted / ms']]"
    figure "$1 or replicas on $2, predicted / measured, the least" "$(value "round(min($said, default=0), 3)")" ">=" 0.9
    figure "$1 or replicas on $2, predicted / measured, the most" "$(value "round(max($said, default=9), 3)")" "<=" 1.1
}

while read -r result; do
    echo "$(value "held['title']") on $(value "', '.join(held['fingerprint']['gpus'])"), commits $(value "', '.join(sorted({held['commit'][:12] for held in files}))")"
    figure "runs" "$(value 'len(rows)')" ">=" 3
    figure "runs with other hashes than the plain loop" "$(value "sum(r['hashes'] == 'DIFFERENT' for r in joined(files))")" "==" 0
    figure "recipes whose runs in one command have several hashes" "$(value 'unlike()')" "==" 0
    figure "runs that could be compared with the plain loop of their recipe" "$(value "sum(r['hashes'] == 'equal' for r in joined(files))")" ">=" 2
    figure "runs that failed" "$(value "sum('failed' in r for held in files for r in held['rows'])")" "==" 0
    figure "rows that no command had time for" "$(value "len({key for held in files for key in held['left_out']} - {r['key'] for r in rows})")" "==" 0
    judge stages 1
    devices=$(value "' '.join(sorted({str(r['workers']) for r in rows if r['name'].split()[0] == 'CSP'}))")
    for n in $devices; do
        judge CSP "$n"
        case $n in 2) strict=1.7 choice=2.0 ;; *) strict=2.2 choice=3.0 ;; esac
        figure "CSP on $n, plain / this, all trained strictly" "$(value "best('CSP', $n, True, 'ratio')")" ">=" "$strict"
        figure "CSP on $n, plain / this, conflicts of choices alone" "$(value "best('CSP', $n, False, 'ratio')")" ">=" "$choice"
    done
done <<< "$results"

finish
