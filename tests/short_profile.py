"""Chooses which parameters are tested always, and which only in the full profile (`slow` tests)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import pytest

try:
    from hypothesis import settings
except ImportError:  # the other tests need no hypothesis
    settings = None


def one_in(step: int, *axes: Sequence[Any]) -> list[Any]:
    """All combinations of one value of each axis. Every combination whose positions add up to a multiple of `step`
    is tested always. The others are slow tests.

    Each value is always tested with one in `step` values of the other axes.
    """
    places = product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(*(axis[i] for axis, i in zip(axes, place, strict=True)), marks=slow_unless(sum(place) % step == 0))
        for place in places
    ]


def every_second(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of one value of each axis. As on a chessboard, every second combination is a slow test."""
    return one_in(2, *axes)


def slow_except(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """All values. A value that is not in `quick` is a slow test."""
    return [pytest.param(value, marks=slow_unless(value in quick)) for value in values]


def numbers(quick: int, full: int) -> list[Any]:
    """The numbers below `full`, for example seeds. Numbers from `quick` up are slow tests."""
    return slow_except(range(quick), range(full))


def examples(quick: int, full: int) -> int:
    """How many examples hypothesis draws for a test that needs more than others, in the quick and in the full profile."""
    return quick if settings().max_examples < 10 else full


def slow_unless(quick: bool) -> list[pytest.MarkDecorator]:
    """The marks of a parameter that is tested always if `quick`."""
    return [] if quick else [pytest.mark.slow]
