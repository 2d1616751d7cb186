"""The intermediate representation (IR) of kernels: a graph is split into kernels, and each kernel is written in index
notation on named axes.

    plan   = Plan(kernels, temporaries, ledger, …)      the kernels of a program in launch order
    kernel = Kernel(name, axes, buffers, body)
    axis   = Axis(name, extent, role)                   "parallel" or "reduced"
    buffer = Buffer(name, dtype, shape, strides, role)  "input" "output" "temporary" "scalar"
    op     = Load(buffer, index, picks, guards, other)  buffer[index(axes)]
           | Constant(value) | Scalar(buffer)
           | Position(expr, picks)                      the value of an integer expression over the axes
           | Inside(conditions, picks)                  whether every condition is >= 0
           | Compute(op, args)                          an elementwise operator, or "cast"
           | Spread(x)                                  x broadcast along axes that it lacks
           | Reduce(op, x, over, rescale, shift) | Scan(op, x, along) | Dot(a, b, over, rescale)
           | Count(over)                                the number of elements along the axes `over`
           | Old(x)                                     the value that x had before the current block of a loop
           | Store(buffer, index, value)

Every op (operation of a kernel) has a dtype and the axes that index its value: `%3: f32[i, r]`. The axes of an op are
in the order of the kernel's axes. The index of a load expresses broadcasting by a missing axis, a transpose by permuted
axes, and a slice by an added offset. The index of a reshaped array contains quotients and remainders, as in `x[i//8,
i%8]`. In the index of a gather, a symbol stands for each computed value. In a gather, the field `picks` pairs each
symbol in the index with the op that computes the symbol's value. A kernel does not say in which order it computes the
elements along its axes.

Two ops are equal only if they are the same object. Each op keeps the spans (places in the source text) of the
expressions that it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar, Union

from minitri.base.diagnostics import Span
from minitri.base.dims import ZERO, Dim, Symbol, axis, axis_names
from minitri.base.nodes import KeywordNodeClass, Record, children, with_children
from minitri.base.types import ArrayType, DType
from minitri.graph.ir import PRECISIONS, Condition, contiguous, postorder


class Axis(Record):
    name: str
    extent: Dim
    role: str = "parallel"

    @property
    def index(self) -> Dim:
        return axis(self.name)

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.name, "axis")


class Buffer(Record):
    """An array in memory that a kernel reads or writes. `strides` count elements, not bytes."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    role: str

    def layout(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape and the strides of the buffer as numbers, for the given sizes."""
        shape, strides = (tuple(d.evaluate(sizes) for d in dims) for dims in (self.shape, self.strides))
        return shape, strides

    def __str__(self) -> str:
        """The buffer as text, such as `x: f32[M, N] {strides = [1, M]}`. The text omits the strides of a contiguous
        buffer.
        """
        if self.role == "scalar":
            return f"{self.name}: {self.dtype}"
        strides = f" {{strides = [{', '.join(map(str, self.strides))}]}}"
        return f"{self.name}: {ArrayType(self.dtype, self.shape)}" + strides * (self.strides != contiguous(self.shape))


class _Op(metaclass=KeywordNodeClass):
    dtype: DType
    axes: tuple[str, ...]
    spans: tuple[Span, ...] = ()


class Mask(Record):
    """The conditions that a load or store tests before each access, and the reasons for and against bounds checks.

    `conditions` are integer expressions that must be >= 0. For each axis of the load or store, `reasons` has one line
    of text. A line of `reasons` says why one axis needs a bounds check, or why the axis needs no bounds check.
    """

    conditions: tuple[Dim, ...]
    reasons: tuple[str, ...] = ()


Picks = tuple[tuple[Symbol, "Op"], ...]


class _Access(_Op):
    """The fields that loads and stores have in common."""

    buffer: Buffer
    index: tuple[Dim, ...]
    mask: Mask | None = None

    @property
    def offset(self) -> Dim:
        """The distance in memory, counted in elements, from the buffer's first element to the accessed element."""
        return sum((d * s for d, s in zip(self.index, self.buffer.strides)), ZERO)

    @property
    def indexed_by(self) -> set[str]:
        """The names of the axes on which the index of this load or store depends."""
        return axis_names(self.index)


class Load(_Access):
    """A read of one element. If a guard (a condition that must be >= 0) is negative, the load reads nothing and has the
    value `other`.
    """

    picks: Picks = ()
    guards: tuple[Dim, ...] = ()
    other: int | float | bool = 0


class Constant(_Op):
    value: int | float | bool


class Scalar(_Op):
    buffer: Buffer


class Position(_Op):
    expr: Dim
    picks: Picks = ()


class Inside(_Op):
    conditions: tuple[Dim, ...]
    picks: Picks = ()


class Compute(_Op):
    op: str
    args: tuple[Op, ...]


class Spread(_Op):
    x: Op


class Reduce(_Op):
    """A reduction of `x` over the axes `over`.

    `index`: the op that computes the index of each element, for argmax and argmin in tile programs. None otherwise.
    `rescale`: a loop multiplies the partial sum by this factor before the loop adds the next block. None stands for 1.
    `shift`: a loop adds this value to the partial sum before the loop adds the next block. None stands for 0.

    Without a loop, the corrections `rescale` and `shift` have no effect, because there is no partial sum to correct.
    The pass in minitri/optimize/online_reductions/merge_loops.py sets the fields `rescale` and `shift` of reductions.
    """

    op: str
    x: Op
    over: tuple[str, ...]
    index: Op | None = None
    rescale: Op | None = None
    shift: Op | None = None


class Count(_Op):
    """The number of elements that a reduction over the axes `over` combines. In a loop over the axes `over`, a `Count`
    counts the elements of the current block and of all earlier blocks. Lowering replaces each `Count` by a number.
    """

    over: tuple[str, ...]


class Old(_Op):
    """The value that the reduction `x` had before the current iteration of a loop. The op `x` can also be a `Count`.

    If there is no loop, `Old(x)` has the same value as `x`. In a tile program, a value that the loop carries from one
    iteration to the next replaces `Old(x)`.
    """

    x: Op


class Scan(_Op):
    op: str
    x: Op
    along: str


class Dot(_Op):
    """The sum of `a * b` over one axis: a matrix product.

    The field `precision` is one of PRECISIONS (minitri/graph/ir.py) or "tf32x3_unchecked". With "tf32x3_unchecked", a
    sum is sometimes infinite or NaN where IEEE arithmetic gives a number (minitri/optimize/deferred_tf32_checks.py).
    The field `tile` names two axes of the product: the axis of its rows and the axis of its columns. The first factor
    `a` of the product does not have the column axis, and the second factor `b` does not have the row axis. If a loop
    computes the product, each iteration multiplies the partial sum by `rescale` before it adds the products of a block.
    """

    a: Op
    b: Op
    over: str
    tile: tuple[str, str]  # the axes of the rows of a and of the columns of b
    precision: str = "ieee"
    acc: Op | None = None
    rescale: Op | None = None

    @property
    def on_tensor_cores(self) -> bool:
        """Whether tensor cores compute the matrix product. Tensor cores are used if the factors have at most 16 bits,
        or are f32 rounded to tf32.
        """
        return self.precision.startswith("tf32") or self.a.dtype.bits <= 16


class Store(_Access):
    guards: ClassVar[tuple[Dim, ...]] = ()  # a store happens for every index
    value: Op


class Carry(_Op):
    """A carried value: each iteration of a loop passes it to the next iteration. The field `initial` is the carried
    value before the first iteration. After the loop, a `Carry` stands for the value that the last iteration computed.
    """

    initial: Op


Access = Union[Load, Store]
Op = Union[Load, Constant, Scalar, Position, Inside, Compute, Spread, Reduce, Count, Old, Scan, Dot, Store, Carry]


class Kernel(Record, eq=False):
    """One kernel: its axes, its buffers, and its ops in order. If `relaxed` is true, the kernel may use fast math
    (minitri/optimize/fast_math/relax.py), which is too inexact for results of more than 16 bits.
    """

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
        """The axis of a loop that computes matrix products and also other reductions, as in attention. The result is
        None if matrix products and other reductions share no loop.
        """
        reduced = {a for op in self.body if isinstance(op, Reduce) for a in op.over}
        shared = reduced & {a for d in self.dots for a in (d.over, d.tile[1])}
        return next(iter(shared)) if len(shared) == 1 else None

    @property
    def held(self) -> set[str]:
        """The names of the held axes: one grid program computes all elements along a held axis.

        A kernel has held axes only if its matrix products and its reductions share a loop, as in attention. The held
        axes are the column axes and the summed axes of the matrix products. The axis of the shared loop is not held. A
        row axis of any matrix product is not held either. If a value does not vary along a held axis, the grid program
        computes and stores this value only once.
        """
        loop = self.shared_loop
        dots = self.dots if loop is not None else ()
        return {name for d in dots for name in (*d.tile, d.over)} - {d.tile[0] for d in dots} - {loop or ""}


class Decision(Record):
    """One line of the ledger, the list of fusion decisions. A line of the ledger describes a value that one node (the
    producer) passes to another node (the consumer). The field `fused` says whether the producer and the consumer are in
    one kernel, and the field `rule` says why.

    The field `again` is true if one kernel computes the producer in one loop and the consumer in a later loop. The
    later loop must load the kernel's inputs from memory again. If the producer and the consumer are fused, `bytes` is
    the memory traffic that fusion saves. If the producer and the consumer are in different kernels, `bytes` counts the
    write and the read of the value. If several kernels read a value, only one of the ledger lines about this value
    counts the write. The field `spans` has the places of the value in the program text.
    """

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


class Plan(Record, eq=False):
    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    ledger: tuple[Decision, ...]
    conditions: tuple[Condition, ...]


DOT_PRECISIONS = (*PRECISIONS, "tf32x3_unchecked")


def buffers_of(body: Iterable[Op]) -> tuple[Buffer, ...]:
    """Returns the buffers that the ops load or store, in the order of their first access. Each buffer occurs once."""
    return tuple(dict.fromkeys(op.buffer for op in body if isinstance(op, (Load, Store, Scalar))))


def are_slices(stores: Sequence[Store]) -> bool:
    """Checks whether stores write different slices of a buffer, such as `out[i, 0, j]` and `out[i, 1, j]`."""
    numbers = {tuple(d.constant for d in op.index) for op in stores}
    places = {(op.buffer, *(d.constant is None for d in op.index)) for op in stores}
    return len(numbers) == len(stores) and len(places) == 1


def rewritten(body: Iterable[Op], change: Callable[[Op], Op]) -> dict[Op, Op]:
    """Makes a new op for each op of `body`, and returns a dict from the old ops to the new ops. The function `change`
    takes an op whose operands are new ops already, and returns the new op.
    """
    new: dict[Op, Op] = {}
    for op in body:
        new[op] = change(with_children(op, lambda o: new.get(o, o)))
    return new


def index_expressions(op: Op) -> tuple[Dim, ...]:
    """Returns the index expressions of an op: its index, its guards, and the conditions that it tests. Most ops have no
    index expressions.
    """
    match op:
        case Load() | Store():
            return (*op.index, *op.guards, *(op.mask.conditions if op.mask else ()))
        case Position():
            return (op.expr,)
    return op.conditions if isinstance(op, Inside) else ()


def reindexed(op: Op, change: Callable[[Dim], Dim]) -> Op:
    """Returns an op with `change` applied to its index expressions: its index, its guards and its conditions."""
    match op:
        case Position():
            return replace(op, expr=change(op.expr))
        case Inside():
            return replace(op, conditions=tuple(map(change, op.conditions)))
        case Load():
            op = replace(op, guards=tuple(map(change, op.guards)))
    return replace(op, index=tuple(map(change, op.index))) if isinstance(op, (Load, Store)) else op


def needed(root: Op) -> set[Op]:
    """Returns an op and all ops that its value depends on."""
    return {*postorder([root], children)}


def reduced_by(op: Op) -> tuple[str, ...]:
    """Returns the axes that a reduction runs over or a matrix product sums over. Returns no axes for an op that is
    neither a reduction nor a matrix product.
    """
    return op.over if isinstance(op, Reduce) else (op.over,) if isinstance(op, Dot) else ()


def reads_bytes(dot: Dot) -> bool:
    """Checks whether the second factor of a matrix product is computed from a loaded 8-bit array. The 8-bit array must
    be loaded at an index that contains both axes of the factor: the column axis and the summed axis.
    """
    loads = [op for op in needed(dot.b) if isinstance(op, Load) and {dot.tile[1], dot.over} <= {*op.axes}]
    return any(op.dtype.bits == 8 for op in loads)


def live(body: Iterable[Op], results: Iterable[Op] = ()) -> tuple[Op, ...]:
    """Eliminates dead code: keeps the stores, the ops `results`, and the direct and indirect operands of kept ops."""
    ops = list(body)
    kept = {*postorder([*results, *(op for op in ops if isinstance(op, Store))], children)}
    return tuple(op for op in ops if op in kept)
