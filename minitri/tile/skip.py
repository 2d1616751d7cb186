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
              for some element of the block?

A maximum may have become nan or inf before: then what follows it is nan already, and stays it. A
product with 0 is 0 for finite factors: of a key that is masked for all rows of a block an infinite value
is not read (docs/semantics.md). Left out: conditions on what is read from memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.dims import Dim, floordiv, largest, smallest
from minitri.kernel.ir import Carry, Compute, Constant, Dot, Inside, Op, Position, Reduce, Spread
from minitri.ops import OPERATORS
from minitri.tile.ir import Loop, Program, Stmt, block_start
from minitri.types import i64

BOTTOM = float("-inf")
STAND_IN = {"where", "isfinite", "equal", "isinf", "logical_not"}  # what keeps a value that is not -inf so


def skip(program: Program) -> Program:
    body = [_bounded(program, s) if isinstance(s, Loop) and len(s.axes) == 1 else s for s in program.body]
    return replace(program, body=tuple(body))


def _bounded(program: Program, loop: Loop) -> Stmt:
    before = list(program.ops())
    conditions = [op.args[0] for op in loop.body if isinstance(op, Compute) and op.op == "where"]
    firsts: list[Dim] = []
    lasts: list[Dim] = []
    for condition in dict.fromkeys(conditions):
        if loop.axes[0] in condition.axes and all(_neutral(loop, before, condition, b) for b in (True, False)):
            for test in _conjuncts(condition):
                _reach(program, loop.axes[0], test, firsts, lasts)
    return replace(loop, **_bounds(program, loop.axes[0], firsts, lasts))


def _bounds(program: Program, name: str, firsts: Sequence[Dim], lasts: Sequence[Dim]) -> dict[str, Dim]:
    """From the block that holds the largest first index to the smallest last one."""
    a = program.axis(name)
    found: dict[str, Dim] = {}
    if firsts:
        first = Dim.of(0)
        for d in firsts:
            first = largest(first, d)
        found["first"] = floordiv(first, Dim.of(a.block)) * a.block
    if lasts:
        last = a.extent
        for d in lasts:
            last = smallest(last, d)
        found["last"] = last
    return found


# ---- where a condition can hold ------------------------------------------------------------


def _conjuncts(condition: Op) -> Iterator[Dim]:
    """Affine expressions that are not negative wherever the condition holds."""
    match condition:
        case Spread():
            yield from _conjuncts(condition.x)
        case Inside() if not condition.picks:
            yield from condition.conditions
        case Compute(op="logical_and" | "bitwise_and", args=(a, b)):
            yield from _conjuncts(a)
            yield from _conjuncts(b)
        case Compute(op="less" | "less_equal", args=(Compute(op="abs", args=(x,)), b)):
            x, y = _affine(x), _affine(b)
            if x is not None and y is not None:
                strict = int(condition.op == "less")
                yield from (y - x - strict, y + x - strict)
        case Compute(op="greater" | "greater_equal" | "less" | "less_equal", args=(a, b)):
            x, y = _affine(a), _affine(b)
            if x is not None and y is not None:
                room = x - y if condition.op.startswith("greater") else y - x
                yield room if condition.op.endswith("equal") else room - 1
        case _:
            pass


def _affine(op: Op) -> Dim | None:
    """An integer op as an expression of indices, if it is no more than that."""
    match op:
        case Position() if not op.picks:
            return op.expr
        case Constant() if op.dtype == i64:
            return Dim.of(int(op.value))
        case Spread():
            return _affine(op.x)
        case Compute(op="negative", args=(x,)):
            inner = _affine(x)
            return None if inner is None else -inner
        case Compute(op="add" | "subtract", args=(a, b)) if op.dtype == i64:
            x, y = _affine(a), _affine(b)
            if x is None or y is None:
                return None
            return x + y if op.op == "add" else x - y
        case _:
            return None


def _reach(program: Program, name: str, test: Dim, firsts: list[Dim], lasts: list[Dim]) -> None:
    """What `test >= 0` for some element of the block of the grid says about the index of the loop."""
    a = program.axis(name)
    split = test.coefficient(a.symbol)
    if split is None or split[0] not in (1, -1):
        return
    most = _largest(program, split[1], name)
    if most is not None and split[0] == 1:
        firsts.append(-most)
    elif most is not None:
        lasts.append(most + 1)


def _largest(program: Program, d: Dim, loop: str) -> Dim | None:
    """The largest value in a block, as an expression of where it starts; None if there is none."""
    for a in program.axes:
        if a.symbol not in d.symbols():
            continue
        split = d.coefficient(a.symbol)
        if a.role != "grid" or a.name == loop or split is None or split[0].constant is None:
            return None
        end = block_start(a.name) + (a.lanes - 1 if split[0].constant > 0 else 0)
        d = split[0] * end + split[1]
    ours = {f"{a.name}_start" for a in program.grid}
    return d if all(s.kind == "size" or s.name in ours for s in d.symbols()) else None


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
        case "equal", [str(x), float(y)] if x.startswith("top") and y == BOTTOM:
            return False
        case "maximum", [str(x), float(y)] | [float(y), str(x)] if y == BOTTOM:
            return x
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
    """Whether an expression is one of a maximum that has seen something, as it is or 0 in its place."""
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return all(w.startswith("top") or w in STAND_IN or w == "0.0" for w in words)
