"""What cannot be recorded is refused with file and line, and with the way to write it instead."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError


class Base(sn.ModelSpace):
    """`body` is what each test puts in."""

    def __init__(self, body: Callable[[Any, Tensor], Any], **modules: Any) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])
        self.register_buffer("mean", torch.zeros(3))
        for name, module in modules.items():
            setattr(self, name, module)
        self.__dict__["body"] = body

    def forward(self, x: Tensor) -> Any:
        return self.__dict__["body"](self, x)


def refused(body: Callable[[Any, Tensor], Any], **modules: Any) -> str:
    """The message, which must start with the last line of `body` marked `# here` (or any line of it)."""
    with pytest.raises(SpaceError) as caught:
        Base(body, **modules).program({"choice": 0}, torch.zeros(4, 3))
    message = str(caught.value)
    lines, first = inspect.getsourcelines(body)
    marked = [first + i for i, line in enumerate(lines) if "# here" in line]
    if marked:
        assert message.startswith(f"{__file__}:{marked[-1]}: "), message
    return message


def test_item() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        return net.choice(x) * x.sum().item()  # here

    message = refused(body)
    assert "`item` needs the numbers inside a tensor" in message
    assert "wrong:  if x.sum() > 0" in message and "right:  x = torch.where(" in message


def test_truth_of_a_tensor() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:  # here
            x = x * 2
        return net.choice(x)

    assert "`__bool__` needs the numbers inside a tensor" in refused(body)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: float(x.mean()),
        lambda x: int(x.sum()),
        lambda x: x.tolist()[0][0],
        lambda x: x.numpy().mean(),
        lambda x: range(3)[x.argmax()],
        lambda x: 1.0 if torch.equal(x, x) else 0.0,
        lambda x: 1.0 if torch.allclose(x, x) else 0.0,
        lambda x: 1.0 if (x > 0).any() else 0.0,
        lambda x: float(x.nonzero().shape[0]),
    ],
    ids="float int tolist numpy index equal allclose any nonzero".split(),
)
def test_other_ways_to_read_numbers(read: Any) -> None:
    message = refused(lambda net, x: net.choice(x) * read(x))
    assert re.match(rf"{re.escape(__file__)}:\d+: ", message) and len(message.splitlines()) <= 12


def test_a_tensor_that_is_not_registered() -> None:
    mask = torch.ones(3)

    def body(net: Any, x: Tensor) -> Tensor:
        return net.choice(x) + mask  # here

    message = refused(body)
    assert "uses a tensor of shape [3] that is neither an input, nor a parameter or buffer" in message
    assert 'right:  self.register_buffer("mask", torch.ones(8))' in message


def test_a_tensor_kept_from_an_earlier_call() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        net.__dict__.setdefault("memory", []).append(x)
        return net.choice(x) + net.__dict__["memory"][0]  # here

    assert "neither an input" in refused(body)


@pytest.mark.parametrize("how", ["+=", "add_", "item", "relu", "module", "unit"])
def test_changing_what_came_in(how: str) -> None:
    class Greedy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2)

    def body(net: Any, x: Tensor) -> Tensor:
        h = net.choice(x)
        if how == "+=":
            h += 1
        elif how == "add_":
            h.add_(1)
        elif how == "item":
            h[0] = 1
        elif how == "relu":
            h = F.relu(h, inplace=True)
        elif how == "module":
            h = net.relu(h)
        else:
            h = net.greedy(h)
        return h

    message = refused(body, relu=nn.ReLU(inplace=True), greedy=Greedy())
    lines, first = inspect.getsourcelines(body)
    place = int(re.match(rf"{re.escape(__file__)}:(\d+): ", message)[1])  # type: ignore[index]
    assert first < place < first + len(lines)
    assert "modifies a tensor that came in (in-place)" in message and "right:  x = x + y       nn.ReLU()" in message


def test_changing_an_input_of_the_network_or_a_parameter() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        x += 1  # here
        return net.choice(x)

    def clamp(net: Any, x: Tensor) -> Tensor:
        net.gain.clamp_(0, 1)  # here
        return net.choice(x) * net.gain

    assert "modifies a tensor" in refused(body)
    with torch.no_grad():
        assert "modifies a tensor" in refused(clamp, gain=nn.Parameter(torch.ones(3)))


def test_in_place_on_what_a_step_made_itself_is_fine() -> None:
    inside = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    Base(lambda net, x: net.choice(net.inside(x)), inside=inside).program({"choice": 0}, torch.zeros(4, 3))


def test_a_loop_over_the_batch() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in net.choice(x)])  # here

    def count(net: Any, x: Tensor) -> Tensor:
        h = net.choice(x)
        total = h * 0
        for i in range(x.shape[0]):
            total = total + h[i]
        return total

    message = refused(body)
    assert "was recorded differently for two batches of different shape" in message
    assert "no loop may run over the batch" in message
    assert "was recorded differently for two batches of different shape" in refused(count)


@pytest.mark.parametrize(
    "read", [lambda x: int(x.shape[0]), len, lambda x: x.shape[0] * 1.0, lambda x: x.shape[0] ** 2]
)
def test_a_size_made_a_plain_number(read: Any) -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        return net.choice(x) * read(x)  # here

    assert "Sizes must be read from the tensor where they are used" in refused(body)


def test_a_size_that_only_later_batches_change() -> None:
    """Two rows more or less show at once; another length shows when it comes."""

    def body(net: Any, x: Tensor) -> Tensor:
        return net.choice(x).sum(1) * int(x.shape[1])

    space = Base(body, wide=nn.Identity())
    space.program({"choice": 1}, torch.zeros(4, 3))
    with pytest.raises(SpaceError, match=r"was recorded differently for two batches of different shape"):
        space.program({"choice": 1}, torch.zeros(4, 5))


def test_code_that_depends_on_the_mode() -> None:
    def other_steps(net: Any, x: Tensor) -> Tensor:
        h = net.choice(x)
        if net.training:
            h = h * 2
        return h

    def other_numbers(net: Any, x: Tensor) -> Tensor:
        h = net.choice(x)
        return h * 2 if net.training else h * 3

    def other_function(net: Any, x: Tensor) -> Tensor:
        return net.choice(x).relu() if net.training else net.choice(x).tanh()

    def other_result(net: Any, x: Tensor) -> Any:
        h = net.choice(x)
        return (h, h * 2) if net.training else (h * 2, h)

    for body in (other_steps, other_numbers, other_function, other_result):
        message = refused(body)
        assert "differently in training and in eval mode" in message, body
        assert "Put the difference into a module of its own" in message


def test_a_buffer_that_is_replaced() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return x - self.mean

    def inlined(net: Any, x: Tensor) -> Tensor:
        h = net.choice(x)
        net.mean = 0.9 * net.mean + 0.1 * h.mean(0)
        return h - net.mean

    unit = refused(lambda net, x: net.average(net.choice(x)), average=Average())
    assert "step 'average' replaces its 'mean' by another tensor in forward" in unit
    assert "right:  self.mean.mul_(0.9).add_(" in unit
    assert "replaces its 'mean' by another tensor in forward" in refused(inlined)


def test_a_candidate_of_the_wrong_shape_is_named_with_the_others() -> None:
    class Wrong(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice({"good": nn.Linear(3, 3), "wide": nn.Linear(3, 5)})
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.choice(x))

    space = Wrong()
    space.program({"choice": "good"}, torch.zeros(4, 3))
    with pytest.raises(SpaceError) as caught:
        space.program({"choice": "wide"}, torch.zeros(4, 3))
    message = str(caught.value)
    assert message.startswith(f"{__file__}:") and "step 'head' failed on float32[4, 5]" in message
    assert "it got its input from step 'choice.wide'" in message
    assert "candidates of 'choice' return different shapes: 'good' returns float32[4, 3]" in message
    with pytest.raises(SpaceError, match=r"step 'choice.good' failed on float32\[4, 7\]"):
        space.program({"choice": "good"}, torch.zeros(4, 7))


def test_numbers_as_numpy_makes_them_are_what_is_said_to_be_wrong() -> None:
    """Was said of candidates, and what to do was not."""

    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice([nn.Conv1d(3, 3, 1), nn.Identity()])

        def forward(self, x: Tensor) -> Tensor:
            return self.choice(x)

    with pytest.raises(SpaceError) as caught:
        Net().program({"choice": 0}, torch.zeros(4, 3, 2, dtype=torch.float64))
    assert "x.float() or x.astype(numpy.float32)" in str(caught.value) and "every candidate" not in str(caught.value)


def test_a_refusal_leaves_the_space_usable() -> None:
    space = Base(lambda net, x: net.choice(x) if not net.__dict__.get("broken") else net.choice(x).item())
    space.__dict__["broken"] = True
    called = nn.Module.__call__
    with pytest.raises(SpaceError):
        space.program({"choice": 0}, torch.zeros(4, 3))
    assert nn.Module.__call__ is called
    space.__dict__.pop("broken")
    space.__dict__.pop("_recordings")
    assert space(torch.ones(2, 3), arch={"choice": 1}).tolist() == [[1.0] * 3] * 2


class Sometimes(nn.Module):
    """Changes what came in when its numbers say so, which no recording sees."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.detach().sum()) > 0:
            x.mul_(2)
        return x * 1.0


