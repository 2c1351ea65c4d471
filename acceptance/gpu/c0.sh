#!/usr/bin/env bash
# NASPipe's appendix A.5: `nlp.c0` at full width, 500 subnets, equal bits on 1 and 2 GPUs and for the plain loop. With
# NVIDIA GPUs and 112 GiB of host memory, a command per run of about 7 minutes (and the data set `ende`, see `sennit data`;
# or ENDE=FILE.tsv.gz). On any other machine it looks at the kept results of such runs.
#   C0_ONCE=1                  all runs in one command, with weights drawn once: with 200 GiB of host memory, 10 minutes
#   C0_RUNS="pipeline 1"       some of "pipeline 1;pipeline 2;plain 1", added to what C0_KEPT holds
#   C0_KEPT=FILE               result of earlier runs, which the new ones are written into
#   C0_PLACEMENT='{...}'       of the pipeline, as JSON: {"budget": 11} if left out
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
placement=${C0_PLACEMENT:-'{"budget": 11}'}
runs=${C0_RUNS:-pipeline 1;pipeline 2;plain 1}

kept=(benchmarks/results/nlp_c0_*.json)
if on_gpus 1 benchmarks/results; then
    result=${C0_KEPT:-$out/result.json}
    if [[ -n ${C0_ONCE:-} ]]; then
        each=("$runs") once=(--draw-once)
    else
        IFS=';' read -ra each <<< "$runs"
        once=()
    fi
    for run in "${each[@]}"; do
        [[ -e $result ]] && join=(--join "$result") || join=()
        "$PY" benchmarks/gpu_hashes.py --recipe recipes/nlp.c0.toml --steps 500 --runs "$run" --placement "$placement" \
            --out "$result" "${once[@]}" "${join[@]}" ${ENDE:+--data "$ENDE"} >&2 || true
    done
    results=("$result")
else
    results=("${kept[@]}")
fi
for result in "${results[@]}"; do
    [[ -e $result ]] || { echo "there is no $result" >&2; exit 1; }
done
value() { # of all results
    "$PY" -c "
import json, sys
from sennit.runtime.fingerprint import different
held = [json.load(open(name)) for name in sys.argv[1:]]
runs = [r for h in held for r in h['runs'] if 'why' not in r]
print($1)" "${results[@]}" || true
}

echo "on $(value "'; '.join(', '.join(h['fingerprint']['gpus']) for h in held)"), commits $(value "', '.join(h['commit'][:12] for h in held)"), $(value "held[0]['recipe']")"
figure "results of other recipes or machines than the first" "$(value "sum(h['identity'] != held[0]['identity'] or bool(different(held[0]['fingerprint'], h['fingerprint'])) for h in held)")" "==" 0
figure "runs" "$(value "', '.join(sorted({f\"{r['engine']} {r['workers']}\" for r in runs}))")" "==" "pipeline 1, pipeline 2, plain 1"
figure "least subnets" "$(value "min(r['steps'] for r in runs)")" "==" 500
for what in weights optimizer losses; do
    figure "hashes of $what" "$(value "len({r['${what}_sha256'] for r in runs})")" "==" 1
done

finish
