"""Sizes with maxima and minima: the canonical form has equal values, is unique for functions of one size, and stays
small.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from minitri.base.dims import Dim, Symbol, size, value
from minitri.base.symbolic_minmax import largest, smallest, tidy, where_present

N, M = size("N"), size("M")
ANY = value("v")  # of any sign

Tree = tuple[Dim, Callable[[int], int]]


def trees(base: Dim) -> st.SearchStrategy[Tree]:
    """Nested maxima and minima over one size, with functions that compute them."""
    leaves = st.integers(-6, 6).map(lambda c: (Dim.of(c), lambda n: c))
    leaves |= st.tuples(st.integers(-3, 3), st.integers(-6, 6)).map(
        lambda t: (base * t[0] + t[1], lambda n: t[0] * n + t[1])
    )

    def grown(below: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        both = st.tuples(below, below)
        return (
            both.map(lambda t: (largest(t[0][0], t[1][0]), lambda n: max(t[0][1](n), t[1][1](n))))
            | both.map(lambda t: (smallest(t[0][0], t[1][0]), lambda n: min(t[0][1](n), t[1][1](n))))
            | both.map(lambda t: (t[0][0] - t[1][0], lambda n: t[0][1](n) - t[1][1](n)))
        )

    return st.recursive(leaves, grown, max_leaves=8)


@given(trees(N))
def test_the_canonical_form_is_equal_for_every_size(tree: Tree) -> None:
    d, meaning = tree
    for n in range(30):
        assert tidy(d).evaluate({"N": n}) == d.evaluate({"N": n}) == meaning(n)


@given(trees(ANY))
def test_the_canonical_form_is_equal_for_negative_numbers(tree: Tree) -> None:
    d, meaning = tree
    for n in range(-30, 30):
        assert tidy(d).compute({Symbol("v", "value"): n}) == meaning(n)


@given(trees(N), trees(N))
def test_equal_functions_have_one_form(a: Tree, b: Tree) -> None:
    """The numbers are small, so all breakpoints of the functions are below 100."""
    equal = all(a[1](n) == b[1](n) for n in range(200))
    assert (tidy(a[0] - b[0]) == 0) == equal


@pytest.mark.parametrize(
    ("d", "text"),
    [
        (largest(N - 1, 0) + smallest(N, 1), "N"),
        (N - smallest(N, 1), "N - min(N, 1)"),  # a single one stays
        (2 * smallest(N, 1) + largest(N - 2, 0), "max(N - 2, 0) + 2*min(N, 1)"),
        (smallest(2 * smallest(N, 1) + largest(N - 2, 0), 1), "min(N, 1)"),
        (largest(2 * smallest(N, 1) + largest(N - 2, 0) - 1, 0), "max(N - 2, 0) + min(N, 1)"),
        (largest(largest(N - 3, 0) - 4, 0), "max(N - 7, 0)"),
        (largest(smallest(N, 5) - 7, 0), "0"),
        (smallest(largest(M - N, 0) + 2, 1), "1"),
        (largest(N - M, 0) + smallest(N, M), "N"),
        (largest(N + M - 1, 0) + smallest(N + M, 1), "M + N"),
        (largest(smallest(N, M), smallest(N // 2, 3)), "max(min(N//2, 3), min(N, M))"),  # sums of different terms
        (largest(smallest(N // 2, 4), 2), "max(N//2 - 2, 0) + min(N//2, 4) + 2 - N//2"),
    ],
)
def test_forms(d: Dim, text: str) -> None:
    assert str(tidy(d)) == text


def test_a_step_repeated_does_not_grow() -> None:
    d = N
    for _ in range(40):
        d = tidy(2 * smallest(d, 1) + tidy(largest(d - 2, 0)))
    assert str(d) == "max(N - 2, 0) + 2*min(N, 1)"


@given(trees(N), trees(N))
def test_simplification_for_axes_with_elements(tree: Tree, extent: Tree) -> None:
    known = where_present(tree[0], [extent[0]], lambda size, n: True)
    for n in range(60):
        if extent[1](n) >= 1:
            assert known.evaluate({"N": n}) == tree[1](n)


@pytest.mark.parametrize(
    ("d", "extents", "text"),
    [
        (smallest(N, 1), [N], "1"),
        (smallest(N, 1), [M], "min(N, 1)"),
        (smallest(N, 1), [largest(N - 2, 0)], "1"),
        (largest(N - 2, 0) + smallest(N, 3), [largest(N - 2, 0)], "N + 1"),
        (largest(N - 7, 0), [largest(N - 2, 0)], "max(N - 7, 0)"),
        (largest(N - 7, 0), [largest(2 * N - 30, 0)], "N - 7"),
        (smallest(M, 1) + smallest(N, 1), [M, N], "2"),
    ],
)
def test_forms_for_axes_with_elements(d: Dim, extents: list[Dim], text: str) -> None:
    assert str(where_present(d, extents, lambda size, n: True)) == text
