"""Functions of dtypes that are computed at compile time: result_type, can_cast, isdtype, finfo and iinfo."""

from minitri.base import types
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.types import KINDS, DType, Info, promote
from minitri.graph.parameter_binding import as_dtype, items_of
from minitri.graph.typing_rules import Array, Typer, Value, describe


def result_type(t: Typer, arrays_and_dtypes: Value) -> DType:
    """Returns the promoted dtype of several arrays, dtypes and numbers."""
    given = items_of(arrays_and_dtypes)
    return t.settled([Array(t.constant(0, v), v) if isinstance(v, DType) else v for v in given])


def can_cast(t: Typer, from_: Value, to: Value) -> bool:
    """Checks whether an array of the dtype of `from_` and an array of the dtype `to` promote to `to`."""
    return promote(_dtype_of(from_), as_dtype(to)) == to


def _dtype_of(value: Value) -> DType:
    """Returns the dtype of an array, or a dtype itself."""
    return value.dtype if isinstance(value, Array) else as_dtype(value)


def isdtype(t: Typer, dtype: Value, kind: Value) -> bool:
    """Checks whether a dtype equals the dtype `kind`, or is of a kind such as "integral".

    If `kind` is a tuple, the dtype must fit at least one item.
    """
    own = as_dtype(dtype)
    return any(_is(own, k) for k in items_of(kind))


def _is(dtype: DType, kind: Value) -> bool:
    if isinstance(kind, DType):
        return dtype == kind
    if not isinstance(kind, str) or kind not in KINDS:
        shown = f"the kind {kind!r}"[:40] if isinstance(kind, str) else describe(kind)
        help = (isinstance(kind, str) and suggest(kind, KINDS)) or f"kinds are {listed([repr(k) for k in KINDS])}"
        raise CompileError("MT0202", f"isdtype does not know {shown}", help=help)
    return dtype.kind in KINDS[kind]


def finfo(t: Typer, type: Value) -> Info:
    return types.finfo(_dtype_of(type))


def iinfo(t: Typer, type: Value) -> Info:
    return types.iinfo(_dtype_of(type))
