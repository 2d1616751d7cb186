"""Lowers thresholds of the compiler during a `with` block, so that a rewrite fires at small sizes.

with lowered({"optimize.split_scan.SHORTEST": 4, "optimize.split_scan.PART": 2}):
    …
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest import mock


@contextmanager
def lowered(thresholds: Mapping[str, int]) -> Iterator[None]:
    """Replaces constants. Each is given by its module (in `minitri`) and its name."""
    with ExitStack() as stack:
        for name, value in thresholds.items():
            module, _, constant = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(f"minitri.{module}"), constant, value))
        yield
