"""Kernels: the graph partitioned, each part as index notation on named axes.

    plan   = Plan(kernels, temporaries, ledger, …)      what runs, in which order
    kernel = Kernel(name, axes, buffers, body)
    axis   = Axis(name, extent, role)                   "parallel" or "reduced"
    buffer = Buffer(name, dtype, shape, strides, role)  "input" "output" "temporary" "scalar"
    op     = Load(buffer, index, picks, guards, other)  buffer[index(axes)]
           | Constant(value) | Scalar(buffer)
           | Position(expr, picks)                      an integer expression of the axes
           | Inside(conditions, picks)                  whether every condition is >= 0
           | Compute(op, args)                          elementwise; "cast" too
           | Spread(x)                                  x repeated over axes it does not have
           | Reduce(op, x, over, rescale, shift) | Scan(op, x, along) | Dot(a, b, over, rescale)
           | Count(over)                                how many elements of these axes are reduced
           | Old(x)                                     a reduction or count before the latest block
           | Store(buffer, index, value)

Every op has a dtype and the axes that index its value, in the kernel's order:
`%3: f32[i, r]`. Broadcasting is a missing axis, a transpose a permuted index, a slice an
offset, a reshape a quotient and a remainder, a gather an index that is itself a value
(`picks` bind its symbol). The order of computation over the axes is still open.

Ops refer to each other by identity; each knows the source spans it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Union

from minitri.base.diagnostics import Span
from minitri.base.dims import ZERO, Dim, Symbol, axis
from minitri.base.types import ArrayType, DType
from minitri.graph.ir import Condition, contiguous


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    extent: Dim
    role: str = "parallel"

    @property
    def index(self) -> Dim:
        return axis(self.name)

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.name, "axis")


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a kernel reads or writes; strides in elements."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    role: str

    def __str__(self) -> str:
        """`x: f32[M, N] {strides = [1, M]}`; strides of a contiguous buffer are left out."""
        if self.role == "scalar":
            return f"{self.name}: {self.dtype}"
        strides = f" {{strides = [{', '.join(map(str, self.strides))}]}}"
        return f"{self.name}: {ArrayType(self.dtype, self.shape)}" + strides * (self.strides != contiguous(self.shape))


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class _Op:
    dtype: DType
    axes: tuple[str, ...]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Mask:
    """What the masking pass found for one access: conditions to test, and why no others.

    `conditions` are Dims that must be >= 0; `reasons` says for each axis why it is tested or
    why it need not be.
    """

    conditions: tuple[Dim, ...]
    reasons: tuple[str, ...] = ()


Picks = tuple[tuple[Symbol, "Op"], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class _Access(_Op):
    """A load or a store."""

    buffer: Buffer
    index: tuple[Dim, ...]
    mask: Mask | None = None

    @property
    def offset(self) -> Dim:
        """How many elements after the first one of the buffer it is."""
        return sum((d * s for d, s in zip(self.index, self.buffer.strides)), ZERO)

    @property
    def indexed_by(self) -> set[str]:
        """The axes that its index names."""
        return {s.name for d in self.index for s in d.symbols() if s.kind == "axis"}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Load(_Access):
    """Where a guard (a Dim that must be >= 0) fails nothing is read and the value is `other`."""

    picks: Picks = ()
    guards: tuple[Dim, ...] = ()
    other: int | float | bool = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Constant(_Op):
    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Scalar(_Op):
    buffer: Buffer


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Position(_Op):
    expr: Dim
    picks: Picks = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Inside(_Op):
    conditions: tuple[Dim, ...]
    picks: Picks = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Compute(_Op):
    op: str
    args: tuple[Op, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Spread(_Op):
    x: Op


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Reduce(_Op):
    """`index`: for argmax and argmin the position of each element, once tiles give it. `rescale`, `shift`:
    what the sum so far is multiplied by, and what is added to it, before a block is added; of all
    elements at once they are 1 and 0 (minitri/optimize/online_reductions/kernels.py)."""

    op: str
    x: Op
    over: tuple[str, ...]
    index: Op | None = None
    rescale: Op | None = None
    shift: Op | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Count(_Op):
    """How many elements of these axes there are; in a loop over them (kernels only) those up to the
    latest block."""

    over: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Old(_Op):
    """What a reduction or count came to before the latest block (kernels only); of all elements at
    once: itself."""

    x: Op


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Scan(_Op):
    op: str
    x: Op
    along: str


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Dot(_Op):
    """Sum over one axis of a * b, where a lacks the second of `tile` and b the first. `rescale`: as of a
    sum."""

    a: Op
    b: Op
    over: str
    tile: tuple[str, str]  # the axes of the rows of a and of the columns of b
    precision: str = "ieee"
    acc: Op | None = None
    rescale: Op | None = None

    @property
    def on_tensor_cores(self) -> bool:
        """Whether tensor cores multiply: factors of at most 16 bits, or f32 factors rounded to fewer (tf32)."""
        return self.precision != "ieee" or self.a.dtype.bits <= 16


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Store(_Access):
    value: Op


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Carry(_Op):
    """A value that a loop carries (tile IR only): `initial` before, the last one after."""

    initial: Op


Access = Union[Load, Store]
Op = Union[Load, Constant, Scalar, Position, Inside, Compute, Spread, Reduce, Count, Old, Scan, Dot, Store, Carry]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """`relaxed`: its f32 arithmetic is only needed to 16 bits (minitri/optimize/fast_math/relax.py)."""

    name: str
    axes: tuple[Axis, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Op, ...]
    relaxed: bool = False

    @property
    def parallel(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.role == "parallel")

    @property
    def reduced(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.role == "reduced")

    @property
    def dots(self) -> tuple[Dot, ...]:
        return tuple(op for op in self.body if isinstance(op, Dot))

    @property
    def shared_loop(self) -> str | None:
        """The axis that products and other reductions loop over together, as in attention; None: there is none."""
        reduced = {a for op in self.body if isinstance(op, Reduce) for a in op.over}
        shared = reduced & {a for d in self.dots for a in (d.over, d.tile[1])}
        return next(iter(shared)) if len(shared) == 1 else None

    @property
    def held(self) -> set[str]:
        """The axes that one program has whole: all axes of products in a shared loop, except their rows and the loop.

        So a result that lacks such an axis is computed and stored once.
        """
        loop = self.shared_loop
        dots = self.dots if loop is not None else ()
        return {name for d in dots for name in (*d.tile, d.over)} - {d.tile[0] for d in dots} - {loop or ""}


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the ledger: an edge of the graph, whether it was fused, and why. `again`: in one
    kernel, but in a loop of its own that reads memory again. `spans`: those of the value."""

    value: str
    producer: str
    consumer: str
    fused: bool
    rule: str
    bytes: Dim
    again: bool = False
    spans: tuple[Span, ...] = field(default=(), compare=False)

    @property
    def verdict(self) -> str:
        return "again" if self.again else "fused" if self.fused else "apart"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    ledger: tuple[Decision, ...]
    conditions: tuple[Condition, ...]


