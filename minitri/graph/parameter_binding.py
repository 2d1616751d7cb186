"""Binds arguments to the parameters of functions, and checks arguments and results against the annotations.

    def scaled(x: f32[M, 2*M], by: float = 2.0) -> f32[M, 2*M]

    sum(x, axis=-1)       x: f32[M, N]      as_axes(-1, rank 2) → (1,)
    sum(x, axis=y)        y: i64[]          MT0106: an axis must be an integer known at compile time

A pack is a name for several axes, such as `*B`. The function `sizes_of` makes a symbol for each dimension name, and for
each axis that a pack stands for. The function `array_type` makes the `ArrayType` of a parameter from its annotation.
The function `static_argument` checks the value of a parameter that takes a number or a string. The function
`declared_result` gives a result the type that the called function declares. The file minitri/graph/shape_unification.py
finds the sizes for the dimension names of a called function. An argument of the wrong kind raises CompileError MT0102.
An argument that must be known at compile time, but is not, raises CompileError MT0106. A result whose type differs from
the declared type raises CompileError MT0207.

Arguments that decide the shape of a result, such as an axis, must be known at compile time. The functions at the end of
this file read arguments that must be known at compile time. If the arithmetic in an argument fails, as in `1 // 0`, a
CompileError is raised.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Union

from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dims import Dim, sign, size
from minitri.base.nodes import Record
from minitri.base.resource_limits import MAX_ELEMENTS, MAX_RANK, check_time
from minitri.base.spans import Span
from minitri.base.types import ArrayType, DType, dtype, items_of
from minitri.graph import corrections
from minitri.graph.ir import Shape, along
from minitri.graph.typing_rules import Array, Typer, Value, describe, ensure, view
from minitri.language import ast

FAR = 2 * MAX_ELEMENTS  # larger than every index; its sum with an index still fits i64


class Instance(Record):
    """Facts about the parameters of the entry function. The facts come from the arguments of a call, not from
    annotations.

    `packs`: how many axes each name such as `*B` (a pack) stands for.
    `types`: the types of the parameters without annotation, by name.
    `statics`: the values of parameters that must be known at compile time, such as an int or a bool.
    """

    packs: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, ArrayType] = field(default_factory=dict)
    statics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Returns a hashable key of this `Instance`, for caches of graphs. For one program, two `Instance`s with equal
        keys lead to the same graph.
        """
        statics = tuple((name, repr(value)) for name, value in self.statics.items())  # 1, 1.0 and True differ
        return tuple(self.packs.items()), tuple(self.types.items()), statics


Sizes = dict[str, Union[Dim, Shape]]  # a dimension, or the axes of a pack


def sizes_of(function: ast.Function, packs: Mapping[str, int]) -> Sizes:
    """Returns a symbol for each dimension name in the signature. A pack such as `*B`, which stands for several axes,
    gets a tuple of symbols.
    """
    sizes: Sizes = {}
    declared = [d for p in function.params if isinstance(p.annotation, ast.ArrayType) for d in p.annotation.dims]
    for node in (node for d in declared for node in ast.postorder(d)):
        if isinstance(node, ast.Name):
            sizes.setdefault(node.id, size(node.id))
        elif isinstance(node, ast.Pack):
            sizes[node.id] = tuple(size(f"{node.id}{k}") for k in range(packs.get(node.id, 1)))
    for name, axes in list(sizes.items()):
        clash = next((str(a) for a in axes if str(a) in sizes), None) if isinstance(axes, tuple) else None
        message = f"the axes of `*{name}` are called {name}0, {name}1, …, and `{clash}` is a dimension too"
        ensure(clash is None, "MT0104", message, "rename one of the two", function.span)
    return sizes


def array_type(annotation: ast.ArrayType, sizes: Sizes) -> ArrayType:
    shape: list[Dim] = []
    for d in annotation.dims:
        if isinstance(d, ast.Pack):
            axes = sizes.get(d.id)
            if not isinstance(axes, tuple):
                raise CompileError("MT0101", f"`*{d.id}` is not an axis pack of the parameters", d.span)
            shape += axes
        else:
            shape.append(eval_dim(d, sizes))
    return ArrayType(dtype(annotation.dtype), tuple(shape))


def eval_dim(expr: ast.Expr, sizes: Sizes) -> Dim:
    """Returns the value of a dimension in an annotation, such as `2 * N + 1`.

    The function does not recurse, because an expression can be deeply nested.
    """
    values: dict[int, Dim] = {}
    for node in ast.postorder(expr):
        check_time()
        values[id(node)] = _eval_node(node, values, sizes)
    return values[id(expr)]


