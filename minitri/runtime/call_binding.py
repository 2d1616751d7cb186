"""Binds the arguments of a call to parameters and checks them, before any kernel is launched.

The function `bind` takes the syntax tree of a function and the caller's arguments. The function `bind` returns a
`Call`. A `Call` contains the sizes of all dimensions, an `ArrayView` for each array, and an `Instance` of the function.
The `Instance` holds facts that the annotations do not give: the number of axes of each pack, the types of parameters
without annotation, and compile-time values. A pack, such as `*B`, is a name for any number of dimensions. An argument
that does not fit its parameter raises a CompileError MT03xx. The message of a CompileError MT03xx names the parameter,
the given type and the expected type, but never a value of the user's data.

The method `Program.lower` also accepts sizes in place of arrays. The function `given_sizes` reads the sizes from
keyword arguments:

    f.lower(M=4096, B=(8, 16), n=2)      a dimension, the axes of `*B`, a scalar parameter
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, count
from operator import index, mul
from typing import Any, NamedTuple

import numpy as np

from minitri.base import dims
from minitri.base.diagnostics import CompileError, misspelt
from minitri.base.dims import Dim
from minitri.base.types import ArrayType, DType, dtype, items_of
from minitri.graph.lower_ast import default
from minitri.graph.parameter_binding import Instance, Sizes, array_type, sizes_of
from minitri.graph.shape_unification import match_sizes, solve_sizes
from minitri.language import ast
from minitri.runtime.array_interop import ArrayView, view

# the types of the values that a scalar parameter accepts
KINDS: dict[str, Any] = {"float": (float, int), "int": (int,), "bool": (bool,)}


class Call(NamedTuple):
    """A call of a program, after its arguments have been checked. `arrays` and `scalars` map the names of parameters to
    arguments; `sizes` maps the names of dimensions to sizes.
    """

    instance: Instance
    sizes: dict[str, int]
    arrays: dict[str, ArrayView]
    scalars: dict[str, float]

    @property
    def inputs(self) -> dict[str, Any]:
        """A dictionary from parameter names to numpy arrays and scalars."""
        return {n: a.numpy() for n, a in self.arrays.items()} | dict(self.scalars)

    @property
    def values(self) -> dict[str, Any]:
        """All arguments, by the name of the parameter. Arrays are given as numpy arrays."""
        return {**self.inputs, **self.instance.statics}

    @property
    def numbers(self) -> dict[str, int]:
        """Returns the integers that a kernel can receive as arguments: the sizes of dimensions, and the strides that
        `layouts(False)` represents by symbols.
        """
        strides = {f"{n}.stride{k}": s for n, a in self._strided() for k, s in enumerate(a.strides) if s not in (0, 1)}
        return {**self.sizes, **strides}

    def layouts(self, known: bool = True) -> dict[str, tuple[Dim, ...]]:
        """Returns the strides of each array that is not row-major, in elements, by the name of the parameter.

        If `known` is true, the strides are literals, otherwise symbols such as `x.stride0`. The strides 0 and 1 are
        always literals.
        """
        return {name: tuple(_strides(name, a, known)) for name, a in self._strided()}

    def _strided(self) -> list[tuple[str, ArrayView]]:
        return [(n, a) for n, a in self.arrays.items() if a.strides != row_major(a.shape) and 0 not in a.shape]

    def with_known_sizes(self) -> Call:
        """Returns the call with known sizes: a parameter without annotation has a type such as f32[2], not f32[n0]."""
        types = self.instance.types
        own = {s.name for t in types.values() for e in t.shape for s in e.symbols()}
        known = {name: ArrayType(t.dtype, tuple(map(Dim.of, self.arrays[name].shape))) for name, t in types.items()}
        sizes = {name: n for name, n in self.sizes.items() if name not in own}
        return self._replace(instance=replace(self.instance, types=known), sizes=sizes)

    @property
    def model(self) -> ArrayView | None:
        """The array whose library and device the outputs get: the first array on a GPU, or else the first array."""
        return min(self.arrays.values(), key=lambda a: a.device == "cpu", default=None)

    @property
    def device(self) -> str:
        """The name of the GPU that holds an array of the call, such as "cuda:0". "cpu" if no array is on a GPU."""
        return getattr(self.model, "device", "cpu")


def _strides(name: str, array: ArrayView, known: bool) -> Iterator[Dim]:
    for k, (n, stride) in enumerate(zip(array.shape, array.strides)):
        literal = Dim.of(0 if known and n == 1 else stride)
        yield literal if known or stride in (0, 1) else dims.size(f"{name}.stride{k}")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()


def bind(function: ast.Function, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
    given = _by_name(function, args, keywords)
    arrays, scalars, statics = dict[str, ArrayView](), dict[str, float](), dict[str, Any]()
    for param in function.params:
        name, value = param.name, given.get(param.name)
        if takes_float(param):
            scalars[name] = scalar(param, value) if name in given else float_default(function, param)
        elif name in given and _is_static(param, value):
            statics[name] = scalar(param, value)
        elif name in given:
            arrays[name] = view(_promoted(param, value), name)
    _one_device(arrays)
    packs, types, sizes = _shapes(function, arrays)
    return Call(Instance(packs, types, statics), sizes, arrays, scalars)


def _is_static(param: ast.Param, value: Any) -> bool:
    """Checks whether an argument is compiled into the program as a constant."""
    # Other arguments are passed to the kernels at each call.
    if param.annotation is None:
        return _is_number(value) or (param.default is not None and not hasattr(value, "dtype"))
    return isinstance(param.annotation, ast.ScalarType)  # `int` or `bool`


def _by_name(function: ast.Function, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    names = [p.name for p in function.params]
    count, help = f"{len(names)} argument{'s' * (len(names) != 1)}", f"its parameters: {', '.join(names) or 'none'}"
    if len(args) > len(names):
        raise CompileError("MT0301", f"{function.name} takes {count}, not {len(args)}", help=help)
    given = dict(zip(names, args))
    for key in keywords:
        if key not in names:
            raise misspelt("MT0301", f"{function.name} has no parameter", key, names, help)
        if key in given:
            raise CompileError("MT0301", f"{function.name} got `{key}` twice")
    given |= keywords
    for param in function.params:
        if param.name not in given and param.default is None:
            raise CompileError("MT0301", f"{function.name} takes {count}; `{param.name}` is missing", param.span)
    return given


def takes_float(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ScalarType) and param.annotation.kind == "float"


@lru_cache(maxsize=256)
def float_default(function: ast.Function, param: ast.Param) -> float:
    """Returns a float parameter's default as a number. The default can be an arithmetic expression of numbers."""
    return scalar(param, default(function, param))


