"""Chooses which combinations of parameters are tested always, and which only in the full profile (`slow` tests)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def every_second(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of one value of each axis. As on a chessboard, every second combination is a slow test."""
    places = product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, place, strict=True)), marks=[pytest.mark.slow] * (sum(place) % 2)
        )
        for place in places
    ]
