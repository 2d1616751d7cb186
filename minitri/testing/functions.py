"""Statements with the functions of the array API and of numpy that take one value, from a table.

A row says what values suit the function, and what it gives: dtype, axes, whether it is exact, how large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minitri.base.types import DTYPES, f32, promote
from minitri.testing.values import ONE, Axis, Value, counted
from minitri.testing.writer import Writer, require


@dataclass(frozen=True, slots=True)
class Form:
    """A statement about `{x}`, a value of any axes.

    kinds   of dtypes that it takes
    least   axes that the value must have
    axes    those of the result
    dtype   of the result: a name, "" for that of the value, "float" for that or f32, "sum" as of a sum
    reach   how large the result is, in terms of the value
    exact   whether the value must be exact, so that a jump may depend on it
    rounds  whether the result is not exact even so
    suits   what else the value must be
    """

    text: str
    axes: Callable[[Value], Sequence[Axis]] = lambda x: x.axes
    dtype: str = ""
    kinds: str = "fiub"
    least: int = 1
    reach: Callable[[Value], float] = lambda x: x.reach
    exact: bool = False
    rounds: bool = False
    suits: Callable[[Value], bool] = lambda x: True

    def takes(self, x: Value) -> bool:
        return x.kind in self.kinds and x.rank >= self.least and (x.steady or not self.exact) and self.suits(x)


def times(x: Value, axis: int, factor: int) -> list[Axis]:
    """The axes of x, one of them longer."""
    axes = list(x.axes)
    axes[axis] = counted(factor * axes[axis].size, axes[axis])
    return axes


def whole(x: Value) -> Axis:
    return counted(math.prod(a.size for a in x.axes), *x.axes)


def depth(x: Value) -> int:
    return max(1, x.axes[-1].size)


TWO = Axis("2", 2)
THREE = Axis("3", 3)


def columns(x: Value) -> Sequence[Axis]:
    return (*x.axes, TWO) if x.rank == 1 else times(x, 1, 2)


def layers(x: Value) -> Sequence[Axis]:
    return (ONE, *x.axes, TWO) if x.rank == 1 else (*x.axes, TWO) if x.rank == 2 else times(x, 2, 2)


def diagonal(x: Value) -> Sequence[Axis]:
    return *x.axes[:-2], counted(max(0, min(x.axes[-2].size, x.axes[-1].size - 1)), *x.axes[-2:])


def squared(x: Value) -> float:
    return x.reach**2 * depth(x)


FORMS = (
    Form("moveaxis({x}, 0, -1)", lambda x: (*x.axes[1:], x.axes[0])),
    Form("swapaxes({x}, 0, -1)", lambda x: (x.axes[-1], *x.axes[1:-1], x.axes[0]), least=2),
    Form("flatten({x})", lambda x: (whole(x),)),
    Form("unstack({x})[-1]", lambda x: x.axes[1:], suits=lambda x: x.axes[0].known and 0 < x.axes[0].size < 20),
    Form("split({x}, (1,))[1]", lambda x: (counted(max(0, x.axes[0].size - 1), x.axes[0]), *x.axes[1:])),
    Form("tile({x}, 2)", lambda x: times(x, -1, 2)),
    Form("repeat({x}, 3, axis=0)", lambda x: times(x, 0, 3)),
    Form("broadcast_arrays({x}, {x})[0]"),
    Form("broadcast_to({x}, broadcast_shapes({x}.shape, ()))"),
    Form("meshgrid(flatten({x}), arange(2))[0]", lambda x: (TWO, whole(x))),
    Form("hstack(({x}, {x}))", lambda x: times(x, min(1, x.rank - 1), 2)),
    Form("vstack(({x}, {x}))", lambda x: (TWO, *x.axes) if x.rank == 1 else times(x, 0, 2)),
    Form("dstack(({x}, {x}))", layers),
    Form("column_stack(({x}, {x}))", columns),
    Form("asarray(({x}, {x}))", lambda x: (TWO, *x.axes)),
    Form("diff({x})", lambda x: (*x.axes[:-1], counted(max(0, x.axes[-1].size - 1), x.axes[-1])), kinds="fiu", reach=lambda x: 2 * x.reach),
    Form("diagonal({x}, 1)", diagonal, least=2),
    Form("diag({x}[0])", lambda x: (x.axes[-1], x.axes[-1]), least=2, suits=lambda x: x.rank == 2 and x.axes[0].size > 0),
    Form("trace({x})", lambda x: x.axes[:-2], "sum", "fiu", 2, lambda x: x.reach * depth(x), rounds=True),
    Form("outer({x}, {x})", lambda x: (whole(x), whole(x)), reach=lambda x: x.reach**2),
    Form("kron({x}, asarray((1, 0), dtype={dtype}))", lambda x: times(x, -1, 2)),
    Form("dot(flatten({x}), flatten({x}))", lambda x: (), reach=lambda x: x.reach**2 * max(1, whole(x).size), rounds=True),
    Form("inner({x}, {x})", lambda x: (*x.axes[:-1], *x.axes[:-1]), reach=squared, rounds=True),
    Form("tensordot({x}, {x}, axes=((-1,), (-1,)))", lambda x: (*x.axes[:-1], *x.axes[:-1]), reach=squared, rounds=True),
    Form("vecdot({x}, {x})", lambda x: x.axes[:-1], reach=squared, rounds=True),
    Form("cross({x}[..., :3], flip({x}[..., :3], axis=-1))", lambda x: (*x.axes[:-1], THREE), kinds="fiu", reach=squared, rounds=True, suits=lambda x: depth(x) >= 3),
    Form("matrix_power(sign({x}) @ sign({x}).mT, 2)", lambda x: (*x.axes[:-1], x.axes[-2]), kinds="fi", least=2, reach=lambda x: depth(x) ** 2 * x.axes[-2].size, exact=True, rounds=True),
    Form("median({x}, axis=-1)", lambda x: x.axes[:-1], "float", "fi", exact=True, rounds=True, suits=lambda x: 0 < x.axes[-1].size < 100),
    Form("quantile({x}, 0.25, axis=0)", lambda x: x.axes[1:], "float", "fi", exact=True, rounds=True, suits=lambda x: 0 < x.axes[0].size < 100),
    Form("matrix_norm({x})", lambda x: x.axes[:-2], "float", "fi", 2, lambda x: x.reach * max(1, whole(x).size), rounds=True),
    Form("vector_norm({x}, axis=-1)", lambda x: x.axes[:-1], "float", "fi", 1, lambda x: x.reach * depth(x), rounds=True, suits=lambda x: x.reach < 1e4),
    Form("sort({x})", exact=True, suits=lambda x: depth(x) < 200),
    Form("argsort({x}, axis=0, descending=True)", dtype="i64", exact=True, suits=lambda x: x.axes[0].size < 200),
    Form("searchsorted(arange(7), {x})", dtype="i64", kinds="fi", exact=True, reach=lambda x: 7),
    Form("isin({x}, {x})", dtype="bool", exact=True, suits=lambda x: whole(x).size < 400),
    Form("count_nonzero({x}, axis=-1)", lambda x: x.axes[:-1], "i64", exact=True),
    Form("isclose({x}, 1.5)", dtype="bool", exact=True),
    Form("allclose({x}, {x})", lambda x: (), "bool", exact=True),
    Form("heaviside({x}, 0.5)", dtype="float", kinds="fiu", exact=True, reach=lambda x: 1),
    Form("nan_to_num({x}, nan=0.5, posinf=4, neginf=-4)", reach=lambda x: max(4, x.reach)),
    Form("logaddexp({x}, 1)", dtype="float", kinds="fiu", reach=lambda x: x.reach + 2, rounds=True, suits=lambda x: x.reach < 1e4),
    Form("nextafter({x}, 1)", kinds="f", exact=True),
    Form("next_float({x}, 1)", kinds="f", exact=True),
    Form("fmod({x}, 3)", kinds="fiu", exact=True),
    Form("signbit({x})", dtype="bool", kinds="f", exact=True),
    Form("next_float({x}, 0)", kinds="f", exact=True),
    Form("signbit(-{x})", dtype="bool", kinds="f", exact=True),
    Form("{x} + linspace(0, 1, 1)", dtype="float", kinds="fiu", reach=lambda x: x.reach + 1),
    Form("astype({x}, result_type({x}, f32))", dtype="f32 too"),
    Form("({x} if can_cast(i8, i16) & isdtype(f32, f32) else {x}[0])"),
    Form("minimum({x}, iinfo(i8).max)", kinds="fiu"),
    Form("maximum({x}, finfo(f32).eps)", dtype="float", kinds="fiu"),
)  # fmt: skip


class Functions(Writer):
    def _function(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        form = self.choose([form for form in FORMS if form.takes(x)])
        dtype, reach = _dtype(form, x), form.reach(x)
        require(self.fits(reach, dtype))
        exact = x.exact and not (form.rounds and DTYPES[dtype].is_float)
        return self.add(form.text.format(x=x.name, dtype=x.dtype), dtype, form.axes(x), exact, reach)


def _dtype(form: Form, x: Value) -> str:
    real = x.dtype if x.kind == "f" else "f32"
    known = {"": x.dtype, "float": real, "sum": x.summed, "f32 too": promote(DTYPES[x.dtype], f32).name}
    return known.get(form.dtype, form.dtype)
