"""The tensor graph: a typed SSA graph without side effects. Nodes with equal fields are one object (interned).

    graph   = Graph(inputs, outputs, conditions, spans)
    node    = Input(name)                          an array or scalar argument
            | Const(value)                         a 0-d constant
            | Index(expr)                          out[d] = expr(d), i64: arange, eye, sizes
            | Apply(op, args)                      elementwise; every argument has out's shape
            | View(x, index)                       out[d] = x[index(d)]
            | Gather(x, index, picks)              the same, with @k in index = picks[k][d]
            | Concat(parts, axis)                  parts one after another along an axis
            | Reduce(op, x, axes)                  the result lacks these axes
            | Scan(op, x, axis)                    inclusive cumulative sum, product, maximum, …
            | Contract(a, b)                       [*B, M, K] x [*B, K, N] -> [*B, M, N]

In an index expression, `d0, d1, …` are the indices along the axes of the result. Functions that only move data
(transpose, slice, reshape, broadcast, flip, roll, …) become View nodes with an index map. A View of a View can be
replaced by one View, because two index maps can be combined into a single index map.

Unlike a minitri program, a graph has no names of functions, no implicit broadcasting and no implicit promotion. A graph
has no f16 or bf16 arithmetic: casts convert values to f32 before arithmetic. Where the program needs an f16 or bf16
result, a cast converts the f32 result of the arithmetic to f16 or bf16.

The class `Interner` makes the nodes of a graph. Nodes with equal fields are the same object, so equality and hash use
identity. Source spans are not in the nodes but in `Graph.spans`. `Graph.numbered` gives each node a number and writes
this number into the node's spans. Later intermediate representations (IRs) keep the numbered spans, so the graph node
of each operation in a later IR can be found.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from itertools import accumulate
from typing import Any, ClassVar, TypeVar, Union

import numpy as np

from minitri.base import dims, intervals
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim, Symbol, sign
from minitri.base.nodes import NodeClass, Record, children, grouped, postorder
from minitri.base.operators import POSITIONS
from minitri.base.resource_limits import check_time
from minitri.base.spans import Span
from minitri.base.symbolic_minmax import Allows, tidy
from minitri.base.types import ArrayType, DType, f32, f64, i64

Shape = tuple[Dim, ...]
Layouts = Mapping[str, tuple[Dim, ...]]  # strides of arrays that are not contiguous, by name
# How f32 factors are multiplied. "ieee" multiplies them exactly. "tf32" rounds them to TF32 (11 significant bits).
# "tf32x3" splits each factor into a sum of two TF32 numbers, and leaves out the product of the two small parts. "f32"
# lets the compiler choose between "ieee" and "tf32x3" (minitri/optimize/f32_products.py).
PRECISIONS = ("f32", "ieee", "tf32", "tf32x3")
MAX_SPANS = 32  # spans of one node; a constant may occur thousands of times in a source


class _Node(metaclass=NodeClass):
    __dataclass_fields__: ClassVar[dict[str, Any]]
    dtype: DType
    shape: Shape

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


class Input(_Node):
    """An argument of the program. An input is an array, or a Python float if `scalar` is true."""

    name: str
    scalar: bool = False


class Const(_Node):
    """A 0-d constant. The constant's dtype represents the number `value` without rounding."""

    value: int | float | bool


class Index(_Node):
    """An array of i64 that is computed from its own indices: out[d] = expr(d)."""

    expr: Dim


class Apply(_Node):
    """An elementwise operator. The field `op` is a name of the operator table, or "cast" (a conversion to `dtype`)."""

    op: str
    args: tuple[Node, ...]


class View(_Node):
    x: Node
    index: tuple[Dim, ...]


class Gather(_Node):
    """A view whose index map also uses index arrays.

    In the index map, `@k` stands for the element of the index array `picks[k]`.

    An element whose index is out of bounds is NaN, 0 or False, depending on the dtype.
    """

    x: Node
    index: tuple[Dim, ...]
    picks: tuple[Node, ...]


class Concat(_Node):
    parts: tuple[Node, ...]
    axis: int


class Reduce(_Node):
    op: str  # a name of the table of reductions, such as "sum"
    x: Node
    axes: tuple[int, ...]


class Scan(_Node):
    op: str  # the name of a reduction that has a scan
    x: Node
    axis: int


class Contract(_Node):
    """A matrix product that accumulates in `dtype` (f32 or f64). The field `precision` is one of `PRECISIONS`."""

    a: Node
    b: Node
    precision: str = "ieee"


N = TypeVar("N", bound=_Node)
Node = Union[Input, Const, Index, Apply, View, Gather, Concat, Reduce, Scan, Contract]


