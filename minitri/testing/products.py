"""Statements around matrix products, as models have them: layers, weights of few bits, attention.

    relu(x @ w + b)        x @ (w.astype(f16) * s)        softmax(where(mask, q @ k.mT, -inf)) @ v

Sides are short. Half of them are multiples of 16, which tensor cores and tensor descriptors ask for.
"""

from __future__ import annotations

from minitri.testing.values import Axis, Value
from minitri.testing.writer import Writer

SIDES = (16, 32, 48, 64, 5, 17, 33, 40)
HALVES = ("f16", "bf16")


class Products(Writer):
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
        forms = (
            "{x} @ ({w}.astype(f16) * {s})",
            "{x} @ ({w}.astype(f16) * {s}) + {s}",
            "relu({x} @ ({w}.astype(f16) * {s}))",
        )
        text = self.choose(forms).format(x=x.name, w=w.name, s=s.name)
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
        masks += [
            f"({i} >= {j}) & ({i} - {j} < {abs(offset) + 1})",
            f"{j} >= {i}",
            f"({j} < {s.size // 2}) | ({j} <= {i})",
        ]
        way = self.choose((*masks, "values"))
        return self.array("bool", (t, s)).name if way == "values" else way
