"""The statements that random programs are made of.

Each method of `Statements` picks values that fit, writes one statement and says what it
gives: dtype, axes, whether it is exact, how large. Functions keep to ranges where they do
not amplify (exp only of what is small), jumps prefer exact values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitri.testing.values import Axis, Value, joined, product, same, sliced
from minitri.testing.writer import FLOATS, HELPERS, INTEGERS, MAX_ELEMENTS, Parameter, Writer
from minitri.types import DTYPES, promote

# Functions of one float: name → (largest |x|, largest |result|).
UNARY: dict[str, tuple[float, float]] = {
    "tanh({})": (1e4, 1), "relu({})": (1e12, 0), "exp({})": (20, 5e8), "-{}": (1e12, 0), "abs({})": (1e12, 0),
    "sqrt(abs({}))": (1e12, 1e6), "sigmoid({})": (1e12, 1), "sin({})": (1e4, 1), "cos({})": (1e4, 1),
    "log1p(abs({}))": (1e12, 30), "gelu({})": (1e4, 0), "silu({})": (1e4, 0), "erf({})": (1e12, 1),
    "{} / (1 + abs({}))": (1e12, 1), "square({})": (1e3, 1e6), "{} ** 2": (1e3, 1e6), "{} ** 3": (1e2, 1e6),
    "rsqrt(1 + abs({}))": (1e12, 1), "expm1({})": (20, 5e8), "softplus({})": (1e4, 0), "atan({})": (1e12, 2),
    "gelu({}, approximate=\"tanh\")": (10, 10), "exp2({})": (20, 1e7), "log2(2 + abs({}))": (1e12, 60),
    "reciprocal(1 + abs({}))": (1e12, 1), "asinh({})": (1e6, 20), "hypot({}, 1)": (1e12, 0), "sinh({})": (10, 2e4),
    "log({})": (1e12, 90), "where({0} > 0, {0}, 0.1 * {0})": (1e12, 0), "clip({}, -1, 1)": (1e12, 1),
}  # fmt: skip
JUMPS = ("floor({})", "round({})", "ceil({})", "trunc({})", "sign({})", "{} // 2", "{} % 3", "{} // -0.5")
EXACT = ("-{}", "abs({})", "relu({})", "{} / (1 + abs({}))", "square({})", "sqrt(abs({}))", "where", "clip")
INTEGER = (
    "-{}",
    "{} + 1",
    "{} * 3",
    "{} // 3",
    "{} % 5",
    "abs({})",
    "{} ** 2",
    "~{}",
    "{} << 1",
    "{} >> 1",
    "{} & 3",
    "sign({})",
)


class Statements(Writer):
    def kinds(self) -> list[Callable[[], Value | None]]:
        return [getattr(self, f"_{name}") for name in KINDS]

    # ---- elementwise -----------------------------------------------------------------

    def _unary(self) -> Value | None:
        x = self.pick(lambda v: v.kind == "f")
        if x is None:
            return None
        text, (most, reach) = self.choose(
            [f for f in UNARY.items() if x.reach <= f[1][0]] or [("tanh({})", (0.0, 1.0))]
        )
        exact = x.exact and text.startswith(EXACT)
        reach = reach or x.reach
        if not self.fits(reach, x.dtype):
            return None
        return self.add(_spell(text, x.name), x.dtype, x.axes, exact, reach)

    def _jump(self) -> Value | None:
        x = self.pick(lambda v: v.kind == "f" and v.exact)
        return x and self.add(_spell(self.choose(JUMPS), x.name), x.dtype, x.axes, True, 2 * x.reach + 1)

    def _integer(self) -> Value | None:
        x = self.pick(lambda v: v.kind in "iu")
        return x and self.add(_spell(self.choose(INTEGER), x.name), x.dtype, x.axes, True, math.inf)

    def _partner(self, x: Value, suits: Callable[[Value], bool] = lambda v: True) -> Value:
        """Another value that broadcasts with x; a new parameter if there is none."""
        y = self.pick(lambda v: v is not x and suits(v) and joined(x.axes, v.axes) is not None)
        if y is not None and not self.chance(3):
            return y
        axes = x.axes[self.choose(range(len(x.axes) + 1)) :]
        axes = tuple(Axis("1", 1) if self.chance(4) else a for a in axes)
        dtypes = [d for d in (x.dtype, *FLOATS, *INTEGERS, "bool") if suits(Value("", d, (), True, 4))]
        return self.array(self.choose([dtypes[0], dtypes[0], *dtypes]), axes)

    def _binary(self) -> Value | None:
        x = self.pick()
        if x is None:
            return None
        y = self._partner(x)
        axes, dtype = joined(x.axes, y.axes), promote(DTYPES[x.dtype], DTYPES[y.dtype])
        if axes is None:
            return None
        x, y = self.choose(((x, y), (y, x)))
        exact = x.exact and y.exact
        ops = {"{} + {}": x.reach + y.reach, "{} * {}": x.reach * y.reach, "maximum({}, {})": max(x.reach, y.reach)}
        if dtype.kind == "b":
            ops |= {"{} ^ {}": 1, "{} & {}": 1, "{} | {}": 1}
        else:
            ops |= {"{} - {}": x.reach + y.reach, "minimum({}, {})": max(x.reach, y.reach)}
        if dtype.kind == "f":
            ops |= {"{0} / (1 + abs({1}))": x.reach, "atan2({}, {})": 4, "{0} * tanh({1})": x.reach}
            if exact and self._steady(x, y):
                ops |= {"{} // {}": math.inf, "{} % {}": y.reach}
        if dtype.is_integer:
            ops |= {"{} // {}": math.inf, "{} % {}": math.inf, "{} & {}": math.inf, "{} ^ {}": math.inf}
            if y.kind in "iu":
                ops |= {"{0} << ({1} % 9)": math.inf, "{0} >> ({1} % 70)": math.inf, "{0} ** ({1} % 4)": math.inf}
        text = self.choose([t for t, reach in ops.items() if self.fits(reach, dtype.name)] or ["minimum({}, {})"])
        if "%" in text and "(" in text and "i8" in (x.dtype, y.dtype):
            text = "{} & {}"
        exact = exact and "tanh" not in text and "atan2" not in text
        return self.add(text.format(x.name, y.name), dtype.name, axes, exact, ops.get(text, max(x.reach, y.reach)))

    def _steady(self, *values: Value) -> bool:
        return all(v.steady for v in values)

    def _number(self) -> Value | None:
        """A value with a Python number, a dimension, or a `float` parameter."""
        x = self.pick(lambda v: v.kind != "b")
        if x is None:
            return None
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
        if not self.fits(reach, dtype):
            return None
        return self.add(self.choose(ops).format(x.name, number), dtype, x.axes, x.exact and number != "s", reach)

    def _compare(self) -> Value | None:
        x = self.pick(lambda v: v.steady)
        if x is None:
            return None
        symbol = self.choose(("<", ">=", "==", "!=", ">", "<="))
        if self.choose((True, False)):
            number = self.choose(("0", "1", "0.5")) if x.kind != "b" else "1"
            return self.add(f"{x.name} {symbol} {number}", "bool", x.axes, True, 1)
        y = self._partner(x, lambda v: v.steady)
        axes = joined(x.axes, y.axes)
        return None if axes is None else self.add(f"{x.name} {symbol} {y.name}", "bool", axes, True, 1)

    def _where(self) -> Value | None:
        c = self.pick(lambda v: v.kind == "b") or self._compare()
        if c is None:
            return None
        x = self.pick(lambda v: joined(c.axes, v.axes) is not None) or c
        axes = joined(c.axes, x.axes) or ()
        if self.choose((True, False)):
            number = self.choose(("0", "1", "-inf") if x.kind == "f" else ("0", "1"))
            dtype = "i64" if x.dtype == "bool" else x.dtype
            return self.add(f"where({c.name}, {x.name}, {number})", dtype, axes, x.exact, max(1, x.reach))
        y = self._partner(x, lambda v: joined(axes, v.axes) is not None)
        whole = joined(axes, y.axes)
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        exact, reach = x.exact and y.exact, max(x.reach, y.reach)
        return None if whole is None else self.add(f"where({c.name}, {x.name}, {y.name})", dtype, whole, exact, reach)

    def _cast(self) -> Value | None:
        x = self.pick()
        if x is None:
            return None
        to = [d for d in (*FLOATS, *INTEGERS, "bool") if d != x.dtype and self.fits(x.reach, d)]
        if not x.exact:
            to = [d for d in to if DTYPES[d].is_float]
        dtype = self.choose(to)
        text = self.choose((f"astype({x.name}, {dtype})", f"{x.name}.astype({dtype})"))
        return self.add(text, dtype, x.axes, x.exact, x.reach)

    # ---- reductions ------------------------------------------------------------------

    def _some_axes(self, x: Value) -> tuple[str, tuple[int, ...]]:
        """Axes as text and as a set: one, two or all of them."""
        ways: list[tuple[str, tuple[int, ...]]] = [(str(k - x.rank), (k,)) for k in reversed(range(x.rank))]
        ways += [("None", tuple(range(x.rank)))]
        ways += [(f"({k}, -1)", (k, x.rank - 1)) for k in range(x.rank - 1)]
        return self.choose(ways)

    def _reduce(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        axis, over = self._some_axes(x)
        count = math.prod(x.axes[k].size for k in over)
        names = ["sum", "mean"]
        names += ["max", "min"] if count and all(x.axes[k].size for k in over) else []
        names += ["any", "all"] if x.steady else []
        names += ["argmax", "argmin"] if count and len(over) == 1 and x.steady else []
        names += ["var", "std"] if x.reach <= 1e3 and x.kind == "f" else []
        names += ["prod"] if x.kind in "iu" else []
        name = self.choose(names)
        if axis == "None" and name.startswith("arg"):
            return None
        keep = self.choose((False, True))
        dtype, exact, reach = self._reduced(name, x, count)
        if not self.fits(reach, dtype):
            return None
        axes = [Axis("1", 1) if k in over else a for k, a in enumerate(x.axes) if keep or k not in over]
        arguments = "" if axis == "None" and self.choose((True, False)) else f", axis={axis}"
        return self.add(f"{name}({x.name}{arguments}{', keepdims=True' * keep})", dtype, axes, exact, reach)

    def _reduced(self, name: str, x: Value, count: int) -> tuple[str, bool, float]:
        match name:
            case "sum" | "prod":
                dtype = x.dtype if x.kind == "f" or x.dtype == "u64" else "i64"
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

    def _normalise(self) -> Value | None:
        x = self.pick(lambda v: v.kind == "f" and v.rank > 0 and v.reach <= 1e4)
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        if not x.axes[k].size:
            return None
        name = self.choose(("softmax", "log_softmax", "layer_norm", "rms_norm", "logsumexp"))
        keep = name == "logsumexp" and self.choose((False, True))
        axes = [
            Axis("1", 1) if j == k and keep else a
            for j, a in enumerate(x.axes)
            if name != "logsumexp" or keep or j != k
        ]
        reach = 1.0 if name == "softmax" else 12.0 if name.endswith("norm") else 2 * x.reach + 6
        if not self.fits(reach, x.dtype):
            return None
        return self.add(f"{name}({x.name}, axis={k - x.rank}{', keepdims=True' * keep})", x.dtype, axes, False, reach)

    def _scan(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0 and v.reach <= 1e4 or v.rank > 0 and v.kind != "f")
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        name = self.choose(("cumulative_sum", "cumulative_sum", "cumulative_prod"))
        if name == "cumulative_prod" and (x.kind == "f" and x.reach > 1):
            name = "cumulative_sum"
        dtype = x.dtype if x.kind == "f" or x.dtype == "u64" else "i64"
        reach = x.reach * max(1, x.axes[k].size)
        if not self.fits(reach, dtype):
            return None
        return self.add(f"{name}({x.name}, axis={k})", dtype, x.axes, x.kind != "f", reach)

    # ---- products --------------------------------------------------------------------

    def _matmul(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        y, right = self._factor(x)
        text = f"{x.name} @ {y.name}{right}"
        axes = y.axes if not right else (*y.axes[:-2], y.axes[-1], y.axes[-2])
        shape = product(x.axes, axes)
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        reach = x.reach * y.reach * max(1, x.axes[-1].size)
        if shape is None or not self.fits(reach, dtype):
            return None
        return self.add(text, dtype, shape, not DTYPES[dtype].is_float, reach)

    def _factor(self, x: Value) -> tuple[Value, str]:
        """A right operand for x @ …, and ".mT" if it is transposed."""
        straight = self.pick(lambda v: product(x.axes, v.axes) is not None)
        turned = self.pick(lambda v: v.rank > 1 and product(x.axes, (*v.axes[:-2], v.axes[-1], v.axes[-2])) is not None)
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

    # ---- views -----------------------------------------------------------------------

    def _transpose(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 1)
        if x is None:
            return None
        order = self.choose(
            [tuple(reversed(range(x.rank))), (*range(x.rank - 2), x.rank - 1, x.rank - 2), (*range(1, x.rank), 0)]
        )
        form = self.choose(
            ("permute_dims({}, {})", "{}.T" if order == tuple(reversed(range(x.rank))) else "permute_dims({}, {})")
        )
        return self.add(form.format(x.name, order), x.dtype, [x.axes[k] for k in order], x.exact, x.reach)

    def _slice(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        items: list[str] = []
        axes: list[Axis] = []
        for a in x.axes:
            form = self.choose(
                (":", "1:", ":-1", "::-1", "::2", "1:3", "-2:", "5:1:-2", "::-3", "0", "-1", "None", ":2")
            )
            if form in ("0", "-1"):
                form = form if a.size else ":"
            if form == "None":
                items += ["None", ":"]
                axes += [Axis("1", 1), a]
                continue
            items.append(form)
            if ":" in form:
                axes.append(sliced(form, a))
        if self.chance(4) and items[-1] == ":":
            items[-1] = "..."
        return self.add(f"{x.name}[{', '.join(items)}]", x.dtype, axes, x.exact, x.reach)

    def _reshape(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        forms: list[tuple[str, list[Axis]]] = [
            (f"reshape({x.name}, -1)", [Axis("", math.prod(a.size for a in x.axes))])
        ]
        for k in range(x.rank - 1):
            a, b = x.axes[k], x.axes[k + 1]
            rest = [self.size(x, j) for j in range(x.rank)]
            merged = [
                *x.axes[:k],
                Axis(str(a.size * b.size) if a.known and b.known else "", a.size * b.size),
                *x.axes[k + 2 :],
            ]
            shape = ", ".join(
                [
                    *rest[:k],
                    f"{rest[k]} * ({rest[k + 1]})" if not a.text.count("+") else f"({rest[k]}) * ({rest[k + 1]})",
                    *rest[k + 2 :],
                ]
            )
            forms.append((f"reshape({x.name}, ({shape},))", merged))
        for k, a in enumerate(x.axes):
            for q in (2, 3, 11):
                if a.size and a.size % q == 0:
                    rest = [self.size(x, j) for j in range(x.rank)]
                    outer = str(a.size // q) if a.known else f"({rest[k]}) // {q}"
                    split = [Axis(outer if a.known else "", a.size // q), Axis(str(q), q)]
                    shape = ", ".join([*rest[:k], outer, str(q), *rest[k + 1 :]])
                    forms.append((f"{x.name}.reshape({shape})", [*x.axes[:k], *split, *x.axes[k + 1 :]]))
        text, axes = self.choose(forms)
        return self.add(text, x.dtype, axes, x.exact, x.reach)

    def _move(self) -> Value | None:
        """flip, roll, expand_dims, tril and triu."""
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        forms = [
            f"flip({x.name}, axis={k})",
            f"roll({x.name}, {self.choose((1, -2, 5, 40))}, axis={k})",
            f"flip({x.name})",
            "expand",
        ]
        forms += [f"roll({x.name}, 3)"]
        forms += [f"tril({x.name})", f"triu({x.name}, {self.choose((1, 0, -2))})"] if x.rank > 1 else []
        form = self.choose(forms)
        axes = x.axes
        if form == "expand":
            form, axes = f"expand_dims({x.name}, axis={k})", (*x.axes[:k], Axis("1", 1), *x.axes[k:])
        return self.add(form, x.dtype, axes, x.exact, x.reach)

    def _broadcast(self) -> Value | None:
        x = self.pick(lambda v: v.rank < 4)
        if x is None:
            return None
        lead = self._known_axis()
        axes = [lead, *(self._known_axis() if a.text == "1" and self.chance(2) else a for a in x.axes)]
        shape = ", ".join([a.text or self.size(x, k - 1) for k, a in enumerate(axes)])
        return self.add(f"broadcast_to({x.name}, ({shape},))", x.dtype, axes, x.exact, x.reach)

    def _known_axis(self) -> Axis:
        """An axis that the body of the program can write: a dimension or an integer."""
        named = [Axis(n, s) for n, s in self.sizes.items() if s <= 33]
        return self.choose([Axis("2", 2), *named, Axis("3", 3), Axis("1", 1), Axis("17", 17), *named])

    def _pad(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        widths = [(self.choose((0, 1, 3)), self.choose((1, 0, 5))) for _ in x.axes]
        axes = [
            Axis(str(a.size + b + c) if a.known else a.text if not b + c else "", a.size + b + c)
            for a, (b, c) in zip(x.axes, widths)
        ]
        fill = self.choose(("", ", constant_values=1")) if x.kind != "b" else ""
        text = f"pad({x.name}, ({', '.join(map(str, widths))},){fill})"
        return self.add(text, x.dtype, axes, x.exact, x.reach + 1)

    def _concat(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        others = [
            v
            for v in self.values
            if v.rank == x.rank and all(same(a, b) for j, (a, b) in enumerate(zip(v.axes, x.axes)) if j != k)
        ]
        parts = [x, *(self.choose(others) for _ in range(self.choose((1, 1, 2))))]
        dtype = DTYPES[x.dtype]
        for p in parts:
            dtype = promote(dtype, DTYPES[p.dtype])
        total = sum(p.axes[k].size for p in parts)
        joined = Axis(str(total) if all(p.axes[k].known for p in parts) else "", total)
        listed = ", ".join(p.name for p in parts)
        reach, exact = max(p.reach for p in parts), all(p.exact for p in parts)
        if not self.fits(reach, dtype.name):
            return None
        if all(same(p.axes[k], x.axes[k]) for p in parts) and self.chance(3):
            axes = (*x.axes[:k], Axis(str(len(parts)), len(parts)), *x.axes[k:])
            return self.add(f"stack(({listed}), axis={k})", dtype.name, axes, exact, reach)
        return self.add(
            f"concat([{listed}], axis={k})", dtype.name, (*x.axes[:k], joined, *x.axes[k + 1 :]), exact, reach
        )

    # ---- gathers and what comes from nowhere -----------------------------------------

    def _indices(self, axes: tuple[Axis, ...], extent: int) -> Value:
        """A parameter with indices, some counted from the end; now and then some out of range."""
        dtype = self.choose(("i64", "i32", "u8"))
        wild = 2 if self.chance(5) else 0
        return self.array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def _gather(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        i = self._indices(self.axes(self.choose((1, 2, 0))), x.axes[k].size)
        axes = (*x.axes[:k], *i.axes, *x.axes[k + 1 :])
        item = i.name if not self.chance(4) or i.dtype == "u8" else f"abs({i.name})"
        forms = [f"{x.name}[{', '.join([*[':'] * k, item])}]", f"take({x.name}, {item}, axis={k})"]
        return self.add(self.choose(forms), x.dtype, axes, x.exact, x.reach)

    def _along(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        i = self._indices((*x.axes[:k], self.axis(33), *x.axes[k + 1 :]), x.axes[k].size)
        return self.add(f"take_along_axis({x.name}, {i.name}, axis={k - x.rank})", x.dtype, i.axes, x.exact, x.reach)

    def _one_hot(self) -> Value | None:
        x = self.pick(lambda v: v.kind in "iu" and v.rank < 3)
        if x is None:
            return None
        classes = self._known_axis()
        return self.add(f"one_hot({x.name}, {classes.text})", "f32", (*x.axes, classes), True, 1)

    def _make(self) -> Value | None:
        a, b = self._known_axis(), self._known_axis()
        dtype = self.choose(("f32", "i32", "f16"))
        ways: list[tuple[str, str, tuple[Axis, ...]]] = [
            (f"arange({a.text})", "i64", (a,)), (f"eye({a.text}, {b.text})", "f32", (a, b)),
            (f"ones(({a.text}, {b.text}), dtype={dtype})", dtype, (a, b)), (f"arange({a.text}, dtype={dtype})", dtype, (a,)),
            (f"full(({a.text},), 2.5)", "f32", (a,)), ("arange(0, 2, 0.25)", "f32", (Axis("8", 8),)),
            (f"arange({a.text})[:, None] - arange({b.text})", "i64", (a, b)),
        ]  # fmt: skip
        text, dtype, axes = self.choose(ways)
        return self.add(text, dtype, axes, True, 130)

    def _call(self) -> Value | None:
        """A call of another function of the module."""
        x = self.pick(lambda v: v.rank > 0 and v.dtype == "f32" and v.reach <= 1e10)
        if x is None:
            return None
        name = self.choose(tuple(HELPERS))
        axes = x.axes[:-1] if name == "rowwise" else x.axes
        return self.add(f"{name}({x.name})", "f32", axes, x.exact and name == "scaled", 130 * x.reach)

    def _attention(self) -> Value | None:
        x = self.pick(lambda v: v.rank > 1 and v.kind == "f" and v.reach <= 30 and _fits_squared(v))
        return x and self.add(f"softmax({x.name} @ {x.name}.mT, axis=-1) @ {x.name}", x.dtype, x.axes, False, x.reach)


KINDS = (
    "unary", "binary", "number", "reduce", "matmul", "slice", "transpose", "binary", "normalise", "cast", "where", "compare",
    "reshape", "move", "broadcast", "pad", "concat", "gather", "along", "scan", "jump", "integer", "one_hot", "make",
    "unary", "reduce", "call", "attention",
)  # fmt: skip


def _fits_squared(x: Value) -> bool:
    """Whether x @ x.mT is neither empty nor too large."""
    return 0 < math.prod(a.size for a in x.axes[:-1]) * x.axes[-2].size <= MAX_ELEMENTS


def _spell(template: str, name: str) -> str:
    return template.format(*[name] * 3)
