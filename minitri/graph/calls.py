"""Calls that were built before: a call of one function with the same arguments is built once.

    def f1(x): return f0(x) + f0(x)        f0(x) is built once, though it is called twice
    def f2(x): return f1(x) + f1(x)        so f2 needs three calls, not seven

In: a function and the values of its arguments. Out: what the call gave the first time, if there was one. The
one idea: nodes are interned, so equal arguments are the same node, and a key is cheap to make. Without this the
number of calls doubles with each level of functions that call another twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from minitri.dims import Dim
from minitri.graph.values import Array, Value
from minitri.syntax import ast


class Calls:
    """The results of calls, by function and arguments."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Value] = {}

    def once(self, function: ast.Function, arguments: Mapping[str, Value], make: Callable[[], Value]) -> Value:
        """The result of a call: the one from before, or what `make` gives now."""
        key = function, tuple((name, _key(value)) for name, value in sorted(arguments.items()))
        if key not in self._results:
            self._results[key] = make()
        return self._results[key]


def _key(value: Value) -> Hashable:
    """Equal for values that no program can tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    match value:
        case Array() | Dim():
            return value
        case tuple():
            return tuple(map(_key, value))
        case bool() | int() | float():
            return type(value).__name__, repr(value)
        case _:
            return "other", value
