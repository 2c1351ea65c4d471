#!/usr/bin/env bash
# A space of one's own (`mine.py`) on data of one's own (`waves.py`), as in the README: trained on 2 workers, verified on
# 1, 2 and 3, searched, exported, loaded without sennit. `transcript.md` beside it is a new user's whole session, from
# `make demo` on. On 2 CPU cores, about 2 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cp acceptance/user/{mine.py,waves.py,mine.toml} "$out"
sennit=$PWD/.venv/bin/sennit python=$PWD/$PY
cd "$out"

status() { "$@" >&2 && echo 0 || echo $?; }
figure "exit code of train on 2 workers" "$(status "$sennit" train mine.toml --workers 2 --out run)" "==" 0
figure "exit code of verify (plain, 1, 2, 3 workers)" "$(status "$sennit" verify run --workers 1,2,3)" "==" 0
figure "exit code of search" "$(status "$sennit" search run --budget 50)" "==" 0
figure "exit code of export" "$(status "$sennit" export run --to best)" "==" 0

"$python" - > loaded.txt << 'PY' || true
import sys
sys.modules["sennit"] = None  # cannot be imported here
import json, torch
from waves import Waves
torch.set_num_threads(1)
network, data = torch.export.load("best/network.pt2").module(), Waves("valid")
with torch.no_grad():
    right = sum(int((network(x).argmax(1) == y).sum()) for x, y in zip(data.x.split(64), data.y.split(64)))
print(right / len(data), json.load(open("best/arch.json"))["metrics"]["accuracy"])
PY
read -r here reported < loaded.txt || true
figure "accuracy in plain PyTorch is the reported one" "${here:-nothing}" "==" "${reported:-}"
figure "  which is" "${here:-0}" ">=" 0.8

finish
