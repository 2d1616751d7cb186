"""Numbers and arguments known at compile time: sizes, axes, dtypes.

    sum(x, axis=-1)       x: f32[M, N]      as_axes(-1, rank 2) → (1,)
    sum(x, axis=y)        y: i64[]          MT0106: an axis must be an integer known at compile time

In: a value of the language and what to call it in a message. Out: the Python value, or a CompileError.
The one idea: an argument that decides about a shape cannot wait for the data. No result of a constant is
a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.limits import MAX_ELEMENTS, MAX_RANK
from minitri.base.types import DTYPES, DType, from_numpy
from minitri.graph.ir import Shape
from minitri.graph.typer import Value, describe

FAR = 2 * MAX_ELEMENTS  # past every index; the sum with an index still fits i64


def plain(d: Dim) -> int | Dim:
    return d if d.constant is None else d.constant


def static(compute: Callable[[], Any]) -> Any:
    """What a computation of constants gives; CompileError MT0208 if it has no (real) result."""
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
    if isinstance(result, complex):
        raise CompileError("MT0208", "the result of these constants is a complex number")
    return plain(result) if isinstance(result, Dim) else result


def as_dim(value: Value, what: str) -> Dim:
    """A size known at compile time (an int or a Dim)."""
    if isinstance(value, (int, Dim)) and not isinstance(value, bool):
        return Dim.of(value)
    message = f"{what} must be an integer or a dimension known at compile time, not {describe(value)}"
    raise CompileError("MT0106", message)


def as_offset(value: Value, what: str) -> Dim:
    """How far an index is moved. Past every size it does not matter how far: 2**63 becomes `FAR`."""
    d = as_dim(value, what)
    return d if d.constant is None else Dim.of(max(-FAR, min(d.constant, FAR)))


def as_int(value: Value, what: str) -> int:
    if isinstance(value, Dim) and value.constant is not None:
        value = value.constant
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise CompileError("MT0106", f"{what} must be an integer known at compile time, not {describe(value)}")


def as_bool(value: Value, what: str) -> bool:
    if isinstance(value, bool):
        return value
    raise CompileError("MT0106", f"{what} must be True or False, not {describe(value)}")


def listed(value: Value) -> tuple[Any, ...]:
    """A tuple, or the tuple of one value."""
    return value if isinstance(value, tuple) else (value,)


def as_shape(value: Value) -> Shape:
    items = listed(value)
    if len(items) > MAX_RANK:
        raise CompileError("MT0401", f"this shape has {len(items)} axes, the limit is {MAX_RANK}")
    return tuple(as_dim(v, "a size in a shape") for v in items)


def as_axes(value: Value, rank: int, what: str = "axis") -> tuple[int, ...]:
    """Axis numbers, normalised to 0 .. rank-1; None means all."""
    if value is None:
        return tuple(range(rank))
    items = listed(value)
    axes: list[int] = []
    for item in items:
        k = as_int(item, what)
        if not -rank <= k < rank:
            help = f"it has {rank} {'axis' if rank == 1 else 'axes'}: {-rank} to {rank - 1}"
            help = help if rank else "a 0-d array has no axes"
            raise CompileError("MT0204", f"{what} {k} is out of range for an array of rank {rank}", help=help)
        axes.append(k % rank)
    if len(set(axes)) != len(axes):
        raise CompileError("MT0204", f"{what} {value} names an axis twice")
    return tuple(axes)


def as_dtype(value: Value, default: DType) -> DType:
    """The dtype that an argument names; the default for None. CompileError MT0202 for anything else."""
    if value is None:
        return default
    if isinstance(value, DType):
        return value
    named = DTYPES.get(value) or from_numpy(value) if isinstance(value, str) else None
    help = f"write `{named}`, without quotes" if named else "write f32, i64, bool, …"
    raise CompileError("MT0202", f"a dtype is needed here, not {describe(value)}", help=help)
