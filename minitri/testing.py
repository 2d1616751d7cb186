"""Random well-typed programs and arrays, for testing with hypothesis.

In: choices (hypothesis draws them, so that a failure shrinks; or a seed). Out: `RandomProgram`,
the *text* of a module with sizes for its dimensions, and numpy arrays to call it with.

    @given(programs(max_ops=6), st.integers(0, 99))
    def test(example, seed):
        assert example.compile().check(*example.arguments(seed)).ok

The one idea: valid by construction. The writer keeps the dtype, the axes and the largest
size of every value, and picks among the statements that these allow. Two axes go together
if both are known integers and equal (or 1), or if their sizes in this example are equal: the
program then carries a condition that the call satisfies. Jumps (floor, comparisons, argmax)
prefer values that are exact, so that rounding does not decide them.

Left out: programs with errors (tests/test_hostile.py makes those).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

from minitri import arrays as numpy_arrays
from minitri.program import Program
from minitri.syntax.parse import parse_module
from minitri.types import DTYPES, promote

T = TypeVar("T")
SIZES = (3, 1, 2, 7, 0, 17, 33, 130)
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i32", "i64", "i8", "u8", "i16", "u16", "u32", "u64")
MAX_ELEMENTS = 20_000
NAMES = ("N", "M", "K", "D")


class Choices(Protocol):
    """Where choices come from; the first option is the simplest."""

    def __call__(self, options: Sequence[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: how the program writes its size ("" if it has no name for it), and what it is here."""

    text: str
    size: int

    @property
    def known(self) -> bool:
        return self.text.isdigit()


@dataclass(frozen=True, slots=True)
class Value:
    """`exact`: what it holds follows from the inputs without rounding error; `reach`: about its largest |element|."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    exact: bool
    reach: float

    @property
    def kind(self) -> str:
        return DTYPES[self.dtype].kind

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def steady(self) -> bool:
        """Whether a jump may depend on it."""
        return self.exact or self.kind != "f"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a program and the range its elements are drawn from."""

    name: str
    type: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """The text of a program and one choice of sizes."""

    text: str
    parameters: tuple[Parameter, ...]
    sizes: dict[str, int]

    def __repr__(self) -> str:
        return f"{self.text}# {', '.join(f'{n} = {s}' for n, s in self.sizes.items())}"

    def compile(self, **options: Any) -> Program:
        return Program(parse_module(self.text, "<random>"), **options)

    def arguments(self, seed: int = 0) -> list[Any]:
        """Arrays and numbers for the parameters, of all layouts, some with special values."""
        rng = np.random.default_rng(seed)
        return [random_array(p.type, self.sizes, rng, p.low, p.high) for p in self.parameters]


# ---- strategies ------------------------------------------------------------------------


def programs(max_ops: int = 8) -> st.SearchStrategy[RandomProgram]:
    """Well-typed programs of up to `max_ops` statements; they shrink to few and simple ones."""

    @st.composite
    def strategy(draw: Callable[[Any], Any]) -> RandomProgram:
        return _Writer(lambda options: draw(st.sampled_from(options))).program(draw(st.integers(1, max_ops)))

    return strategy()


def arrays(type: str, sizes: dict[str, int], low: float = -4, high: float = 4) -> st.SearchStrategy[Any]:
    """Arrays of a type as the language writes it (`"f32[M, N]"`), of any strides."""
    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: random_array(type, sizes, np.random.default_rng(seed), low, high))


def random_program(seed: int, max_ops: int = 8) -> RandomProgram:
    """The same program for the same seed, without hypothesis."""
    rng = random.Random(seed)
    return _Writer(rng.choice).program(rng.randint(1, max_ops))


# ---- arrays ----------------------------------------------------------------------------


