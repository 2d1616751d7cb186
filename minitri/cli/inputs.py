"""Makes the arrays for a program from the options of a command line.

The function `make_inputs` takes the syntax tree of a function, and the options `--input x=...` and `-D M=...`. It
returns one array or number for each parameter of the function, and the sizes of all dimensions. The value of the option
`--input` is a file, a number, or the name of a way to fill an array.

`array.npy`: the array in this file. The file is never unpickled.
`zeros`, `ones`, `arange`: the array that the numpy function with this name makes.
`randn`: random floats with a normal distribution.
`randint:100`: random integers from 0 to 99.
`randint:-5:5`: random integers from -5 to 4.
`3.5`: this number. The value 3.5 for an array parameter makes an array in which every element is 3.5.
`random`: `randn` for floats, small random numbers for integers, and random booleans. `random` is the default.

The size of a dimension comes from the option -D if given, else from the shape of an array in a file, else from
`DEFAULT_SIZES`. The default sizes differ from each other, so that two axes in the wrong order cause an error. A later
call of the program, not `make_inputs`, checks that the arrays fit the program.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np

from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.base.types import BY_NUMPY_NAME, DTYPES, DType, bool_, f64, i64
from minitri.graph.parameter_binding import array_type, sizes_of
from minitri.graph.shape_unification import match_sizes, solve_sizes
from minitri.language import ast
from minitri.tiles.schedule import Options

Array = np.ndarray[Any, Any]
Size = int | tuple[int, ...]  # the size of a dimension, or the sizes of the axes of a pack

SCHEDULE = ("warps", "stages", "group", "persistent", "registers", "descriptors", "blocks")
DEFAULT_SIZES = (7, 33, 5, 18, 3)
DEFAULT_AXES = (2, 3)
REACH = 8  # random integers are in -REACH ... REACH - 1, or in a smaller range (see the function `_reach`)
SCALARS = {"float": f64, "int": i64, "bool": bool_}
KINDS = ("random", "randn", "zeros", "ones", "arange", "randint:100", "3.5", "array.npy")


class InputError(click.UsageError):
    """A usage error: the value of an option `--input` or `-D` is not valid."""


class Inputs(Record):
    """The arguments for a call of a program, and the sizes of its dimensions.

    `arrays` are the arguments in the order of the parameters. `assumed` has the default sizes, for the dimensions whose
    sizes neither the user nor a file gave.
    """

    arrays: tuple[Any, ...]
    sizes: dict[str, Size]
    assumed: Mapping[str, Size]


def make_inputs(function: ast.Function, given: Mapping[str, str], sizes: Mapping[str, Size], seed: int = 0) -> Inputs:
    """Returns one argument for each parameter. Raises InputError if the options do not describe a valid argument."""
    require_known("dimension", sizes, dimensions(function))
    known = {n: _as_declared(function, n, size) for n, size in sizes.items()}
    files = read_files(function, given, known)
    assumed = missing_sizes(function, known, DEFAULT_SIZES, DEFAULT_AXES)
    known |= assumed
    rng, reach = np.random.default_rng(seed), _reach(function, known)
    arrays: list[Any] = []
    for param in function.params:
        if param.default is not None and param.name not in given:
            if any(p.name in given for p in function.params[len(arrays) :]):
                raise InputError(f"give --input {param.name}=... as well: a later parameter has a value")
            break  # this parameter and all later parameters keep their defaults
        text = given.get(param.name, "random")
        arrays.append(files[param.name] if param.name in files else _argument(param, text, known, rng, reach))
    return Inputs(tuple(arrays), known, assumed)


def read_files(function: ast.Function, given: Mapping[str, str], sizes: dict[str, Size]) -> dict[str, Array]:
    """Reads the files that the options `--input` name. Returns a dict from the names of parameters to the arrays that
    were read.

    The shapes of the arrays give the sizes of dimensions, and the function adds these sizes to `sizes`. Raises
    InputError if two arrays have different sizes for the same dimension.
    """
    require_known("parameter", given, [p.name for p in function.params])
    files: dict[str, Array] = {}
    for param in function.params:
        name, text, type = param.name, given.get(param.name, ""), param.annotation
        if is_path(text):
            if isinstance(type, ast.ScalarType):
                raise InputError(f"`{name}` is a number of type {type.kind}, not an array: write --input {name}=3")
            files[name] = read_array(text, type and DTYPES[type.dtype])
            if type is not None:
                _learn(name, type, files[name].shape, sizes)
    return files


def dimensions(function: ast.Function) -> list[str]:
    """Returns the dimension names in the types of a function's parameters, including names of packs such as `*B`."""
    return list(sizes_of(function, {}))


