"""What plans, schedules and simulates runs without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sennit

ROOT = Path(sennit.__file__).parent


def test_schedule_plan_and_simulate_import_no_torch() -> None:
    """Not even through what they import."""
    modules = [
        ".".join(["sennit", *path.relative_to(ROOT).with_suffix("").parts])
        for package in ("schedule", "plan", "simulate")
        for path in sorted((ROOT / package).glob("*.py"))
    ]
    assert "sennit.simulate.engine" in modules
    load = f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)"
    code = f"{load}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT.parent)})
