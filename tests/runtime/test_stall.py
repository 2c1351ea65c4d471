"""When a worker says that it is at rest."""

import pytest

from sennit.runtime import stall
from sennit.runtime.stall import Quiet


def test_a_worker_that_was_not_run_looks_again_before_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(stall.time, "monotonic", lambda: now[0])
    quiet = Quiet()
    now[0] = stall.STALL_S - 1
    assert not quiet.long()
    now[0] += 100  # the machine did something else; messages and versions may have come
    assert not quiet.long()
    assert quiet.long(), "it has looked, and there was nothing"
    assert not quiet.long(), "once per rest"
    assert quiet.over() and not quiet.over()
    now[0] += stall.STALL_S
    assert not quiet.long()
    assert not quiet.over(), "what had come is no rest that was told"
    now[0] += 1
    assert not quiet.long()
