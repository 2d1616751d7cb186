"""How many bytes a thread loads or stores with one instruction: the width that Triton's compiler will choose.

    x[i, j] of f32[1000, 777]     4 bytes: rows are 3108 bytes apart
    x[i + 1]                      4 bytes: it begins 4 bytes past a multiple of 16
    out[i], i < 1000003           4 bytes: i < 1000003 is tested

In: a program for its target. Out: a `Width` for each load and store, with the reason why it is not wider.

The one idea: a thread moves up to 16 bytes at once under three conditions. Neighbouring indices
along one axis are neighbours in memory. Each group of neighbours begins at a multiple of its size.
One bounds check decides for the whole group.

Triton follows three powers of two through the arithmetic of an offset (its
lib/Analysis/AxisInfo.cpp). This module follows them through the `Dim` of the offset:

    contiguity     how many neighbours increase by one
    divisibility   a power of two that divides the first neighbour
    constancy      how many neighbours are equal

Whether 16 divides a size that is an argument can differ from call to call. Left out: a tile whose
accesses want different layouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from minitri.base.dims import ZERO, Atom, Dim, Monomial, Quotient, Remainder, Symbol
from minitri.base.intervals import is_natural
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Load, Store
from minitri.kernels.text import comparison
from minitri.tiles.ir import Access, Loop, Program, TileAxis, index_axes, index_ranges, isolated

ALONE = "a program has one element of it"
ANY = 1 << 30  # of neighbours: all there are; of what divides a number: everything does, it is 0


@dataclass(frozen=True, slots=True)
class Width:
    """`bytes`: None for blocks through a tensor descriptor. `given`: what 16 has to divide in a call for that."""

    bytes: int | None
    why: str = ""
    given: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Info:
    """Of values along one axis. Powers of two."""

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1


def widths(program: Program, warp: int = 32) -> dict[Access, Width]:
    """`warp`: how many threads one has."""
    accesses = [op for op in program.ops() if isinstance(op, (Load, Store))]
    return {
        op: Width(None) if program.hint(op).descriptor else _width(program, op, warp * program.warps) for op in accesses
    }


def _width(program: Program, op: Access, threads: int) -> Width:
    """Along the axis with most neighbours, in calls where 16 divides all arguments; if it is less in others, these
    are named."""
    moved = index_axes(op) | {*(op.axes if isinstance(op, Load) else op.value.axes)}  # the axes of its tile
    lanes = [a for a in reversed(program.axes) if a.name in moved and a.block > 1]
    if not lanes:
        return Width(op.buffer.dtype.bytes, ALONE)
    along = max((_Along(program, op, a, True) for a in lanes), key=lambda along: along.whole.contiguity)
    count = math.prod(a.lanes for a in lanes)
    found, others = along.width(count, threads), _Along(program, op, along.axis, False).width(count, threads)
    return found if found.bytes != others.bytes else Width(found.bytes, found.why)


class _Along:
    """An access along one axis. `round`: whether arguments are multiples of 16."""

    def __init__(self, program: Program, op: Access, axis: TileAxis, round: bool) -> None:
        self.program, self.op, self.axis, self.round = program, op, axis, round
        self.picks = {s: v for s, v in op.picks} if isinstance(op, Load) else {}
        self.ranges = index_ranges(program)
        loops = [stmt for stmt in program.body if isinstance(stmt, Loop)]
        self.firsts = {name: loop.first for loop in loops for name in loop.axes if loop.first is not None}
        self.asked: dict[Dim, None] = {}  # arguments
        self.offset = sum((d * s for d, s in zip(op.index, op.buffer.strides)), ZERO)
        self.whole = self._sum(self.offset)

    def width(self, count: int, threads: int) -> Width:
        """The least that a part of the access allows, and the first part that allows no more. `count`: elements of
        the tile."""
        size = self.op.buffer.dtype.bytes
        limits = [(max(1, ALIGNMENT // size), ""), *self._limits(size)]
        limits.append((max(1, count // threads), f"{threads} threads share {count} elements"))
        least = min(n for n, _ in limits)
        return Width(least * size, next(why for n, why in limits if n == least), tuple(self.asked))

    def _limits(self, size: int) -> Iterator[tuple[int, str]]:
        """How many elements at a time each part of the access allows."""
        moving = [(m, c) for m, c in self.offset.terms if any(map(self._moves, m))]
        for monomial, c in moving:
            if any(a in self.picks for a in monomial):
                yield 1, "elements are picked one by one"
            elif self.axis.symbol in monomial:
                apart = Dim({tuple(a for a in monomial if a != self.axis.symbol): c})
                yield ANY if apart == 1 else 1, f"elements lie {_distance(apart, size)} apart"
        yield self.whole.contiguity, f"neighbours need not lie side by side in [{', '.join(map(str, self.op.index))}]"
        for monomial, c in self.offset.terms:
            if not _is_host(monomial) and (monomial, c) not in moving:
                apart = Dim({tuple(a for a in monomial if _is_host((a,))): c})
                yield self._product(monomial, c).divisibility, f"rows lie {_distance(apart, size)} apart"
        begin = _of_sizes(self.offset)
        past = f"{begin.constant * size % ALIGNMENT} bytes" if begin.constant is not None else f"{begin} elements"
        yield self._argument(begin).divisibility, f"it begins {past} past a multiple of {ALIGNMENT}"
        yield self.whole.divisibility, f"blocks have {self.axis.block} elements"
        tests = self.op.mask.conditions if self.op.mask is not None else ()
        for test in (t for t in tests if t not in self.program.peeled_tests):
            yield self._test(test), f"{comparison(test)} is tested"

    # ---- what is known of values along the axis --------------------------------------

    def _moves(self, atom: Atom) -> bool:
        """Whether a value differs from neighbour to neighbour."""
        symbols = Dim({(atom,): 1}).symbols()
        picked = {a for s in symbols if s in self.picks for a in self.picks[s].axes}
        return self.axis.name in picked | {s.name.removesuffix("_lane") for s in symbols if s.kind == "axis"}

    def _sum(self, d: Dim) -> Info:
        """Terms of sizes alone are one argument."""
        host = _of_sizes(d)
        parts = [self._product(m, c) for m, c in d.terms if not _is_host(m)]
        parts += [self._argument(host)] if host.terms or not parts else []
        return reduce(_added, parts)

    def _product(self, monomial: Monomial, c: int) -> Info:
        factor = Dim({tuple(a for a in monomial if _is_host((a,))): abs(c)})
        parts = [self._atom(a) for a in monomial if not _is_host((a,))]
        parts += [self._argument(factor)] if factor != 1 else []
        found = reduce(_multiplied, parts)
        return found if c > 0 else Info(1, found.divisibility, found.constancy)

    def _argument(self, d: Dim) -> Info:
        """Of sizes alone: a literal, or an integer that a launch looks at."""
        if d.constant is not None:
            return Info(1, _power(d.constant), ANY)
        if all(c % ALIGNMENT == 0 for _, c in d.terms):
            return Info(1, ALIGNMENT, ANY)
        self.asked[d] = None
        return Info(1, ALIGNMENT if self.round else 1, ANY)

    def _atom(self, atom: Atom) -> Info:
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        x, y = self._sum(atom.a), self._sum(atom.b)
        steps = min(x.contiguity, x.divisibility, y.divisibility) if y.constancy == ANY else 1
        constancy = min(x.constancy, y.constancy)
        if isinstance(atom, (Quotient, Remainder)) and not is_natural(atom.a, self.ranges):
            return Info(1, 1, ANY if constancy == ANY else 1)  # several operations: what rounds down
        match atom:
            case Quotient():
                return Info(1, 1, max(constancy, steps))
            case Remainder():
                return Info(steps, min(x.divisibility, y.divisibility), constancy)
            case _:
                return Info(min(x.contiguity, y.contiguity), min(x.divisibility, y.divisibility), constancy)

    def _symbol(self, s: Symbol) -> Info:
        """An index is the start of its block plus a position in the block; a loaded value can be any number."""
        if s.kind == "value":
            return Info(1, 1, 1 if self._moves(s) else ANY)
        axes = {a.name: a for a in self.program.axes}
        if s.name not in axes and s.name.removesuffix("_start") in axes:
            return Info(1, self._begin(axes[s.name.removesuffix("_start")]), ANY)
        a = axes[s.name.removesuffix("_lane")]
        if a is not self.axis:
            return Info(1, 1 if a.block > 1 else self._begin(a), ANY)
        return Info(a.lanes, ANY if s.name != a.name else self._begin(a), 1)

    def _begin(self, a: TileAxis) -> int:
        """What divides the first index of a block."""
        if a.role == "whole":
            return ANY
        first = self._sum(self.firsts[a.name]).divisibility if a.name in self.firsts else ANY
        return min(first, _power(a.block))

    def _test(self, condition: Dim) -> int:
        """How many neighbours a test is the same for."""
        found = isolated(condition, [a.name for a in self.program.axes if a.block > 1])
        left, bound = (condition, ZERO) if found is None else (Dim({(found[0],): 1}), found[2])  # as it is printed
        if not any(map(self._moves, left.atoms())):
            return ANY
        x = self._sum(left)
        return max(x.constancy, min(x.contiguity, x.divisibility, self._sum(bound).divisibility))


def _added(x: Info, y: Info) -> Info:
    contiguity = max(min(x.contiguity, y.constancy), min(x.constancy, y.contiguity))
    return Info(contiguity, min(x.divisibility, y.divisibility), min(x.constancy, y.constancy))


def _multiplied(x: Info, y: Info) -> Info:
    """What divides the first of neighbours that count up divides no other."""
    parts = [i.divisibility if i.contiguity == 1 else 1 for i in (x, y)]
    return Info(1, min(ANY, parts[0] * parts[1]), min(x.constancy, y.constancy))


def _of_sizes(d: Dim) -> Dim:
    return Dim({m: c for m, c in d.terms if _is_host(m)})


def _is_host(monomial: Monomial) -> bool:
    """Whether a product depends on sizes alone, so that the host computes it."""
    return all(s.kind == "size" for a in monomial for s in Dim({(a,): 1}).symbols())


def _power(n: int) -> int:
    """The largest power of two that divides a number."""
    return n & -n if n else ANY


def _distance(apart: Dim, size: int) -> str:
    return f"{apart.constant * size} bytes" if apart.constant is not None else f"{apart} elements"
