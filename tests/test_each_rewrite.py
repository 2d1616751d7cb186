"""Each rewrite alone (tests/each_rewrite.py), in a few random programs. `python tests/each_rewrite.py` tries
thousands.
"""

from __future__ import annotations

import pytest
from each_rewrite import REWRITES, firings

from minitri.optimize.pass_table import OPTIONAL


def test_every_rewrite_that_can_be_left_out_has_a_row() -> None:
    assert {*REWRITES} >= {*OPTIONAL} - {"simplify", "fusion"}


@pytest.mark.parametrize("name", REWRITES)
def test_results_are_equal_with_and_without_the_rewrite(name: str) -> None:
    found, wrong = firings(name, 1, 1)
    assert not wrong, wrong[0]
    assert found["fired"] == 1, found
