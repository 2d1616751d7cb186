"""tile.masked → Triton source.

In: tile programs. Out: for each, the text of one `@triton.jit` function and what its
arguments are. One line holds one operation, so that Triton's line tables lead back to it;
`EmittedKernel.lines` says which op each line is.

    %2: f32[i, j] = subtract %0, %1        v2 = v0 - v1[:, None]

Nothing of the user's text gets in: values are v0…, buffers p0…, sizes s0…, scalars a0…, axes
i, j, r…, dtypes come from a table and numbers are printed again. Whatever depends on sizes
alone is computed by the host and passed as an integer argument.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from minitri.base.dims import Dim, Pair, Quotient, Remainder, Symbol, floordiv
from minitri.base.extremes import Largest, smallest
from minitri.base.numpy_semantics import reduction, running
from minitri.base.operators import OPERATORS
from minitri.base.types import DType, f16
from minitri.kernels.ir import (  # fmt: skip
    Buffer,
    Carry,
    Compute,
    Constant,
    Count,
    Dot,
    Inside,
    Load,
    Old,
    Op,
    Picks,
    Position,
    Reduce,
    Scalar,
    Scan,
    Spread,
    Store,
    op_operands,
)
from minitri.optimize.boundary_peeling import passed
from minitri.optimize.f16_products import halved
from minitri.optimize.fast_math.exp2 import is_about_a_row
from minitri.optimize.narrow_integers import narrowed
from minitri.optimize.tensor_descriptors import Descriptor, Descriptors
from minitri.tiles.index_ranges import index_ranges, is_natural
from minitri.tiles.ir import Loop, Program, TileAxis, isolated
from minitri.triton.grid import count, widened, write_grid
from minitri.triton.lines import Lines
from minitri.triton.literals import constant, convert, number, other_value
from minitri.triton.workarounds.accumulators import unknown_starts
from minitri.triton.workarounds.wgmma_wait import settles

COLUMNS, CARRIED_COLUMNS = 128, 32  # from which on maxima of rows of products are made in parts of 16


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """A Triton function and its arguments, in order: pointers, integer sizes, scalars, tensor descriptors. `follows`:
    it starts while the kernel before it ends, and waits for that by itself."""

    name: str
    source: str
    pointers: tuple[Buffer, ...]
    sizes: tuple[Dim, ...]
    scalars: tuple[Buffer, ...]
    tiles: Dim  # how many programs run
    warps: int
    stages: int
    registers: int
    relaxed: bool
    follows: bool
    descriptors: tuple[Descriptor, ...]
    lines: tuple[tuple[int, Op], ...]  # (1-based line of `source`, op)


def emit(program: Program, follows: bool = False, without: Container[str] = ()) -> EmittedKernel:
    """`without`: of the rewrites that are made here those that are left out."""
    return _Emitter(program, follows, without).run()


class _Emitter:
    def __init__(self, program: Program, follows: bool, without: Container[str]) -> None:
        self.program, self.wide, self.follows = program, program.wide, follows  # wide: offsets are 64-bit
        self.axes = {a.name: a for a in program.axes}
        self.lanes = [a.name for a in program.axes if a.block > 1]
        self.pointers = [b for b in program.buffers if b.role != "scalar"]
        self.scalars = [b for b in program.buffers if b.role == "scalar"]
        self.lines = Lines()
        self.add, self.size = self.lines.add, self.lines.size
        self.used, self.needless = 0, frozenset[Dim]()
        self.names: dict[Op, str] = {}
        self.predicates: dict[tuple[Dim, tuple[str, ...]], str] = {}
        self.initials = self._initials()
        self.policies = {} if "cache-hints" in without else cache_policies(program)
        self.descriptors = Descriptors(program, self.pointers)
        self.unknown_starts = unknown_starts(program)
        self.ranges = index_ranges(program)
        halves = () if "f16-products" in without else halved(program)
        integers = {} if "narrow-integers" in without else narrowed(program, self.ranges)
        self.narrowed = {**integers, **dict.fromkeys(halves, f16)}

    def run(self) -> EmittedKernel:
        if self.follows:
            self.add("rt.wait_for_previous()")
        write_grid(self.program, self.lines)
        self._peeled(self.program.grid[-1]) if passed(self.program) else self._statements()
        names = [f"p{k}" for k in range(len(self.pointers))]
        names += [*self.lines.sizes.values(), *[f"a{k}: tl.float64" for k in range(len(self.scalars))]]
        names += [d.name for d in self.descriptors.made]
        head = [f"def {self.program.name}({', '.join(names)}):"]
        source = "\n".join([*head, *self.lines.texts]) + "\n"
        tiles, most = count(self.program), self.program.persistent
        tiles = smallest(tiles, Dim.of(most)) if most else tiles
        lines = tuple((line + 1, op) for line, op in self.lines.ops)
        return EmittedKernel(
            self.program.name, source, tuple(self.pointers), tuple(self.lines.sizes), tuple(self.scalars), tiles,
            self.program.warps, self.program.stages, self.program.registers, self.program.relaxed, self.follows,
            self.descriptors.made, lines,
        )  # fmt: skip

    def _statements(self) -> None:
        for stmt in self.program.body:
            self._loop(stmt) if isinstance(stmt, Loop) else self._op(stmt)

    def _peeled(self, axis: TileAxis) -> None:
        """The statements twice: without the tests that whole tiles pass, and for the last tile with them."""
        whole = self.size(floordiv(axis.extent, Dim.of(axis.block)))
        self._branch(f"if {axis.name}_tile < {whole}:", passed(self.program))
        self._branch("else:", frozenset())

    def _branch(self, head: str, needless: frozenset[Dim]) -> None:
        """Its values have names of their own: Triton would take the same ones for results of both branches."""
        self.used, self.needless, self.names, self.predicates = self.used + len(self.names), needless, {}, {}
        with self.lines.within(head):
            self._statements()

    def _initials(self) -> set[Op]:
        """Constants that are only what a carried value starts with: they are part of its line."""
        ops = list(self.program.ops())
        initials: set[Op] = {op.initial for op in ops if isinstance(op, Carry) and isinstance(op.initial, Constant)}
        used = {o for op in ops if not isinstance(op, Carry) for o in op_operands(op)}
        return initials - used

    def _loop(self, loop: Loop) -> None:
        outer = dict(self.predicates)
        with ExitStack() as nest:
            for a in (self.axes[name] for name in loop.axes):
                block = f"BLOCK_{a.name.upper()}" if a.block > 1 else "1"
                nest.enter_context(self.lines.within(f"for {a.name}_start in range({self._walk(loop, a, block)}):"))
                lanes = widened(f"tl.arange(0, {block})" if a.block > 1 else "tl.full((), 0, tl.int32)", self.program)
                self.add(f"{a.name} = {a.name}_start" + (f" + {lanes}" if a.block > 1 or self.wide else ""))
            if settles(self.program, loop):
                self.add("rt.settle()")
            for op in loop.body:
                self._op(op)
            for carry, following in loop.carries:
                self.add(f"{self.names[carry]} = {self.names[following]}")
        self.predicates = outer

    def _walk(self, loop: Loop, axis: TileAxis, block: str) -> str:
        if self.program.from_end(loop):
            start = floordiv(axis.extent - 1, Dim.of(axis.block)) * axis.block
            return f"{self.size(start)}, -{block}, -{block}"
        first = "0" if loop.first is None else self._index_expr(loop.first, ())
        last = self.size(axis.extent) if loop.last is None else self._index_expr(loop.last, ())
        return f"{first}, {last}, {block}"

    # ---- expressions -----------------------------------------------------------------

    def _lanes(self, axes: Iterable[str]) -> tuple[str, ...]:
        axes = set(axes)
        return tuple(a for a in self.lanes if a in axes)

    def _aligned(self, name: str, own: tuple[str, ...], context: tuple[str, ...]) -> str:
        """A value with lanes `own`, indexed so that it broadcasts among lanes `context`."""
        if own == context or not own:
            return name
        return f"{name}[{', '.join(':' if a in own else 'None' for a in context)}]"

    def _value(self, op: Op, context: tuple[str, ...]) -> str:
        return self._aligned(self.names[op], self._lanes(op.axes), context)

    def _index_expr(self, d: Dim, context: tuple[str, ...], picks: Picks = ()) -> str:
        """An index expression over axis variables and picked values."""
        bound = dict(picks)
        free = Dim({m: c for m, c in d.terms if self._host(m)})
        parts: list[str] = []
        for monomial, c in d.terms:
            if self._host(monomial):
                continue
            factor = Dim({tuple(a for a in monomial if self._host((a,))): abs(c)})
            atoms = [self._atom(a, context, bound) for a in monomial if not self._host((a,))]
            words = atoms + ([self.size(factor)] if factor != 1 else [])
            parts.append(("- " if c < 0 else "+ ") + " * ".join(words))
        if free.terms or not parts:
            known = free.constant
            parts.append(f"- {-known}" if known is not None and known < 0 else f"+ {self.size(free)}")
        parts.sort(key=lambda p: p[0] == "-")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]

    def _host(self, monomial: tuple[object, ...]) -> bool:
        """Whether a product depends on sizes alone."""
        return all(s.kind == "size" for a in monomial for s in Dim({(a,): 1}).symbols())  # type: ignore[dict-item]

    def _atom(self, a: Symbol | Pair, context: tuple[str, ...], bound: dict[Symbol, Op]) -> str:
        if isinstance(a, Symbol):
            if a.kind == "value":
                return self._value(bound[a], context)
            if a.name.endswith("_start") and self.wide:
                return f"(tl.full((), 0, tl.int64) + {a.name})"
            return self._aligned(a.name, self._lanes([a.name.removesuffix("_lane")]), context)
        picks = tuple(bound.items())
        x, y = self._index_expr(a.a, context, picks), self._index_expr(a.b, context, picks)
        if isinstance(a, (Quotient, Remainder)):
            if is_natural(a.a, self.ranges):
                return f"(({x}) {'//' if isinstance(a, Quotient) else '%'} {_operand(y)})"
            return f"rt.{'floordiv' if isinstance(a, Quotient) else 'remainder'}({x}, {y})"
        return f"tl.{'maximum' if isinstance(a, Largest) else 'minimum'}({x}, {y})"

    def _condition(self, d: Dim, context: tuple[str, ...], picks: Picks) -> str:
        """d >= 0, as a comparison with the axis on the left where it is one."""
        found = isolated(d, self.lanes)
        if found is None:
            return f"{self._index_expr(d, context, picks)} >= 0"
        symbol, sign, bound = found
        left = self._index_expr(Dim({(symbol,): 1}), context, picks)
        return f"{left} {'<' if sign == -1 else '>='} {self._index_expr(bound, context)}"

    def _predicate(self, conditions: Sequence[Dim], context: tuple[str, ...], picks: Picks = ()) -> str:
        """The conjunction of conditions, each made once in its own lanes."""
        tests = [self._test(c, context, picks) for c in conditions]
        if context and not any(self._tested_lanes(c, picks) for c in conditions):
            tests.insert(0, f"tl.full({self._shape(context)}, 1, tl.int1)")  # a mask has lanes if its tile has
        return " & ".join(tests)

    def _tested_lanes(self, condition: Dim, picks: Picks) -> tuple[str, ...]:
        axes = {s.name.removesuffix("_lane") for s in condition.symbols() if s.kind == "axis"}
        axes |= {a for s, v in picks if s in condition.symbols() for a in v.axes}
        return self._lanes(axes)

    def _test(self, condition: Dim, context: tuple[str, ...], picks: Picks) -> str:
        used = tuple((s, v) for s, v in picks if s in condition.symbols())
        own = self._tested_lanes(condition, picks)
        key = (condition, tuple(self.names[v] for _, v in used))
        if key not in self.predicates:
            self.predicates[key] = f"m{len(self.lines.texts)}"
            text = self._condition(condition, own, used)
            # the interpreter takes a scalar comparison for an integer, until it is said to be a truth value
            self.add(f"{self.predicates[key]} = {text if own else f'rt.to_bool({text})'}")
        return self._aligned(self.predicates[key], own, context)

    # ---- ops -------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        if isinstance(op, Store):
            return self._store(op)
        if op in self.initials:
            return None
        text = self._expression(op)
        if text.isidentifier():  # a conversion to the same dtype, a test made before: no operation
            self.names[op] = text
            return
        self.names[op] = f"v{self.used + len(self.names)}"
        self.add(f"{self.names[op]} = {text}", op)

    def _expression(self, op: Op) -> str:
        context = self._lanes(op.axes)
        match op:
            case Load():
                return self._load(op, context)
            case Constant():
                dtype = self._dtype(op)
                return constant(float(op.value) if dtype.is_float else op.value, dtype)
            case Scalar():
                return f"tl.full((), a{self.scalars.index(op.buffer)}, tl.{op.dtype.triton})"
            case Position():
                return self._position(op, context)
            case Inside():
                return self._inside(op, context)
            case Compute(op="cast"):
                return convert(self.names[op.args[0]], self._dtype(op.args[0]), self._dtype(op))
            case Compute():
                operands = [self._value(a, context) for a in op.args]
                text = OPERATORS[op.op].spell(self._dtype(op.args[-1]), *operands, relaxed=self._is_relaxed(op))
                return text if context or OPERATORS[op.op].result != "bool" else f"rt.to_bool({text})"  # as in _test
            case Spread():
                return f"tl.broadcast_to({self._value(op.x, context)}, {self._shape(context)})"
            case Reduce():
                return self._reduce(op)
            case Scan():
                if op.along not in context:
                    return self.names[op.x]
                return f"rt.scan_{running(op.op).name}({self.names[op.x]}, {context.index(op.along)})"
            case Dot():
                return self._dot(op)
            case Carry():
                return self._carry(op, context)
            case Store() | Old() | Count():
                raise AssertionError(f"a {type(op).__name__} has no value here")

    def _dtype(self, op: Op) -> DType:
        """That the kernel computes it in."""
        return self.narrowed.get(op, op.dtype)

    def _is_relaxed(self, op: Compute) -> bool:
        """Where the shorter spelling is used; that of 2**x flushes denormals, which only a row can do without."""
        return self.program.relaxed and (op.op != "exp2" or is_about_a_row(op.args[0]))

    def _shape(self, context: tuple[str, ...]) -> str:
        return f"({''.join(f'{self.axes[a].lanes}, ' for a in context)})"

    def _position(self, op: Position, context: tuple[str, ...]) -> str:
        expr, dtype = self._index_expr(op.expr, context, op.picks), self._dtype(op).triton
        return f"({expr}).to(tl.{dtype})" if context else f"tl.full((), {expr}, tl.{dtype})"

    def _inside(self, op: Inside, context: tuple[str, ...]) -> str:
        if op.conditions:
            return self._predicate(op.conditions, context, op.picks)
        return "tl.full((), 1, tl.int1)"

    def _offset(self, buffer: Buffer, index: Sequence[Dim], context: tuple[str, ...], picks: Picks) -> str:
        offset = sum((d * s for d, s in zip(index, buffer.strides)), Dim.of(0))
        text = self._index_expr(offset, context, picks)
        axes = {s.name for s in offset.symbols() if s.kind == "axis"}
        axes |= {a for s, v in picks if s in offset.symbols() for a in v.axes}
        if self._lanes(axes) != context:
            return f"tl.full({self._shape(context)}, 0, tl.int32) + {_operand(text)}"
        return text

    def _load(self, op: Load, context: tuple[str, ...]) -> str:
        if op in self.descriptors.blocks:
            return self.descriptors.load(op, context, lambda d: self._index_expr(d, ()))
        pointer = f"p{self.pointers.index(op.buffer)}"
        offset = self._offset(op.buffer, op.index, context, op.picks)
        arguments = [pointer if offset == "0" else f"{pointer} + {offset}"]
        if tests := self._tests(op):
            mask = self._predicate(tests, context, op.picks)
            arguments += [f"mask={mask}", f"other={other_value(op.other, op.dtype)}"]
        if op in self.policies:
            arguments.append(f'eviction_policy="{self.policies[op]}"')
        return f"tl.load({', '.join(arguments)})"

    def _tests(self, op: Load | Store) -> list[Dim]:
        """Those that are made here."""
        assert op.mask is not None
        return [c for c in op.mask.conditions if c not in self.needless]

    def _store(self, op: Store) -> None:
        names = {s.name for d in op.index for s in d.symbols()}
        context = self._lanes([*names, *op.value.axes])
        value = self._value(op.value, context)
        if op in self.descriptors.blocks:
            self.add(self.descriptors.store(op, context, value, lambda d: self._index_expr(d, ())), op)
            return
        pointer = f"p{self.pointers.index(op.buffer)}"
        offset = self._offset(op.buffer, op.index, context, ())
        place = pointer if offset == "0" else f"{pointer} + {offset}"
        tests = self._tests(op)
        mask = f", mask={self._predicate(tests, context)}" if tests else ""
        self.add(f"tl.store({place}, {value}{mask})", op)

    def _reduce(self, op: Reduce) -> str:
        lanes, name = self._lanes(op.x.axes), reduction(op.op).name
        over = [lanes.index(a) for a in op.over if a in lanes]
        if op.index is not None:
            index = self._value(op.index, lanes)
            if not over:
                return index
            return f"rt.reduce_{name}({self.names[op.x]}, tl.broadcast_to({index}, {self._shape(lanes)}), {over[0]})[1]"
        if op.op == "max" and self._is_wide_product(op.x, over):
            return f"rt.reduce_max_in_parts({self.names[op.x]})"
        text = self.names[op.x]
        for place in sorted(over, reverse=True):
            text = f"rt.reduce_{name}({text}, {place})"
        return text

    def _is_wide_product(self, op: Op, over: Sequence[int]) -> bool:
        """Whether each warp holds whole rows of a product, or of what is made of one, with many columns. (Of a carried
        one 32 are enough: with one chain NVIDIA's assembler has the tensor cores wait for each instruction.)"""
        lanes = [self.axes[a].lanes for a in self._lanes(op.axes)]
        while isinstance(op, Compute):
            op = max(op.args, key=lambda o: len(o.axes))
        carried = isinstance(op, Carry)
        op = op.initial if isinstance(op, Carry) else op
        many = len(lanes) == 2 and lanes[1] >= (CARRIED_COLUMNS if carried else COLUMNS)
        return many and list(over) == [1] and lanes[0] >= 16 * self.program.warps and isinstance(op, Dot)

    def _dot(self, op: Dot) -> str:
        """Operands oriented as [row, k] and [k, column] of the result's own axis order."""
        first, second = self.program.factors(op)
        outer, inner = op.tile if first is op.a else op.tile[::-1]
        a = self._oriented(first, (outer, op.over))
        b = self._oriented(second, (op.over, inner))
        assert op.acc is not None
        return f'rt.dot({a}, {b}, {self.names[op.acc]}, "{op.precision}")'

    def _oriented(self, op: Op, wanted: tuple[str, str]) -> str:
        lanes = self._lanes(op.axes)
        assert lanes in (wanted, wanted[::-1]), "a product has two axes"
        return self.names[op] if lanes == wanted else f"tl.trans({self.names[op]})"

    def _carry(self, op: Carry, context: tuple[str, ...]) -> str:
        if isinstance(op.initial, Constant):
            start = f"tl.full({self._shape(context)}, {number(op.initial.value)}, tl.{op.dtype.triton})"
            return f"rt.unknown({start})" if op in self.unknown_starts else start
        return (
            f"tl.broadcast_to({self._value(op.initial, context)}, {self._shape(context)})"
            if context
            else self.names[op.initial]
        )


def cache_policies(program: Program) -> dict[Load, str]:
    """Loads after which the L2 cache may drop what was read: those of a program that reads much, each
    element once, and writes little. On an H200 a sum of rows gains 5%; where as much is written as
    read it costs 5% (`minitri bench "row sum" add`).
    """
    ops = list(program.ops())
    loads = [op for op in ops if isinstance(op, Load)]
    lanes = {a.name for a in program.axes if a.role != "grid"}
    writes_much = any(lanes & _axes_of(op.index) for op in ops if isinstance(op, Store))
    if not lanes or writes_much or any(isinstance(op, Dot) for op in ops) or any(op.picks for op in loads):
        return {}
    wanted = {a.name for a in program.axes}
    once = [op for op in loads if [p.buffer.name for p in loads].count(op.buffer.name) == 1]
    return {op: "evict_first" for op in once if wanted <= _axes_of(op.index)}


def _axes_of(index: Sequence[Dim]) -> set[str]:
    return {s.name for d in index for s in d.symbols() if s.kind == "axis"}


def _operand(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"
