"""Functions of dtypes that are computed at compile time (result_type, can_cast, …), and nextafter.

The graph stores f16 values as f32, so nextafter of an f16 cannot use the next f32. It adds a distance to x and rounds
to f16. The result is the next f16 if the distance is between 0.5 and 1.5 steps of f16. For every normal x, the distance
0.625 * eps * |x| is in this range. The same holds for bf16.
"""

from minitri.base import dtype_limits
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dtype_limits import KINDS, Info
from minitri.base.types import DType, promote
from minitri.graph.argument_binding import items_of
from minitri.graph.typing_rules import Array, Typer, Value, describe


def result_type(t: Typer, arrays_and_dtypes: Value) -> DType:
    """The promoted dtype of several arrays, dtypes and numbers."""
    given = items_of(arrays_and_dtypes)
    return t.settled([Array(t.constant(0, v), v) if isinstance(v, DType) else v for v in given])


def can_cast(t: Typer, from_: Value, to: Value) -> bool:
    """Whether an array of the dtype of `from_` and one of the dtype `to` promote to `to`."""
    source = from_.dtype if isinstance(from_, Array) else _dtype(from_, "can_cast")
    return promote(source, _dtype(to, "can_cast")) == to


def _dtype(value: Value, name: str) -> DType:
    if isinstance(value, DType):
        return value
    raise CompileError("MT0202", f"{name} takes a dtype, not {describe(value)}", help="write f32, i64, bool, …")


def isdtype(t: Typer, dtype: Value, kind: Value) -> bool:
    """Whether a dtype equals the dtype `kind`, or is of a kind such as "integral". `kind` may be a tuple of choices."""
    own = _dtype(dtype, "isdtype")
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
    return dtype_limits.finfo(type.dtype if isinstance(type, Array) else _dtype(type, "finfo"))


def iinfo(t: Typer, type: Value) -> Info:
    return dtype_limits.iinfo(type.dtype if isinstance(type, Array) else _dtype(type, "iinfo"))


def nextafter(t: Typer, x1: Value, x2: Value) -> Array:
    """The next number after x1 in the direction of x2, in the promoted dtype of both."""
    dtype = t.settled([x1, x2])
    if not dtype.is_float or dtype.bits > 16:
        return t.elementwise("next_float", [x1, x2])
    a, b = (t.cast(x, dtype) for x in (x1, x2))
    return t.cast(_next_half(t, a, b, dtype), dtype)


def _next_half(t: Typer, a: Array, b: Array, dtype: DType) -> Array:
    """An f32 value that rounds to the next f16 or bf16 after a in the direction of b."""

    def do(name: str, *operands: Value) -> Array:
        return t.elementwise(name, operands)

    facts = dtype_limits.finfo(dtype).facts
    eps, normal, most = (float(facts[name]) for name in ("eps", "smallest_normal", "max"))  # type: ignore[arg-type]
    size = do("maximum", do("multiply", do("abs", a), 0.625 * eps), 0.75 * eps * normal)
    moved = do("add", a, do("where", do("greater", b, a), size, do("negative", size)))
    moved = do("where", do("isinf", a), do("copysign", most, a), moved)
    return do("where", do("logical_or", do("equal", a, b), do("isnan", b)), b, moved)