def random_array(type: str, sizes: dict[str, int], rng: np.random.Generator, low: float = -4, high: float = 4) -> Any:
    """An array (or a Python float) with elements from low to high, in a random memory layout."""
    if type == "float":
        return float(rng.uniform(low, high))
    name, _, dims = type.rstrip("]").partition("[")
    shape = tuple(_extent(d, sizes) for d in dims.split(",")) if dims else ()
    bare = (low, high) != (-4, 4)
    return _laid_out(lambda s: _elements(name, s, rng, low, high, not bare and rng.random() < 0.25), shape, rng)


def _extent(text: str, sizes: dict[str, int]) -> int:
    """A size in a type: `7`, `N`, `2 * N`, `N + 1`."""
    scale, _, rest = text.replace(" ", "").rpartition("*")
    name, _, more = rest.partition("+")
    return int(scale or 1) * (int(name) if name.isdigit() else sizes[name]) + int(more or 0)


def _elements(name: str, shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float, special: bool) -> Any:
    dtype = DTYPES[name]
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float:
        whole = rng.random() < 0.25  # small integers: sums are exact, and there are ties
        x = rng.integers(int(low), int(high) + 1, shape) if whole else rng.uniform(low, high, shape)
        chosen = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 0.5]
    else:
        reach = rng.choice((0, 6, 196)) if (low, high) == (-4, 4) else 0  # sometimes past the small dtypes
        least, most = max(int(low) - reach, dtype.limits[0]), min(int(high) + reach, dtype.limits[1])
        x = rng.integers(least, most + 1, shape)
        chosen = [*dtype.limits, 0, 1]
    x = numpy_arrays.cast(x, dtype)
    if not special:
        return x
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.15, rng.choice(np.array(chosen, dtype.numpy), shape), x)