def scalar(param: ast.Param, value: Any) -> Any:
    """Checks the argument of a parameter that takes no array against the parameter's annotation, and returns the
    converted argument.
    """
    if not isinstance(param.annotation, ast.ScalarType):
        return _compile_time(param, value)
    kind = param.annotation.kind
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a 0-d array holds one number
        value = value.item()
    if kind != "float":
        value = _compile_time(param, value)
    if not isinstance(value, KINDS[kind]):
        raise _wrong_type(kind, param, value)
    try:
        return KINDS[kind][0](value)
    except OverflowError:
        raise _wrong_integer(param, "is past all floats") from None


def _compile_time(param: ast.Param, value: Any) -> Any:
    """Returns a constant that is compiled into the program, such as a number or tuple."""
    match value:
        case int() if not -(2**63) <= value < 2**64:
            raise _wrong_integer(param, "has more than 64 bits")
        case bool() | int() | float() | str() | DType() | None:
            return value
        case tuple() | list():
            return tuple(_compile_time(param, v) for v in value)
    raise _wrong_type("number", param, value)  # for example, an array


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def _promoted(param: ast.Param, value: Any) -> Any:
    """Converts a Python number to an array of the declared dtype, if numpy's promotion rules allow this conversion."""
    if not isinstance(param.annotation, ast.ArrayType) or not _is_number(value):
        return value
    declared, rank = dtype(param.annotation.dtype), {"b": 0, "u": 1, "i": 1, "f": 2}
    given = 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2
    outside = declared.is_integer and not declared.limits[0] <= value <= declared.limits[1]
    with np.errstate(all="ignore"):
        return value if outside or given > rank[declared.kind] else np.asarray(value, declared.numpy)


