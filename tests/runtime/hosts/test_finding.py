"""How hosts find each other: each once, with the same options, and nobody waits in silence or for ever."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from sennit.errors import RunError, UserError
from sennit.recipe import Placement
from sennit.runtime.control import Line
from sennit.runtime.hosts import finding
from sennit.runtime.hosts.finding import Waiting, find
from sennit.runtime.hosts.guest import follow
from sennit.runtime.hosts.meeting import Meeting
from sennit.runtime.hosts.options import options_of, refuse_other_options
from sennit.runtime.hosts.wire import HOST, KEY_BYTES, WORKER, Hello, connect, hear, listen
from sennit.runtime.request import Request
from tests.runtime.hosts.several import codes, run_on
from tests.runtime.hosts.test_command import free_port
from tests.runtime.runs import hashes, recipe, run

KEY = b"k" * KEY_BYTES


def told(rank: int, count: int = 2, port: int | None = None) -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port()), "WORLD_SIZE": str(count),
        "RANK": str(rank),
    }  # fmt: skip


@pytest.fixture
def agents() -> Iterator[Callable[[int, int], dict[str, str]]]:
    """A store that outlives who come, as torchrun has one."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    yield lambda rank, count: {**told(rank, count, port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    del store


# -- each once


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_second_process_with_the_same_number(rank: int, agents: Callable[[int, int], dict[str, str]]) -> None:
    """Was let in, and took a connection that a worker was waited for on."""
    leading = find(agents(0, 3), 5.0, pytest.fail)
    assert leading.listener is not None
    for other in (1, 2):
        found = find(agents(other, 3), 5.0, pytest.fail)
        assert found.key == leading.key and found.address[1] == leading.listener.getsockname()[1]
    with pytest.raises(UserError, match=rf"as host {rank} already: give every host a --node-rank of its own, 0 to 2"):
        find(agents(rank, 3), 5.0, pytest.fail)
    leading.listener.close()


def test_a_number_that_no_host_has() -> None:
    for rank in (2, -1):
        with pytest.raises(UserError, match=rf"--node-rank {rank} is none of 2 hosts; use 0 to 1"):
            find(told(rank), 1.0, pytest.fail)


def test_who_comes_under_a_number_that_is_taken_is_turned_away() -> None:
    with listen() as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        hellos = [Hello(HOST, 1, 0, 5), Hello(HOST, 1, 0, 6), Hello(HOST, 3, 0, 7), Hello(WORKER, 2, 0, 0)]
        came = [connect(address, KEY, hello) for hello in [*hellos, Hello(HOST, 2, 0, 8)]]
        meeting = Meeting.await_others(3, listener, KEY, 5.0)
        assert {host: port for host, (_, port) in meeting.addresses.items()} == {1: 5, 2: 8}
        for sock, hello in zip(came[1:4], hellos[1:], strict=True):
            kind, (whose, text) = hear(Line(sock, "host 0"))
            assert (kind, whose) == ("end", "user") and f"host {hello.source} is here already, or" in text
        for sock in [*came, *(line.sock for line in meeting.lines.values())]:
            sock.close()


def test_one_more_host_that_comes_late_takes_no_workers_place(tmp_path: Path) -> None:
    def twice(request: Request, meeting: Meeting) -> None:
        late = Line(connect(meeting.addresses[0], meeting.key, Hello(HOST, 1, 0, 0)), "host 0")
        follow(request, meeting)
        kind, (_, text) = hear(late)
        assert kind == "end" and "host 1 is here already" in text

    made = recipe(steps=4)
    result = run_on(2, made, tmp_path / "run", guest=twice, workers=2)
    assert codes(tmp_path / "run") == "[0]"
    assert hashes(result) == hashes(run(made, tmp_path / "plain", engine="plain"))


# -- with the same options

