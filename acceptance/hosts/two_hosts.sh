#!/usr/bin/env bash
# One run on two hosts has the bits of one host's: `nlp.c3-small`, each subnet cut anew (`--plan PROFILE`), two CPU workers
# per host, started by torchrun; then with a worker killed and with the cable pulled, each time resumed. Hosts are network
# namespaces joined by a link of 1 Gbit/s, which takes root and iproute2; on any other machine two launchers on loopback
# stand for them, and nobody pulls a cable. On 2 CPU cores 5 to 8 minutes.
#
#     two_hosts.sh [--steps S]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

"$PY" acceptance/hosts/two_hosts.py --out "$out" "$@" || true
[[ -e $out/figures.json ]] || { echo "the runs did not end; see above" >&2; exit 1; }
value() { "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$out/figures.json" "$1"; }

hosts=$(value hosts)
echo "hosts: $hosts"
figure "two hosts: hashes of weights, optimizer and losses that are not one host's" "$(value different)" "==" 0
figure "  after a worker was killed, and a resume on two hosts" "$(value different_killed)" "==" 0
[[ $hosts != namespaces* ]] || figure "  after the cable was pulled, and a resume on two hosts" "$(value different_pulled)" "==" 0
figure "accesses that the checker objects to" "$(value violations)" "==" 0
figure "versions pushed between hosts" "$(value pushes)" ">" 0
figure "  KiB per subnet, for subnets to come" "$(value pushed_kib)" ">" 0
figure "  KiB per checkpoint, to host 0" "$(value gathered_kib)" ">" 0
figure "  KiB of values and gradients per subnet" "$(value tensor_kib)" ">" 0
figure "stall: percent of the workers' time at rest while a version was on its way" "$(value stall_percent)" "<=" 20
figure "subnets per second, one host" "$(value rate_one)" ">" 0
figure "subnets per second, two hosts" "$(value rate_two)" ">" 0
figure "seconds from the kill of a worker until all have stopped on both hosts" "$(value seconds_killed)" "<=" 3
figure "hosts that name the worker and the signal" "$(value named)" "==" 2
if [[ $hosts == namespaces* ]]; then
    figure "seconds from the pull of the cable until all have stopped on both hosts" "$(value seconds_pulled)" "<=" 15
    figure "hosts that say so" "$(value told_pulled)" "==" 2
fi
figure "processes left" "$(value processes)" "==" 0
figure "files left in the folder for temporary ones" "$(value files)" "==" 0

finish