def _wrong_type(kind: str, param: ast.Param, value: Any) -> CompileError:
    message = f"the parameter `{param.name}` takes {'an' if kind == 'int' else 'a'} {kind}, not {type(value).__name__}"
    return CompileError("MT0303", message, param.span)


def _wrong_integer(param: ast.Param, why: str) -> CompileError:
    return CompileError("MT0303", f"the integer for the parameter `{param.name}` {why}", param.span)


def _wrong_argument(code: str, param: ast.Param, why: str, **more: str) -> CompileError:
    return CompileError(code, f"argument `{param.name}` {why}", param.span, **more)


def _one_device(arrays: Mapping[str, ArrayView]) -> None:
    devices: dict[str, str] = {}
    for name, a in arrays.items():
        if a.shape or a.kind == "torch":
            devices.setdefault(a.device, name)
    if len(devices) > 1:
        shown = " and ".join(f"`{name}` is on {device}" for device, name in devices.items())
        raise CompileError("MT0305", f"the arguments are on different devices: {shown}")


def _shapes(
    function: ast.Function, arrays: Mapping[str, ArrayView]
) -> tuple[dict[str, int], dict[str, ArrayType], dict[str, int]]:
    """Returns three dicts: the number of axes of each pack such as `*B`, the inferred types, and the size of each
    dimension.
    """
    declared = [(p, p.annotation, arrays[p.name]) for p in function.params if p.name in arrays]
    typed = [(p, t, a, tuple(map(Dim.of, a.shape))) for p, t, a in declared if isinstance(t, ast.ArrayType)]
    # `where` maps the name of a size, such as N, to a parameter with N as a dimension, such as f32[N]; `solved` maps
    # the name to a parameter with N only in an expression, such as f32[2*N].
    known, where = Sizes(), dict[str, str]()
    for param, type, array, shape in typed:
        match_sizes(type, shape, known, partial(_wrong_rank, param, type, array))
        _check_dtype(param, type, array)
        where |= dict.fromkeys(known.keys() - where.keys(), param.name)
    found = solve_sizes([(type, shape) for _, type, _, shape in typed], known)
    solved = {name: typed[k][0].name for k, name, _, _ in found}
    packs = {name: len(axes) for name, axes in known.items() if isinstance(axes, tuple)}  # a pack, such as `*B`
    names, sizes = sizes_of(function, packs), dict[str, int]()
    types = {p.name: _type_of(array, sizes, names) for p, type, array in declared if type is None}
    for name, extent in known.items():
        for symbol, n in zip(items_of(names[name]), items_of(extent)):
            sizes[str(symbol)] = int(n)
            where[str(symbol)] = where.get(name, "")
    for param, type, array, _ in typed:
        for axis, extent in enumerate(array_type(type, names).shape):
            _check_size(param, array, axis, extent, sizes, where, solved)
    return packs, types, sizes


def _wrong_rank(param: ast.Param, type: ast.ArrayType, array: ArrayView) -> CompileError:
    label = "declared " + type.span.text.strip("\"'")
    return _wrong_argument("MT0302", param, f"has rank {len(array.shape)}: {array}", label=label)


def _check_dtype(param: ast.Param, type: ast.ArrayType, array: ArrayView) -> None:
    if type.dtype != array.dtype.name:
        help = _conversion(param.name, array, dtype(type.dtype))
        raise _wrong_argument("MT0303", param, f"has the dtype {array.dtype}, not {type.dtype}", help=help)


