"""Predicts how many bytes a thread loads or stores with one instruction: the width that Triton's compiler will choose.

    x[i, j] of f32[1000, 777]     4 bytes: rows are 3108 bytes apart
    x[i + 1]                      4 bytes: it begins 4 bytes past a multiple of 16
    out[i], i < 1000003           4 bytes: i < 1000003 is tested

The function `widths` takes the tile program of a kernel, compiled for a target. It returns a `Width` for each load and
store, with the reason why the access is not wider.

The one idea: one instruction of a thread loads or stores a group of neighbouring elements (up to 16 bytes) if three
conditions hold. Elements that are neighbours along one axis must be neighbours in memory, so that one instruction can
access several of them. The address of the first element must be a multiple of the number of bytes that the instruction
accesses. A bounds check must have the same result for all elements that one instruction accesses.

For each operation that computes an offset, Triton determines three powers of two (lib/Analysis/AxisInfo.cpp in Triton).
Like Triton, this module determines three powers of two from the expression (`Dim`) of an offset:

`contiguity`: the number of neighbouring values that increase by one from each value to the next.
`divisibility`: a power of two that divides the first value of each group of contiguous values.
`constancy`: the length of each run of equal neighbouring values.

A size that is an argument of a kernel can be a multiple of 16 in one call but not in another call. The field `given` of
a `Width` lists the sizes that must be multiples of 16. If a size in `given` is not a multiple of 16, a load or store
instruction moves fewer bytes than the prediction says. The prediction ignores that the loads and stores of a tile can
need different layouts (assignments of elements to threads).
"""

import math
from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

from minitri.base.dims import ZERO, Atom, Dim, Monomial, Quotient, Remainder, Symbol
from minitri.base.intervals import is_natural
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Load, Store
from minitri.kernels.text import comparison
from minitri.tiles.ir import Access, Program, TileAxis, index_axes, index_ranges, isolated, on_host

ALONE = "a program has one element of it"
ANY = 1 << 30  # larger than any tile: stands for all neighbours, and for a power of two that divides 0


class Width(NamedTuple):
    """The vector width of one load or store: how many bytes one instruction of a thread moves.

    `bytes`: the bytes that one instruction moves. `bytes` is None for an access through a tensor descriptor.
    `why`: the reason why the access is not wider.
    `given`: integer arguments of the kernel, such as strides. The prediction assumes that all arguments in `given` are
        multiples of 16.
    """

    bytes: int | None
    why: str = ""
    given: tuple[Dim, ...] = ()


class Info(NamedTuple):
    """The contiguity, divisibility and constancy of an expression along one axis: three powers of two. The docstring of
    the file defines contiguity, divisibility and constancy.
    """

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1


def widths(program: Program, warp: int = 32) -> dict[Access, Width]:
    """Returns the vector width of each load and store. `warp` is the number of threads in a warp."""
    accesses = [op for op in program.ops() if isinstance(op, (Load, Store))]
    threads = warp * program.warps
    return {op: Width(None) if program.hint(op).descriptor else _width(program, op, threads) for op in accesses}


def _width(program: Program, op: Access, threads: int) -> Width:
    """Returns how many bytes one instruction of a thread loads or stores."""
    moved = index_axes(op) | {*(op.axes if isinstance(op, Load) else op.value.axes)}  # the axes of the access's tile
    if not (lanes := [a for a in reversed(program.axes) if a.name in moved and a.block > 1]):
        return Width(op.buffer.dtype.bytes, ALONE)
    # The axis with the most contiguous elements; True assumes that integer arguments are multiples of 16.
    along = max((_Along(program, op, a, True) for a in lanes), key=lambda along: along.whole.contiguity)
    count = math.prod(a.lanes for a in lanes)
    found, others = along.width(count, threads), _Along(program, op, along.axis, False).width(count, threads)
    # The field `given` lists the arguments that matter: the width is smaller if one is not a multiple of 16.
    return found if found.bytes != others.bytes else Width(found.bytes, found.why)