# The fields that hold one operand each, some of which may be None.
OPERANDS: Mapping[type[Op], tuple[str, ...]] = {
    Spread: ("x",), Scan: ("x",), Old: ("x",), Store: ("value",), Carry: ("initial",),
    Reduce: ("x", "index", "rescale", "shift"), Dot: ("a", "b", "acc", "rescale"),
}  # fmt: skip


def op_operands(op: Op) -> tuple[Op, ...]:
    match op:
        case Load() | Inside() | Position():
            return tuple(value for _, value in op.picks)
        case Compute():
            return op.args
        case _:
            held = (getattr(op, name) for name in OPERANDS.get(type(op), ()))
            return tuple(o for o in held if o is not None)


def with_operands(op: Op, new: Callable[[Op], Op]) -> Op:
    """The same op over other operands."""
    match op:
        case Load() | Inside() | Position():
            return replace(op, picks=tuple((s, new(v)) for s, v in op.picks)) if op.picks else op
        case Compute():
            return replace(op, args=tuple(map(new, op.args)))
        case _:
            held = {name: getattr(op, name) for name in OPERANDS.get(type(op), ())}
            return replace(op, **{name: o and new(o) for name, o in held.items()}) if held else op


def needed(root: Op) -> set[Op]:
    """An op and everything that it is made of."""
    stack, seen = [root], set[Op]()
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack += op_operands(op)
    return seen


def reduced_by(op: Op) -> tuple[str, ...]:
    """The axes that a reduction or a product runs over."""
    return op.over if isinstance(op, Reduce) else (op.over,) if isinstance(op, Dot) else ()


def reads_bytes(dot: Dot) -> bool:
    """Whether the second factor is made of an array of 8 bits that has both its axes."""
    loads = [op for op in needed(dot.b) if isinstance(op, Load) and {dot.tile[1], dot.over} <= {*op.axes}]
    return any(op.dtype.bits == 8 for op in loads)


def live(body: Iterable[Op], results: Iterable[Op] = ()) -> tuple[Op, ...]:
    """The ops that `results` or some store needs, in their order."""
    kept = {*results}
    ops = list(body)
    for op in reversed(ops):
        if isinstance(op, Store) or op in kept:
            kept |= {op, *op_operands(op)}
    return tuple(op for op in ops if op in kept)
