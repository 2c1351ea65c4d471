#!/usr/bin/env bash
# NASPipe's Table 5: forward, backward and copy to the device of its eight kinds of layers at (192, 1024) and (64, 112, 112),
# each beside the paper's figures; `cv.*` has a dilated convolution in every block. On one NVIDIA GPU, under two minutes.
# On any other machine it looks at the kept result of such a run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

kept=benchmarks/results/table5_H200.json
if on_gpus 1 "$kept"; then
    result=$out/result.json
    "$PY" benchmarks/table5.py --out "$result" >&2 || true
else
    result=$kept
fi
if [[ ! -e $result ]]; then
    echo "there is no $result" >&2
    exit 1
fi
value() { # `rows` are those that the paper has
    "$PY" -c "
import json, math, sys
held = json.load(open(sys.argv[1]))
rows, sizes = [r for r in held['rows'] if r['printed']], held['sizes']
def told(times): return all(isinstance(t, float) and 0 < t < math.inf for t in times)
print($1)" "$result" || true
}
dilated() { # blocks of a space that have a dilated convolution, by the modules that the space makes
    "$PY" -c "
import sys, torch
from sennit.recipe import read_recipe
from sennit.space.layer_choice import LayerChoice
from sennit.space.initialise import build_on_meta
recipe = read_recipe(f'recipes/{sys.argv[1]}.toml')
space = build_on_meta(recipe.built.space_factory, recipe.space_args)
blocks = [m for m in space.modules() if isinstance(m, LayerChoice)]
has = [any(isinstance(m, torch.nn.Conv2d) and max(m.dilation) > 1 for m in block.modules()) for block in blocks]
print(sum(has), 'of', len(blocks))" "$1" || true
}

echo "on $(value "', '.join(held['fingerprint'].get('gpus', ['no GPU']))"), commit $(value "held['commit'][:12]"), $(value "held['precision']"), milliseconds"
"$PY" benchmarks/table5.py --show "$result"
figure "kinds of the paper" "$(value "len({(r['space'], r['name']) for r in rows})")" "==" 8
figure "  on (rows, width)" "$(value "sizes['rows'], sizes['d']")" "==" "192 1024"
figure "  on (images, height, width)" "$(value "sizes['images'], sizes['side'], sizes['side']")" "==" "64 112 112"
figure "  with forward and backward, one call" "$(value "sum(told([r['call_forward'], r['call_backward']]) for r in rows)")" "==" 8
figure "  with forward and backward, kernels alone" "$(value "sum(told([r['kernels_forward'], r['kernels_backward']]) for r in rows)")" "==" 8
figure "  with the copy from pinned memory" "$(value "sum(told([r['copy'], r['copy_event']]) for r in rows)")" "==" 8
figure "  beside three times of the paper" "$(value "sum(len(r['printed']) == 3 and told(r['printed']) for r in rows)")" "==" 8
for space in cv.c1 cv.c2 cv.c3; do
    figure "blocks of $space with a dilated convolution" "$(dilated "$space")" "==" "32 of 32"
done

finish
