"""Random well-typed programs and arrays, for testing with hypothesis.

In: choices (hypothesis draws them, so that a failure shrinks; or a seed). Out: `RandomProgram`,
the *text* of a module with sizes for its dimensions, and numpy arrays to call it with.

    @given(programs(max_ops=6), st.integers(0, 99))
    def test(example, seed):
        assert example.compile().check(*example.arguments(seed)).ok

The one idea: valid by construction. The writer keeps the dtype, the axes and the largest
size of every value, and picks among the statements that these allow.

    values.py       axes and values, and which go together
    statements.py   what can be written about them: elementwise.py, reductions.py, views.py
    writer.py       what there is to write about, and the whole text
    choices.py      programs as lists of choices, which shrink
    relations.py    programs that must compute the same
    data.py         arrays

hypothesis is imported when a strategy is asked for: `random_program(seed)` works without.
Left out: programs with errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minitri.testing.data import random_array
from minitri.testing.statements import Statements
from minitri.testing.writer import Parameter, RandomProgram

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Parameter", "RandomProgram", "arrays", "programs", "random_array", "random_program"]


def programs(max_ops: int = 8) -> SearchStrategy[RandomProgram]:
    """Well-typed programs of up to `max_ops` statements; they shrink to few and simple ones."""
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Callable[[Any], Any]) -> RandomProgram:
        ops = draw(st.integers(1, max_ops))
        return Statements(lambda options: draw(st.sampled_from(options))).program(ops)

    return strategy()


def arrays(type: str, sizes: dict[str, int], low: float = -4, high: float = 4) -> SearchStrategy[Any]:
    """Arrays of a type as the language writes it (`"f32[M, N]"`), of any strides."""
    from hypothesis import strategies as st

    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: random_array(type, sizes, np.random.default_rng(seed), low, high))


def random_program(seed: int, max_ops: int = 8) -> RandomProgram:
    """The same program for the same seed, without hypothesis."""
    rng = random.Random(seed)
    return Statements(rng.choice).program(rng.randint(1, max_ops))