def _eval_node(expr: ast.Node, values: Mapping[int, Dim], sizes: Sizes) -> Dim:
    match expr:
        case ast.Number(value=value):
            return Dim.of(int(value))
        case ast.Name():
            found = sizes.get(expr.id)
            if not isinstance(found, Dim):
                known = [n for n, d in sizes.items() if isinstance(d, Dim)]
                help = f"the parameters have {listed([f'`{n}`' for n in known])}" if known else ""
                error = CompileError("MT0101", f"there is no dimension `{expr.id}` here", expr.span, help=help)
                raise error.guess(expr.span, suggest(expr.id, known))
            return found
        case ast.Binary(op="+" | "-" | "*" | "//" | "%" as op):
            a, b = values[id(expr.left)], values[id(expr.right)]
            if op not in ("//", "%") or (b != 0 and sign(b) in (0, 1)):
                return ast.BINARY[op](a, b)
    raise CompileError("MT0004", "a dimension is a name, an integer, or + - * // % of them", expr.span)


# ---- arguments and results ---------------------------------------------------------------


def static_argument(param: ast.Param, value: Value, function: ast.Function) -> Value:
    """Returns the argument for a parameter that takes either a number or a string such as "tanh".

    Raises CompileError MT0102 if the argument is invalid.
    """
    accepted = {"float": (int, float, Dim, Array), "int": (int, Dim), "bool": (bool,)}
    if isinstance(param.annotation, ast.ScalarType):
        kind = param.annotation.kind
        message = f"`{param.name}` of {function.name} takes a{'n' * (kind == 'int')} {kind}, not {describe(value)}"
        ensure(isinstance(value, accepted[kind]), "MT0102", message)
    options = _options(function, param)
    if len(options) > 1 and value not in options:  # with one known option, any other value means "not this one"
        shown = listed([f'"{option}"' for option in options], "or")
        given = f'"{value[:40]}"' if isinstance(value, str) else describe(value)
        help = suggest(value, options) if isinstance(value, str) else ""
        raise CompileError("MT0102", f"`{param.name}` of {function.name} is {shown}, not {given}", help=help)
    return value


def declared_result(t: Typer, function: ast.Function, sizes: Sizes, k: int, array: Array) -> Array:
    """Returns the k-th result of a function as an array of the type that the function declares for this result."""
    declared = None if function.returns is None else function.returns[k]
    if not isinstance(declared, ast.ArrayType):
        return array
    try:
        return typed(t, array, array_type(declared, sizes), f"{function.name} returns", declared.span)
    except CompileError as error:
        if error.code == "MT0207":
            raise corrections.result_type(error, function, declared, k, array) from None
        raise


def require_count(function: ast.Function, given: int) -> None:
    """Raises CompileError MT0207 if a function declares more or fewer results than it returns."""
    declared = given if function.returns is None else len(function.returns)
    message = f"{function.name} declares {declared} results and returns {given}"
    ensure(declared == given, "MT0207", message, span=function.body[-1].span)


def typed(t: Typer, array: Array, type: ArrayType, what: str, span: Span) -> Array:
    """Gives an array the sizes of its declared type `type`.

    If a size of the array and the declared size are different expressions, each call checks that their values are
    equal. Raises CompileError MT0207 if the dtype or the rank of the array differs from `type`. The argument `what` is
    the beginning of the error message.
    """
    message = f"{what} {array}, which is declared as {type}"
    ensure(array.dtype == type.dtype, "MT0207", message, f"convert it: `astype(…, {type.dtype})`", span)
    ensure(array.rank == len(type.shape), "MT0207", message, span=span)
    t.span = span
    for a, b in zip(array.shape, type.shape):
        t.require(a, "==", b, "MT0207", message)
    if array.shape == type.shape:
        return array
    return view(t, array, type.shape, [along(k, e) for k, e in enumerate(array.shape)])


@lru_cache(maxsize=256)
def _options(function: ast.Function, param: ast.Param) -> tuple[str, ...]:
    """Returns the strings that `param` accepts: its default, and the strings that `function` compares with `param`."""
    if param.annotation is not None or not isinstance(param.default, ast.String):
        return ()
    options = [param.default.value]
    nodes = [node for statement in function.body for node in ast.postorder(statement)]
    for node in nodes:
        match node:
            case (
                ast.Compare(left=ast.Name(id=name), right=ast.String(value=word))
                | ast.Compare(left=ast.String(value=word), right=ast.Name(id=name))
            ) if name == param.name:
                options.append(word)
    used = sum(isinstance(node, ast.Name) and node.id == param.name for node in nodes)
    # none if the body does anything with the parameter except comparing it with strings
    return tuple(dict.fromkeys(options)) if used == len(options) - 1 else ()


