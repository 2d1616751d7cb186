"""Statements that combine many elements into one: reductions, scans, masks by position, and matrix products.

    where((arange(N) > arange(M)[:, None] + 5) & (arange(N) <= 60), x, 0)
    relu(x @ w + b)        x @ (w.astype(f16) * s)        softmax(where(mask, q @ k.mT, -inf)) @ v

Each method chooses values that fit, writes one statement and states the properties of its result (elementwise.py).
Masks by position are triangles, bands and corners, their complements, and one mask inside another, along one axis
or two. Masked elements mostly get the value that the reduction ignores, such as 0 for a sum. A compiler may then
skip the masked elements.

Products stand alone or inside parts of models: layers, weights of few bits, attention, losses. Matrices in parts of
models are small. Half of their sides are multiples of 16, which tensor cores and tensor descriptors require.
"""

import math

from minitri.base.types import DTYPES, promote
from minitri.testing.generator import FLOATS, MAX_ELEMENTS, Writer, require, required
from minitri.testing.values import Axis, Value, product

NEUTRAL = {
    "sum": ("0", "0", "1"), "mean": ("0", "0", "1"), "prod": ("1", "0"), "max": ("-inf", "-inf", "0"), "min": ("inf", "0"),
    "argmax": ("-inf", "0"), "argmin": ("inf", "0"), "softmax": ("-inf", "-inf", "0"), "logsumexp": ("-inf", "0"),
    "var": ("0", "1"), "cumulative_sum": ("0", "1"),
}  # fmt: skip
COMPARISONS = ("<=", ">=", "<", ">", "==", "!=")
SHAPED = ("softmax", "cumulative_sum")  # these keep the shape of their operand


