"""The encoder-decoder spaces `nlp.c0` .. `nlp.c3`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpus import on_gpu
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.ready import SPACES
from sennit.space.ready.nlp import EvolvedTransformer
from sennit.space.ready.nlp.candidate import VARIANTS, Candidate
from sennit.space.ready.nlp.catalogue import DECODER, ENCODER, candidate, names
from sennit.supernet.context import set_kernel_flags

D, VOCAB, LAYERS = 16, 20, 2
ALL = 96
RECIPES = Path(__file__).parents[3] / "recipes"


def built(candidates: int = 24, **arguments: Any) -> EvolvedTransformer:
    given = {"candidates": candidates, "d": D, "vocab": VOCAB, "layers": LAYERS, **arguments}
    return initialise(build_on_meta(EvolvedTransformer, given), seed=1)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def space() -> EvolvedTransformer:
    """All candidates; not changed by any test."""
    return built(ALL)


def tokens(*shape: int) -> Tensor:
    return torch.randint(4, VOCAB, shape, generator=torch.Generator().manual_seed(3))


def numbers(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def one(name: str, causal: bool) -> Candidate:
    """The candidate called `name` with initial weights, in eval mode."""
    made = candidate(name, D, causal, 0.1)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        for module in made.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return made.eval()


def of_decoder(made: Candidate, x: Tensor, memory: Tensor, source: Tensor) -> Tensor:
    return made(x, memory, source) if made.reads_memory else made(x)


# -- what there is


@pytest.mark.parametrize(("name", "count"), [("nlp.c0", 96), ("nlp.c1", 72), ("nlp.c2", 48), ("nlp.c3", 24)])
def test_every_block_has_its_number_of_named_candidates(name: str, count: int) -> None:
    made = build_on_meta(SPACES[name], {"d": D, "vocab": VOCAB, "layers": LAYERS})
    sites = made.structure.sites  # type: ignore[union-attr]
    assert list(sites) == [f"{side}.{i}" for side in ("encoder", "decoder") for i in range(LAYERS)]
    for site in sites.values():
        options = site.choice.options()
        assert len(set(options)) == len(options) == count
        assert all(isinstance(option, str) for option in options)


def signature(module: nn.Module) -> tuple[Any, ...]:
    """What decides the function that a module can learn: types, settings and shapes, all the way down."""
    settings = {k: v for k, v in vars(module).items() if isinstance(v, int | float | str | tuple | None)}
    del settings["training"]
    shapes = {k: None if p is None else tuple(p.shape) for k, p in module._parameters.items()}
    return (
        type(module).__name__, repr(sorted(settings.items())), repr(sorted(shapes.items())),
        tuple((name, signature(child)) for name, child in module.named_children()),
    )  # fmt: skip


@pytest.mark.parametrize(("kinds", "causal"), [(ENCODER, False), (DECODER, True)], ids=["encoder", "decoder"])
def test_candidates_are_distinct(kinds: list[str], causal: bool) -> None:
    made = [candidate(name, D, causal, 0.1) for name in names(kinds, ALL)]
    assert len({signature(m) for m in made}) == len(made) == ALL


@pytest.mark.parametrize(("kinds", "causal"), [(ENCODER, False), (DECODER, True)], ids=["encoder", "decoder"])
def test_candidates_compute_different_functions(kinds: list[str], causal: bool) -> None:
    x, memory, source = numbers(2, 7, D), numbers(2, 5, D, seed=6), tokens(2, 5)
    with torch.no_grad():
        results = [
            of_decoder(one(name, causal), x, memory, source) if causal else one(name, causal)(x, tokens(2, 7))
            for name in names(kinds, ALL)
        ]
    for i, result in enumerate(results):
        assert not any(torch.equal(result, other) for other in results[:i])


def test_encoder_and_decoder_lists_differ_and_every_decoder_block_can_reach_the_encoder() -> None:
    assert ENCODER != DECODER
    crossing = [kind for kind in DECODER if "cross" in kind]
    assert {"cross4", "cross8", "cross16"} <= set(crossing) and not any("cross" in kind for kind in ENCODER)
    assert all(candidate(f"{kind}_ln", D, True, 0.0).reads_memory == (kind in crossing) for kind in DECODER)


@pytest.mark.parametrize("wrong", [{"candidates": 23}, {"candidates": 120}, {"d": 24}, {"layers": 0}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SpaceError, match=next(iter(wrong))):
        built(**{"candidates": 24, **wrong})


# -- every candidate runs


def test_every_candidate_records_and_trains(space: EvolvedTransformer) -> None:
    source, target = tokens(2, 6), tokens(2, 5)
    for arch in space.structure.covering():
        space.zero_grad()
        logits = space(source, target, arch=arch)
        assert logits.shape == (2, 5, VOCAB) and logits.isfinite().all()
        logits.logsumexp(-1).sum().backward()
        reached = {n.rpartition(".")[0] for n, p in space.named_parameters() if p.grad is not None}
        for label, option in arch.items():
            chosen = space.get_submodule(f"{label}.{option}")
            for name, parameter in chosen.named_parameters():
                grad = parameter.grad
                assert grad is not None and grad.isfinite().all(), f"{label}.{option}.{name}"
        assert {"embed_source", "embed_target", "norm", "project"} <= reached
    called = {f"{label}.{option}" for arch in space.structure.covering() for label, option in arch.items()}
    assert len(called) == 2 * LAYERS * ALL


def test_recorded_shapes_are_those_of_a_real_call(space: EvolvedTransformer) -> None:
    """Without data a candidate says that it keeps the shape, so it must."""
    x, memory, source = numbers(2, 7, D), numbers(2, 5, D), tokens(2, 5)
    for side, kinds in (("encoder", ENCODER), ("decoder", DECODER)):
        for name in names(kinds, ALL):
            made = space.get_submodule(f"{side}.0.{name}")
            with torch.no_grad():
                out = made(x, tokens(2, 7)) if side == "encoder" else of_decoder(made, x, memory, source)
            assert (out.shape, out.dtype) == (x.shape, x.dtype)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stack_of_all_kinds_stays_finite(variant: str) -> None:
    """24 layers without norm (`_res`) or without residual (`_ln`) are the hardest to keep in range."""
    memory, source = numbers(2, 5, D, seed=6), tokens(2, 5)
    for kinds, causal in ((ENCODER, False), (DECODER, True)):
        x = first = numbers(2, 7, D).requires_grad_()
        for kind in kinds:
            made = one(kind + variant, causal)
            x = of_decoder(made, x, memory, source) if causal else made(x, tokens(2, 7))
        x.square().sum().backward()
        assert x.isfinite().all() and first.grad is not None and first.grad.isfinite().all()


def test_one_table_serves_both_languages_and_the_projection_if_tied() -> None:
    made = built(tied=True)
    assert made.embed_source.weight is made.embed_target.weight is made.project.weight
    made(tokens(2, 4), tokens(2, 4), arch=made.structure.default()).sum().backward()
    assert made.project.weight.grad is not None


@on_gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_every_candidate_has_deterministic_kernels_at_full_width(precision: str) -> None:
    set_kernel_flags(precision)
    source = torch.randint(4, 99, (15, 64), device="cuda")
    source[:, 50:] = 0
    x, memory = (torch.randn(15, 64, 1024, device="cuda", requires_grad=True) for _ in range(2))
    for kinds, causal in ((ENCODER, False), (DECODER, True)):
        for name in names(kinds, 24):
            with torch.device("cuda"):
                made = candidate(name, 1024, causal, 0.1)
            results = []
            for _ in range(2):
                torch.manual_seed(2)
                with torch.autocast("cuda", torch.bfloat16, precision == "bf16", cache_enabled=False):
                    out = of_decoder(made, x, memory, source) if causal else made(x, source)
                assert out.dtype == torch.float32
                grads = torch.autograd.grad(out.square().sum(), [x, *made.parameters()])
                results.append([out.detach(), *grads])
            assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(*results, strict=True)), name


# -- who sees what


def test_every_decoder_candidate_is_causal() -> None:
    x, memory, source = numbers(2, 9, D), numbers(2, 5, D, seed=6), tokens(2, 5)
    for name in names(DECODER, ALL):
        made = one(name, causal=True)
        for position in (1, 5, 8):
            changed = x.clone()
            changed[:, position:] = numbers(2, 9 - position, D, seed=8)
            with torch.no_grad():
                before = of_decoder(made, x, memory, source)
                after = of_decoder(made, changed, memory, source)
            assert torch.equal(before[:, :position], after[:, :position]), (name, position)
            assert not torch.equal(before[:, position:], after[:, position:]), (name, position)


def some_archs(space: EvolvedTransformer) -> Iterator[dict[str, Any]]:
    return islice(space.structure.covering(), 0, None, 5)


def test_a_later_target_token_does_not_change_earlier_logits(space: EvolvedTransformer) -> None:
    source, target = tokens(2, 6), tokens(2, 8)
    later = target.clone()
    later[:, 5:] = (later[:, 5:] + 1) % VOCAB
    space.eval()
    with torch.no_grad():
        for arch in some_archs(space):
            one_way, other = space(source, target, arch=arch), space(source, later, arch=arch)
            assert torch.equal(one_way[:, :5], other[:, :5]) and not torch.equal(one_way, other)
    space.train()


def test_cross_attention_sees_the_source_and_not_its_padding() -> None:
    x, memory, source = numbers(1, 4, D), numbers(1, 6, D, seed=6), tokens(1, 6)
    source[:, 4:] = 0
    for name in (n for n in names(DECODER, ALL) if "cross" in n):
        made = one(name, causal=True)
        for position in range(6):
            changed = memory.clone()
            changed[:, position] += 1.0 + numbers(D, seed=9)
            with torch.no_grad():
                same = torch.equal(made(x, memory, source), made(x, changed, source))
            assert same == (position >= 4), (name, position)


def test_the_encoder_trains_whatever_the_decoder_chooses(space: EvolvedTransformer) -> None:
    arch = {**space.structure.default(), **{f"decoder.{i}": "glu_res_ln" for i in range(LAYERS)}}
    space.zero_grad()
    space(tokens(2, 6), tokens(2, 5), arch=arch).logsumexp(-1).sum().backward()
    assert space.embed_source.weight.grad is not None and space.embed_source.weight.grad.abs().sum() > 0
    assert len(space.program(arch, tokens(2, 6), tokens(2, 5)).arch) == 2 * LAYERS


def test_the_encoders_output_travels_only_to_who_reads_it(space: EvolvedTransformer) -> None:
    arch = {**space.structure.default(), "decoder.0": "cross8_res_ln", "decoder.1": "att8_res_ln"}
    steps = {s.name: s for s in space.program(arch, tokens(2, 6), tokens(2, 5)).steps}
    (memory,) = steps["norm"].writes
    assert memory in steps["bridge"].reads
    assert memory in steps["decoder.0.cross8_res_ln"].reads
    assert memory not in steps["decoder.1.att8_res_ln"].reads
    assert {s.kind for s in steps.values()} == {"module"}  # no mask is a step, so none travels


def test_more_padding_changes_nothing(space: EvolvedTransformer) -> None:
    source, target = tokens(2, 6), tokens(2, 5)
    source[1, 4:] = 0
    padded = torch.cat([source, torch.zeros(2, 3, dtype=torch.int64)], 1)
    longer = torch.cat([target, torch.zeros(2, 2, dtype=torch.int64)], 1)
    space.eval()
    with torch.no_grad():
        for arch in some_archs(space):
            short = space(source, target, arch=arch)
            torch.testing.assert_close(space(padded, longer, arch=arch)[:, :5], short, rtol=1e-4, atol=1e-4)
            alone = space(source[1:, :4].contiguous(), target[1:], arch=arch)
            torch.testing.assert_close(alone, short[1:], rtol=1e-4, atol=1e-4)
    space.train()


# -- training


def test_pipeline_and_plain_loop_give_the_same_bits(tmp_path: Path) -> None:
    recipe = Recipe(
        space="nlp.c2", space_args={"d": D, "vocab": 80, "layers": 3}, data="pairs",
        data_args={"count": 300, "lengths": [8, 16, 24], "rows_multiple": 2}, batch_size=96, micro_batches=2,
        steps=6, loss_name="smoothed_token_cross_entropy", lr=0.01, clip="global:1.0",
        optimizer={"name": "adam"},
    )  # fmt: skip
    plain = train(Request(recipe=recipe, engine="plain", out=tmp_path / "plain"))
    pipeline = train(Request(recipe=recipe, placement=Placement(workers=2), out=tmp_path / "pipeline"))
    assert plain["steps"] == pipeline["steps"] == 6
    assert all(plain[f"{k}_sha256"] == pipeline[f"{k}_sha256"] for k in ("weights", "optimizer", "losses"))


@pytest.mark.parametrize("name", ["c0", "c1", "c2", "c3", "c3-small"])
def test_recipe_is_the_space_that_it_says(name: str) -> None:
    recipe = read_recipe(RECIPES / f"nlp.{name}.toml")
    assert recipe.space == f"nlp.{name[:2]}" and recipe.data_args["rows_multiple"] == recipe.micro_batches
    assert recipe.space_args["d"] == (64 if "small" in name else 1024)


def test_the_small_recipe_records() -> None:
    recipe = read_recipe(RECIPES / "nlp.c3-small.toml")
    program = recipe.built.program(recipe.built.recordings.structure.default())
    assert len(program.arch) == 48
