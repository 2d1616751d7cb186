"""Thresholds of the compiler, lowered for a while: the one way to let a rewrite fire at small sizes.

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
    """Other numbers in the place of constants, by the module (in `minitri`) and the name of each."""
    with ExitStack() as stack:
        for name, value in thresholds.items():
            module, _, constant = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(f"minitri.{module}"), constant, value))
        yield
