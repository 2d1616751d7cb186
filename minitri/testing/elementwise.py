"""Statements that work element by element: functions, operators, comparisons, conversions.

Each method chooses values that fit and writes one statement. It also states the properties of the result: dtype,
axes, whether it is exact, and how large its elements are. Arguments stay in ranges where a function does not
amplify rounding errors; for example, `exp` gets small arguments only. Functions with jumps and logical operators
take exact values.
"""

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitri.base.types import DTYPES, promote
from minitri.testing.generator import FLOATS, INTEGERS, Parameter, Writer, require, required
from minitri.testing.values import ONE, Value, joined

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
        reaches = {"x": x.reach, "y": y.reach, "x + y": x.reach + y.reach, "x * y": x.reach * y.reach}
        reaches["larger"] = largest = max(x.reach, y.reach)
        holds = {"": True, "exact": exact and x.steady and y.steady, "y is an integer": y.kind in "iu"}
        rows = [row for row in TABLE["binary"] if dtype.kind in row["kinds"] and holds[row.get("if", "")]]
        ops: dict[str, Any] = {row["text"]: reaches.get(row["reach"], row["reach"]) for row in rows}
        text = self.choose([t for t, reach in ops.items() if self.fits(reach, dtype.name)] or ["minimum({}, {})"])
        if "%" in text and "(" in text and "i8" in (x.dtype, y.dtype):
            text = "{} & {}"
        exact = exact and not any(name in text for name in ("tanh", "atan2", "hypot"))
        return self.add(text.format(x.name, y.name), dtype.name, axes, exact, ops.get(text, largest))

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
