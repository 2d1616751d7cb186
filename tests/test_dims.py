"""Symbolic integers: equal expressions are equal objects, and arithmetic is Python's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import minitri as mt
from minitri.base.dims import Dim, Symbol, axis, size
from minitri.base.intervals import bounds, simplify

N, M, I = size("N"), size("M"), axis("i")
RANGES = {Symbol("i", "axis"): (Dim.of(0), N - 1)}

leaves = st.sampled_from([N, M, I]) | st.integers(-9, 9).map(Dim.of)
operations: list[Callable[[Dim, Dim], Dim]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // (b * b + 1),
    lambda a, b: a % (b * b + 1),
    lambda a, b: a // 4,
    lambda a, b: a % 4,
]
trees = st.recursive(
    leaves.map(lambda d: (d, lambda env: d.compute(env))),
    lambda below: st.tuples(st.sampled_from(operations), below, below).map(
        lambda t: (t[0](t[1][0], t[2][0]), lambda env: t[0](t[1][1](env), t[2][1](env)))
    ),
    max_leaves=8,
)


def environment(n: int, m: int, i: int) -> dict[Symbol, int]:
    return {Symbol("N"): n, Symbol("M"): m, Symbol("i", "axis"): i}


@given(trees, st.integers(1, 7), st.integers(0, 7), st.integers(0, 6))
def test_canonical_form_keeps_the_value(tree: tuple[Dim, Callable[..., int]], n: int, m: int, i: int) -> None:
    dim, expected = tree
    env = environment(n, m, i % n)
    assert dim.compute(env) == expected(env)
    assert simplify(dim, RANGES).compute(env) == expected(env)
    found = bounds(dim, RANGES)
    if found is not None:
        low, high = (end.compute(env) for end in found)
        assert low <= expected(env) <= high


def test_a_dimension_may_be_called_as_an_axis_is() -> None:
    i, called_i = axis("i"), size("i")
    assert i + called_i == called_i + i and i * called_i == called_i * i and i != called_i
    f = mt.compile("x + y", x="f32[i, j]", y="f32[j]")
    assert f.check(np.ones((3, 5), np.float32), np.ones(5, np.float32)).ok


def test_constants_leave_a_quotient() -> None:
    assert (4 * M + I + 7) // 4 == M + (I + 3) // 4 + 1
    assert (6 * M) // (2 * M) == 3 and Dim.of(7) // N == Dim.of(7) // size("N")