@pytest.mark.parametrize("width", [4, 1 << 17], ids=["small", "large"])
def test_changing_what_came_in_when_it_runs(width: int) -> None:
    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice, self.sometimes = sn.LayerChoice([nn.ReLU(), nn.Tanh()]), Sometimes()

        def forward(self, x: Tensor) -> Tensor:
            return self.sometimes(self.choice(x))

    net, arch = Net(), {"choice": 0}
    x = torch.ones(2, width)
    net(-x, arch=arch)
    for wanted in (False, True):
        with pytest.raises((SpaceError, RuntimeError), match=r"modifies a tensor that came in|in-?place"):
            net(x.clone().requires_grad_(wanted), arch=arch)


class Given(nn.Module):
    """Does what it is told with what it is given."""

    def __init__(self, does: Callable[[Any], Any] = lambda given: None) -> None:
        super().__init__()
        self.__dict__["does"] = does

    def forward(self, x: Tensor, given: Any) -> Tensor:
        self.__dict__["does"](given)
        return x * 2


class Knob:
    """Told apart from others by its address alone."""


@pytest.mark.parametrize("nested", [False, True], ids=["", "in a list"])
@pytest.mark.parametrize("what", ["lambda", "closure", "object"])
def test_what_forward_makes_anew(what: str, nested: bool) -> None:
    """Was said to be a matter of batch shapes."""

    def body(net: Any, x: Tensor) -> Tensor:
        def doubled(t: Tensor) -> Tensor:
            return t * x.shape[-1]

        given = {"lambda": lambda t: t * 2, "closure": doubled, "object": Knob()}[what]
        return net.given(net.choice(x), {"by": [given]} if nested else given)  # here

    message = refused(body, given=Given())
    named = {"lambda": "<lambda>", "closure": "doubled", "object": "'Knob'"}[what]
    assert named in message and "which forward makes anew whenever it runs" in message
    assert "batches of different shape" not in message and "self.training" not in message