class Reductions(Writer):
    def _some_axes(self, x: Value) -> tuple[str, tuple[int, ...]]:
        """One, two or all axes of x: the text of the argument `axis`, and the positions of the axes."""
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
        """The dtype of a reduction, whether it is exact, and its largest element."""
        if name in ("sum", "prod"):
            return x.summed, x.kind != "f", x.reach * max(1, count) if name == "sum" else math.inf
        found = {"any": ("bool", True, 1), "argmax": ("i64", True, 200), "max": (x.dtype, x.exact, x.reach)}
        found |= {"all": found["any"], "argmin": found["argmax"], "min": found["max"]}
        real = x.dtype if x.kind == "f" else "f32"
        return found.get(name, (real, False, x.reach**2 if name == "var" else x.reach))

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
        reach = x.reach * max(1, x.axes[k].size)
        require(self.fits(reach, x.summed))
        return self.add(f"{name}({x.name}, axis={k})", x.summed, x.axes, x.kind != "f", reach)

    # ---- choices by position -------------------------------------------------------------

    def _masked(self) -> Value:
        """A value masked by position."""
        x = self.pick(lambda v: v.rank > 0 and v.kind in "fi")
        other = self.choose(("0", "1", "-inf") if x.kind == "f" else ("0", "1"))
        return self.add(self._chosen(x, other), x.dtype, x.axes, x.exact, max(1, x.reach))

    def _masked_reduction(self) -> Value:
        """A reduction or scan of a value that is masked by position, along one of its axes."""
        x = self.find(lambda v: v.rank > 1 and v.kind == "f" and v.reach <= 100)
        x = x or self.array("f32", (self.axis(130), self.axis(130)))
        k = self.choose(x.axes_from_the_last)
        name = self.choose(self._reductions(x, x.axes[k].size))
        text = self._chosen(x, self.choose(NEUTRAL[name]))
        keep = name not in SHAPED and not name.startswith("arg") and self.choose((False, True))
        axes = x.axes if name in SHAPED else x.without((k,), keep)
        dtype = "i64" if name.startswith("arg") else x.dtype
        reach = x.reach * max(1, x.axes[k].size) + 6
        text = f"{name}({text}, axis={k - x.rank}{', keepdims=True' * keep})"
        return self.add(text, dtype, axes, name.startswith("arg"), reach)

    def _reductions(self, x: Value, count: int) -> list[str]:
        names = ["sum", "mean", "cumulative_sum", "var"]
        names += ["max", "min", "softmax", "logsumexp"] if count else []
        names += ["argmax", "argmin"] if count and x.steady else []
        return names + (["prod"] if count <= 17 and x.reach <= 4 else [])

    # ---- conditions --------------------------------------------------------------------------

    def _chosen(self, x: Value, other: str) -> str:
        """`where(condition, x, other)`, sometimes with the complement of the condition or with two conditions."""
        condition = self._condition(x, self.choose((1, 1, 2, 2, 3)))
        match self.choose(("plain", "plain", "plain", "inverted", "nested")):
            case "inverted":
                return f"where({condition}, {other}, {x.name})"
            case "nested":
                return f"where({condition}, where({self._condition(x, 1)}, {x.name}, {other}), {other})"
            case _:
                return f"where({condition}, {x.name}, {other})"

    def _condition(self, x: Value, comparisons: int) -> str:
        """The given number of comparisons of positions in x, joined by `&` and `|`."""
        if comparisons > 1:
            first = self.choose(range(1, comparisons))
            a, b = self._condition(x, first), self._condition(x, comparisons - first)
            text = f"({a} {self.choose(('&', '&', '|'))} {b})"
        else:
            text = self._comparison(x)
        return f"~{text}" if self.chance(6) else text

    def _comparison(self, x: Value) -> str:
        places = [self._position(x, k) for k in reversed(range(x.rank))]
        first, size = self.choose(places), max(1, math.prod(a.size for a in x.axes[-1:]))
        offset = self.choose((0, 1, 5, size // 2, size - 1, -1, -7))
        compare = self.choose(COMPARISONS)
        second = self.choose([p for p in places if p != first] or places)
        if first == second or self.choose((False, False, True)):
            return f"({first} {compare} {offset})"
        if self.chance(4):
            return f"(abs({first} - {second}) {compare} {abs(offset)})"
        return f"({first} {compare} {second}{f' {offset:+d}'.replace('+', '+ ').replace('-', '- ') if offset else ''})"

    def _position(self, x: Value, k: int) -> str:
        """The index along axis k of x, shaped to broadcast with x."""
        later_axes = x.rank - 1 - k
        return f"arange({self.size(x, k)})" + (f"[:{', None' * later_axes}]" if later_axes else "")


# ---- matrix products ----------------------------------------------------------------------------


SIDES = (16, 32, 48, 64, 5, 17, 33, 40)
HALVES = ("f16", "bf16")


class Products(Writer):
    def _matmul(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        y, right = self._factor(x)
        text = f"{x.name} @ {y.name}{right}"
        axes = y.transposed_axes if right else y.axes
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        reach = x.reach * y.reach * max(1, x.axes[-1].size)
        shape = required(product(x.axes, axes))
        require(self.fits(reach, dtype))
        if sum(map(ord, x.name + y.name)) % 4 == 0:  # a choice here would change the programs of all seeds
            text = _as_einsum(x, y, bool(right))
        return self.add(text, dtype, shape, not DTYPES[dtype].is_float, reach)

    def _factor(self, x: Value) -> tuple[Value, str]:
        """A right operand for x @ …, and ".mT" if it is transposed."""
        straight = self.find(lambda v: product(x.axes, v.axes) is not None)
        transposed = self.find(lambda v: v.rank > 1 and product(x.axes, v.transposed_axes) is not None)
        ways: list[tuple[Value, str] | None] = [None]
        ways += [(straight, "")] if straight else []
        ways += [(transposed, ".mT")] if transposed else []
        way = self.choose(ways)
        if way is not None:
            return way
        axes: tuple[Axis, ...] = (x.axes[-1], self.axis(130)) if self.choose((True, True, False)) else (x.axes[-1],)
        if x.rank > 2 and len(axes) == 2 and self.chance(3):
            axes = (*x.axes[:-2], *axes)
        return self.array(x.dtype if not self.chance(5) else self.choose((*FLOATS, "i32")), axes), ""

    def _loss(self) -> Value:
        """A cross_entropy of rows, with a new parameter for the classes."""
        x = self.pick(lambda v: v.kind == "f" and v.rank == 2 and v.reach <= 1e4 and min(a.size for a in v.axes) > 0)
        y = self.array(self.choose(("i64", "i32")), x.axes[:1], 0, x.axes[1].size - 1)
        return self.add(f"cross_entropy({x.name}, {y.name})", x.dtype, (), False, 2 * x.reach + 6)

    def _attention(self) -> Value:
        x = self.pick(lambda v: v.rank > 1 and v.kind == "f" and v.reach <= 30 and _fits_squared(v))
        forms = ("softmax({0} @ {0}.mT, axis=-1) @ {0}", "attention({0}, {0}, {0})")
        require(x.axes[-1].size > 0)  # 0 ** -0.5 is infinite
        return self.add(self.choose(forms).format(x.name), x.dtype, x.axes, False, x.reach)

    # ---- as models have them ----------------------------------------------------------------

    def _side(self) -> Axis:
        """A new axis whose size is a number."""
        size = self.choose(SIDES)
        return Axis(str(size), size)

    def _layer(self) -> Value:
        """A matrix product with a bias, followed by an activation, a reduction or a transpose."""
        dtype = self.choose(("f32", *HALVES))
        m, k, n = self._side(), self._side(), self._side()
        x, b = self.array(dtype, (m, k), -1, 1), self.array(dtype, (n,), -1, 1)
        transposed = self.choose((False, True))
        w = self.array(dtype, (n, k) if transposed else (k, n), -1, 1)
        text = f"{x.name} @ {w.name}{'.mT' * transposed} + {b.name}"
        form = self.choose(("relu({})", "{}", "gelu({})", "softmax({})", "sum({}, axis=1)", "({}).mT"))
        axes = {"sum({}, axis=1)": (m,), "({}).mT": (n, m)}.get(form, (m, n))
        return self.add(form.format(text), dtype, axes, False, (k.size + 1) * (n.size if form.startswith("sum") else 1))

    def _dequantised(self) -> Value:
        """A product with 8-bit weights that have a scale for each column."""
        m, k, n = self._side(), self._side(), self._side()
        x, s = self.array("f16", (m, k), -1, 1), self.array("f16", (n,), 0, 1)
        w = self.array(self.choose(("i8", "u8")), (k, n), -20, 20) if self.choose((True, False)) else None
        w = w or self.array("i8", (k, n), -100, 100)
        text = f"{x.name} @ ({w.name}.astype(f16) * {s.name})"
        text = self.choose((text, f"{text} + {s.name}", f"relu({text})"))
        return self.add(text, "f16", (m, n), False, 200 * k.size)

    def _heads(self) -> Value:
        """Attention over separate keys and values, with a mask by position, a mask from a parameter, or no mask."""
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


def _as_einsum(x: Value, y: Value, transposed: bool) -> str:
    """x @ y as an einsum, or x @ y.mT if `transposed` is true."""
    left, right = ("...ij" if x.rank > 1 else "j"), ("...kj" if transposed else "...jk" if y.rank > 1 else "j")
    kept = "".join(n for n, v in (("i", x), ("k", y)) if v.rank > 1)
    return f'einsum("{left},{right}->{"..." if kept else ""}{kept}", {x.name}, {y.name})'


def _fits_squared(x: Value) -> bool:
    """Whether x @ x.mT is neither empty nor too large."""
    return 0 < math.prod(a.size for a in x.axes[:-1]) * x.axes[-2].size <= MAX_ELEMENTS
