#!/usr/bin/env bash
# NASPipe's Table 2: seven spaces on one and on two GPUs, each row with all of the paper's columns, the bits of the plain
# loop, and at least .95 of layers there when they are read. On NVIDIA GPUs it trains the two `c3` spaces, about 5 minutes
# on one GPU and about 8 on two (and the data sets, `sennit data`, or ENDE=FILE.tsv.gz CIFAR10=cifar10_jpeg.npz), and judges
# those. On any other machine it looks at the kept results of such runs, all seven spaces.
#   TABLE2_SPACES=cv.c1,nlp.c2     other spaces; nlp.c1 and nlp.c0 want a command of 10 minutes each
#   TABLE2_MORE="--limit 4"        more options of benchmarks/table2.py; with --device cpu it rehearses
#   TABLE2_OUT=FILE                the result is kept; as benchmarks/results/table2_*.json it joins the others
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
spaces=${TABLE2_SPACES:-cv.c3,nlp.c3}
read -ra more <<< "${TABLE2_MORE:-}"

gpus=0
devices=(1 2)
kept=(benchmarks/results/table2_*.json)
if [[ " ${more[*]} " == *" --device cpu "* ]] || on_gpus 1 benchmarks/results; then
    results=("${TABLE2_OUT:-$out/result.json}")
    ((gpus >= 2)) || devices=(1)
    "$PY" benchmarks/table2.py --spaces "$spaces" --gpus "${#devices[@]}" --reference --out "${results[0]}" \
        ${ENDE:+--ende "$ENDE"} ${CIFAR10:+--cifar "$CIFAR10"} "${more[@]}" >&2 || true
    IFS=, read -ra named <<< "$spaces"
    wanted=${#named[@]}
    ((gpus >= 2)) || echo "this machine has $gpus GPUs: rows on two are NOT MEASURED HERE" >&2
else
    results=("${kept[@]}")
    wanted=7
fi
for result in "${results[@]}"; do
    [[ -e $result ]] || { echo "there is no $result" >&2; exit 1; }
done
value() { # of all results; `runs` are the rows of the pipeline that trained
    "$PY" -c "
import json, sys
from benchmarks.table2_rows import joined, missing, on_devices
held = [json.load(open(name)) for name in sys.argv[1:]]
rows = joined(held)
runs = [r for r in rows if 'why' not in r and r['engine'] == 'pipeline']
print($1)" "${results[@]}" || true
}

machines=$(value "', '.join(sorted({gpu for h in held for gpu in h['fingerprint'].get('gpus', ['no GPU'])}))")
echo "${results[*]##*/}: on $machines, commits $(value "', '.join(sorted({h['commit'][:12] for h in held}))")"
"$PY" benchmarks/table2.py --show "${results[@]}"
for n in "${devices[@]}"; do
    figure "spaces with a row on $n device(s)" "$(value "len({r['space'] for r in rows if on_devices(r, $n)})")" "==" "$wanted"
done
figure "runs under a budget" "$(value "sum(r['placement']['budget'] > 0 for r in runs)")" "==" "$(value 'len(runs)')"
figure "least subnets" "$(value "min(r['steps'] for r in runs)")" ">=" 40
figure "columns missing from rows" "$(value 'sum(len(missing(r)) for r in rows)')" "==" 0
compared="len({r['space'] for r in runs if r['compared'] in ('equal', 'DIFFERENT')})"
figure "spaces compared with the plain loop" "$(value "$compared")" "==" "$wanted"
figure "runs with other hashes than the plain loop" "$(value "sum(r['compared'] == 'DIFFERENT' for r in runs)")" "==" 0
figure "hit rate, the least" "$(value "round(min(r['slots']['hits'] / r['slots']['reads'] for r in runs), 4)")" ">=" 0.95

finish
