"""Arithmetic with Python numbers, and named numbers such as `pi`. Nothing in this file needs an array."""

import operator
from collections.abc import Callable
from typing import Any

UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": lambda x: x * 1, "~": lambda x: not x if isinstance(x, bool) else ~x,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "e": 2.718281828459045}
