"""Memoised calls: a call of one function with the same arguments is made once.

    def f1(x): return f0(x) + f0(x)        f0(x) is made once, though it is called twice
    def f2(x): return f1(x) + f1(x)        so f2 needs three calls, not seven

In: a function and the values of its arguments. Out: what the call gave the first time. Without this the number of calls
doubles with each level of functions that call another twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from minitri.language import ast

V = TypeVar("V")


class Memo(Generic[V]):
    """The results of calls, by function and arguments. `key`: what stands for a value that is no number and no tuple."""

    def __init__(self, key: Callable[[Any], Hashable]) -> None:
        self._key = key
        self._made: dict[Hashable, V] = {}

    def once(self, function: ast.Function, arguments: Mapping[str, V], make: Callable[[], V]) -> V:
        """The result of a call: the one from before, or what `make` gives now."""
        key = function, tuple((name, self._of(value)) for name, value in sorted(arguments.items()))
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _of(self, value: Any) -> Hashable:
        """Equal for values that no program can tell apart: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        match value:
            case tuple():
                return tuple(map(self._of, value))
            case bool() | int() | float():
                return type(value).__name__, repr(value)
            case _:
                return "other", self._key(value)
