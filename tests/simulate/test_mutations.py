"""Breaking any one rule is noticed, and named."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from sennit.simulate.engine import Simulation
from tests.simulate.cases import Drawn, drawn, overtaken
from tests.simulate.mutants import MUTANTS, VersionsOvertake
from tests.simulate.rules import violations


class Noticed(Exception):
    """The checker has named the rule."""


def notices(mutant: type[Simulation], rule: str, examples: int = 2000) -> bool:
    """Whether the checker names the rule in one of so many cases. Getting stuck does not count.

    Which cases are drawn depends on the constants of all modules that are loaded, so on the tests before. A rule that
    shows in 3 of 100, several in a row, was not seen in 400.
    """

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(drawn(("csp",), ("csp", "bulk:2")))
    def look(case: Drawn) -> None:
        try:
            _, spans = case.run(mutant)
        except Exception:
            return
        if any(said.startswith(f"{rule}: ") for said in violations(case.case, spans)):
            raise Noticed

    try:
        look()
    except Noticed:
        return True
    return False


@pytest.mark.parametrize(("mutant", "rule"), MUTANTS.items(), ids=[mutant.__name__ for mutant in MUTANTS])
def test_a_broken_rule_is_noticed(mutant: type[Simulation], rule: str) -> None:
    assert notices(mutant, rule)


def test_a_version_that_overtakes_an_earlier_writer_is_noticed() -> None:
    case = overtaken()
    assert not violations(case.case, case.run()[1])
    assert violations(case.case, case.run(VersionsOvertake)[1])[0].startswith("version: ")
