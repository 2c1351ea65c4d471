"""Cells of both tables by `sennit simulate`; writes OUT (JSON lines): the command's words, wanted, found."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

STAGE = """
nlp.c0 .36 .04 .03 .64 .09 .07 .01
nlp.c1 .42 .06 .04 .67 .14 .10 .01
nlp.c2 .54 .11 .08 .75 .23 .17 .03
nlp.c3 .65 .19 .14 .81 .34 .26 .13
cv.c1  .42 .04 .03 .68 .11 .07 .02
cv.c2  .58 .12 .09 .77 .26 .19 .10
cv.c3  .68 .21 .15 .83 .37 .28 .26
"""
"""By stage, 600 subnets, 64 in flight. Columns: D=4 M=1, M=8, M=8 split; D=8 M=1, M=8, M=8 split, M=1 fair."""

LAYER = """
nlp.c0 .01(6,6) .00(6,6) .00(6,2) .01(6,8) .00(6,6) .02(6,2) .00(6,2) .05(6,1)
nlp.c1 .02(6,4) .00(6,4) .00(6,2) .03(6,6) .01(6,4) .02(6,2) .00(6,2) .05(6,1)
nlp.c2 .05(6,4) .01(6,2) .00(6,2) .06(6,4) .01(6,2) .03(6,2) .00(6,2) .05(6,1)
nlp.c3 .10(6,3) .01(6,2) .00(6,2) .13(6,3) .02(6,2) .03(6,2) .00(6,2) .05(6,1)
cv.c1  .02(4,6) .01(4,4) .00(4,2) .04(4,6) .01(4,6) .04(4,2) .00(4,2) .08(4,1)
cv.c2  .09(4,4) .02(4,2) .01(4,2) .12(4,3) .03(4,2) .05(4,2) .01(4,2) .08(4,1)
cv.c3  .15(4,3) .02(4,2) .01(4,2) .18(4,2) .04(4,2) .06(4,2) .01(4,2) .08(4,1)
"""
"""By layer, split, 160 subnets, (chunks, in flight). Columns: D=4 M=2, 4, 8; D=8 M=4, 8; strict D=4 M=4, 8; D=8 M=8."""

STAGE_COLUMNS = [(4, 1, ""), (4, 8, ""), (4, 8, "--split"), (8, 1, ""), (8, 8, ""), (8, 8, "--split"), (8, 1, "fair")]
LAYER_COLUMNS = [
    *[(4, 2, ""), (4, 4, ""), (4, 8, ""), (8, 4, ""), (8, 8, "")],
    *[(4, 4, "strict"), (4, 8, "strict"), (8, 8, "strict")],
]
ALLOWED = 0.02


def cells() -> list[tuple[str, list[str], float]]:
    """Table, words of the command, bubble wanted."""
    found: list[tuple[str, list[str], float]] = []
    for line in STAGE.strip().splitlines():
        space, *values = line.split()
        for (workers, m, more), value in zip(STAGE_COLUMNS, values, strict=True):
            words = f"--space {space} --workers {workers} --schedule csp --release stage -M {m} --in-flight 64"
            words += " --sampler fair" if more == "fair" else f" {more}"
            found.append(("stage", [*words.split(), "--subnets", "600"], float(value)))
    for line in LAYER.strip().splitlines():
        space, *values = line.split()
        for (workers, m, more), value in zip(LAYER_COLUMNS, values, strict=True):
            bubble, _, setting = value.partition("(")
            chunks, in_flight = setting.rstrip(")").split(",")
            words = f"--space {space} --workers {workers} --schedule csp -M {m} --split --chunks {chunks}"
            words += f" --in-flight {in_flight} --subnets 160" + (" --shared strict" if more else "")
            found.append(("layer", words.split(), float(bubble)))
    return found


def run(cell: tuple[str, list[str], float]) -> dict[str, Any]:
    table, words, wanted = cell
    done = subprocess.run(
        [sys.executable, "-m", "sennit", "simulate", *words, "--no-levers", "--json"], check=True, capture_output=True
    )
    held = json.loads(done.stdout)
    keys = ("bubble", "bubble_at_bound", "binds")
    return {"table": table, "words": " ".join(words), "wanted": wanted, **{key: held[key] for key in keys}}


def main() -> None:
    with ThreadPoolExecutor(2) as pool, Path(sys.argv[1]).open("w") as file:
        for line in pool.map(run, cells()):
            file.write(json.dumps(line) + "\n")
            off = line["bubble"] - line["wanted"]
            mark = "" if off <= ALLOWED else "  MORE THAN ALLOWED"
            sys.stderr.write(f"{line['words']:<104} {line['wanted']:.2f}  {line['bubble']:.3f}{mark}\n")


if __name__ == "__main__":
    main()
