"""What commands show to people."""

from __future__ import annotations

import pytest

from sennit.commands.output import figure


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.97561, "0.9756"), (47021.3, "47,021"), (1228, "1,228"), (1.5e9, "1.5e+09"), (-12345.6, "-12,346"), (0, "0")],
)
def test_figures_have_four_digits_or_all_before_the_point(value: float, shown: str) -> None:
    assert figure(value) == shown
