"""nextafter: the next number of a dtype.

Half precision is held as f32, so the next f16 is not the next f32. It comes of rounding: any number between half a
step and one and a half steps away is rounded to the next f16. For a normal x, 0.625 * eps * |x| is such a distance,
whichever power of two lies below x.
"""

from __future__ import annotations

from minitri.base.dtype_facts import finfo
from minitri.base.types import DType
from minitri.graph.functions.registry import function
from minitri.graph.typer import Array, Typer, Value


@function
def nextafter(t: Typer, x1: Value, x2: Value) -> Array:
    """The next number of the dtype in which both meet, from x1 towards x2."""
    dtype = t.settled([x1, x2])
    if not dtype.is_float or dtype.bits > 16:
        return t.elementwise("next_float", [x1, x2])
    a, b = (t.cast(x, dtype) for x in (x1, x2))
    return t.cast(_next_half(t, a, b, dtype), dtype)


def _next_half(t: Typer, a: Array, b: Array, dtype: DType) -> Array:
    """What rounds to the next f16 or bf16."""

    def do(name: str, *operands: Value) -> Array:
        return t.elementwise(name, operands)

    facts = finfo(dtype).facts
    eps, normal, most = (float(facts[name]) for name in ("eps", "smallest_normal", "max"))  # type: ignore[arg-type]
    size = do("maximum", do("multiply", do("abs", a), 0.625 * eps), 0.75 * eps * normal)
    moved = do("add", a, do("where", do("greater", b, a), size, do("negative", size)))
    moved = do("where", do("isinf", a), do("copysign", most, a), moved)
    return do("where", do("logical_or", do("equal", a, b), do("isnan", b)), b, moved)
