"""The tensor graph: typed, pure, SSA; an interned DAG.

    graph   = Graph(inputs, outputs, conditions, spans)
    node    = Input(name)                          an array or scalar argument
            | Const(value)                         a 0-d constant
            | Index(expr)                          out[d] = expr(d), i64: arange, eye, sizes
            | Apply(op, args)                      elementwise; every argument has out's shape
            | View(x, index)                       out[d] = x[index(d)]
            | Gather(x, index, picks)              the same, with @k in index = picks[k][d]
            | Concat(parts, axis)                  parts one after another along an axis
            | Reduce(op, x, axes)                  the axes vanish
            | Scan(op, x, axis)                    inclusive running sum, product, maximum or minimum
            | Contract(a, b)                       [*B, M, K] x [*B, K, N] -> [*B, M, N]

`d0, d1, …` name the axes of the result. Every movement of data that numpy has a name for (transpose, slice, reshape,
broadcast, flip, roll, …) is a View with an index map, so two of them compose by substitution.

What it no longer has: names of functions, implicit broadcasting, implicit promotion, f16 or bf16 arithmetic (explicit
casts widen values, and narrow them where the program says so).

`Interner` interns nodes: structurally equal means the same object, and equality and hash are by identity. Source spans
are kept beside the nodes, in `Graph.spans`. The first graph numbers its nodes, and every span carries the number of its
node (`Graph.numbered`). These numbers link later ops and lines to the node.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar, Union

from minitri.base import dims, intervals
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim, Symbol, sign
from minitri.base.limits import check_time
from minitri.base.piecewise import Allows, tidy
from minitri.base.spans import Span
from minitri.base.types import ArrayType, DType

Shape = tuple[Dim, ...]
# How factors of f32 are multiplied: as they are; rounded to tf32 (11 significant bits); or each as a sum of two such
# numbers, less the product of the two small ones.
PRECISIONS = ("ieee", "tf32", "tf32x3")
MAX_SPANS = 32  # that one node keeps; a constant may come from thousands of places


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Node:
    dtype: DType
    shape: Shape

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Input(_Node):
    """`scalar`: passed by value (a Python float), else an array."""

    name: str
    scalar: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(_Node):
    """`value` is exactly representable in `dtype`."""

    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Index(_Node):
    expr: Dim


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Apply(_Node):
    """`op` is a name of the operator table, or "cast" (to `dtype`)."""

    op: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class View(_Node):
    x: Node
    index: tuple[Dim, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gather(_Node):
    """Where an index lies outside of x the element is NaN (float), 0 or False."""

    x: Node
    index: tuple[Dim, ...]
    picks: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Concat(_Node):
    parts: tuple[Node, ...]
    axis: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(_Node):
    op: str  # sum prod max min any all argmax argmin
    x: Node
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scan(_Node):
    op: str  # sum prod max min
    x: Node
    axis: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contract(_Node):
    """Accumulates in `dtype` (f32 or f64); `precision`: how factors of f32 are multiplied."""

    a: Node
    b: Node
    precision: str = "ieee"


T = TypeVar("T")
N = TypeVar("N", bound=_Node)
Node = Union[Input, Const, Index, Apply, View, Gather, Concat, Reduce, Scan, Contract]


@cache
def axis(k: int) -> Dim:
    """`dk`, the k-th axis of a result."""
    return dims.axis(f"d{k}")


@cache
def axis_symbol(k: int) -> Symbol:
    return Symbol(f"d{k}", "axis")


def pick(k: int) -> Dim:
    """`@k`, the value of the k-th pick of a Gather."""
    return dims.value(f"@{k}")


def ranges(shape: Shape) -> dict[dims.Symbol, intervals.Range]:
    """0 <= dk <= shape[k] - 1."""
    return {axis_symbol(k): (dims.ZERO, extent - 1) for k, extent in enumerate(shape)}


@dataclass(frozen=True, slots=True)
class Condition:
    """What the types could not decide, checked at the call: left is equal to, unlike, or at least right."""

    left: Dim
    relation: str  # "==" "!=" ">="
    right: Dim
    code: str
    message: str
    label: str = ""
    help: str = ""
    span: Span | None = None

    def decided(self) -> bool | None:
        """Whether it holds for all sizes (True), for none (False), or that depends on them."""
        room = self.left - self.right
        room = room if all(isinstance(a, Symbol) for a in room.atoms()) else tidy(room)
        if self.relation == ">=":
            return True if sign(room) in (0, 1) else None if room.constant is None else False
        if room.constant is None:
            return None
        return (room == 0) == (self.relation == "==")

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        """Whether it holds for these sizes, if they are all that it depends on."""
        left, right = self.left.compute(env), self.right.compute(env)
        return {"==": left == right, "!=": left != right, ">=": left >= right}[self.relation]

    def substitute(self, env: Mapping[Symbol, Dim]) -> Condition:
        """With known sizes, named in the texts: `K` becomes `K = 512`."""
        known = {s.name: env[s] for s in self.left.symbols() | self.right.symbols() if s in env}

        def named(text: str, equals: str) -> str:
            alone = r"(?<![*/%+\w-])(?<![%+-] )[A-Za-z_]\w*(?! ?[*/%+-])(?!\w)"  # not N in 2*(N//4)
            return re.sub(alone, lambda m: f"{m[0]}{equals}{known[m[0]]}" if m[0] in known else m[0], text)

        return replace(
            self, left=self.left.substitute(env), right=self.right.substitute(env),
            message=named(self.message, " = "), label=named(self.label, "="),
        )  # fmt: skip

    def error(self) -> CompileError:
        return CompileError(self.code, self.message, self.span, label=self.label, help=self.help)


def allows(conditions: Iterable[Condition]) -> Allows:
    """Which numbers a size can be by the conditions that depend on it alone."""
    own: dict[Symbol, list[Condition]] = {}
    for c in conditions:
        symbols = c.left.symbols() | c.right.symbols()
        if len(symbols) == 1:
            own.setdefault(next(iter(symbols)), []).append(c)

    def allowed(symbol: Symbol, n: int) -> bool:
        with suppress(ZeroDivisionError):
            return all(c.holds({symbol: n}) for c in own.get(symbol, ()))
        return True

    return allowed


@dataclass(frozen=True, slots=True)
class Split:
    """A reduction, a scan or a product that is computed in parts."""

    node: Node  # as it was before
    parts: int
    length: Dim  # of a part, elements


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The outputs of a program as functions of its inputs."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Node, ...]
    conditions: tuple[Condition, ...] = ()
    spans: dict[Node, tuple[Span, ...]] = field(default_factory=dict)
    splits: tuple[Split, ...] = ()  # what the pass `split` did, for explanations

    def nodes(self) -> list[Node]:
        """Every node that an output needs, operands first, in a stable order."""
        return topological(self.outputs)

    def numbered(self) -> Graph:
        """The same, with each node's number in its spans: its place in `nodes()`, unused inputs last."""
        order = dict.fromkeys((*self.nodes(), *self.inputs))
        spans = {n: tuple(replace(s, node=k) for s in self.spans.get(n, ())) for k, n in enumerate(order)}
        return replace(self, spans=spans)


