"""The store of a GPU worker, on memory of the host in place of a GPU's: what does not depend on the device."""

from types import SimpleNamespace

import pytest
import torch
from tests.memory.test_store import filled, store

from sennit.memory import cuda
from sennit.memory.cuda import CudaStore

GROUP, MEAN = "norm#buffers", "norm.running_mean"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pin", lambda memory, device: "not here")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))


@pytest.mark.parametrize("last", [0, 1])
def test_buffers_of_several_workers_are_taken_back_to_the_newest_before(last: int) -> None:
    """Subnet 1 on worker 0, 2 on worker 1: whoever flushes last, 2 is taken back to what 1 left."""
    host = filled(store())
    workers = [CudaStore(host, torch.device("cpu"), frozenset([GROUP])) for _ in range(2)]
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
    worker = CudaStore(host, torch.device("cpu"), frozenset())
    for seq_id in (1, 2):
        worker.remember(GROUP)
        worker.buffers(GROUP)[MEAN].fill_(float(seq_id))
        worker.move(GROUP, (seq_id, 0, 0))
    worker.flush()
    assert host.current(GROUP)[MEAN].tolist() == [2.0, 2.0]
    assert host.take_back(GROUP, 2)
    assert host.current(GROUP)[MEAN].tolist() == [1.0, 1.0]