def _laid_out(make: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    layout = int(rng.integers(0, 8))
    if not shape or layout < 3:
        return make(shape)
    axis = int(rng.integers(0, len(shape)))
    here = tuple(slice(None) for _ in shape[:axis])
    match layout:
        case 3:  # the axes the other way round
            return make(shape[::-1]).T
        case 4:  # backwards
            return make(shape)[(*here, slice(None, None, -1))]
        case 5:  # every other element
            wide = tuple(2 * n if k == axis else n for k, n in enumerate(shape))
            return make(wide)[(*here, slice(None, None, 2))]
        case 6:  # one element for a whole axis
            return np.broadcast_to(make(tuple(1 if k == axis else n for k, n in enumerate(shape))), shape)
        case _:  # a window into something larger
            return make(tuple(n + 3 for n in shape))[tuple(slice(2, n + 2) for n in shape)]


# ---- programs --------------------------------------------------------------------------

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
INTEGER = ("-{}", "{} + 1", "{} * 3", "{} // 3", "{} % 5", "abs({})", "{} ** 2", "~{}", "{} << 1", "{} >> 1", "{} & 3", "sign({})")


@dataclass
class _Statement:
    name: str
    text: str


@dataclass
class _Writer:
    """Writes one program. Every `_kind` method adds a statement, or returns None if it does not apply."""

    choose: Choices
    values: list[Value] = field(default_factory=list)
    statements: list[_Statement] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    names: int = 0

    def program(self, ops: int) -> RandomProgram:
        for _ in range(self.choose((1, 2))):
            self._array(self.choose((*FLOATS, "f32", "f32", "i32", "bool", *INTEGERS)), self._axes())
        kinds = [getattr(self, f"_{name}") for name in KINDS]
        for _ in range(ops):
            start = self.choose(range(len(kinds)))
            for kind in kinds[start:] + kinds[:start]:
                if kind() is not None:
                    break
        return self._finished()

    # ---- what there is to write about ------------------------------------------------

    def _chance(self, odds: int) -> bool:
        """True once in `odds` times, and never in a shrunk program."""
        return self.choose(range(odds)) == odds - 1

    def _axes(self, rank: int | None = None) -> tuple[Axis, ...]:
        rank = self.choose((1, 2, 2, 3, 0)) if rank is None else rank
        axes: list[Axis] = []
        for _ in range(rank):
            room = MAX_ELEMENTS // max(1, math.prod(a.size for a in axes))
            axes.append(self._axis(room))
        return tuple(axes)

    def _axis(self, room: int = MAX_ELEMENTS) -> Axis:
        fitting = [n for n, s in self.sizes.items() if s <= room]
        new = [n for n in NAMES if n not in self.sizes][:1]
        form = self.choose(("name", "name", "name", "known", "more"))
        if form == "known" or not (fitting or new):
            size = self.choose([s for s in SIZES if s <= min(room, 33)])
            return Axis(str(size), size)
        name = self.choose([*new, *fitting, *new])
        if name not in self.sizes:
            self.sizes[name] = self.choose([s for s in SIZES if s <= room])
        size = self.sizes[name]
        if form == "more" and 2 * size + 1 <= room and self._stands_alone(name):
            return self.choose((Axis(f"{name} + 1", size + 1), Axis(f"2 * {name}", 2 * size)))
        return Axis(name, size)

    def _stands_alone(self, name: str) -> bool:
        return any(a.text == name for v in self.values for a in v.axes)

    def _array(self, dtype: str, axes: tuple[Axis, ...], low: float = -4, high: float = 4) -> Value:
        """A new parameter."""
        name = "xywzabcdefgh"[len(self.parameters)] if len(self.parameters) < 12 else f"p{len(self.parameters)}"
        axes = tuple(a if a.text else Axis(str(a.size), a.size) for a in axes)
        self.parameters.append(Parameter(name, f"{dtype}[{', '.join(a.text for a in axes)}]", low, high))
        value = Value(name, dtype, axes, True, 2.0 ** DTYPES[dtype].bits if DTYPES[dtype].is_integer else 4.0)
        self.values.append(value)
        return value

    def _pick(self, suits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in reversed(self.values) if suits(v)]
        return self.choose([*found[:1], *found[:1], *found[:3], *found]) if found else None

    def _add(self, text: str, dtype: str, axes: Sequence[Axis], exact: bool, reach: float) -> Value | None:
        if math.prod(max(1, a.size) for a in axes) > MAX_ELEMENTS or len(axes) > 5:
            return None
        self.names += 1
        if DTYPES[dtype].is_float and not exact and reach < 1e-3:
            reach = 1e-3
        limit = 2.0 ** DTYPES[dtype].bits if DTYPES[dtype].is_integer else reach
        value = Value(f"v{self.names}", dtype, tuple(axes), exact or not DTYPES[dtype].is_float, min(reach, limit))
        self.statements.append(_Statement(value.name, text))
        self.values.append(value)
        return value

    def _size(self, v: Value, k: int) -> str:
        return v.axes[k].text or f"{v.name}.shape[{k}]"

    def _fits(self, reach: float, dtype: str) -> bool:
        return not DTYPES[dtype].is_float or reach <= (2e4 if dtype == "f16" else 1e12)

    # ---- elementwise -----------------------------------------------------------------

    def _unary(self) -> Value | None:
        x = self._pick(lambda v: v.kind == "f")
        if x is None:
            return None
        text, (most, reach) = self.choose([f for f in UNARY.items() if x.reach <= f[1][0]] or [("tanh({})", (0.0, 1.0))])
        exact = x.exact and text.startswith(EXACT)
        reach = reach or x.reach
        if not self._fits(reach, x.dtype):
            return None
        return self._add(_spell(text, x.name), x.dtype, x.axes, exact, reach)

    def _jump(self) -> Value | None:
        x = self._pick(lambda v: v.kind == "f" and v.exact)
        return x and self._add(_spell(self.choose(JUMPS), x.name), x.dtype, x.axes, True, 2 * x.reach + 1)

    def _integer(self) -> Value | None:
        x = self._pick(lambda v: v.kind in "iu")
        return x and self._add(_spell(self.choose(INTEGER), x.name), x.dtype, x.axes, True, math.inf)

    def _partner(self, x: Value, suits: Callable[[Value], bool] = lambda v: True) -> Value:
        """Another value that broadcasts with x; a new parameter if there is none."""
        y = self._pick(lambda v: v is not x and suits(v) and _joined(x.axes, v.axes) is not None)
        if y is not None and not self._chance(3):
            return y
        axes = x.axes[self.choose(range(len(x.axes) + 1)) :]
        axes = tuple(Axis("1", 1) if self._chance(4) else a for a in axes)
        dtypes = [d for d in (x.dtype, *FLOATS, *INTEGERS, "bool") if suits(Value("", d, (), True, 4))]
        return self._array(self.choose([dtypes[0], dtypes[0], *dtypes]), axes)

    def _binary(self) -> Value | None:
        x = self._pick()
        if x is None:
            return None
        y = self._partner(x)
        axes, dtype = _joined(x.axes, y.axes), promote(DTYPES[x.dtype], DTYPES[y.dtype])
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
        text = self.choose([t for t, reach in ops.items() if self._fits(reach, dtype.name)] or ["minimum({}, {})"])
        if "%" in text and "(" in text and "i8" in (x.dtype, y.dtype):
            text = "{} & {}"
        exact = exact and "tanh" not in text and "atan2" not in text
        return self._add(text.format(x.name, y.name), dtype.name, axes, exact, ops.get(text, max(x.reach, y.reach)))

    def _steady(self, *values: Value) -> bool:
        return all(v.steady for v in values)

    def _number(self) -> Value | None:
        """A value with a Python number, a dimension, or a `float` parameter."""
        x = self._pick(lambda v: v.kind != "b")
        if x is None:
            return None
        numbers = ["2", "1", "0.5", "3.25", "0", *(n for n, s in self.sizes.items() if s <= DTYPES[x.dtype].limits[1])]
        if x.kind != "u":
            numbers += ["-1", "(-2.5)"]
        number = self.choose(numbers)
        if self._chance(6):
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
        if not self._fits(reach, dtype):
            return None
        return self._add(self.choose(ops).format(x.name, number), dtype, x.axes, x.exact and number != "s", reach)

    def _compare(self) -> Value | None:
        x = self._pick(lambda v: v.steady)
        if x is None:
            return None
        symbol = self.choose(("<", ">=", "==", "!=", ">", "<="))
        if self.choose((True, False)):
            number = self.choose(("0", "1", "0.5")) if x.kind != "b" else "1"
            return self._add(f"{x.name} {symbol} {number}", "bool", x.axes, True, 1)
        y = self._partner(x, lambda v: v.steady)
        axes = _joined(x.axes, y.axes)
        return None if axes is None else self._add(f"{x.name} {symbol} {y.name}", "bool", axes, True, 1)

    def _where(self) -> Value | None:
        c = self._pick(lambda v: v.kind == "b") or self._compare()
        if c is None:
            return None
        x = self._pick(lambda v: _joined(c.axes, v.axes) is not None) or c
        axes = _joined(c.axes, x.axes) or ()
        if self.choose((True, False)):
            number = self.choose(("0", "1", "-inf") if x.kind == "f" else ("0", "1"))
            dtype = "i64" if x.dtype == "bool" else x.dtype
            return self._add(f"where({c.name}, {x.name}, {number})", dtype, axes, x.exact, max(1, x.reach))
        y = self._partner(x, lambda v: _joined(axes, v.axes) is not None)
        joined = _joined(axes, y.axes)
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        exact, reach = x.exact and y.exact, max(x.reach, y.reach)
        return None if joined is None else self._add(f"where({c.name}, {x.name}, {y.name})", dtype, joined, exact, reach)

    def _cast(self) -> Value | None:
        x = self._pick()
        if x is None:
            return None
        to = [d for d in (*FLOATS, *INTEGERS, "bool") if d != x.dtype and self._fits(x.reach, d)]
        if not x.exact:
            to = [d for d in to if DTYPES[d].is_float]
        dtype = self.choose(to)
        text = self.choose((f"astype({x.name}, {dtype})", f"{x.name}.astype({dtype})"))
        return self._add(text, dtype, x.axes, x.exact, x.reach)

    # ---- reductions ------------------------------------------------------------------

    def _some_axes(self, x: Value) -> tuple[str, tuple[int, ...]]:
        """Axes as text and as a set: one, two or all of them."""
        ways: list[tuple[str, tuple[int, ...]]] = [(str(k - x.rank), (k,)) for k in reversed(range(x.rank))]
        ways += [("None", tuple(range(x.rank)))]
        ways += [(f"({k}, -1)", (k, x.rank - 1)) for k in range(x.rank - 1)]
        return self.choose(ways)

    def _reduce(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
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
        if not self._fits(reach, dtype):
            return None
        axes = [Axis("1", 1) if k in over else a for k, a in enumerate(x.axes) if keep or k not in over]
        arguments = "" if axis == "None" and self.choose((True, False)) else f", axis={axis}"
        return self._add(f"{name}({x.name}{arguments}{', keepdims=True' * keep})", dtype, axes, exact, reach)

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
        x = self._pick(lambda v: v.kind == "f" and v.rank > 0 and v.reach <= 1e4)
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        if not x.axes[k].size:
            return None
        name = self.choose(("softmax", "log_softmax", "layer_norm", "rms_norm", "logsumexp"))
        keep = name == "logsumexp" and self.choose((False, True))
        axes = [Axis("1", 1) if j == k and keep else a for j, a in enumerate(x.axes) if name != "logsumexp" or keep or j != k]
        reach = 1.0 if name == "softmax" else 12.0 if name.endswith("norm") else 2 * x.reach + 6
        if not self._fits(reach, x.dtype):
            return None
        return self._add(f"{name}({x.name}, axis={k - x.rank}{', keepdims=True' * keep})", x.dtype, axes, False, reach)

    def _scan(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0 and v.reach <= 1e4 or v.rank > 0 and v.kind != "f")
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        name = self.choose(("cumulative_sum", "cumulative_sum", "cumulative_prod"))
        if name == "cumulative_prod" and (x.kind == "f" and x.reach > 1):
            name = "cumulative_sum"
        dtype = x.dtype if x.kind == "f" or x.dtype == "u64" else "i64"
        reach = x.reach * max(1, x.axes[k].size)
        if not self._fits(reach, dtype):
            return None
        return self._add(f"{name}({x.name}, axis={k})", dtype, x.axes, x.kind != "f", reach)

    # ---- products --------------------------------------------------------------------

    def _matmul(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        y, right = self._factor(x)
        text = f"{x.name} @ {y.name}{right}"
        axes = y.axes if not right else (*y.axes[:-2], y.axes[-1], y.axes[-2])
        shape = _product(x.axes, axes)
        dtype = promote(DTYPES[x.dtype], DTYPES[y.dtype]).name
        reach = x.reach * y.reach * max(1, x.axes[-1].size)
        if shape is None or not self._fits(reach, dtype):
            return None
        return self._add(text, dtype, shape, not DTYPES[dtype].is_float, reach)

    def _factor(self, x: Value) -> tuple[Value, str]:
        """A right operand for x @ …, and ".mT" if it is transposed."""
        straight = self._pick(lambda v: _product(x.axes, v.axes) is not None)
        turned = self._pick(lambda v: v.rank > 1 and _product(x.axes, (*v.axes[:-2], v.axes[-1], v.axes[-2])) is not None)
        ways: list[tuple[Value, str] | None] = [None]
        ways += [(straight, "")] if straight else []
        ways += [(turned, ".mT")] if turned else []
        way = self.choose(ways)
        if way is not None:
            return way
        axes: tuple[Axis, ...] = (x.axes[-1], self._axis(130)) if self.choose((True, True, False)) else (x.axes[-1],)
        if x.rank > 2 and len(axes) == 2 and self._chance(3):
            axes = (*x.axes[:-2], *axes)
        return self._array(x.dtype if not self._chance(5) else self.choose((*FLOATS, "i32")), axes), ""

    # ---- views -----------------------------------------------------------------------

    def _transpose(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 1)
        if x is None:
            return None
        order = self.choose([tuple(reversed(range(x.rank))), (*range(x.rank - 2), x.rank - 1, x.rank - 2), (*range(1, x.rank), 0)])
        form = self.choose(("permute_dims({}, {})", "{}.T" if order == tuple(reversed(range(x.rank))) else "permute_dims({}, {})"))
        return self._add(form.format(x.name, order), x.dtype, [x.axes[k] for k in order], x.exact, x.reach)

    def _slice(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        items: list[str] = []
        axes: list[Axis] = []
        for a in x.axes:
            form = self.choose((":", "1:", ":-1", "::-1", "::2", "1:3", "-2:", "5:1:-2", "::-3", "0", "-1", "None", ":2"))
            if form in ("0", "-1"):
                form = form if a.size else ":"
            if form == "None":
                items += ["None", ":"]
                axes += [Axis("1", 1), a]
                continue
            items.append(form)
            if ":" in form:
                axes.append(_sliced(form, a))
        if self._chance(4) and items[-1] == ":":
            items[-1] = "..."
        return self._add(f"{x.name}[{', '.join(items)}]", x.dtype, axes, x.exact, x.reach)

    def _reshape(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        forms: list[tuple[str, list[Axis]]] = [(f"reshape({x.name}, -1)", [Axis("", math.prod(a.size for a in x.axes))])]
        for k in range(x.rank - 1):
            a, b = x.axes[k], x.axes[k + 1]
            rest = [self._size(x, j) for j in range(x.rank)]
            merged = [*x.axes[:k], Axis(str(a.size * b.size) if a.known and b.known else "", a.size * b.size), *x.axes[k + 2 :]]
            shape = ", ".join([*rest[:k], f"{rest[k]} * ({rest[k + 1]})" if not a.text.count("+") else f"({rest[k]}) * ({rest[k + 1]})", *rest[k + 2 :]])
            forms.append((f"reshape({x.name}, ({shape},))", merged))
        for k, a in enumerate(x.axes):
            for q in (2, 3, 11):
                if a.size and a.size % q == 0:
                    rest = [self._size(x, j) for j in range(x.rank)]
                    outer = str(a.size // q) if a.known else f"({rest[k]}) // {q}"
                    split = [Axis(outer if a.known else "", a.size // q), Axis(str(q), q)]
                    shape = ", ".join([*rest[:k], outer, str(q), *rest[k + 1 :]])
                    forms.append((f"{x.name}.reshape({shape})", [*x.axes[:k], *split, *x.axes[k + 1 :]]))
        text, axes = self.choose(forms)
        return self._add(text, x.dtype, axes, x.exact, x.reach)

    def _move(self) -> Value | None:
        """flip, roll, expand_dims, tril and triu."""
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        forms = [f"flip({x.name}, axis={k})", f"roll({x.name}, {self.choose((1, -2, 5, 40))}, axis={k})", f"flip({x.name})", "expand"]
        forms += [f"roll({x.name}, 3)"]
        forms += [f"tril({x.name})", f"triu({x.name}, {self.choose((1, 0, -2))})"] if x.rank > 1 else []
        form = self.choose(forms)
        axes = x.axes
        if form == "expand":
            form, axes = f"expand_dims({x.name}, axis={k})", (*x.axes[:k], Axis("1", 1), *x.axes[k:])
        return self._add(form, x.dtype, axes, x.exact, x.reach)

    def _broadcast(self) -> Value | None:
        x = self._pick(lambda v: v.rank < 4)
        if x is None:
            return None
        lead = self._known_axis()
        axes = [lead, *(self._known_axis() if a.text == "1" and self._chance(2) else a for a in x.axes)]
        shape = ", ".join([a.text or self._size(x, k - 1) for k, a in enumerate(axes)])
        return self._add(f"broadcast_to({x.name}, ({shape},))", x.dtype, axes, x.exact, x.reach)

    def _known_axis(self) -> Axis:
        """An axis that the body of the program can write: a dimension or an integer."""
        named = [Axis(n, s) for n, s in self.sizes.items() if s <= 33]
        return self.choose([Axis("2", 2), *named, Axis("3", 3), Axis("1", 1), Axis("17", 17), *named])

    def _pad(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        widths = [(self.choose((0, 1, 3)), self.choose((1, 0, 5))) for _ in x.axes]
        axes = [Axis(str(a.size + b + c) if a.known else a.text if not b + c else "", a.size + b + c) for a, (b, c) in zip(x.axes, widths)]
        fill = self.choose(("", ", constant_values=1")) if x.kind != "b" else ""
        text = f"pad({x.name}, ({', '.join(map(str, widths))},){fill})"
        return self._add(text, x.dtype, axes, x.exact, x.reach + 1)

    def _concat(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        others = [v for v in self.values if v.rank == x.rank and all(_same(a, b) for j, (a, b) in enumerate(zip(v.axes, x.axes)) if j != k)]
        parts = [x, *(self.choose(others) for _ in range(self.choose((1, 1, 2))))]
        dtype = DTYPES[x.dtype]
        for p in parts:
            dtype = promote(dtype, DTYPES[p.dtype])
        total = sum(p.axes[k].size for p in parts)
        joined = Axis(str(total) if all(p.axes[k].known for p in parts) else "", total)
        listed = ", ".join(p.name for p in parts)
        reach, exact = max(p.reach for p in parts), all(p.exact for p in parts)
        if not self._fits(reach, dtype.name):
            return None
        if all(_same(p.axes[k], x.axes[k]) for p in parts) and self._chance(3):
            axes = (*x.axes[:k], Axis(str(len(parts)), len(parts)), *x.axes[k:])
            return self._add(f"stack(({listed}), axis={k})", dtype.name, axes, exact, reach)
        return self._add(f"concat([{listed}], axis={k})", dtype.name, (*x.axes[:k], joined, *x.axes[k + 1 :]), exact, reach)

    # ---- gathers and what comes from nowhere -----------------------------------------

    def _indices(self, axes: tuple[Axis, ...], extent: int) -> Value:
        """A parameter with indices, some counted from the end; now and then some out of range."""
        dtype = self.choose(("i64", "i32", "u8"))
        wild = 2 if self._chance(5) else 0
        return self._array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def _gather(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose(range(x.rank))
        i = self._indices(self._axes(self.choose((1, 2, 0))), x.axes[k].size)
        axes = (*x.axes[:k], *i.axes, *x.axes[k + 1 :])
        item = i.name if not self._chance(4) or i.dtype == "u8" else f"abs({i.name})"
        forms = [f"{x.name}[{', '.join([*[':'] * k, item])}]", f"take({x.name}, {item}, axis={k})"]
        return self._add(self.choose(forms), x.dtype, axes, x.exact, x.reach)

    def _along(self) -> Value | None:
        x = self._pick(lambda v: v.rank > 0)
        if x is None:
            return None
        k = self.choose([j for j in reversed(range(x.rank))])
        i = self._indices((*x.axes[:k], self._axis(33), *x.axes[k + 1 :]), x.axes[k].size)
        return self._add(f"take_along_axis({x.name}, {i.name}, axis={k - x.rank})", x.dtype, i.axes, x.exact, x.reach)

    def _one_hot(self) -> Value | None:
        x = self._pick(lambda v: v.kind in "iu" and v.rank < 3)
        if x is None:
            return None
        classes = self._known_axis()
        return self._add(f"one_hot({x.name}, {classes.text})", "f32", (*x.axes, classes), True, 1)

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
        return self._add(text, dtype, axes, True, 130)

    # ---- the whole text --------------------------------------------------------------

    def _finished(self) -> RandomProgram:
        made = [v for v in self.values if v.name.startswith("v")]
        if not made:
            made = self.values[:1]
        read = {w for s in self.statements for w in _words(s.text)}
        ends = [v for v in made if v.name not in read]  # nothing else keeps these alive
        more = [self.choose([*ends[::-1], *made]).name for _ in range(self.choose((0, 0, 1, 2)))]
        outputs = list(dict.fromkeys([made[-1].name, *more]))
        kept = self._needed(outputs)
        used = {w for s in kept for w in _words(s.text)} | set(outputs)
        lines = self._inlined(kept, outputs)
        needed = {w for w in used if w in self.sizes}
        parameters = [p for p in self.parameters if p.name in used]
        for p in self.parameters:  # dimensions that the body names must be in some type
            if needed - {w for q in parameters for w in _words(q.type)} & set(_words(p.type)) and p not in parameters:
                if set(_words(p.type)) & (needed - {w for q in parameters for w in _words(q.type)}):
                    parameters.append(p)
        parameters = [p for p in parameters if p.type != "float"] + [p for p in parameters if p.type == "float"]
        listed = ", ".join(f"{p.name}: {p.type}" for p in parameters)
        body = "".join(f"    {line}\n" for line in [*lines, f"return {', '.join(outputs)}"])
        used_sizes = {n: s for n, s in self.sizes.items() if any(n in _words(p.type) for p in parameters)}
        return RandomProgram(f"def program({listed}):\n{body}", tuple(parameters), used_sizes)

    def _needed(self, outputs: Sequence[str]) -> list[_Statement]:
        used, kept = set(outputs), list[_Statement]()
        for statement in reversed(self.statements):
            if statement.name in used:
                kept.append(statement)
                used |= set(_words(statement.text))
        return kept[::-1]

    def _inlined(self, kept: list[_Statement], outputs: Sequence[str]) -> list[str]:
        """The statements; some that are used once move into the expression that uses them."""
        lines = {s.name: s.text for s in kept}
        for statement in kept:
            readers = [n for n, text in lines.items() if statement.name in _words(text)]
            once = len(readers) == 1 and _words(lines[readers[0]]).count(statement.name) == 1
            if once and statement.name not in outputs and self._chance(3):
                text = f"({lines.pop(statement.name)})"
                lines[readers[0]] = re.sub(rf"\b{statement.name}\b", lambda _, text=text: text, lines[readers[0]])
        return [f"{name} = {text}" for name, text in lines.items()]


KINDS = (
    "unary", "binary", "number", "reduce", "matmul", "slice", "transpose", "binary", "normalise", "cast", "where", "compare",
    "reshape", "move", "broadcast", "pad", "concat", "gather", "along", "scan", "jump", "integer", "one_hot", "make",
    "unary", "reduce",
)  # fmt: skip


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)


def _spell(template: str, name: str) -> str:
    return template.format(*[name] * 3)


def _same(a: Axis, b: Axis) -> bool:
    """Equal without broadcasting."""
    return a.size == b.size


def _joined(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x and y broadcast together; None if they do not go together for all that is known."""
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    lead = len(longer) - len(shorter)
    axes = list(longer[:lead])
    for a, b in zip(longer[lead:], shorter):
        if "1" in (a.text, b.text):
            axes.append(b if a.text == "1" else a)
        elif a.size == b.size:
            axes.append(a if a.known or not b.known else b)
        else:
            return None
    return tuple(axes)


def _product(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x @ y, or None."""
    if not x or not y or x[-1].size != y[-2 if len(y) > 1 else 0].size:
        return None
    batch = _joined(x[:-2], y[:-2])
    if batch is None:
        return None
    return (*batch, *([x[-2]] if len(x) > 1 else []), *([y[-1]] if len(y) > 1 else []))


def _sliced(form: str, a: Axis) -> Axis:
    parts = [int(p) if p else None for p in form.split(":")]
    size = len(range(a.size)[slice(*parts)])
    if form in (":", "::-1"):
        return a
    return Axis(str(size) if a.known else "", size)