@cache
def axis(k: int) -> Dim:
    """Returns the symbol `d0`, `d1`, … for the index along axis k of a result."""
    return dims.axis(f"d{k}")


def along(k: int, extent: Dim) -> Dim:
    """Returns the index at which axis k of a view reads its operand. The index is the symbol `d0` if k is 0, `d1` if k
    is 1, and so on. The argument `extent` is the size of the operand's axis. If `extent` is 1, the index is 0, because
    axes of size 1 are broadcast.
    """
    return dims.ZERO if extent == 1 else axis(k)


@cache
def axis_symbol(k: int) -> Symbol:
    return Symbol(f"d{k}", "axis")


def pick(k: int) -> Dim:
    """Returns the symbol `@0`, `@1`, … for an element of index array k of a Gather node."""
    return dims.value(f"@{k}")


def ranges(shape: Shape) -> dict[dims.Symbol, intervals.Range]:
    """Returns the range of each axis of a shape: 0 … extent - 1."""
    return {axis_symbol(k): (dims.ZERO, extent - 1) for k, extent in enumerate(shape)}


class Condition(Record):
    """A relation between sizes. Each call of the program checks the relation.

    If the relation is false, the call raises a CompileError with the condition's `code`, `message`, `label` and `help`.
    """

    left: Dim
    relation: str  # "==" "!=" ">="
    right: Dim
    code: str
    message: str
    label: str = ""
    help: str = ""
    span: Span | None = None

    def decided(self) -> bool | None:
        """Returns True if the relation is true for all sizes, and False if the relation is false for all sizes. Returns
        None if no proof decides the relation.
        """
        room = self.left - self.right
        room = room if all(isinstance(a, Symbol) for a in room.atoms()) else tidy(room)
        if room.constant is None and not room.symbols():
            return False  # the relation has no value, because an expression divides by 0
        if self.relation == ">=":
            return True if sign(room) in (0, 1) else None if room.constant is None else False
        if room.constant is None:
            return None
        return (room == 0) == (self.relation == "==")

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        """Checks whether the relation is true. `env` must have a value for every symbol in the relation."""
        left, right = self.left.compute(env), self.right.compute(env)
        return {"==": left == right, "!=": left != right, ">=": left >= right}[self.relation]

    def substitute(self, env: Mapping[Symbol, Dim]) -> Condition:
        """Replaces each symbol in `env` by its known size, and returns the new condition.

        The message and the label of the returned condition show the known sizes: `K` becomes `K = 512`.
        """
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


def check_conditions(conditions: Sequence[Condition], sizes: Mapping[str, int]) -> tuple[Condition, ...]:
    """Puts the given sizes into the conditions, and returns the conditions that remain undecided.

    Raises the CompileError of the first condition that is false for these sizes.
    """
    env = {Symbol(name): Dim.of(n) for name, n in sizes.items()} if conditions else {}
    known = [c.substitute(env) for c in conditions]
    for c in known:
        if c.decided() is False:
            raise c.error()
    return tuple(c for c in known if c.decided() is None)


def allows(conditions: Iterable[Condition]) -> Allows:
    """Returns a function `allowed(size, n)` that checks whether the conditions on the symbol `size` hold for the number
    n.

    The returned function ignores a condition that contains more than one size.
    """
    about = grouped((c.left.symbols() | c.right.symbols(), c) for c in conditions)

    def allowed(symbol: Symbol, n: int) -> bool:
        with suppress(ZeroDivisionError):
            return all(c.holds({symbol: n}) for c in about[frozenset((symbol,))])
        return True

    return allowed


class Split(Record):
    """Records that a pass has split a reduction, scan or product into several shorter parts.

    The command `minitri explain` prints every recorded split.
    """

    node: Node  # the whole reduction, scan or product
    parts: int
    length: Dim  # elements of one part


