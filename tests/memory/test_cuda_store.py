"""The store of a GPU worker, on memory of the host in place of a GPU's: what does not depend on the device."""

from types import SimpleNamespace

import pytest
import torch
from tests.memory.late import LateDevice
from tests.memory.test_store import filled, store

from sennit.memory import cuda
from sennit.memory.cuda import CudaStore
from sennit.supernet.bits import same_bits

GROUP, MEAN = "norm#buffers", "norm.running_mean"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pin", lambda memory, device: "not here")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))


@pytest.mark.parametrize("last", [0, 1])
def test_buffers_of_several_workers_are_taken_back_to_the_newest_before(last: int) -> None:
    """Subnet 1 on worker 0, 2 on worker 1: whoever flushes last, 2 is taken back to what 1 left."""
    host = filled(store())
    workers = [CudaStore(host, torch.device("cpu"), frozenset([GROUP]), lambda pinned: LateDevice()) for _ in range(2)]
    for seq_id, worker in enumerate(workers, 1):
        worker.remember(GROUP)
        worker.buffers(GROUP)[MEAN].fill_(float(seq_id))
        worker.move(GROUP, (seq_id, 0, 0))
    for worker in (workers[1 - last], workers[last]):
        worker.flush()
    assert host.take_back(GROUP, 2)
    assert host.current(GROUP)[MEAN].tolist() == [1.0, 1.0]
    assert host.versions()[GROUP] == [1, 0, 0]


def test_buffers_of_one_worker_are_taken_back() -> None:
    host = filled(store())
    worker = CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: LateDevice())
    for seq_id in (1, 2):
        worker.remember(GROUP)
        worker.buffers(GROUP)[MEAN].fill_(float(seq_id))
        worker.move(GROUP, (seq_id, 0, 0))
    worker.flush()
    assert host.current(GROUP)[MEAN].tolist() == [2.0, 2.0]
    assert host.take_back(GROUP, 2)
    assert host.current(GROUP)[MEAN].tolist() == [1.0, 1.0]


def test_what_a_subnet_will_read_is_on_its_way_before_it_is_read() -> None:
    """Nobody waits for it, and it is not taken for what has come until its copy is used."""
    host = filled(store())
    late = LateDevice()
    worker = CudaStore(host, torch.device("cpu"), frozenset(["b"]), lambda pinned: late)
    wanted = {name: view.clone() for name, view in host.views["a"][0].items()}
    worker.expect(["a", "b"])
    assert [group for group, _ in worker.slots] == ["a"], "another worker may step the other before it is read"
    assert len(late.under_way) == 1 and late.under_way[0], "nobody has waited"
    worker.expect(["a"])
    assert len(late.under_way) == 1, "it sets out once"
    leaves = worker.acquire("a", -1)
    assert worker.fetched == 0 and worker.seen("a", -1) == -1
    assert all(same_bits(leaves[name].detach(), wanted[name]) for name in wanted)


def test_what_has_changed_since_it_set_out_is_fetched_again() -> None:
    host = filled(store())
    worker = CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: LateDevice())
    worker.expect(["a"])
    for view in host.views["a"][0].values():
        view.fill_(7.0)
    host.publish("a", 3)
    leaves = worker.acquire("a", 3)
    assert worker.seen("a", 3) == 3 and all(bool((leaf == 7.0).all()) for leaf in leaves.values())


def test_a_word_that_is_not_the_wanted_one_is_seen() -> None:
    """It is read where the bytes are, once they have come, and not taken from what was asked for."""
    host = filled(store())
    worker = CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: LateDevice())
    host.publish("a", 3)
    worker.acquire("a", 4)
    assert worker.seen("a", 4) == 3


def test_what_was_begun_before_the_device_was_full_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for its word could not be had, and torch does not say so in its own words."""
    host, late = filled(store()), LateDevice()
    worker = CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: late)

    def full(flat: torch.Tensor, copy: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(late, "word", full)
        with pytest.raises(RuntimeError, match="out of memory"):
            worker.expect(["a"])
    wanted = {name: view.clone() for name, view in host.views["a"][0].items()}
    leaves = worker.acquire("a", -1)
    assert all(same_bits(leaves[name].detach(), wanted[name]) for name in wanted) and worker.seen("a", -1) == -1
