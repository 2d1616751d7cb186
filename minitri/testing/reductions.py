"""Statements that combine many elements into one: reductions, scans, products.

Each method picks values that fit, writes one statement and says what it gives (elementwise.py).
"""

from __future__ import annotations

import math

from minitri.base.types import DTYPES, promote
from minitri.testing.values import Axis, Value, product
from minitri.testing.writer import FLOATS, MAX_ELEMENTS, Writer, require, required


class Reductions(Writer):
    def _some_axes(self, x: Value) -> tuple[str, tuple[int, ...]]:
        """Axes as text and as a set: one, two or all of them."""
        ways: list[tuple[str, tuple[int, ...]]] = [(str(k - x.rank), (k,)) for k in reversed(range(x.rank))]
        ways += [("None", tuple(range(x.rank)))]
        ways += [(f"({k}, -1)", (k, x.rank - 1)) for k in range(x.rank - 1)]
        return self.choose(ways)

    def _reduce(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        axis, over = self._some_axes(x)
        count = math.prod(x.axes[k].size for k in over)
        names = ["sum", "mean"]
        names += ["max", "min"] if count and all(x.axes[k].size for k in over) else []
        names += ["any", "all"] if x.steady else []
        names += ["argmax", "argmin"] if count and len(over) == 1 and x.steady else []
        names += ["var", "std"] if x.reach <= 1e3 and x.kind == "f" else []
        names += ["prod"] if x.kind in "iu" else []
        name = self.choose(names)
        require(axis != "None" or not name.startswith("arg"))
        keep = self.choose((False, True))
        dtype, exact, reach = self._reduced(name, x, count)
        require(self.fits(reach, dtype))
        axes = x.without(over, keep)
        arguments = "" if axis == "None" and self.choose((True, False)) else f", axis={axis}"
        return self.add(f"{name}({x.name}{arguments}{', keepdims=True' * keep})", dtype, axes, exact, reach)

    def _reduced(self, name: str, x: Value, count: int) -> tuple[str, bool, float]:
        match name:
            case "sum" | "prod":
                dtype = _accumulated(x)
                return dtype, x.kind != "f", x.reach * max(1, count) if name == "sum" else math.inf
            case "any" | "all":
                return "bool", True, 1
            case "argmax" | "argmin":
                return "i64", True, 200
            case "max" | "min":
                return x.dtype, x.exact, x.reach
            case _:
                dtype = x.dtype if x.kind == "f" else "f32"
                return dtype, False, x.reach**2 if name == "var" else x.reach

    def _normalise(self) -> Value:
        x = self.pick(lambda v: v.kind == "f" and v.rank > 0 and v.reach <= 1e4)
        k = self.choose(x.axes_from_the_last)
        require(x.axes[k].size > 0)
        name = self.choose(("softmax", "log_softmax", "layer_norm", "rms_norm", "logsumexp"))
        keep = name == "logsumexp" and self.choose((False, True))
        axes = x.without((k,), keep) if name == "logsumexp" else x.axes
        reach = 1.0 if name == "softmax" else 12.0 if name.endswith("norm") else 2 * x.reach + 6
        require(self.fits(reach, x.dtype))
        return self.add(f"{name}({x.name}, axis={k - x.rank}{', keepdims=True' * keep})", x.dtype, axes, False, reach)

    def _scan(self) -> Value:
        x = self.pick(lambda v: v.rank > 0 and v.reach <= 1e4 or v.rank > 0 and v.kind != "f")
        k = self.choose(x.axes_from_the_last)
        name = self.choose(("cumulative_sum", "cumulative_sum", "cumulative_prod", "cumulative_max", "cumulative_min"))
        if name in ("cumulative_max", "cumulative_min"):
            return self.add(f"{name}({x.name}, axis={k})", x.dtype, x.axes, x.exact, x.reach)
        if name == "cumulative_prod" and (x.kind == "f" and x.reach > 1):
            name = "cumulative_sum"
        dtype = _accumulated(x)
        reach = x.reach * max(1, x.axes[k].size)
        require(self.fits(reach, dtype))
        return self.add(f"{name}({x.name}, axis={k})", dtype, x.axes, x.kind != "f", reach)

    # ---- products --------------------------------------------------------------------

    def _matmul(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        y, right = self._factor(x)
        text = f"{x.name} @ {y.name}{right}"
        axes = y.axes if not right else (*y.axes[:-2], y.axes[-1], y.axes[-2])
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        reach = x.reach * y.reach * max(1, x.axes[-1].size)
        shape = required(product(x.axes, axes))
        require(self.fits(reach, dtype))
        if sum(map(ord, x.name + y.name)) % 4 == 0:  # no draw, so that other programs stay what they are
            text = _as_einsum(x, y, bool(right))
        return self.add(text, dtype, shape, not DTYPES[dtype].is_float, reach)

    def _factor(self, x: Value) -> tuple[Value, str]:
        """A right operand for x @ …, and ".mT" if it is transposed."""
        straight = self.find(lambda v: product(x.axes, v.axes) is not None)
        turned = self.find(lambda v: v.rank > 1 and product(x.axes, (*v.axes[:-2], v.axes[-1], v.axes[-2])) is not None)
        ways: list[tuple[Value, str] | None] = [None]
        ways += [(straight, "")] if straight else []
        ways += [(turned, ".mT")] if turned else []
        way = self.choose(ways)
        if way is not None:
            return way
        axes: tuple[Axis, ...] = (x.axes[-1], self.axis(130)) if self.choose((True, True, False)) else (x.axes[-1],)
        if x.rank > 2 and len(axes) == 2 and self.chance(3):
            axes = (*x.axes[:-2], *axes)
        return self.array(x.dtype if not self.chance(5) else self.choose((*FLOATS, "i32")), axes), ""

    def _loss(self) -> Value:
        """cross_entropy of rows, with a parameter for the classes."""
        x = self.pick(lambda v: v.kind == "f" and v.rank == 2 and v.reach <= 1e4 and min(a.size for a in v.axes) > 0)
        y = self.array(self.choose(("i64", "i32")), x.axes[:1], 0, x.axes[1].size - 1)
        return self.add(f"cross_entropy({x.name}, {y.name})", x.dtype, (), False, 2 * x.reach + 6)

    def _attention(self) -> Value:
        x = self.pick(lambda v: v.rank > 1 and v.kind == "f" and v.reach <= 30 and _fits_squared(v))
        forms = ("softmax({0} @ {0}.mT, axis=-1) @ {0}", "attention({0}, {0}, {0})")
        require(x.axes[-1].size > 0)  # 0 ** -0.5
        return self.add(self.choose(forms).format(x.name), x.dtype, x.axes, False, x.reach)


def _accumulated(x: Value) -> str:
    """The dtype of a sum."""
    return x.dtype if x.kind == "f" else "u64" if x.kind == "u" else "i64"


def _as_einsum(x: Value, y: Value, turned: bool) -> str:
    """x @ y, or x @ y.mT, with names for the axes."""
    left, right = ("...ij" if x.rank > 1 else "j"), ("...kj" if turned else "...jk" if y.rank > 1 else "j")
    kept = "".join(n for n, v in (("i", x), ("k", y)) if v.rank > 1)
    return f'einsum("{left},{right}->{"..." if kept else ""}{kept}", {x.name}, {y.name})'


def _fits_squared(x: Value) -> bool:
    """Whether x @ x.mT is neither empty nor too large."""
    return 0 < math.prod(a.size for a in x.axes[:-1]) * x.axes[-2].size <= MAX_ELEMENTS