class Graph(Record, eq=False):
    """The graph of a function: its inputs, its output nodes, and the conditions that its sizes must satisfy."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Node, ...]
    conditions: tuple[Condition, ...] = ()
    spans: dict[Node, tuple[Span, ...]] = field(default_factory=dict)
    splits: tuple[Split, ...] = ()  # what the passes `split-…` did, for explanations

    def nodes(self) -> list[Node]:
        """Returns all nodes that the outputs depend on, in a fixed order with operands first."""
        return postorder(self.outputs, children)

    def numbered(self) -> Graph:
        """Returns the same graph, with a node number in each source span. The number is the position of the node in
        `nodes()`.

        Inputs that no output depends on are numbered after all other nodes.
        """
        order = dict.fromkeys((*self.nodes(), *self.inputs))
        spans = {n: tuple(replace(s, node=k) for s in self.spans.get(n, ())) for k, n in enumerate(order)}
        return replace(self, spans=spans)


def is_copy(node: Node) -> bool:
    """Checks whether a node casts an operand to the dtype that the operand already has.

    A cast of an array to its own dtype, such as f32 to f32, copies the array in memory (optimize/pack_operands.py).
    """
    return isinstance(node, Apply) and node.op == "cast" and node.args[0].dtype == node.dtype


def viewed(node: Node) -> Node:
    """Follows views of views back to the first node that is not a view itself, and returns this node."""
    while isinstance(node, View):
        node = node.x
    return node


def contiguous(shape: Shape) -> Shape:
    """Returns the strides of a row-major array, in elements."""
    strides = [*accumulate(reversed(shape[1:]), operator.mul, initial=dims.ONE)]
    return tuple(reversed(strides[: len(shape)]))


def const_value(value: int | float | bool, dtype: DType) -> int | float | bool:
    """Converts `value` to the Python type for the dtype: bool, int or float.

    If `dtype` is f32, a float is rounded to f32. An integer must fit the dtype.
    """
    if dtype.kind == "b":
        return bool(value)
    if dtype.is_integer:
        return int(value)
    value = float(value)
    with np.errstate(over="ignore"):  # a value that is too large becomes infinite
        return float(np.float32(value)) if dtype.bits == 32 else value


class Interner:
    """Makes the nodes of a graph. Two requests for nodes with equal fields return the same object (hash-consing).

    Constants are equal if their bits and dtypes are equal, so 0.0 is not -0.0. Source spans do not matter for the
    equality of nodes, because nodes do not contain source spans.
    """

    def __init__(self, conditions: Iterable[Condition] = ()) -> None:
        """The argument `conditions` contains the conditions that each call checks. Rewrites of the graph can assume
        that these conditions hold.
        """
        self.allows = allows(conditions)
        self._table: dict[tuple[object, ...], Any] = {}
        self.made: list[Any] = []
        self.place: tuple[Span, ...] = ()  # the spans of the node that a pass is rewriting, for reports

    def input(self, name: str, dtype: DType, shape: Shape, scalar: bool = False) -> Input:
        return self.node(Input, dtype, shape, name, scalar)

    def const(self, value: int | float | bool, dtype: DType) -> Const:
        value = const_value(value, dtype)
        bits = struct.pack("d", value) if dtype.is_float else int(value)
        return self.node(Const, dtype, (), value, key=(Const, dtype, bits))

    def index(self, dtype: DType, shape: Shape, expr: Dim) -> Index:
        return self.node(Index, dtype, shape, expr)

    def apply(self, op: str, dtype: DType, shape: Shape, args: tuple[Node, ...]) -> Apply:
        return self.node(Apply, dtype, shape, op, args)

    def cast(self, x: Node, dtype: DType) -> Node:
        """Returns x converted to a dtype, or x itself if x already has this dtype."""
        return x if x.dtype == dtype else self.apply("cast", dtype, x.shape, (x,))

    def view(self, x: Node, shape: Shape, index: tuple[Dim, ...]) -> View:
        return self.node(View, x.dtype, shape, x, index)

    def gather(self, x: Node, shape: Shape, index: tuple[Dim, ...], picks: tuple[Node, ...]) -> Gather:
        return self.node(Gather, x.dtype, shape, x, index, picks)

    def concat(self, shape: Shape, parts: tuple[Node, ...], axis: int) -> Concat:
        return self.node(Concat, parts[0].dtype, shape, parts, axis)

    def reduce(self, op: str, x: Node, axes: tuple[int, ...]) -> Reduce:
        shape = tuple(extent for k, extent in enumerate(x.shape) if k not in axes)
        return self.node(Reduce, i64 if op in POSITIONS else x.dtype, shape, op, x, axes)

    def scan(self, op: str, x: Node, axis: int) -> Scan:
        return self.node(Scan, x.dtype, x.shape, op, x, axis)

    def contract(self, a: Node, b: Node, precision: str = "ieee") -> Contract:
        shape = (*a.shape[:-1], b.shape[-1])
        return self.node(Contract, f64 if a.dtype == f64 else f32, shape, a, b, precision)

    def node(self, cls: type[N], *fields: Any, key: tuple[object, ...] = ()) -> N:
        """Returns a node of the class `cls` with the given fields. Two nodes with equal keys are one object. If no key
        is given, the class and the fields of the node are its key.
        """
        key = key or (cls, *fields)
        node = self._table.get(key)
        if node is None:
            check_time()
            node = self._table[key] = cls(*fields)
            self.made.append(node)
        return node