class _Along:
    """Finds the vector width of a load or store along one axis."""

    def __init__(self, program: Program, op: Access, axis: TileAxis, aligned: bool) -> None:
        # `aligned`: integer arguments of the kernel are assumed to be multiples of 16
        self.program, self.op, self.axis, self.aligned = program, op, axis, aligned
        self.picks = {s: v for s, v in op.picks} if isinstance(op, Load) else {}
        self.ranges = index_ranges(program)
        self.firsts = {name: loop.first for loop in program.loops for name in loop.axes if loop.first is not None}
        self.assumed: dict[Dim, None] = {}  # arguments whose divisibility was used
        self.offset = op.offset
        self.whole = self._sum(op.offset)

    def width(self, count: int, threads: int) -> Width:
        """Returns the largest width that the address, the mask and the other limits of the access allow. The field
        `why` of the result names the limit that allows the smallest width. `count` is the number of elements of the
        tile.
        """
        size = self.op.buffer.dtype.bytes
        limits = [(max(1, ALIGNMENT // size), ""), *self._limits(size)]
        limits.append((max(1, count // threads), f"{threads} threads share {count} elements"))
        least = min(n for n, _ in limits)
        return Width(least * size, next(why for n, why in limits if n == least), tuple(self.assumed))

    def _limits(self, size: int) -> Iterator[tuple[int, str]]:
        """Yields (n, reason) for each reason why one instruction accesses at most n neighbouring elements."""
        begin, products = on_host(self.offset)
        moving = [p for p in products if any(map(self._varies, p[2]))]
        for sign, factor, atoms in moving:
            if any(a in self.picks for a in atoms):
                yield 1, "elements are picked one by one"
            elif self.axis.symbol in atoms:
                apart = factor * sign * Dim({tuple(a for a in atoms if a != self.axis.symbol): 1})
                yield ANY if apart == 1 else 1, f"elements lie {_distance(apart, size)} apart"
        yield self.whole.contiguity, f"neighbours need not lie side by side in [{', '.join(map(str, self.op.index))}]"
        for sign, factor, atoms in (p for p in products if p not in moving):
            yield self._product(sign, factor, atoms).divisibility, f"rows lie {_distance(factor * sign, size)} apart"
        past = f"{begin.constant * size % ALIGNMENT} bytes" if begin.constant is not None else f"{begin} elements"
        yield self._argument(begin).divisibility, f"it begins {past} past a multiple of {ALIGNMENT}"
        yield self.whole.divisibility, f"blocks have {self.axis.block} elements"
        tests = self.op.mask.conditions if self.op.mask is not None else ()
        for test in (t for t in tests if t not in self.program.peeled_tests):
            yield self._test(test), f"{comparison(test)} is tested"

    # ---- what is known of values along the axis --------------------------------------

    def _varies(self, atom: Atom) -> bool:
        """Checks whether a value differs between neighbouring elements along the axis."""
        symbols = Dim({(atom,): 1}).symbols()
        picked = {a for s in symbols if s in self.picks for a in self.picks[s].axes}
        return self.axis.name in picked | {s.name.removesuffix("_lane") for s in symbols if s.kind == "axis"}

    def _sum(self, d: Dim) -> Info:
        """Returns the contiguity, divisibility and constancy of a sum of products."""
        host, products = on_host(d)  # `host`: the terms of sizes only, which are one integer argument of the kernel
        parts = [self._product(*p) for p in products]
        parts += [self._argument(host)] if host.terms or not parts else []
        return reduce(_added, parts)

    def _product(self, sign: int, factor: Dim, atoms: Monomial) -> Info:
        parts = [*map(self._atom, atoms), *([self._argument(factor)] if factor != 1 else [])]
        found = reduce(_multiplied, parts)
        return found if sign > 0 else Info(1, found.divisibility, found.constancy)

    def _argument(self, d: Dim) -> Info:
        """Returns the contiguity, divisibility and constancy of an expression over sizes."""
        if d.constant is not None:  # a literal in the kernel
            return Info(1, _power(d.constant), ANY)
        if all(c % ALIGNMENT == 0 for _, c in d.terms):
            return Info(1, ALIGNMENT, ANY)
        self.assumed[d] = None  # an integer argument that the host computes
        return Info(1, ALIGNMENT if self.aligned else 1, ANY)

    def _atom(self, atom: Atom) -> Info:
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        x, y = self._sum(atom.a), self._sum(atom.b)
        steps = min(x.contiguity, x.divisibility, y.divisibility) if y.constancy == ANY else 1
        constancy = min(x.constancy, y.constancy)
        if isinstance(atom, (Quotient, Remainder)) and not is_natural(atom.a, self.ranges):
            return Info(1, 1, ANY if constancy == ANY else 1)  # rounding down takes several operations
        match atom:
            case Quotient():
                return Info(1, 1, max(constancy, steps))
            case Remainder():
                return Info(steps, min(x.divisibility, y.divisibility), constancy)
        return Info(min(x.contiguity, y.contiguity), min(x.divisibility, y.divisibility), constancy)

    def _symbol(self, s: Symbol) -> Info:
        """Returns the contiguity, divisibility and constancy of a symbol in an index."""
        if s.kind == "value":  # a loaded value
            return Info(1, 1, 1 if self._varies(s) else ANY)
        axes = {a.name: a for a in self.program.axes}
        if s.name not in axes and s.name.removesuffix("_start") in axes:
            return Info(1, self._block_divisor(axes[s.name.removesuffix("_start")]), ANY)
        a = axes[s.name.removesuffix("_lane")]  # an index is the start of a block plus a position
        if a is not self.axis:
            return Info(1, 1 if a.block > 1 else self._block_divisor(a), ANY)
        return Info(a.lanes, ANY if s.name != a.name else self._block_divisor(a), 1)

    def _block_divisor(self, a: TileAxis) -> int:
        """Returns a power of two that divides the first index of every block."""
        if a.role == "whole":
            return ANY
        first = self._sum(self.firsts[a.name]).divisibility if a.name in self.firsts else ANY
        return min(first, _power(a.block))

    def _test(self, condition: Dim) -> int:
        """Returns for how many neighbouring elements a bounds check has the same result."""
        found = isolated(condition, [a.name for a in self.program.axes if a.block > 1])
        # The form in which the test is printed.
        left, bound = (condition, ZERO) if found is None else (Dim({(found[0],): 1}), found[2])
        if not any(map(self._varies, left.atoms())):
            return ANY
        x = self._sum(left)
        return max(x.constancy, min(x.contiguity, x.divisibility, self._sum(bound).divisibility))


def _added(x: Info, y: Info) -> Info:
    contiguity = max(min(x.contiguity, y.constancy), min(x.constancy, y.contiguity))
    return Info(contiguity, min(x.divisibility, y.divisibility), min(x.constancy, y.constancy))


def _multiplied(x: Info, y: Info) -> Info:
    """Returns the contiguity, divisibility and constancy of a product of two indices."""
    # 8 divides only the first of the values 8, 9, 10, so such a factor contributes only 1
    parts = [i.divisibility if i.contiguity == 1 else 1 for i in (x, y)]
    return Info(1, min(ANY, parts[0] * parts[1]), min(x.constancy, y.constancy))


def _power(n: int) -> int:
    """Returns the largest power of two that divides n."""
    return n & -n if n else ANY


def _distance(apart: Dim, size: int) -> str:
    return f"{apart.constant * size} bytes" if apart.constant is not None else f"{apart} elements"
