"""Questions about dtypes, answered when compiled: result_type, can_cast, isdtype, finfo, iinfo."""

from __future__ import annotations

from minitri.base import dtype_facts
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dtype_facts import KINDS, Info
from minitri.base.types import DType, promote
from minitri.graph.functions.registry import function
from minitri.graph.typer import Array, Typer, Value, describe


@function
def result_type(t: Typer, arrays_and_dtypes: Value) -> DType:
    """The dtype in which arrays, dtypes and numbers meet."""
    given = arrays_and_dtypes if isinstance(arrays_and_dtypes, tuple) else (arrays_and_dtypes,)
    return t.settled([_stands_for(t, v) for v in given])


def _stands_for(t: Typer, value: Value) -> Value:
    """An array of the dtype, for a dtype."""
    return Array(t.constant(0, value), value) if isinstance(value, DType) else value


@function
def can_cast(t: Typer, from_: Value, to: Value) -> bool:
    """Whether the promotion of both is `to`: nothing is lost."""
    source = from_.dtype if isinstance(from_, Array) else _dtype(from_, "can_cast")
    return promote(source, _dtype(to, "can_cast")) == to


def _dtype(value: Value, name: str) -> DType:
    if isinstance(value, DType):
        return value
    raise CompileError("MT0202", f"{name} takes a dtype, not {describe(value)}", help="write f32, i64, bool, …")


@function
def isdtype(t: Typer, dtype: Value, kind: Value) -> bool:
    """Whether a dtype is another one, or of a kind such as "integral"; a tuple asks for one of several."""
    own = _dtype(dtype, "isdtype")
    return any(_is(own, k) for k in (kind if isinstance(kind, tuple) else (kind,)))


def _is(dtype: DType, kind: Value) -> bool:
    if isinstance(kind, DType):
        return dtype == kind
    if not isinstance(kind, str) or kind not in KINDS:
        shown = f"the kind {kind!r}"[:40] if isinstance(kind, str) else describe(kind)
        help = (isinstance(kind, str) and suggest(kind, KINDS)) or f"kinds are {listed([repr(k) for k in KINDS])}"
        raise CompileError("MT0202", f"isdtype does not know {shown}", help=help)
    return dtype.kind in KINDS[kind]


@function
def finfo(t: Typer, type: Value) -> Info:
    return dtype_facts.finfo(type.dtype if isinstance(type, Array) else _dtype(type, "finfo"))


@function
def iinfo(t: Typer, type: Value) -> Info:
    return dtype_facts.iinfo(type.dtype if isinstance(type, Array) else _dtype(type, "iinfo"))
