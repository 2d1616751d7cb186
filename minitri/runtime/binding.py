"""Binds the arguments of a call to parameters and checks them, before anything is launched.

In: a function's parameters and the caller's arguments. Out: a `Call`: the instance to
compile (packs, types of parameters without annotation, compile-time values), the size of
each dimension, a view of each array. Every mismatch is a CompileError MT03xx that names the
parameter, what it is and what it should be; never a value of the user's data.

Sizes may stand in the place of arrays: `given_sizes` reads the keywords of `Program.lower`.

    f.lower(M=4096, B=(8, 16), n=2)      a dimension, the axes of `*B`, a scalar parameter
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from operator import index, mul
from typing import Any

import numpy as np

from minitri.base import dims
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim, Symbol
from minitri.base.types import ArrayType, DType, dtype
from minitri.graph.ir import Condition
from minitri.graph.parameters import Instance, Sizes, array_type, sizes_of, static
from minitri.language import ast
from minitri.language.arithmetic import BINARY, CONSTANTS
from minitri.runtime.arguments import ArrayView, view


@dataclass(frozen=True, slots=True)
class Call:
    """`arrays` and `scalars` by parameter name; `sizes` of every dimension by name."""

    instance: Instance
    sizes: dict[str, int]
    arrays: dict[str, ArrayView]
    scalars: dict[str, float]

    @property
    def inputs(self) -> dict[str, Any]:
        """The arrays as numpy arrays, and the scalars, by name."""
        return {n: a.numpy() for n, a in self.arrays.items()} | dict(self.scalars)

    @property
    def numbers(self) -> dict[str, int]:
        """Every size that kernels may ask for: dimensions, and what `layouts` leaves open."""
        strides = {f"{n}.stride{k}": s for n, a in self._strided() for k, s in enumerate(a.strides) if s not in (0, 1)}
        return {**self.sizes, **strides}

    def layouts(self, known: bool = True) -> dict[str, tuple[Dim, ...]]:
        """Strides of the arrays that are not row-major: as literals if `known`, else as sizes like `x.stride0`.

        The strides 0 and 1 are literals in both cases.
        """
        return {name: tuple(_strides(name, a, known)) for name, a in self._strided()}

    def _strided(self) -> list[tuple[str, ArrayView]]:
        return [(n, a) for n, a in self.arrays.items() if a.strides != row_major(a.shape) and 0 not in a.shape]

    def with_known_sizes(self) -> Call:
        """The same call, where the types of parameters without annotation have numbers for sizes: f32[2], not f32[n0]."""
        own = {s.name for t in self.instance.types.values() for e in t.shape for s in e.symbols()}
        env = {Symbol(name): Dim.of(self.sizes[name]) for name in own}
        types = {
            name: ArrayType(t.dtype, tuple(e.substitute(env) for e in t.shape))
            for name, t in self.instance.types.items()
        }
        sizes = {name: n for name, n in self.sizes.items() if name not in own}
        return replace(self, instance=replace(self.instance, types=types), sizes=sizes)

    @property
    def model(self) -> ArrayView | None:
        """The array whose kind and device the outputs have."""
        return next((a for a in self.arrays.values() if a.device != "cpu"), next(iter(self.arrays.values()), None))


def _strides(name: str, array: ArrayView, known: bool) -> Iterator[Dim]:
    for k, (n, stride) in enumerate(zip(array.shape, array.strides)):
        literal = Dim.of(0 if known and n == 1 else stride)
        yield literal if known or stride in (0, 1) else dims.size(f"{name}.stride{k}")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()


def bind(function: ast.Function, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
    given = _by_name(function, args, keywords)
    arrays: dict[str, ArrayView] = {}
    scalars: dict[str, float] = {}
    statics: dict[str, Any] = {}
    for param in function.params:
        name = param.name
        if name not in given:
            if takes_float(param):
                scalars[name] = constant(param.default)
            continue
        value = given[name]
        match param.annotation:
            case ast.ScalarType(kind="float"):
                scalars[name] = scalar(param, value)
            case ast.ScalarType():
                statics[name] = scalar(param, value)
            case None if _is_number(value) or (param.default is not None and not hasattr(value, "dtype")):
                statics[name] = scalar(param, value)
            case ast.ArrayType() if _is_number(value):
                arrays[name] = view(_weak(value, dtype(param.annotation.dtype)), name)
            case _:
                arrays[name] = view(value, name)
    _one_device(arrays)
    packs = _packs(function, arrays)
    sizes, types = _sizes(function, arrays, packs)
    return Call(Instance(packs, types, statics), sizes, arrays, scalars)


def _by_name(function: ast.Function, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    names = [p.name for p in function.params]
    if len(args) > len(names):
        message = f"{function.name} takes {_count(len(names))}, not {len(args)}"
        raise CompileError("MT0301", message, help=f"its parameters: {', '.join(names) or 'none'}")
    given = dict(zip(names, args))
    for key, value in keywords.items():
        if key not in names:
            help = suggest(key, names) or f"its parameters: {', '.join(names) or 'none'}"
            raise CompileError("MT0301", f"{function.name} has no parameter `{key[:40]}`", help=help)
        if key in given:
            raise CompileError("MT0301", f"{function.name} got `{key}` twice")
        given[key] = value
    for param in function.params:
        if param.name not in given and param.default is None:
            message = f"{function.name} takes {_count(len(names))}; `{param.name}` is missing"
            raise CompileError("MT0301", message, param.span)
    return given


def _count(n: int) -> str:
    return f"{n} argument{'' if n == 1 else 's'}"


def takes_float(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ScalarType) and param.annotation.kind == "float"


def constant(expr: ast.Expr | None) -> float:
    """A default value: a number, or arithmetic of numbers."""
    match expr:
        case ast.Number():
            return float(expr.value)
        case ast.Unary(op="-" | "+" as op):
            return constant(expr.operand) * (-1 if op == "-" else 1)
        case ast.Name(id=id) if id in CONSTANTS:
            return CONSTANTS[id]
        case ast.Binary(op="+" | "-" | "*" | "/" | "//" | "%" | "**" as op):
            left, right = constant(expr.left), constant(expr.right)
            try:
                return float(static(lambda: BINARY[op](left, right)))
            except CompileError as error:
                raise error.at(expr.span) from None
        case _:
            raise CompileError("MT0106", "a default of a float must be a number", expr.span if expr else None)


def scalar(param: ast.Param, value: Any) -> Any:
    """The value for a parameter that takes no array, checked against its annotation."""
    match param.annotation:
        case ast.ScalarType(kind="float"):
            return _float(param, _item(value))
        case ast.ScalarType(kind=kind):
            value = _compile_time(param, _item(value))
            if not isinstance(value, bool if kind == "bool" else int):
                raise _not_a(kind, param, value)
            return value if kind == "bool" else int(value)
        case _:
            return _compile_time(param, value)


def _float(param: ast.Param, value: Any) -> float:
    try:
        if isinstance(value, (int, float)):
            return float(value)
    except OverflowError:
        message = f"the integer for the parameter `{param.name}` is past all floats"
        raise CompileError("MT0303", message, param.span) from None
    raise _not_a("float", param, value)


def _compile_time(param: ast.Param, value: Any) -> Any:
    """A value that becomes part of the program: a number, a word, a dtype, a tuple of these."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            message = f"the integer for the parameter `{param.name}` has more than 64 bits"
            raise CompileError("MT0303", message, param.span)
        case bool() | int() | float() | str() | DType() | None:
            return value
        case tuple() | list():
            return tuple(_compile_time(param, v) for v in value)
    raise _not_a("number", param, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def _item(value: Any) -> Any:
    """The Python number in an array without axes."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def _weak(value: int | float | bool, dtype: DType) -> Any:
    """A Python number as an array of the declared dtype, if numpy would let it take part in one."""
    rank = {"b": 0, "u": 1, "i": 1, "f": 2}
    given = rank["b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"]
    if given > rank[dtype.kind] or (dtype.is_integer and not dtype.limits[0] <= value <= dtype.limits[1]):
        return np.asarray(value)
    with np.errstate(all="ignore"):
        return np.asarray(value, dtype.numpy)


def _not_a(kind: str, param: ast.Param, value: Any) -> CompileError:
    message = f"the parameter `{param.name}` takes {'an' if kind == 'int' else 'a'} {kind}, not {type(value).__name__}"
    return CompileError("MT0303", message, param.span)


def _one_device(arrays: Mapping[str, ArrayView]) -> None:
    devices: dict[str, str] = {}
    for name, a in arrays.items():
        if a.shape or a.kind == "torch":
            devices.setdefault(a.device, name)
    if len(devices) > 1:
        shown = " and ".join(f"`{name}` is on {device}" for device, name in devices.items())
        raise CompileError("MT0305", f"the arguments are on different devices: {shown}")


def _packs(function: ast.Function, arrays: Mapping[str, ArrayView]) -> dict[str, int]:
    """How many axes each `*B` stands for."""
    packs: dict[str, int] = {}
    for param in function.params:
        declared = param.annotation
        if not isinstance(declared, ast.ArrayType) or param.name not in arrays:
            continue
        names = [d.id for d in declared.dims if isinstance(d, ast.Pack)]
        rank = len(arrays[param.name].shape)
        extra = rank - (len(declared.dims) - len(names))
        if extra < 0 or (extra and not names) or (names and packs.setdefault(names[0], extra) != extra):
            message = f"argument `{param.name}` has rank {rank}: {arrays[param.name]}"
            label = "declared " + declared.span.text.strip("\"'")
            raise CompileError("MT0302", message, param.span, label=label)
    return packs


def _sizes(
    function: ast.Function, arrays: Mapping[str, ArrayView], packs: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, ArrayType]]:
    """The size of every dimension, and types for parameters without annotation."""
    names = sizes_of(function, packs)
    sizes: dict[str, int] = {}
    where: dict[str, str] = {}
    types: dict[str, ArrayType] = {}
    declared: list[tuple[ast.Param, ArrayView, int, Dim]] = []  # an axis and its size as the type says it
    for param in function.params:
        if param.name not in arrays:
            continue
        array = arrays[param.name]
        if isinstance(param.annotation, ast.ArrayType):
            type = array_type(param.annotation, names)
            if type.dtype != array.dtype:
                message = f"argument `{param.name}` has the dtype {array.dtype}, not {type.dtype}"
                raise CompileError("MT0303", message, param.span, help=f"convert it to {type.dtype} before the call")
            declared += [(param, array, axis, extent) for axis, extent in enumerate(type.shape)]
        else:
            types[param.name] = _type_of(array, sizes, names)
    before = -1
    while before != len(sizes):  # a product such as G*H needs what another argument says
        before = len(sizes)
        for param, array, axis, extent in declared:
            _learn(extent, array.shape[axis], param.name, sizes, where)
    for param, array, axis, extent in declared:
        _require(param, array, axis, extent, sizes, where)
    return sizes, types


def _type_of(array: ArrayView, sizes: dict[str, int], taken: Sizes) -> ArrayType:
    """A type for an array whose parameter has none: equal sizes share a name, 1 is 1."""
    declared = {str(d) for known in taken.values() for d in (known if isinstance(known, tuple) else (known,))}
    free = (name for name in (f"n{k}" for k in count()) if name not in declared and name not in sizes)
    shape: list[Dim] = []
    for n in array.shape:
        if n == 1:
            shape.append(dims.ONE)
            continue
        name = next((s for s, value in sizes.items() if value == n), None) or next(free)
        sizes[name] = n
        shape.append(dims.size(name))
    return ArrayType(array.dtype, tuple(shape))


def _learn(extent: Dim, n: int, name: str, sizes: dict[str, int], where: dict[str, str]) -> None:
    """Solves `extent == n` for a dimension that is not known yet, if it is the only one."""
    if line := _line(extent, sizes):
        symbol, slope, start = line
        value, rest = divmod(n - start, slope)
        if rest == 0 and value >= 0:
            sizes[symbol.name], where[symbol.name] = value, name


def _line(extent: Dim, sizes: Mapping[str, int]) -> tuple[Symbol, int, int] | None:
    """(N, a, b) if, with the sizes that are known, the extent is a * N + b for the only other one, and a is not 0."""
    unknown = [s for s in extent.symbols() if s.name not in sizes]
    if len(unknown) != 1:
        return None
    known = extent.substitute({s: Dim.of(sizes[s.name]) for s in extent.symbols() if s.name in sizes})
    split = known.coefficient(unknown[0])
    if split is None or not split[0].constant or split[1].constant is None:
        return None
    return unknown[0], int(split[0]), int(split[1])


def _require(
    param: ast.Param, array: ArrayView, axis: int, extent: Dim, sizes: Mapping[str, int], where: Mapping[str, str]
) -> None:
    n = array.shape[axis]
    missing = [s.name for s in extent.symbols() if s.name not in sizes]
    if missing and _line(extent, sizes) is not None:  # some size of the array would have told it
        message = f"argument `{param.name}` has size {n} along axis {axis}, which is {extent} for no `{missing[0]}`"
        raise CompileError("MT0304", message, param.span, label=f"called with {array}")
    if missing:
        help = "use the dimension alone in the type of some parameter"
        raise CompileError("MT0304", f"no argument tells the size of `{missing[0]}`", param.span, help=help)
    wanted = extent.evaluate(sizes)
    if wanted != n:
        source = where.get(extent.atom.name) if isinstance(extent.atom, Symbol) else None
        origin = f" in `{source}`" if source else ""
        message = f"argument `{param.name}` has size {n} along axis {axis}, but {extent} is {wanted}{origin}"
        raise CompileError("MT0304", message, param.span, label=f"called with {array}")


def check_conditions(conditions: Sequence[Condition], sizes: Mapping[str, int]) -> None:
    """What the types could not decide, now that sizes are known."""
    env = {Symbol(name): Dim.of(n) for name, n in sizes.items()} if conditions else {}
    for c in conditions:
        known = c.substitute(env)
        if known.decided() is False:
            raise known.error()


# ---- sizes in the place of arrays ----------------------------------------------------------------


def given_sizes(function: ast.Function, given: Mapping[str, Any]) -> Call:
    """A call without arrays, of which keywords say the sizes. CompileError MT0304 for an unknown name or a bad size."""
    names, packs = dimension_names(function)
    scalars = {p.name: p for p in function.params if not isinstance(p.annotation, ast.ArrayType)}
    sizes: dict[str, int] = {}
    ranks: dict[str, int] = {}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in packs:
            axes = value if isinstance(value, (tuple, list)) else (value,)
            ranks[name] = len(axes)
            sizes.update({f"{name}{k}": _size(name, n) for k, n in enumerate(axes)})
        elif name in names:
            sizes[name] = _size(name, value)
        elif name in scalars:
            values[name] = scalar(scalars[name], value)
        else:
            known = [*names, *packs]
            help = suggest(name, known) or f"its dimensions: {', '.join(known) or 'none'}"
            raise CompileError("MT0304", f"{function.name} has no dimension `{name[:40]}`", help=help)
    return Call(Instance(ranks, {}, values), sizes, {}, {})


def dimension_names(function: ast.Function) -> tuple[list[str], list[str]]:
    """The names of dimensions, and of packs of dimensions, in the types of the parameters."""
    found = sizes_of(function, {})
    return [n for n, d in found.items() if isinstance(d, Dim)], [n for n, d in found.items() if isinstance(d, tuple)]


def _size(name: str, value: Any) -> int:
    try:
        size = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        size = -1
    if 0 <= size < 2**40:
        return size
    raise CompileError("MT0304", f"the size of `{name}` must be an integer from 0 to 2**40 - 1, not {repr(value)[:40]}")
