# Helper of the acceptance scripts; sourced, not run. See README.md beside it.
# Sourcing it changes to the repository root.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

_figures=0
_missed=0

# need_venv: sets PY to the project's Python; builds ./.venv first where it is missing.
need_venv() {
    if [[ ! -x .venv/bin/python || ! -e .venv/.ready ]]; then
        make venv >&2 || exit 1
    fi
    PY=.venv/bin/python
}

# on_gpus N KEPT: whether this machine has N GPUs, whose number it sets `gpus` to. If not, it says that nothing is measured
# here and that figures stand in KEPT, the result of an earlier run; without that file it ends the script with 1.
on_gpus() {
    gpus=$("$PY" -c 'import torch; print(torch.cuda.device_count())')
    if ((gpus >= $1)); then return 0; fi
    echo "this machine has $gpus GPUs: NOT MEASURED HERE; what follows stands in $2" >&2
    if [[ ! -e $2 ]]; then
        echo "which is not there: nobody has measured it yet" >&2
        exit 1
    fi
    return 1
}

# figure NAME VALUE OP THRESHOLD: prints the figure and remembers a miss.
# < <= > >= compare numbers, and what is no number (nan, nothing) is a miss; == and != compare text, such as hashes.
figure() {
    local name=$1 value=$2 op=$3 threshold=$4 verdict=MISSED
    _figures=$((_figures + 1))
    if _holds "$value" "$op" "$threshold"; then verdict=ok; else _missed=$((_missed + 1)); fi
    printf '%s = %s (needs %s %s): %s\n' "$name" "$value" "$op" "$threshold" "$verdict"
}

# finish: ends the script, with 1 if a figure was missed or none was printed.
finish() {
    if ((_figures == 0)); then
        echo "no figure was measured" >&2
        exit 1
    fi
    if ((_missed)); then
        echo "$_missed of $_figures figures missed" >&2
        exit 1
    fi
    exit 0
}

_is_number() { [[ $1 =~ ^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$ ]]; }

_holds() { # VALUE OP THRESHOLD
    case $2 in
        ==) [[ -n $1 && $1 == "$3" ]] ;;
        !=) [[ -n $1 && $1 != "$3" ]] ;;
        "<" | "<=" | ">" | ">=")
            _is_number "$1" && _is_number "$3" && awk -v a="$1" -v op="$2" -v b="$3" 'BEGIN {
                a += 0; b += 0
                exit !(op == "<" ? a < b : op == "<=" ? a <= b : op == ">" ? a > b : a >= b)
            }' ;;
        *) return 1 ;;
    esac
}
