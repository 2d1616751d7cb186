"""Defines the values that expressions have during typing, and the rules of broadcasting and promotion.

A value of the language is either an `Array`, or known at compile time. An `Array` is a graph node with the dtype that
the program sees. Compile-time values are Python numbers, `Dim`s, strings, None, dtypes and tuples. A tuple or list can
be used as an array: `x + [1, 2, 3]` adds a vector to x. In `x + [1, 2, 3]`, the numbers are weak scalars, which take
the dtype of x.

`Typer` makes graph nodes from values: it broadcasts and promotes. Values of f16 and bf16 are computed in f32. Values
are rounded to f16 or bf16 only in `astype`, in outputs of the program, and in operands of matrix products.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Annotated, Union

from minitri.base.diagnostics import CompileError
from minitri.base.dims import ONE, ZERO, Dim
from minitri.base.nodes import Record
from minitri.base.operators import OPERATORS, POSITIONS, Operator, reduction
from minitri.base.spans import Span
from minitri.base.symbolic_minmax import at_most_one, tidy
from minitri.base.toml_tables import table_beside
from minitri.base.types import ArrayType, DType, Info, ListValue, bool_, f32, f64, i64, promote
from minitri.graph import ir, literals
from minitri.graph.ir import MAX_SPANS, Condition, Interner, Node, Shape

NO_ARRAYS = table_beside(__file__, "corrections.toml")["no_arrays"]
KIND_NAMES = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "float"}


class Array(Record):
    """An array value.

    The field `dtype` is the dtype of the array in the minitri program. The graph node in the field `node` has the dtype
    f32 if `dtype` is f16 or bf16, and otherwise `dtype` itself.

    `weak`: whether the value is a weak scalar. A weak scalar has no fixed dtype: an operator converts it to the dtype
        of the other operand.
    `wide`: None, or a node with the same values as `node`, computed in f64. Only a value that is f32 by default, such
        as a quotient of integers, has a node `wide`.
    """

    node: Node
    dtype: DType
    weak: bool = False
    wide: Node | None = None

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def rank(self) -> int:
        return len(self.node.shape)

    def __str__(self) -> str:
        return str(ArrayType(self.dtype, self.shape))


Strong = Annotated[Array, "strong"]  # the annotation of a parameter for an array that is not weak
Static = Union[int, float, bool, Dim, str, None, DType, Info, tuple]
Value = Union[Array, Static]
Scope = dict[str, Value]  # what each name is bound to


def describe(value: Value) -> str:
    """Returns a description of a value for an error message. The contents of a string or list are not shown."""
    kinds = {ListValue: "a list", tuple: "a tuple", str: "a string", DType: f"the dtype {value}"}
    return kinds.get(type(value)) or str(value)


class Typer:
    """Makes typed nodes. The attribute `span` is the source range of the expression whose nodes are being made."""

    def __init__(self) -> None:
        self.nodes = Interner()
        self.conditions: list[Condition] = []
        self.spans: dict[Node, tuple[Span, ...]] = {}
        self.span: Span | None = None
        self.powers: dict[Node, literals.Power] = {}
        self.operands: tuple[str, str] | None = None  # the two sides of an infix operator, as written

    def place(self, node: Node, span: Span) -> None:
        """Records that a node was made for the source text at `span`. A node has at most `MAX_SPANS` spans."""
        known = self.spans.get(node, ())
        if len(known) < MAX_SPANS:
            self.spans[node] = (*known, span)

    # ---- conversions -----------------------------------------------------------------

    def constant(self, value: int | float | bool, dtype: DType) -> Node:
        if dtype.is_integer:
            low, high = dtype.limits
            ensure(low <= value <= high, "MT0208", f"{value} does not fit {dtype}", f"{dtype} holds {low} to {high}")
        if dtype.is_float and math.isfinite(value) and math.isinf(ir.const_value(value, dtype.compute)):
            help = "write `inf` if you mean it, or compute in f64: `astype(x, f64)`"
            raise CompileError("MT0208", f"{value:.3g} is past the largest {dtype.compute}", help=help)
        return self.nodes.const(value, dtype.compute)

    def array(self, value: Value) -> Array:
        """Returns a value as an `Array`.

        A number or dimension becomes a 0-d array whose dtype is weak (not fixed). The items of a tuple are stacked.

        Raises CompileError MT0202 for a value that cannot become an array, such as a string.
        """
        match value:
            case Array():
                return value
            case bool():
                return Array(self.constant(value, bool_), bool_)
            case int():
                return Array(self.constant(value, i64), i64, weak=True)
            case float():
                return Array(self.constant(value, f64), f64, weak=True)
            case Dim():
                return Array(self.nodes.index(i64, (), value), i64, weak=True)
            case tuple():
                dtype, weak = self.promoted(literals.leaves(value))
                return Array(literals.stacked(self, value, dtype), dtype, weak)
        help = NO_ARRAYS.get(type(value).__name__, "")
        raise CompileError("MT0202", f"an array or number is needed here, not {describe(value)}", help=help)

    def cast(self, value: Value, dtype: DType) -> Array:
        """Returns the value converted to `dtype`. For f16 and bf16, the value is rounded and converted back to f32."""
        numbers = literals.leaves(value) if isinstance(value, tuple) else [value]
        truncates = dtype.is_integer and any(isinstance(v, float) for v in numbers)
        if isinstance(value, (int, float, tuple)) and not truncates:
            node = self.convert(value, dtype)
        else:
            node = self._most_precise(self.array(value), dtype)
        return Array(self.nodes.cast(self._narrowed(node, dtype), dtype.compute), dtype)

    def _narrowed(self, node: Node, dtype: DType) -> Node:
        """Returns the node rounded to `dtype`."""
        match node:
            case ir.Apply(op="cast", args=(x,)) if x.dtype == dtype and node.dtype == dtype.compute:
                return x  # such as an f16 input, if the node converts it to f32 and `dtype` is f16
        return self.nodes.cast(node, dtype)

    def convert(self, value: Value, dtype: DType) -> Node:
        """Converts a value to `dtype` for arithmetic, and returns the graph node of the converted value.

        For f16 and bf16, the returned node has the dtype f32, so the value is not rounded to 16 bits.

        Raises CompileError MT0208 for a number that does not fit an integer dtype.
        """
        if isinstance(value, (bool, int, float)):
            return self.constant(value, dtype)
        if isinstance(value, tuple):
            literals.leaves(value)  # raises an error for an empty or too deep list
            return literals.stacked(self, value, dtype)
        array = self.array(value)
        if dtype.is_integer and dtype != i64:  # sizes fit i64, and powers have been checked
            if isinstance(value, Dim):
                literals.require_size_fits(self, value, dtype)
            if array.node in self.powers:
                literals.require_power_fits(self, self.powers[array.node], dtype)
        if array.weak and dtype.is_integer:
            for number in literals.constants_in(array.node):
                self.constant(number, dtype)
        return self.nodes.cast(self._most_precise(array, dtype), dtype.compute)

    def _most_precise(self, value: Array, dtype: DType) -> Node:
        """Returns the graph node to convert to `dtype`: `value.wide` for f64 if present, otherwise `value.node`."""
        # a conversion to f64 uses the f64 node of the value, if there is one
        return value.wide if value.wide is not None and dtype == f64 else value.node

    def strong(self, value: Value) -> Array:
        """Returns the value as an array with a fixed dtype.

        Functions that are neither elementwise nor views need an array with a fixed dtype.
        """
        dtype = self.settled([value])
        return Array(self.convert(value, dtype), dtype)

    def rounded(self, value: Array) -> Node:
        """Returns a node that converts a value from the dtype of the computation, such as f32, to the dtype in memory,
        such as f16.
        """
        return self._narrowed(value.node, value.dtype)

    # ---- promotion -------------------------------------------------------------------

    def promoted(self, values: Sequence[Value]) -> tuple[DType, bool]:
        """Returns the promoted dtype of several values, and whether this dtype is weak (not fixed)."""
        kinds = [self._kind(v) for v in values]
        strong = [dtype for dtype, weak in kinds if not weak]
        weak_float = any(weak and dtype.is_float for dtype, weak in kinds)
        if not strong:
            return (f64 if weak_float else i64), True
        dtype = reduce(promote, strong)
        if weak_float and not dtype.is_float:
            return f32, False
        return (i64 if dtype == bool_ and len(strong) < len(kinds) else dtype), False

    def _kind(self, value: Value) -> tuple[DType, bool]:
        """Returns the dtype of a value, and whether the value is weak (without fixed dtype)."""
        match value:
            case tuple():
                return self.promoted(literals.leaves(value))
            case int() | float() if not isinstance(value, bool):
                return (f64 if isinstance(value, float) else i64), True
        array = self.array(value)
        return array.dtype, array.weak

    def settled(self, values: Sequence[Value]) -> DType:
        """Promotes the dtypes of several values to one fixed (not weak) dtype. The promoted dtype of weak floats is
        f32.
        """
        dtype, weak = self.promoted(values)
        return f32 if weak and dtype == f64 else dtype

    # ---- shapes ----------------------------------------------------------------------

    def require(
        self, a: Dim, relation: str, b: Dim, code: str, message: str, *, label: str = "", help: str = ""
    ) -> None:
        """Requires that `a relation b` holds.

        A relation that depends on sizes becomes a condition that each call checks.

        Raises CompileError with this code and message if the relation is false for all sizes.
        """
        condition = Condition(a, relation, b, code, message, label, help, self.span)
        decided = condition.decided()
        if decided is False:
            raise condition.error()
        if decided is None:
            self.conditions.append(condition)

    def require_sizes(self, shape: Sequence[Dim], what: str = "a size") -> Shape:
        """Returns the shape, and requires that none of its sizes is negative. `what` names a size in the error message:
        "a size" or "a pad width", for example.

        A call with a negative size raises CompileError MT0205.
        """
        for e in shape:
            message = f"{what} cannot be negative, and {e} is"
            self.require(e, ">=", ZERO, "MT0205", message, label=literals.names_in(e))
        return tuple(shape)

    def broadcast_shapes(self, shapes: Sequence[Shape], what: str = "operands") -> Shape:
        """Returns the shape to which all shapes broadcast.

        Raises CompileError MT0201 if the shapes do not broadcast.
        """
        rank = max(map(len, shapes), default=0)
        columns = ([s[k] for s in shapes if len(s) >= -k] for k in range(-rank, 0))
        return tuple(self._broadcast_extents(extents, shapes, what) for extents in columns)

    def _broadcast_extents(self, extents: list[Dim], shapes: Sequence[Shape], what: str) -> Dim:
        wide = [e for e in dict.fromkeys(extents) if e != 1]
        if len(wide) < 2:
            return wide[0] if wide else ONE
        full = [e for e in wide if not at_most_one(e)] or wide
        result = next((e for e in full if e.constant is not None), full[0])
        for other in wide:
            listed = " and ".join(map(literals.shown, shapes))
            message = f"the shapes {listed} of the {what} do not broadcast: {other} is not {result}"
            help = "sizes must be equal, or 1; insert an axis with x[:, None] or fix the shape"
            sides = (other, result) if other in full else (result * (1 - other), ZERO)  # other is 1, or result is 0
            self.require(sides[0], "==", sides[1], "MT0201", message, help=help)
        return result

    def broadcast(self, node: Node, shape: Shape) -> Node:
        """Broadcasts `node` to `shape`, as numpy does: axes of size 1 and missing leading axes are repeated."""
        if node.shape == shape:
            return node
        lead = len(shape) - node.rank
        repeated = [e == 1 or e != wanted and at_most_one(e) for e, wanted in zip(node.shape, shape[lead:])]
        index = tuple(ZERO if is_repeated else ir.axis(lead + k) for k, is_repeated in enumerate(repeated))
        return self.nodes.view(node, shape, index)

    # ---- elementwise -----------------------------------------------------------------

    def elementwise(self, name: str, values: Sequence[Value]) -> Array:
        """Applies an operator of the operator table to values, after promoting their dtypes and broadcasting their
        shapes.

        Raises CompileError MT0102 for a wrong number of operands. Raises MT0202 for a dtype that the operator does not
        take.
        """
        row = OPERATORS[name]
        wrong = f"{name} takes {row.arity} argument{'s' * (row.arity != 1)}, not {len(values)}"
        ensure(len(values) == row.arity, "MT0102", wrong, f"write `{name}({'x, y, z'[: 3 * row.arity - 2]})`")
        typed = values[1:] if row.operands == "where" else values  # the first operand of `where` is a condition
        promoted, weak = self.promoted(typed)
        dtype = row.operand_dtype(promoted)
        dtype = f64 if weak and dtype == f32 else dtype
        if dtype.kind not in row.accepts:
            taken = ", ".join(KIND_NAMES[k] for k in row.accepts)
            raise CompileError("MT0202", f"{name} does not take {dtype}", help=f"it takes {taken}")
        node = self._applied(row, values, dtype)
        if node.dtype == bool_:
            return Array(node, bool_)
        # if no operand is a float array of the program, the result is f32 only by default
        is_chosen = any(isinstance(v, Array) and v.dtype.is_float and not v.weak and v.wide is None for v in typed)
        wide = self._applied(row, values, f64) if dtype == f32 and not is_chosen else None
        return Array(node, dtype, weak, wide)

    def _applied(self, row: Operator, values: Sequence[Value], dtype: DType) -> Node:
        """Converts the values to `dtype`, and returns the node that applies an operator to them."""
        first = bool_ if row.operands == "where" else dtype
        operands = [self.convert(v, dtype if k else first) for k, v in enumerate(values)]
        shape = self.broadcast_shapes([o.shape for o in operands], f"operands of {row.symbol or row.name}")
        args = tuple(self.broadcast(o, shape) for o in operands)
        return self.nodes.apply(row.name, row.result_dtype(dtype.compute), shape, args)


# ---- typing rules of nodes ---------------------------------------------------------------------


def reduce_type(op: str, x: Node, axes: tuple[int, ...]) -> tuple[DType, Shape]:
    """Returns the dtype and shape of a reduction.

    Raises ValueError if the operand or the axes break the typing rule.
    """
    row = reduction(op)
    require(list(axes) == sorted(set(axes)) and all(0 <= a < x.rank for a in axes), f"axes {axes}")
    require(op not in POSITIONS or len(axes) == 1, f"{op} over one axis")
    require(x.dtype.kind in row.accepts, f"{op} of {x.dtype}")
    require(x.dtype == x.dtype.compute, f"{op} computes in {x.dtype}")
    return (i64 if op in POSITIONS else x.dtype), tuple(e for k, e in enumerate(x.shape) if k not in axes)


def contract_type(a: Node, b: Node) -> tuple[DType, Shape]:
    """Returns the dtype and shape of a matrix product. Raises ValueError if the operands break the typing rule."""
    require(a.rank == b.rank >= 2 and a.shape[:-2] == b.shape[:-2], "contract of unlike batches")
    require(a.shape[-1] == b.shape[-2], f"contract of {a.type} with {b.type}")
    require(a.dtype == b.dtype and a.dtype.is_float, "contract of unlike dtypes")
    return (f64 if a.dtype == f64 else f32), (*a.shape[:-1], b.shape[-1])


def concat_shape(parts: Sequence[Node], axis: int) -> Shape:
    """Returns the shape of a concatenation. Raises ValueError if the arrays have different dtypes or shapes."""
    first = parts[0]
    require(all(p.dtype == first.dtype and p.rank == first.rank for p in parts), "concat of unlike parts")
    require(0 <= axis < first.rank, f"concat axis {axis}")
    unlike = {k for p in parts for k, (x, y) in enumerate(zip(p.shape, first.shape)) if x != y}
    require(unlike <= {axis}, "concat of unlike shapes")
    total = sum((p.shape[axis] for p in parts[1:]), first.shape[axis])
    return (*first.shape[:axis], tidy(total), *first.shape[axis + 1 :])


# The twin of `ensure` in base/diagnostics.py. It stands here because it runs for every program: who reads how a right
# program is compiled needs no file about error messages (tests/reading_list.py).
def ensure(holds: bool, code: str, message: str, help: str = "", span: Span | None = None) -> None:
    """Raises a CompileError with this code, message, help and span unless `holds` is true."""
    if not holds:
        raise CompileError(code, message, span, help=help)


def require(holds: bool, rule: str) -> None:
    """Raises ValueError if `holds` is false. The text of the error is `rule`."""
    if not holds:
        raise ValueError(rule)


def view(t: Typer, x: Array, shape: Sequence[Dim], index: Sequence[Dim]) -> Array:
    """Returns the view of x that has the given shape and index map.

    If x has a node `wide` (the same values in f64), the result has a view of this node too.
    """
    node, *wide = (t.nodes.view(n, tuple(shape), tuple(index)) for n in (x.node, x.wide) if n is not None)
    return Array(node, x.dtype, x.weak, *wide)


def read_at(t: Typer, x: Array, places: Mapping[int, Dim], *added: Dim) -> Array:
    """Returns the elements of x at the index `places[k]` along each axis k in `places`. The result has all axes of x
    except the axes in `places`.

    The last axes of the result are new axes with the sizes `added`. An index in `places` can contain the symbols of the
    added axes, for example to read a diagonal of x.
    """
    kept = [k for k in range(x.rank) if k not in places]
    index = [places[k] if k in places else ir.axis(kept.index(k)) for k in range(x.rank)]
    return view(t, x, [*(x.shape[k] for k in kept), *added], index)


def insert_axes(t: Typer, x: Array, axes: Collection[int]) -> Array:
    """Returns the array with additional axes of size 1. The numbers in `axes` are the positions of the additional axes
    in the shape of the result.
    """
    rank, sizes = len(x.shape) + len(axes), iter(x.shape)
    shape = [ONE if k in axes else next(sizes) for k in range(rank)]
    return view(t, x, shape, [ir.axis(k) for k in range(rank) if k not in axes])