def _conversion(name: str, array: ArrayView, dtype: DType) -> str:
    """Returns a hint on converting an argument, such as `x.astype(np.float32)` or `x.to(torch.float32)`."""
    if array.kind == "torch":
        return f"pass `{name}.to(torch.{'bool' if dtype.kind == 'b' else dtype.numpy_name})`"
    module = "ml_dtypes" if dtype.numpy.kind == "V" else "np"
    return f"pass `{name}.astype({module}.{'bool_' if dtype.kind == 'b' else dtype.numpy_name})`"


def _type_of(array: ArrayView, sizes: dict[str, int], taken: Sizes) -> ArrayType:
    """Returns the type of an array whose parameter has no annotation."""
    declared = {str(d) for known in taken.values() for d in items_of(known)}
    free = (name for name in (f"n{k}" for k in count()) if name not in declared and name not in sizes)
    for n in array.shape:
        if n != 1 and n not in sizes.values():  # equal sizes get one symbol, such as `n0`
            sizes[next(free)] = n
    names = {n: name for name, n in reversed(sizes.items())}
    return ArrayType(array.dtype, tuple(dims.ONE if n == 1 else dims.size(names[n]) for n in array.shape))


def _check_size(
    param: ast.Param, array: ArrayView, axis: int, extent: Dim, sizes: Mapping[str, int], where: Mapping[str, str],
    solved: Mapping[str, str],
) -> None:  # fmt: skip
    """Raises an error if the declared size of an axis is wrong or unknown."""
    names = [s.name for s in extent.symbols()]
    if missing := [n for n in names if n not in sizes]:
        help = "use the dimension alone in the type of some parameter"
        raise CompileError("MT0304", f"no argument tells the size of `{missing[0]}`", param.span, help=help)
    try:
        wanted = extent.evaluate(sizes)
    except ZeroDivisionError:
        raise _wrong_argument("MT0304", param, f"has no size along axis {axis}: {extent} divides by 0") from None
    if wanted == array.shape[axis] and all(sizes[n] >= 0 for n in names):
        return
    own = [n for n in names if solved.get(n) == param.name]  # no value of these dimensions gives this size
    origin = f" in `{where[str(extent)]}`" if where.get(str(extent)) else ""
    why = f"which is {extent} for no `{own[0]}`" if own else f"but {extent} is {wanted}{origin}"
    size = f"has size {array.shape[axis]} along axis {axis}"
    raise _wrong_argument("MT0304", param, f"{size}, {why}", label=f"called with {array}")


# ---- sizes instead of arrays ---------------------------------------------------------------------


def given_sizes(function: ast.Function, given: Mapping[str, Any]) -> Call:
    """Returns a call that has sizes but no arrays. Keyword arguments give the sizes of the call.

    Raises CompileError MT0304 for an unknown name or a wrong size.
    """
    dimensions = sizes_of(function, {})
    scalars = {p.name: p for p in function.params if not isinstance(p.annotation, ast.ArrayType)}
    sizes, packs, values = dict[str, int](), dict[str, int](), dict[str, Any]()
    for name, value in given.items():
        if isinstance(dimensions.get(name), tuple):
            axes = value if isinstance(value, (tuple, list)) else (value,)
            packs[name] = len(axes)
            sizes |= {f"{name}{k}": _size(name, n) for k, n in enumerate(axes)}
        elif name in dimensions:
            sizes[name] = _size(name, value)
        elif name in scalars:
            values[name] = scalar(scalars[name], value)
        else:
            known = f"its dimensions: {', '.join(dimensions) or 'none'}"
            raise misspelt("MT0304", f"{function.name} has no dimension", name, dimensions, known)
    return Call(Instance(packs, {}, values), sizes, {}, {})


def _size(name: str, value: Any) -> int:
    with suppress(TypeError):
        if not isinstance(value, bool) and 0 <= index(value) < 2**40:
            return index(value)
    raise CompileError("MT0304", f"the size of `{name}` must be an integer from 0 to 2**40 - 1, not {repr(value)[:40]}")
