#!/usr/bin/env bash
# Equal bits on 1 and 2 GPUs of one host and for the plain loop on one: `nlp.c3` full width, 3,840-token batches, 100
# subnets; ms per subnet are printed. With two NVIDIA GPUs, about 10 minutes (and the data set `ende`, see `sennit data`;
# or ENDE=FILE.tsv.gz). On any other machine it looks at the kept result of such a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

kept=benchmarks/results/nlp_c3_hashes_2xH200.json
if on_gpus 2 "$kept"; then
    result=$out/result.json
    "$PY" benchmarks/gpu_hashes.py --gpus 2 --steps 100 --out "$result" ${ENDE:+--data "$ENDE"} >&2 || true
else
    result=$kept
fi
value() { "$PY" -c "import json, sys; held = json.load(open(sys.argv[1])); runs = held['runs']; print($1)" "$result" || true; }

echo "on $(value "', '.join(held['fingerprint']['gpus'])"), commit $(value "held['commit'][:12]")"
figure "runs" "$(value 'len(runs)')" "==" 3
figure "  which are" "$(value "', '.join(sorted(f\"{r['engine']} {r['workers']}\" for r in runs))")" "==" "pipeline 1, pipeline 2, plain 1"
figure "least subnets" "$(value "min(r['steps'] for r in runs)")" "==" 100
figure "hashes of weights" "$(value "len({r['weights_sha256'] for r in runs})")" "==" 1
figure "hashes of optimizers" "$(value "len({r['optimizer_sha256'] for r in runs})")" "==" 1
figure "hashes of losses" "$(value "len({r['losses_sha256'] for r in runs})")" "==" 1
for i in 0 1 2; do
    figure "ms per subnet, $(value "f\"{runs[$i]['engine']}, {runs[$i]['workers']} GPU(s)\"")" "$(value "round(runs[$i]['ms_per_subnet'], 1)")" ">" 0
done

finish
