"""Makes random well-typed programs and arrays, for testing with hypothesis.

The function `random_program` takes a seed, and returns a `RandomProgram`. A `RandomProgram` has the text of a module,
and sizes for the dimensions of the program. The function `programs` returns a strategy of the library hypothesis, which
also shortens failing programs. The method `arguments` of a `RandomProgram` makes numpy arrays for a call.

    @given(programs(max_ops=6), st.integers(0, 99))
    def test(example, seed):
        assert example.compile().check(*example.arguments(seed)).ok

The one idea: random programs are valid by construction. The reference evaluator computes each statement as soon as the
statement is written. When the program writer adds the next statement, it knows the dtype and the shape of every value.

`statement_forms.toml`: contains the forms of statements, with placeholders.
`statement_writer.py`: chooses forms (statements with placeholders) at random, and fills the placeholders. The file
    minitri/bench/random_programs.py uses this module too.
`statement_placeholders.py`: fills each placeholder with a parameter, an earlier value, an axis or a size.
`small_random_programs.py`: writes the statements and the text of a whole program, and shrinks failing programs.
`equivalent_programs.py`: makes changed programs that must compute the same result.
`random_arrays.py`: makes random arrays.

`programs` and `arrays` import hypothesis when they are called; `random_program(seed)` works without hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minitri.testing.random_arrays import random_array
from minitri.testing.small_random_programs import RandomProgram, SmallWriter, recorded
from minitri.testing.statement_placeholders import Parameter

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Parameter", "RandomProgram", "arrays", "programs", "random_array", "random_program"]


def programs(max_ops: int = 8) -> SearchStrategy[RandomProgram]:
    """Returns a hypothesis strategy for well-typed programs of up to `max_ops` statements.

    The library hypothesis shortens a failing program to few and simple statements.
    """
    from hypothesis import strategies as st

    @st.composite
    def strategy(draw: Callable[[Any], Any]) -> RandomProgram:
        ops = draw(st.integers(1, max_ops))
        return SmallWriter(lambda options: draw(st.sampled_from(options))).program(ops)

    return strategy()


def arrays(type: str, sizes: dict[str, int], low: float = -4, high: float = 4) -> SearchStrategy[Any]:
    """Returns a hypothesis strategy for arrays of any strides.

    `type` is a type of the language, such as `"f32[M, N]"`.
    """
    from hypothesis import strategies as st

    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: random_array(type, sizes, np.random.default_rng(seed), low, high))


def random_program(seed: int, max_ops: int = 8) -> RandomProgram:
    """Returns a random program of up to `max_ops` statements, without the help of the library hypothesis.

    The same seed gives the same program.
    """
    return recorded(seed, max_ops)[0]
