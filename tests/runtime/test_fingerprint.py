"""What a run was made with."""

from __future__ import annotations

import json

from sennit.runtime.fingerprint import different, fingerprint


def test_fingerprint_is_json_and_says_what_differs() -> None:
    found = fingerprint()
    assert json.loads(json.dumps(found)) == found
    for key in ("system", "cpu", "cpu_flags", "cpu_kernels", "threads", "python", "torch", "numpy"):
        assert found[key] or key == "cpu_flags"
    assert found["threads"] == 1 and different(found, fingerprint()) == []
    assert different(found, {**found, "threads": 2}) == ["threads: 1 against 2"]
    assert different(found, {**found, "gpus": ["H100"]}) == ["gpus: None against ['H100']"]
