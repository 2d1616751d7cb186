"""Symbolic integers (minitri/base/dims.py): equal expressions are equal objects, and arithmetic is Python's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.base.dims import ZERO, Dim, Symbol, axis, size
from minitri.base.intervals import bounds, mixed_radix, simplify, within

N, M, I, J, K = size("N"), size("M"), axis("i"), axis("j"), axis("k")
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


def test_a_dimension_and_an_axis_may_have_the_same_name() -> None:
    i, called_i = axis("i"), size("i")
    assert i + called_i == called_i + i and i * called_i == called_i * i and i != called_i
    f = mt.compile("x + y", x="f32[i, j]", y="f32[j]")
    assert f.check(np.ones((3, 5), np.float32), np.ones(5, np.float32)).ok


def test_constants_are_moved_out_of_a_quotient() -> None:
    assert (4 * M + I + 7) // 4 == M + (I + 3) // 4 + 1
    assert (6 * M) // (2 * M) == 3 and Dim.of(7) // N == Dim.of(7) // size("N")


@given(st.data())
def test_quotients_of_combined_axes_keep_their_values(data: st.DataObject) -> None:
    """x[i, j, k] as one axis and back: a sum of axes times coefficients is divided by a product of some extents."""
    extents = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    names = [axis(c) for c in "ijkl"][: len(extents)]
    steps = [prod(extents[n + 1 :]) * data.draw(st.sampled_from((1, 1, 1, 2, 3))) for n in range(len(extents))]
    flat = sum((s * a for s, a in zip(steps, names)), start=Dim.of(data.draw(st.integers(-3, 3))))
    by = data.draw(st.sampled_from(steps)) * data.draw(st.integers(1, 4))
    ranges = {Symbol(str(a), "axis"): (ZERO, Dim.of(e - 1)) for a, e in zip(names, extents)}
    for made in (flat // by, flat % by, (flat // by) % 3, (flat % by) // 2):
        simple = simplify(made, ranges)
        for point in product(*map(range, extents)):
            env = {Symbol(str(a), "axis"): p for a, p in zip(names, point)}
            assert simple.compute(env) == made.compute(env), f"{made} is not {simple} at {env}"


@given(st.data())
def test_an_expression_keeps_its_value_where_guards_hold(data: st.DataObject) -> None:
    """A padded array is read only inside; there, (i + 193) // 194 may be just 1."""
    number = st.integers(-6, 6)
    extents = {Symbol(a, "axis"): data.draw(st.integers(1, 9)) for a in "ij"}
    full = {s: (ZERO, Dim.of(e - 1)) for s, e in extents.items()}
    guards = [
        data.draw(number) * I + data.draw(number) * J * data.draw(st.booleans()) + data.draw(number) for _ in "123"
    ]
    whole = data.draw(number) * I + data.draw(number) * J + data.draw(number)
    ranges, made = within(full, guards), [whole // (by := data.draw(st.integers(1, 9))), whole % by, (whole % by) // 2]
    for point in product(*map(range, extents.values())):
        env = dict(zip(extents, point))
        if all(g.compute(env) >= 0 for g in guards):
            assert all(low.compute(env) <= env[s] <= high.compute(env) for s, (low, high) in ranges.items())
            assert [simplify(d, ranges).compute(env) for d in made] == [d.compute(env) for d in made]


def test_guards_narrow_the_ranges_of_axes() -> None:
    i, j, k = I.atom, J.atom, K.atom
    ranges = within(
        {i: (ZERO, Dim.of(9)), j: (ZERO, N - 1), k: (ZERO, Dim.of(2))},
        [2 * I - 3, 8 - I, J - 1, I - K, 5 - 2 * N, K - 4],
    )
    assert ranges == {i: (2, 8), j: (ZERO, N - 1), k: (ZERO, 2)}
    assert simplify((I + 193) // 194, {i: (Dim.of(1), Dim.of(194))}) == 1
    assert simplify((I + 193) % 194, {i: (Dim.of(1), Dim.of(194))}) == I - 1
    assert simplify((I + 193) // 194, {i: (Dim.of(0), Dim.of(194))}) == (I + 193) // 194


@pytest.mark.parametrize(
    "made, columns, simple",
    [
        ((262144 * I + J) // 16777216, Dim.of(262144), I // 64),
        ((262144 * I + J) % 16777216, Dim.of(262144), 262144 * (I % 64) + J),
        ((4 * N * I + J) // (64 * N), 4 * N, I // 16),
        ((512 * I + 8 * J + 3) // 4096, Dim.of(64), I // 8),
        ((512 * I + 8 * J + 8) // 4096, Dim.of(64), (64 * I + J + 1) // 512),
        ((3 * I + J) // 64, Dim.of(3), (3 * I + J) // 64),
    ],
)
def test_terms_smaller_than_the_divisor_are_dropped_from_a_quotient(made: Dim, columns: Dim, simple: Dim) -> None:
    """j is less than `columns`."""
    assert (
        simplify(made, {Symbol("i", "axis"): (ZERO, Dim.of(1023)), Symbol("j", "axis"): (ZERO, columns - 1)}) == simple
    )


@pytest.mark.parametrize(
    "index, whole, digits",
    [
        (32 * I + J, 128, {"j": 1, "i": 32}),
        ((32 * I + J) // 16 * 16 + (32 * I + J) % 16, 128, {"j": 1, "i": 32}),
        (J * 4 + I, 128, {"i": 1, "j": 4}),
        (32 * I + J, 127, {}),
        (33 * I + J, 128, {}),
        (31 * I + J, 128, {}),
        (32 * I - J, 128, {}),
        (32 * I + J + 1, 128, {}),
        (32 * I + size("N"), 128, {}),
        (I, 4, {}),
    ],
)
def test_digits_of_a_mixed_radix_number(index: Dim, whole: int, digits: dict[str, int]) -> None:
    ranges = {Symbol("i", "axis"): (ZERO, Dim.of(3)), Symbol("j", "axis"): (ZERO, Dim.of(31))}
    assert {s.name: weight for s, weight in mixed_radix(index, ranges, Dim.of(whole)).items()} == digits
