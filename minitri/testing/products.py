"""Statements with matrix products, alone and as models have them: layers, weights of few bits, attention, losses.

    relu(x @ w + b)        x @ (w.astype(f16) * s)        softmax(where(mask, q @ k.mT, -inf)) @ v

Sides of models are short. Half of them are multiples of 16, which tensor cores and tensor descriptors ask for.
"""

from __future__ import annotations

import math

from minitri.base.types import DTYPES, promote
from minitri.testing.values import Axis, Value, product
from minitri.testing.writer import FLOATS, MAX_ELEMENTS, Writer, require, required

SIDES = (16, 32, 48, 64, 5, 17, 33, 40)
HALVES = ("f16", "bf16")


class Products(Writer):
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

    # ---- as models have them ----------------------------------------------------------------

    def _side(self) -> Axis:
        """An axis of a known size."""
        size = self.choose(SIDES)
        return Axis(str(size), size)

    def _layer(self) -> Value:
        """A product with a bias and what follows."""
        dtype = self.choose(("f32", *HALVES))
        m, k, n = self._side(), self._side(), self._side()
        x, b = self.array(dtype, (m, k), -1, 1), self.array(dtype, (n,), -1, 1)
        turned = self.choose((False, True))
        w = self.array(dtype, (n, k) if turned else (k, n), -1, 1)
        text = f"{x.name} @ {w.name}{'.mT' * turned} + {b.name}"
        form = self.choose(("relu({})", "{}", "gelu({})", "softmax({})", "sum({}, axis=1)", "({}).mT"))
        axes = {"sum({}, axis=1)": (m,), "({}).mT": (n, m)}.get(form, (m, n))
        return self.add(form.format(text), dtype, axes, False, (k.size + 1) * (n.size if form.startswith("sum") else 1))

    def _dequantised(self) -> Value:
        """Weights of 8 bits with a scale for each column."""
        m, k, n = self._side(), self._side(), self._side()
        x, s = self.array("f16", (m, k), -1, 1), self.array("f16", (n,), 0, 1)
        w = self.array(self.choose(("i8", "u8")), (k, n), -20, 20) if self.choose((True, False)) else None
        w = w or self.array("i8", (k, n), -100, 100)
        text = f"{x.name} @ ({w.name}.astype(f16) * {s.name})"
        text = self.choose((text, f"{text} + {s.name}", f"relu({text})"))
        return self.add(text, "f16", (m, n), False, 200 * k.size)

    def _heads(self) -> Value:
        """Attention over separate keys and values, with a mask of positions, of values, or none."""
        dtype = self.choose(("f32", *HALVES))
        t, s, d, e = self._side(), self._side(), self._side(), self._side()
        lead = (self._side(),) if self.chance(4) else ()
        q, k = self.array(dtype, (*lead, t, d), -1, 1), self.array(dtype, (*lead, s, d), -1, 1)
        v = self.array(dtype, (*lead, s, e), -1, 1)
        scores = f"{q.name} @ {k.name}.mT{self.choose((' * 0.25', ''))}"
        if self.chance(3):
            scores = f"{scores} + {self.array(dtype, (t, s), -1, 1).name}"
        mask = self._mask_of(t, s)
        scores = f"where({mask}, {scores}, -inf)" if mask else scores
        return self.add(f"softmax({scores}, axis=-1) @ {v.name}", dtype, (*lead, t, e), False, s.size)

    def _mask_of(self, t: Axis, s: Axis) -> str:
        i, j = f"arange({t.text})[:, None]", f"arange({s.text})"
        offset = self.choose((0, 1, 7, 16, -1, -5))
        masks = ["", f"{i} >= {j}", f"{i} + {abs(offset)} > {j}", f"abs({i} - {j}) <= {abs(offset)}"]
        masks += [f"({i} >= {j}) & ({i} - {j} < {abs(offset) + 1})", f"{j} >= {i}"]
        masks += [f"({j} < {s.size // 2}) | ({j} <= {i})"]
        way = self.choose((*masks, "values"))
        return self.array("bool", (t, s)).name if way == "values" else way


def _as_einsum(x: Value, y: Value, turned: bool) -> str:
    """x @ y, or x @ y.mT, with names for the axes."""
    left, right = ("...ij" if x.rank > 1 else "j"), ("...kj" if turned else "...jk" if y.rank > 1 else "j")
    kept = "".join(n for n, v in (("i", x), ("k", y)) if v.rank > 1)
    return f'einsum("{left},{right}->{"..." if kept else ""}{kept}", {x.name}, {y.name})'


def _fits_squared(x: Value) -> bool:
    """Whether x @ x.mT is neither empty nor too large."""
    return 0 < math.prod(a.size for a in x.axes[:-1]) * x.axes[-2].size <= MAX_ELEMENTS