CHANGED: dict[str, Any] = {
    "workers": 3, "replicas": 2, "device": "virtual", "transport": "host", "waits": "w.json", "plan": "p.json",
    "in_flight": 5, "schedule": "gpipe", "chunks": 2, "release": "layer", "split": True, "executor": "graphs",
    "budget": 0.5, "evict": "lru", "ahead": 3, "loaders": 1, "prefetch": 4, "steps": 8, "engine": "plain",
    "offload": True, "activations": "keep", "activations_gib": 0.25,
}  # fmt: skip


def changed(request: Request, name: str) -> Request:
    value = CHANGED[name]
    if name in Placement.__dataclass_fields__:
        return replace(request, placement=replace(request.placement, **{name: value}))
    return replace(request, **{name: value})


def test_every_option_is_compared() -> None:
    """Was host 0's, whatever the others were told. An option that is added is compared, too, and wants a value here."""
    request = Request(recipe=recipe(), placement=Placement(workers=2))
    theirs = options_of(request)
    assert set(CHANGED) == set(theirs)
    refuse_other_options(theirs, replace(request, out=Path("elsewhere"), resume=True, steps=request.recipe.steps))
    for name, value in CHANGED.items():
        option = f"--{name.replace('_', '-')}"
        there = option if value is True else f"{option} {value}"
        with pytest.raises(UserError, match=rf"^(no )?{option}\b.* here, {there} on host 0: start all hosts"):
            refuse_other_options({**theirs, name: value}, request)


@pytest.mark.parametrize("name", ["steps", "workers", "budget", "plan"])
def test_another_option_is_refused_on_that_host(name: str, tmp_path: Path) -> None:
    def guest(request: Request, meeting: Meeting) -> None:
        follow(changed(request, name), meeting)

    with pytest.raises(UserError, match=rf"host 1: --{name} {CHANGED[name]} here, .*--{name}.* on host 0"):
        run_on(2, recipe(), tmp_path / "run", guest=guest, workers=2)
    assert (tmp_path / "run.guests" / "1").read_text().startswith(f"UserError: --{name} {CHANGED[name]} here, ")
    assert not (tmp_path / "run").exists()


# -- nobody waits in silence or for ever


def test_waiting_is_told_of_and_ends() -> None:
    now, notes = [0.0], list[str]()
    waiting = Waiting("host 1 of 2 at there:1", 60.0, notes.append, lambda: now[0])
    for now[0] in range(59):
        assert waiting.look("refused") == 60.0 - now[0]
    assert notes == ["waiting for host 1 of 2 at there:1 (refused)"] * 2
    now[0] = 60.0
    with pytest.raises(
        RunError, match=r"host 1 of 2 at there:1 did not come within 60 s \(refused\). Start every host"
    ):
        waiting.look("refused")


def test_hosts_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "FIRST_NOTE_S", 0.0)
    for rank, awaited in ((0, "host 1 of 2"), (1, "host 0 of 2")):
        environment, notes = told(rank), list[str]()
        who = f"{awaited} at 127.0.0.1:{environment['MASTER_PORT']}"
        with pytest.raises(RunError, match=rf"^{who} did not come within 1 s"):
            Meeting.of_environment(environment, 1.0, notes.append)
        assert len(notes) == 1 and notes[0].startswith(f"waiting for {who}")


def test_host_0_has_come_and_says_nothing(
    agents: Callable[[int, int], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "FIRST_NOTE_S", 0.0)
    notes: list[str] = []
    with pytest.raises(RunError, match=r"^host 0 of 2 at .* did not come within 0\.5 s"):
        Meeting.of_environment(agents(1, 2), 0.5, notes.append)
    assert len(notes) == 1


def test_hosts_of_which_some_say_nothing() -> None:
    with listen() as listener, pytest.raises(RunError, match=r"hosts 1, 2 of 3 at there:1 did not come within 0\.1 s"):
        Meeting.await_others(3, listener, KEY, 0.1, "there:1")


def test_a_port_that_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RunError, match=r"did not meet at 127\.0\.0\.1:"),
    ):
        find(told(0, port=taken.getsockname()[1]), 1.0, pytest.fail)