def missing_sizes(
    function: ast.Function, known: Mapping[str, Size], sizes: Sequence[int], axes: tuple[int, ...]
) -> dict[str, Size]:
    """Returns sizes for the dimensions that have no size in `known`.

    Each dimension without a size in the dict `known` takes the next number from the list `sizes`. A pack is a name such
    as `*B` for several axes. A pack without sizes in `known` gets the tuple `axes` as the sizes of its axes.
    """
    numbers, declared = cycle(sizes), sizes_of(function, {}).items()
    return {n: axes if isinstance(size, tuple) else next(numbers) for n, size in declared if n not in known}


def parse_size(text: str) -> tuple[str, Size]:
    """Reads a size from a text such as `M=4096`. The name `*B` stands for any number of axes: the text `B=8,16` gives
    the sizes of two axes.

    The text `B=` says that `*B` stands for no axes.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise click.BadParameter(f"`{text[:60]}` is not a size: write M=4096, or B=8,16 for the axes of *B")
    if not re.fullmatch(r"(\d{1,18}(\s*,\s*\d{1,18})*,?)?", value, re.ASCII):
        raise click.BadParameter(f"the size of {name} is not a natural number: `{value[:60]}`")
    axes = tuple(int(n) for n in value.split(",") if n.strip())
    return name, axes[0] if len(axes) == 1 and "," not in value else axes


def parse_schedule(given: Mapping[str, str]) -> Options:
    """Reads the options of a schedule from texts such as {"warps": "8", "blocks": "i:64,r:32"}.

    The keys of `given` are names from the table `SCHEDULE`.
    """
    numbers = {n: _natural(n, text) for n, text in given.items() if n != "blocks"}
    described = bool(numbers.pop("descriptors")) if "descriptors" in numbers else None
    pairs = [part.partition(":") for part in given.get("blocks", "").split(",") if part.strip()]
    blocks = {axis.strip(): _natural(f"the block of {axis}", size) for axis, _, size in pairs}
    return Options(blocks=blocks, descriptors=described, **numbers)


def _natural(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*\d{1,9}\s*", text, re.ASCII):
        raise InputError(f"{name} is a natural number, not `{text[:60]}`: write warps=8, or blocks=i:64,r:32")
    return int(text)


def is_path(text: str) -> bool:
    return text.endswith(".npy") or "/" in text or "\\" in text


def read_array(path: str, dtype: DType | None = None) -> Array:
    """Returns the array in a .npy file. Raises InputError for a file that is not a .npy file of numbers.

    Reading the file never runs code, because this function rejects .npy files that contain pickled objects.
    """
    try:
        with Path(path).open("rb") as file:
            array: Any = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or 'it is no file').lower()}") from None
    except (ValueError, EOFError, MemoryError, OverflowError, SyntaxError):
        raise InputError(f"cannot read {path}: not a whole .npy file of numbers (np.save writes one)") from None
    if array.dtype.kind == "V" and dtype is not None and dtype.name == "bf16" and array.dtype.itemsize == 2:
        array = array.view(dtype.numpy)  # np.save writes bf16 as two nameless bytes
    if array.dtype.name not in BY_NUMPY_NAME:
        raise InputError(f"{path} holds {array.dtype}, which is no dtype of the language")
    return array


def _argument(param: ast.Param, text: str, sizes: Mapping[str, Size], rng: np.random.Generator, reach: int) -> Any:
    """Returns the array or number that an option such as `--input x=ones` describes."""
    match param.annotation:
        case ast.ArrayType() as type:
            dtype, shape = DTYPES[type.dtype], _shape(type, sizes)
        case ast.ScalarType(kind=kind):
            dtype, shape = SCALARS[kind], ()
        case _:
            help = f"say it with -t {param.name}=f32[N] or give --input {param.name}=array.npy"
            raise InputError(f"`{param.name}` has no type to make an array of: {help}")
    option = f"--input {param.name}={text[:60]}"
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(_array(text, dtype, shape, rng, reach)).astype(dtype.numpy)
    except (InputError, ValueError, OverflowError) as error:
        near = suggest(text.partition(":")[0], [k for k in KINDS if k.isalpha()])
        reason = error.message if isinstance(error, InputError) else near or f"a value is one of {', '.join(KINDS)}"
        raise InputError(f"{option}: {reason}") from None
    except MemoryError:
        raise InputError(f"{option}: {list(shape)} does not fit in memory") from None
    return array if isinstance(param.annotation, ast.ArrayType) else array.item()


def _array(text: str, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, reach: int) -> Any:
    """Returns the array for an option value such as `ones` or `randint:100`."""
    match text.split(":"):
        case ["zeros" | "ones"]:
            return np.full(shape, text == "ones")  # another dtype than `dtype`: the caller converts the array
        case ["arange"]:
            return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
        case ["random" | "randn"] if dtype.is_float:
            return rng.standard_normal(shape, np.float64 if dtype == f64 else np.float32)
        case ["random"]:
            low = -reach if dtype.kind == "i" else 0
            return rng.integers(low, 2 if dtype.kind == "b" else reach, shape)
        case ["randn"]:
            raise InputError(f"randn makes floats and this is {dtype}; write randint:100")
        case ["randint", *limits]:
            low, high = (0, *map(int, limits))[-2:] if 1 <= len(limits) <= 2 else (0, 0)
            if low >= high:
                raise InputError("write randint:100 for 0 ... 99, or randint:-5:5 for -5 ... 4")
            return rng.integers(low, high, shape)
        case _ if dtype.is_float:
            return np.full(shape, float(text))
    number = int({"true": "1", "false": "0"}.get(text.lower(), text))
    low, high = dtype.limits
    if not low <= number <= high:
        raise InputError(f"{dtype} holds {low} ... {high}")
    return np.full(shape, number, dtype.numpy)


def require_known(what: str, given: Iterable[str], names: list[str]) -> None:
    """Raises InputError if one of the given names is not among `names`, the names that the program has.

    The argument `what` says what the names stand for, such as "dimension", and is a part of the error message.
    """
    for name in given:
        if name not in names:
            there = f"there is {listed([f'`{n}`' for n in names])}" if names else "it has none"
            raise InputError(f"the program has no {what} `{name[:40]}`; {suggest(name, names) or there}")


def _as_declared(function: ast.Function, name: str, size: Size) -> Size:
    """Returns a tuple of sizes for several axes such as `*B`, or a single size."""
    if isinstance(sizes_of(function, {})[name], tuple):
        return (size,) if isinstance(size, int) else size  # the option `B=8` for the axes `*B`
    if not isinstance(size, int):  # as in `N=2,3`
        raise InputError(f"`{name}` is one dimension, not {len(size)}: write {name}=4096")
    return size


def _shape(type: ast.ArrayType, sizes: Mapping[str, Size]) -> tuple[int, ...]:
    """Returns the shape of an array type such as `f32[N + 1]` for given sizes."""
    dims = {n: Dim.of(s) if isinstance(s, int) else tuple(map(Dim.of, s)) for n, s in sizes.items()}
    shape = tuple(int(d) for d in array_type(type, dims).shape)
    if min(shape, default=0) < 0:
        raise InputError(f"these sizes give {type.span.text} the shape {list(shape)}")
    return shape


def _learn(name: str, declared: ast.ArrayType, extents: tuple[int, ...], sizes: dict[str, Size]) -> None:
    """Computes sizes such as `N` from the shape of an array, and adds these sizes to `sizes`."""
    found: dict[str, Any] = {}
    shape = tuple(map(Dim.of, extents))
    try:
        match_sizes(declared, shape, found, lambda: CompileError("MT0302", "rank"))
        list(solve_sizes([(declared, shape)], found))  # adds sizes to `found`
    except CompileError:
        return  # an array of another rank: the call will raise the error
    for key, value in found.items():
        size: Size = int(value) if isinstance(value, Dim) else tuple(map(int, value))
        if sizes.setdefault(key, size) != size:
            raise InputError(f"{key} = {sizes[key]} does not fit the file for `{name}`, where {key} = {size}")


def _reach(function: ast.Function, sizes: Mapping[str, Size]) -> int:
    """Returns the exclusive upper limit for random integers."""
    types = [p.annotation for p in function.params if isinstance(p.annotation, ast.ArrayType)]
    # Below the length of the shortest nonempty axis of all float arrays, random integers are valid indices.
    return min([REACH, *(n for t in types if DTYPES[t.dtype].is_float for n in _shape(t, sizes) if n > 0)])
