#!/usr/bin/env bash
# Bad input and bad luck: at least 20 cases end with the right exit code, at most 40 lines, the value and the knob named,
# no traceback, and nothing left behind (tests/test_hostile.py). On any CPU, about 5 minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
need_venv

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1

"$PY" -m pytest tests/test_hostile.py -q -p no:cacheprovider --junitxml "$out/result.xml" >&2 || true
count() {
    "$PY" - "$out/result.xml" "$1" << 'PYTHON' || true
import sys
import xml.etree.ElementTree as tree

suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
counts["passed"] = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
counts["failed"] = counts["failures"] + counts["errors"]
print(counts[sys.argv[2]])
PYTHON
}
figure "cases passed" "$(count passed)" ">=" 20
figure "cases failed" "$(count failed)" "==" 0
figure "cases skipped" "$(count skipped)" "==" 0

finish
