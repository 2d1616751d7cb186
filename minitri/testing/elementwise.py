"""Statements that work element by element: functions, operators, comparisons, conversions.

Each method chooses values that fit and writes one statement. It also states the properties of the result: dtype,
axes, whether it is exact, and how large its elements are. Arguments stay in ranges where a function does not
amplify rounding errors; for example, `exp` gets small arguments only. Functions with jumps and logical operators
take exact values.

The table `FORMS` has functions of one value, from the array API and from numpy. A row says which values fit the
function, and what its result is.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minitri.base.types import DTYPES, f32, promote
from minitri.testing.generator import FLOATS, INTEGERS, Parameter, Writer, require, required
from minitri.testing.values import ONE, Axis, Value, counted, joined

TABLE = tomllib.loads(Path(__file__).with_name("elementwise.toml").read_text(encoding="utf-8"))
EXACT = ("-{}", "abs({})", "relu({})", "{} / (1 + abs({}))", "square({})", "sqrt(abs({}))", "where", "clip")


class Elementwise(Writer):
    def _unary(self) -> Value:
        x = self.pick(lambda v: v.kind == "f")
        fitting = [(text, reach) for text, (most, reach) in TABLE["floats"].items() if x.reach <= most]
        text, reach = self.choose(fitting or [("tanh({})", 1)])
        exact = x.exact and text.startswith(EXACT)
        reach = reach or x.reach
        require(self.fits(reach, x.dtype))
        return self.add(text.format(x.name, x.name), x.dtype, x.axes, exact, reach)

    def _jump(self) -> Value:
        x = self.pick(lambda v: v.kind == "f" and v.exact)
        return self.add(self.choose(TABLE["jumps"]).format(x.name), x.dtype, x.axes, True, 2 * x.reach + 1)

    def _integer(self) -> Value:
        x = self.pick(lambda v: v.kind in "iu")
        return self.add(self.choose(TABLE["integers"]).format(x.name), x.dtype, x.axes, True, math.inf)

    def _partner(self, x: Value, suits: Callable[[Value], bool] = lambda v: True) -> Value:
        """Another value that broadcasts with x, or a new parameter."""
        y = self.find(lambda v: v is not x and suits(v) and joined(x.axes, v.axes) is not None)
        if y is not None and not self.chance(3):
            return y
        axes = x.axes[self.choose(range(len(x.axes) + 1)) :]
        axes = tuple(ONE if self.chance(4) else a for a in axes)
        dtypes = [d for d in (x.dtype, *FLOATS, *INTEGERS, "bool") if suits(Value("", d, (), True, 4))]
        return self.array(self.choose([dtypes[0], dtypes[0], *dtypes]), axes)

    def _binary(self) -> Value:
        x = self.pick()
        y = self._partner(x)
        axes, dtype = required(joined(x.axes, y.axes)), promote(DTYPES[x.dtype], DTYPES[y.dtype])
        x, y = self.choose(((x, y), (y, x)))
        exact = x.exact and y.exact
        ops = {"{} + {}": x.reach + y.reach, "{} * {}": x.reach * y.reach, "maximum({}, {})": max(x.reach, y.reach)}
        if dtype.kind == "b":
            ops |= {"{} ^ {}": 1, "{} & {}": 1, "{} | {}": 1}
        else:
            ops |= {"{} - {}": x.reach + y.reach, "minimum({}, {})": max(x.reach, y.reach)}
        if dtype.kind == "f":
            ops |= {"{0} / (1 + abs({1}))": x.reach, "atan2({}, {})": 4, "hypot({}, {})": x.reach + y.reach}
            ops |= {"{0} * tanh({1})": x.reach}
            if exact and x.steady and y.steady:
                ops |= {"copysign({}, {})": x.reach, "{} // {}": math.inf, "{} % {}": y.reach}
        if dtype.is_integer:
            ops |= {"{} // {}": math.inf, "{} % {}": math.inf, "{} & {}": math.inf, "{} ^ {}": math.inf}
            if y.kind in "iu":
                ops |= {"{0} << ({1} % 9)": math.inf, "{0} >> ({1} % 70)": math.inf, "{0} ** ({1} % 4)": math.inf}
        text = self.choose([t for t, reach in ops.items() if self.fits(reach, dtype.name)] or ["minimum({}, {})"])
        if "%" in text and "(" in text and "i8" in (x.dtype, y.dtype):
            text = "{} & {}"
        exact = exact and not any(name in text for name in ("tanh", "atan2", "hypot"))
        return self.add(text.format(x.name, y.name), dtype.name, axes, exact, ops.get(text, max(x.reach, y.reach)))

    def _number(self) -> Value:
        """An operator on a value and a number: a Python number, a dimension, or a `float` parameter."""
        x = self.pick(lambda v: v.kind != "b")
        numbers = ["2", "1", "0.5", "3.25", "0", *(n for n, s in self.sizes.items() if s <= DTYPES[x.dtype].limits[1])]
        if x.kind != "u":
            numbers += ["-1", "(-2.5)"]
        number = self.choose(numbers)
        if self.chance(6):
            number = "s"
            if not any(p.name == "s" for p in self.parameters):
                self.parameters.append(Parameter("s", "float", -2, 2))
        weak = "f" if "." in number or number == "s" else "i"
        dtype = "f32" if weak == "f" and x.kind in "iu" else x.dtype
        reach = x.reach * 4 + 130
        ops = ["{} * {}", "{} + {}", "{1} - {0}", "maximum({}, {})"]
        if DTYPES[dtype].is_float:
            ops += ["{0} / (1 + {1} * {1})", "{1} - {0}"]
        if number in self.sizes:
            reach = x.reach * 130 + 130
            if x.kind == "f":
                ops += ["{0} / (1 + {1})", "{0} * (1 + {1}) ** -0.5"]
        require(self.fits(reach, dtype))
        return self.add(self.choose(ops).format(x.name, number), dtype, x.axes, x.exact and number != "s", reach)

    def _compare(self) -> Value:
        x = self.pick(lambda v: v.steady)
        symbol = self.choose(("<", ">=", "==", "!=", ">", "<="))
        if self.choose((True, False)):
            number = self.choose(("0", "1", "0.5")) if x.kind != "b" else "1"
            return self.add(f"{x.name} {symbol} {number}", "bool", x.axes, True, 1)
        y = self._partner(x, lambda v: v.steady)
        return self.add(f"{x.name} {symbol} {y.name}", "bool", required(joined(x.axes, y.axes)), True, 1)

    def _predicate(self) -> Value:
        x = self.pick(lambda v: v.steady)
        forms = ["logical_not({})", *(("isnan({})", "isinf({})", "isfinite({})") if x.kind == "f" else ())]
        return self.add(self.choose(forms).format(x.name), "bool", x.axes, True, 1)

    def _logical(self) -> Value:
        x = self.pick(lambda v: v.steady)
        y = self._partner(x, lambda v: v.steady)
        name = self.choose(("logical_and", "logical_or", "logical_xor"))
        return self.add(f"{name}({x.name}, {y.name})", "bool", required(joined(x.axes, y.axes)), True, 1)

    def _where(self) -> Value:
        c = self.find(lambda v: v.kind == "b") or self._compare()
        x = self.find(lambda v: joined(c.axes, v.axes) is not None) or c
        axes = joined(c.axes, x.axes) or ()
        if self.choose((True, False)):
            number = self.choose(("0", "1", "-inf") if x.kind == "f" else ("0", "1"))
            dtype = "i64" if x.dtype == "bool" else x.dtype
            return self.add(f"where({c.name}, {x.name}, {number})", dtype, axes, x.exact, max(1, x.reach))
        y = self._partner(x, lambda v: joined(axes, v.axes) is not None)
        whole = required(joined(axes, y.axes))
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        exact, reach = x.exact and y.exact, max(x.reach, y.reach)
        return self.add(f"where({c.name}, {x.name}, {y.name})", dtype, whole, exact, reach)

    def _cast(self) -> Value:
        x = self.pick()
        to = [d for d in (*FLOATS, *INTEGERS, "bool") if d != x.dtype and self.fits(x.reach, d)]
        if not x.exact:
            to = [d for d in to if DTYPES[d].is_float]
        dtype = self.choose(to)
        text = self.choose((f"astype({x.name}, {dtype})", f"{x.name}.astype({dtype})"))
        return self.add(text, dtype, x.axes, x.exact, x.reach)


# ---- functions of one value, from a table -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """A statement about `{x}`, a value with any axes.

    kinds   kinds of dtypes that the statement takes
    least   the least number of axes of the value
    axes    the axes of the result
    dtype   the dtype of the result: a name, "" for the value's dtype, "float" for the value's dtype or f32,
            "sum" for the dtype of a sum
    reach   the largest absolute element of the result
    exact   whether the value must be exact, because the function has jumps
    rounds  whether the result is rounded even if the value is exact
    suits   what else must hold for the value
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
    """The axes of x, with one axis `factor` times as long."""
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