def test_a_function_that_stays_is_fine() -> None:
    scale = Knob()
    Base(lambda net, x: net.given(net.choice(x), [F.relu, scale]), given=Given()).program(
        {"choice": 0}, torch.zeros(4, 3)
    )


@pytest.mark.parametrize(
    ("given", "does"),
    [
        ([], lambda box: box.append(1)),
        ([1], lambda box: box.clear()),
        ([1, 2], lambda box: box.reverse()),
        ({}, lambda box: box.update(a=1)),
        ({"a": 1.5}, lambda box: box.update(a=2.5)),
        (set(), lambda box: box.add(1)),
        ([[]], lambda box: box[0].append(torch.zeros(1))),
        (({"a": []},), lambda box: box[0]["a"].append(1)),
    ],
)
def test_a_list_that_layers_write_into(given: Any, does: Callable[[Any], Any]) -> None:
    """Was said to be a matter of `self.training`."""

    def body(net: Any, x: Tensor) -> Tensor:
        return net.given(net.choice(x), copy.deepcopy(given))  # here

    message = refused(body, given=Given(does))
    kind = re.search(r"step 'given' changes a (list|dict|set) that it is given", message)
    assert kind is not None and "right:  x, note = self.layer(x)" in message
    assert "self.training" not in message


def test_a_list_that_layers_read_is_fine() -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        notes = [1, 2]
        y = net.given(net.choice(x), notes)
        notes.append(3)
        return net.given(y, notes)

    steps = Base(body, given=Given(lambda box: box[0])).program({"choice": 0}, torch.zeros(4, 3)).steps
    assert [step.args[1] for step in steps if step.target == "given"] == [[1, 2], [1, 2, 3]]


@pytest.mark.parametrize("how", ["data", "detach", "out", "foreach", "rebound"])
def test_inlined_code_that_writes_a_buffer(how: str) -> None:
    def body(net: Any, x: Tensor) -> Tensor:
        if how == "data":
            net.mean.data.add_(1)
        elif how == "detach":
            net.mean.detach().add_(1)
        elif how == "out":
            torch.add(net.mean, 1, out=net.mean)
        elif how == "foreach":
            torch._foreach_add_([net.mean], 1)
        else:
            net.mean.data = net.mean + 1
        return net.choice(x)

    refused(body)
