"""tile → tile: a loop leaves out the blocks that change nothing of what it carries.

    for r {                                           for r {last = min(S, i_start + 64)} {
      …                                                 …
      %9: bool[i, r] = greater_equal %7, %8             (the index of i is at least that of r)
      %10: f32[i, r] = where %9, %6, %3                 (elsewhere -inf)

In: a program. Out: the same, with bounds of loops in the indices that its block of the grid starts
at. Two questions, and no knowledge of what the program is for:

    neutral   with the condition false in a whole block, is each carried value carried on as it is?
              The body is evaluated with what is known: max with -inf, a sum of exp(-inf - m), a
              product with 0. Once for a maximum that has seen nothing yet, once for any other.
    where     a conjunction of affine comparisons of r and an axis of the grid: for which r can it hold
              for some element of the block? And for which does it hold for all: there the loop does
              without the test, so that it becomes two or three loops over the same carried values.

A maximum may have become nan or inf before: then what follows it is nan already, and stays it. A
product with 0 is 0 for finite factors: of a key that is masked for all rows of a block an infinite value
is not read (docs/semantics.md). Left out: conditions on what is read from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.dims import Dim, floordiv, largest, smallest
from minitri.kernel.ir import (
    Carry,
    Compute,
    Constant,
    Dot,
    Op,
    Position,
    Reduce,
    Scan,
    Spread,
    Store,
    op_operands,
    with_operands,
)  # fmt: skip
from minitri.ops import OPERATORS
from minitri.tile.conditions import conjuncts, is_known
from minitri.tile.ir import Loop, Program, Stmt, block_start
from minitri.tile.online import lowest

BOTTOM = float("-inf")
STAND_IN = {"where", "isfinite", "equal", "isinf", "logical_not"}  # what keeps a value that is not -inf so
SCALED = "multiply"  # by a positive number; where that comes to -inf what follows the maximum is nan already


def skip(program: Program) -> Program:
    body: list[Stmt] = []
    for s in program.body:
        body += _Skipping(program, s).loops() if isinstance(s, Loop) and len(s.axes) == 1 else [s]
    return replace(program, body=tuple(body))


class _Skipping:
    """One loop over one axis."""

    def __init__(self, program: Program, loop: Loop) -> None:
        self.program, self.loop = program, loop
        self.axis = program.axis(loop.axes[0])
        ops = list(program.ops())
        conditions = [op.args[0] for op in loop.body if isinstance(op, Compute) and op.op == "where"]
        self.conditions = [
            c for c in dict.fromkeys(conditions)
            if self.axis.name in c.axes and all(_neutral(loop, ops, c, bottom) for bottom in (True, False))
        ]  # fmt: skip
        self.tests = [t for c in self.conditions for t in conjuncts(c)]

    def loops(self) -> list[Stmt]:
        """The pieces in the order of the axis; of products the last one first. The piece with most rounds then
        comes last, and takes fewer registers; and where it is followed by one that surely runs, NVIDIA's
        assembler has the tensor cores wait for each instruction (its message C7515). (minitri/tile/rotate.py
        puts a loop that it rotates ahead again.)"""
        pieces = self._pieces()
        return pieces[::-1] if self._may_turn() else pieces

    def _may_turn(self) -> bool:
        """Whether a product, and nothing that asks what came before, is made."""
        return not any(map(self._is_ordered, self.loop.body)) and any(isinstance(op, Dot) for op in self.loop.body)

    def _is_ordered(self, op: Op) -> bool:
        start = block_start(self.axis.name).atom
        counts = isinstance(op, Position) and start in op.expr.symbols()  # elements before this block
        first = (
            isinstance(op, Compute) and op.op in ("greater", "less") and isinstance(op.args[1], Carry)
        )  # of equal ones
        return counts or first or isinstance(op, Scan) or isinstance(op, Reduce) and op.index is not None

    def _pieces(self) -> list[Stmt]:
        """Blocks where a condition holds for some elements, for all, for some again; of loops over products
        a last block that may be short is apart, so that no other is tested for where the axis ends."""
        first, last = self._ends(_most)
        whole = self._down(self.axis.extent) if self._may_end_short() else self.axis.extent
        if first is None and last is None:
            return (
                [self.loop]
                if whole == self.axis.extent
                else [self._loop(None, whole, copy=True), self._loop(whole, None)]
            )
        known = all(is_known(c) for c in self.conditions)
        inner_first, inner_last = self._ends(_least) if known else (None, None)
        if not known or (first is None) != (inner_first is None) or (last is None) != (inner_last is None):
            return [self._loop(first and self._down(first), last)]
        made: list[Stmt] = []
        start = first and self._down(first)
        if inner_first is not None:
            stop = self.axis.extent if last is None else last
            made.append(self._loop(start, smallest(self._up(inner_first), stop), copy=True))
            start = self._up(inner_first)
        return [*made, *self._from_full(start, inner_last, last, whole)]

    def _from_full(self, start: Dim | None, inner_last: Dim | None, last: Dim | None, whole: Dim) -> list[Stmt]:
        """From the first block on where the conditions hold for all elements."""
        if inner_last is None and whole == self.axis.extent:
            return [self._loop(start, None, full=True)]
        end = whole if inner_last is None else self._down(largest(inner_last, 0))
        end = end if whole == self.axis.extent else smallest(end, whole)
        full = self._loop(start, smallest(end, self.axis.extent), full=True)
        return [full, self._loop(end if start is None else largest(start, end), last, full=inner_last is None)]

    def _may_end_short(self) -> bool:
        kinds, extent = {type(op) for op in self.loop.body}, self.axis.extent
        if extent.constant is not None and extent.constant < 2 * self.axis.block:
            return False  # most of it is the last block
        return {Dot, Reduce} <= kinds and any(c % self.axis.block for _, c in extent.terms)

    def _ends(self, of: Callable[[Program, Dim], Dim | None]) -> tuple[Dim | None, Dim | None]:
        """The first index and the one to end before; `of` gives a bound of the rest of a test in a block."""
        first: Dim | None = None
        last: Dim | None = None
        for test in self.tests:
            split = test.coefficient(self.axis.symbol)
            rest = of(self.program, split[1]) if split is not None and split[0] in (1, -1) else None
            if split is not None and rest is not None and split[0] == 1:
                first = largest(-rest, first or 0)
            elif rest is not None:
                last = smallest(rest + 1, self.axis.extent if last is None else last)
        return first, last

    def _down(self, d: Dim) -> Dim:
        return floordiv(d, Dim.of(self.axis.block)) * self.axis.block

    def _up(self, d: Dim) -> Dim:
        return self._down(d + (self.axis.block - 1))

    def _loop(self, first: Dim | None, last: Dim | None, full: bool = False, copy: bool = False) -> Loop:
        """The loop between bounds; `full`: the conditions hold for all of its elements."""
        if not full and not copy:
            return replace(self.loop, first=first, last=last)
        made: dict[Op, Op] = {}
        body: list[Op] = []
        for op in self.loop.body:
            if full and isinstance(op, Compute) and op.op == "where" and op.args[0] in self.conditions:
                x = op.args[1]
                made[op] = made.get(x, x)
                if set(x.axes) == set(op.axes):
                    continue
                made[op] = Spread(dtype=op.dtype, axes=op.axes, spans=op.spans, x=made[op])
            else:
                new = with_operands(op, lambda o: made.get(o, o))
                made[op] = replace(new) if new is op else new
            body.append(made[op])
        carries = tuple((c, made.get(n, n)) for c, n in self.loop.carries)
        return Loop(self.loop.axes, carries, _used(body, [n for _, n in carries]), first, last)


def _used(body: Sequence[Op], results: Sequence[Op]) -> tuple[Op, ...]:
    kept = {*results}
    for op in reversed(body):
        if op in kept or isinstance(op, Store):
            kept |= {op, *op_operands(op)}
    return tuple(op for op in body if op in kept)


# ---- bounds of a block ----------------------------------------------------------------------


def _most(program: Program, d: Dim) -> Dim | None:
    """The largest value in a block, as an expression of where it starts; None if there is none."""
    for a in program.axes:
        if a.symbol not in d.symbols():
            continue
        split = d.coefficient(a.symbol)
        if split is None or split[0].constant is None:
            return None
        end = block_start(a.name) + (a.lanes - 1 if split[0].constant > 0 else 0)
        d = split[0] * end + split[1]
    ours = {f"{a.name}_start" for a in program.grid}
    return d if all(s.kind == "size" or s.name in ours for s in d.symbols()) else None


def _least(program: Program, d: Dim) -> Dim | None:
    most = _most(program, -d)
    return None if most is None else -most


# ---- whether a block changes anything ------------------------------------------------------


def _neutral(loop: Loop, before: Sequence[Op], condition: Op, bottom: bool) -> bool:
    """Whether all that is carried stays, if the condition holds nowhere. `bottom`: maxima are -inf so far."""
    known: dict[Op, Any] = {}
    for op in before:
        known[op] = False if op is condition else _known(op, known, bottom)
    return bool(loop.carries) and all(known[c] == known[n] for c, n in loop.carries)


def _known(op: Op, known: dict[Op, Any], bottom: bool) -> Any:
    """A number, or the text of an expression that stands for the same value wherever it stands."""
    match op:
        case Carry():
            maximum = isinstance(op.initial, Constant) and op.initial.value == BOTTOM
            return BOTTOM if bottom and maximum else f"{'top' if maximum else 'carry'}{id(op)}"
        case Constant():
            return float(op.value) if op.dtype.is_float else op.value
        case Spread():
            return known[op.x]
        case Reduce(op="max" | "min" | "sum") if isinstance(known[op.x], float):
            return known[op.x] if op.op != "sum" or known[op.x] == 0 else f"value{id(op)}"
        case Dot() if op.acc is not None and 0.0 in (known[op.a], known[op.b]):
            return known[op.acc]
        case Compute():
            return _computed(op, [known[a] for a in op.args])
        case _:
            return f"value{id(op)}"


def _computed(op: Compute, args: list[Any]) -> Any:
    text = f"{op.op}({', '.join(map(str, args))})"
    match op.op, args:
        case "where", [bool(c), a, b]:
            return a if c else b
        case "cast", [float(x)] if op.dtype.is_float:
            return x
        case "equal", [str(x), float(y)] if _above_bottom(x) and y == BOTTOM:
            return False
        case "maximum", [str(x), float(y)] | [float(y), str(x)] if y == BOTTOM:
            return x
        case "maximum", [str(x), float(y)] if x.startswith("top") and y == lowest(op.dtype):
            return x  # of numbers none is lower
        case "multiply", [str(x), float(y)] if x.startswith("carry") and y == 0:
            return x  # a transport from -inf: the sum so far is 0, or nan
        case "add", [str(x), float(y)] if y == 0:
            return x
        case "multiply", [str(x), float(y)] if y == 1:
            return x
        case "subtract", [str(x), str(y)] if x == y:
            return 0.0
        case "subtract", [float(x), str(y)] if x == BOTTOM and _above_bottom(y):
            return BOTTOM
        case name, _ if name in OPERATORS and all(isinstance(a, float) for a in args):
            with np.errstate(all="ignore"):
                return OPERATORS[name].numpy(*map(np.float64, args)).item()
        case _:
            return text


def _above_bottom(text: str) -> bool:
    """Whether an expression is one of a maximum that has seen something, as it is, scaled, or 0 in its place."""
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return all(w.startswith("top") or w in STAND_IN or w == SCALED or _at_least_0(w) for w in words)


def _at_least_0(word: str) -> bool:
    return word.replace(".", "", 1).replace("e-", "", 1).isdigit()