# ---- arguments that are known at compile time ------------------------------------------------------


def plain(d: Dim) -> int | Dim:
    """Returns an int for a constant `Dim`, and any other `Dim` unchanged."""
    return d if d.constant is None else d.constant


def static(compute: Callable[[], Any]) -> Any:
    """Returns the result of a computation with constants.

    Raises CompileError MT0208 if the computation fails or if its result is a complex number.
    """
    try:
        result = compute()
    except CompileError:
        raise
    except ZeroDivisionError:
        raise CompileError("MT0208", "division of a constant by zero", help="write inf or nan") from None
    except OverflowError:
        raise CompileError("MT0208", "the result of these constants is past all floats", help="write inf") from None
    except (TypeError, ValueError) as error:
        raise CompileError("MT0208", f"these constants do not combine: {str(error)[:80]}") from None
    ensure(not isinstance(result, complex), "MT0208", "the result of these constants is a complex number")
    return plain(result) if isinstance(result, Dim) else result


def as_dim(value: Any, what: str) -> Dim:
    """Converts an argument that is a size, such as 4 or N + 1, to a `Dim`.

    Raises CompileError MT0106 if the argument is not an int or a `Dim`.
    """
    fits = isinstance(value, (int, Dim)) and not isinstance(value, bool)
    ensure(fits, "MT0106", f"{what} must be an integer or a dimension known at compile time, not {describe(value)}")
    return Dim.of(value)


def as_offset(value: Value, what: str) -> Dim:
    """Converts an integer argument, such as the offset of a diagonal, to a `Dim`. A constant is clipped to the limits
    -FAR and FAR, so that the sum of the constant and an index fits i64.
    """
    d = as_dim(value, what)
    return d if d.constant is None else Dim.of(max(-FAR, min(d.constant, FAR)))


def as_int(value: Any, what: str) -> int:
    value = plain(value) if isinstance(value, Dim) else value
    fits = isinstance(value, int) and not isinstance(value, bool)
    ensure(fits, "MT0106", f"{what} must be an integer known at compile time, not {describe(value)}")
    return value


def as_bool(value: Any, what: str) -> bool:
    ensure(isinstance(value, bool), "MT0106", f"{what} must be True or False, not {describe(value)}")
    return value


def as_shape(value: Value) -> Shape:
    items = items_of(value)
    ensure(len(items) <= MAX_RANK, "MT0401", f"this shape has {len(items)} axes, the limit is {MAX_RANK}")
    return tuple(as_dim(v, "a size in a shape") for v in items)


def as_axes(value: Value, rank: int, what: str = "axis") -> tuple[int, ...]:
    """Returns axis numbers, normalised to 0 … rank - 1. The argument None means all axes.

    Raises CompileError MT0204 for an invalid axis.
    """
    if value is None:
        return tuple(range(rank))
    axes: list[int] = []
    for item in items_of(value):
        k = as_int(item, what)
        has = f"it has {rank} {'axis' if rank == 1 else 'axes'}: {-rank} to {rank - 1}"
        help = has if rank else "a 0-d array has no axes"
        ensure(-rank <= k < rank, "MT0204", f"{what} {k} is out of range for an array of rank {rank}", help)
        axes.append(k % rank)
    ensure(len(set(axes)) == len(axes), "MT0204", f"{what} {value} names an axis twice")
    return tuple(axes)


def as_axis(value: Value, rank: int) -> int:
    """Returns the number of one axis, normalised to 0 … rank - 1."""
    return as_axes(as_int(value, "axis"), rank)[0]


def as_dtype(value: Value, default: DType | None = None) -> DType:
    """Returns the dtype that an argument names, or `default` for None.

    Raises CompileError MT0202 for an argument that is not a dtype.
    """
    if value is None and default is not None:
        return default
    if isinstance(value, DType):
        return value
    help = f"{'dtypes have no quotes; ' if isinstance(value, str) else ''}write f32, i64, bool, …"
    raise CompileError("MT0202", f"a dtype is needed here, not {describe(value)}", help=help)
