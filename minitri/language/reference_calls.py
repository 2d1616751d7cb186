"""Calls in the reference evaluator: a function calls another one once for equal arguments (language/signatures.py).

The results of other functions are not kept: they would only take memory. Arrays are the same argument if their
contents are, which a digest tells.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from minitri.language import ast, library
from minitri.language.reference_functions import Array, Value
from minitri.language.signatures import Memo


class Calls:
    """The functions that a program can call, and the results of calls so far."""

    def __init__(self, functions: Mapping[str, ast.Function]) -> None:
        self.functions = functions
        self._results: Memo[Value] = Memo(_contents)
        self._outer: dict[ast.Function, bool] = {}

    def for_library(self) -> Calls:
        """For the body of a library function, whose calls do not see the module's functions."""
        return Calls({}) if self.functions else self

    def once(self, function: ast.Function, arguments: Mapping[str, Value], make: Callable[[], Value]) -> Value:
        """The result of a call: the one from before, or what `make` gives now."""
        return self._results.once(function, arguments, make) if self._calls_others(function) else make()

    def _calls_others(self, function: ast.Function) -> bool:
        if function not in self._outer:
            called = {n.function for s in function.body for n in ast.postorder(s) if isinstance(n, ast.Call)}
            self._outer[function] = not called.isdisjoint({*self.functions, *library.functions()})
        return self._outer[function]


def _contents(value: Value) -> Hashable:
    if not isinstance(value, Array):
        return value
    wide = None if value.wide is None else _digest(value.wide)
    return value.dtype.name, value.weak, value.data.shape, _digest(value.data), wide


def _digest(data: np.ndarray[Any, Any]) -> bytes:
    return blake2b(np.ascontiguousarray(data).tobytes(), digest_size=16).digest()