def is_copy(node: Node) -> bool:
    """Whether it is there to be in memory (minitri/optimize/pack_operands.py)."""
    return isinstance(node, Apply) and node.op == "cast" and node.args[0].dtype == node.dtype


def operands(node: Node) -> tuple[Node, ...]:
    match node:
        case Input() | Const() | Index():
            return ()
        case Apply():
            return node.args
        case View() | Reduce() | Scan():
            return (node.x,)
        case Gather():
            return (node.x, *node.picks)
        case Concat():
            return node.parts
        case Contract():
            return (node.a, node.b)


def topological(roots: Iterable[Node]) -> list[Node]:
    """The nodes that the roots need, operands first, from left to right."""
    return postorder(roots, operands)


def postorder(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything that is below the roots, each thing once, after what is below it."""
    order: dict[T, None] = {}
    stack = [*roots][::-1]
    while stack:
        if missing := [o for o in below(stack[-1]) if o not in order]:
            stack += reversed(missing)
        else:
            order.setdefault(stack.pop())
    return list(order)


def contiguous(shape: Shape) -> Shape:
    """Row-major strides, in elements."""
    strides = [*accumulate(reversed(shape[1:]), operator.mul, initial=dims.ONE)]
    return tuple(reversed(strides[: len(shape)]))


def const_value(value: int | float | bool, dtype: DType) -> int | float | bool:
    """`value` rounded to what `dtype` holds (floats only; integers must fit)."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.is_integer:
        return int(value)
    value = float(value)
    if dtype.bits == 32:
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return value


class Interner:
    """Makes nodes; structurally equal ones are one object.

    Keys hold operands by identity, constants by bits and dtype (0.0 is not -0.0, True is not
    1), and no spans.
    """

    def __init__(self, conditions: Iterable[Condition] = ()) -> None:
        """`conditions` hold wherever the nodes are computed."""
        self.allows = allows(conditions)
        self._table: dict[tuple[object, ...], Any] = {}
        self.made: list[Any] = []
        self.place: tuple[Span, ...] = ()  # what a pass works on now, for reports

    def input(self, name: str, dtype: DType, shape: Shape, scalar: bool = False) -> Input:
        return self.node(Input, dtype, shape, name, scalar)

    def const(self, value: int | float | bool, dtype: DType) -> Const:
        value = const_value(value, dtype)
        bits = struct.pack("d", value) if dtype.is_float else int(value)
        return self._intern(("const", dtype.name, bits), lambda: Const(dtype, (), value))

    def index(self, dtype: DType, shape: Shape, expr: Dim) -> Index:
        return self.node(Index, dtype, shape, expr)

    def apply(self, op: str, dtype: DType, shape: Shape, args: tuple[Node, ...]) -> Apply:
        return self.node(Apply, dtype, shape, op, args)

    def view(self, x: Node, shape: Shape, index: tuple[Dim, ...]) -> View:
        return self.node(View, x.dtype, shape, x, index)

    def gather(self, x: Node, shape: Shape, index: tuple[Dim, ...], picks: tuple[Node, ...]) -> Gather:
        return self.node(Gather, x.dtype, shape, x, index, picks)

    def concat(self, shape: Shape, parts: tuple[Node, ...], axis: int) -> Concat:
        return self.node(Concat, parts[0].dtype, shape, parts, axis)

    def reduce(self, op: str, dtype: DType, shape: Shape, x: Node, axes: tuple[int, ...]) -> Reduce:
        return self.node(Reduce, dtype, shape, op, x, axes)

    def scan(self, op: str, x: Node, axis: int) -> Scan:
        return self.node(Scan, x.dtype, x.shape, op, x, axis)

    def contract(self, dtype: DType, shape: Shape, a: Node, b: Node, precision: str = "ieee") -> Contract:
        return self.node(Contract, dtype, shape, a, b, precision)

    def node(self, cls: type[N], *fields: Any) -> N:
        """A node of any class but `Const`, by its fields."""
        return self._intern((cls, *fields), lambda: cls(*fields))

    def _intern(self, key: tuple[object, ...], make: Callable[[], N]) -> N:
        node = self._table.get(key)
        if node is None:
            check_time()
            node = self._table[key] = make()
            self.made.append(node)
        return node
