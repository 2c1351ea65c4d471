#!/usr/bin/env bash
# The bubble column that NASPipe prints in Table 2 ("8 GPUs"), beside the paper's order simulated on 4 and on 8 workers
# (one micro-batch, 64 in flight, 600 subnets, F = W = I): it is that of four stages. About 20 seconds.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

declare -A printed=([nlp.c1]=0.39 [nlp.c2]=0.57 [nlp.c3]=0.68 [cv.c1]=0.43 [cv.c2]=0.58 [cv.c3]=0.68)
furthest=0
nearest=1
for space in nlp.c1 nlp.c2 nlp.c3 cv.c1 cv.c2 cv.c3; do
    for workers in 4 8; do
        found=$("$PY" -m sennit simulate --space "$space" --workers "$workers" --schedule naspipe --subnets 600 --no-levers --json)
        bubble[workers]=$("$PY" -c "import json, sys; print(round(json.loads(sys.argv[1])['bubble'], 3))" "$found")
    done
    echo "$space: printed ${printed[$space]}, simulated on 4 workers ${bubble[4]}, on 8 ${bubble[8]}" >&2
    furthest=$("$PY" -c "print(round(max($furthest, abs(${bubble[4]} - ${printed[$space]})), 3))")
    nearest=$("$PY" -c "print(round(min($nearest, ${bubble[8]} - ${printed[$space]}), 3))")
done

figure "largest distance of the printed column from 4 workers" "$furthest" "<=" 0.05
figure "smallest distance of the printed column from 8 workers, all of them below" "$nearest" ">=" 0.1

finish
