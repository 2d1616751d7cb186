"""Calls that were evaluated before: the reference evaluates one function on equal arguments once.

    def f1(x): return f0(x) + f0(x)
    def f2(x): return f1(x) + f1(x)        f1(x) is kept, so f0 is called twice, not four times

In: a function and the values of its arguments. Out: what the call gave the first time. Only functions that call
others are kept: without those the number of calls doubles with each level, and the results of all the others would
only take memory. Arrays are the same argument if their contents are, which a digest tells.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from minitri import library
from minitri.syntax import ast
from minitri.syntax.reference import Array, Value


class Calls:
    """The functions that a program can call, and the results of calls so far."""

    def __init__(self, functions: Mapping[str, ast.Function]) -> None:
        self.functions = functions
        self._results: dict[Hashable, Value] = {}
        self._outer: dict[ast.Function, bool] = {}

    def for_library(self) -> Calls:
        """For the body of a library function, whose calls do not see the module's functions."""
        return Calls({}) if self.functions else self

    def once(self, function: ast.Function, arguments: Mapping[str, Value], make: Callable[[], Value]) -> Value:
        """The result of a call: the one from before, or what `make` gives now."""
        if not self._calls_others(function):
            return make()
        key = function, tuple((name, _key(value)) for name, value in sorted(arguments.items()))
        if key not in self._results:
            self._results[key] = make()
        return self._results[key]

    def _calls_others(self, function: ast.Function) -> bool:
        if function not in self._outer:
            called = {n.function for s in function.body for n in ast.postorder(s) if isinstance(n, ast.Call)}
            self._outer[function] = not called.isdisjoint({*self.functions, *library.functions()})
        return self._outer[function]


def _digest(data: np.ndarray[Any, Any]) -> bytes:
    return blake2b(np.ascontiguousarray(data).tobytes(), digest_size=16).digest()


def _key(value: Value) -> Hashable:
    """Equal for values that no program can tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    match value:
        case Array():
            wide = None if value.wide is None else _digest(value.wide)
            return value.dtype.name, value.weak, value.data.shape, _digest(value.data), wide
        case tuple():
            return tuple(map(_key, value))
        case bool() | int() | float():
            return type(value).__name__, repr(value)
        case _:
            return "other", value
