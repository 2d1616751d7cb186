"""A writer for the statements of a tile program; lowering uses it.

In: ops, one after another. Out: `out`, the body of a program, and the bodies of its loops, which
the caller keeps. A value in a loop has the axes of its operands, in the program's order. Constants
and carried values come before the loop that uses them, each constant once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitri.base.types import DType, bool_
from minitri.kernels.ir import Carry, Compute, Constant, Op
from minitri.tiles.ir import Stmt


class Statements:
    """`axes`: the names of a program's axes, in order."""

    def __init__(self, axes: Sequence[str]) -> None:
        self.axes = axes
        self.out: list[Stmt] = []
        self.constants: dict[tuple[DType, str], Op] = {}

    def add(self, op: Op) -> Op:
        """An op outside of all loops."""
        self.out.append(op)
        return op

    def carry(self, dtype: DType, axes: tuple[str, ...], value: int | float | bool, op: Op) -> Carry:
        """A value that the next loop carries, and what it starts with."""
        start = self.add(Constant(dtype=dtype, axes=(), spans=op.spans, value=value))
        carry = Carry(dtype=dtype, axes=axes, spans=op.spans, initial=start)
        self.add(carry)
        return carry

    def constant(self, like: Op, value: int | float | bool) -> Op:
        """A number that loops use, made before them."""
        key = (like.dtype, repr(value))
        if key not in self.constants:
            self.constants[key] = self.add(Constant(dtype=like.dtype, axes=(), spans=like.spans, value=value))
        return self.constants[key]

    def compute(self, body: list[Any], name: str, *args: Op) -> Op:
        """An elementwise op at the end of a body (`out`, or one of a loop)."""
        axes = tuple(a for a in self.axes if any(a in x.axes for x in args))
        dtype = bool_ if name == "equal" else args[-1].dtype
        op = Compute(dtype=dtype, axes=axes, spans=args[-1].spans, op=name, args=args)
        body.append(op)
        return op
