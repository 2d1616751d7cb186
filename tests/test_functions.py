"""Every function with structure, on every dtype, with difficult shapes, layouts and values, at every stage.

These are reductions, scans, products, views, creation of arrays, indexing and the library. See
tests/test_operators.py for how the tests work and for the elementwise operators.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracle import between, cast, elementwise, exact
from oracle_arrays import along_axis, library, matmul, reduction, running, subscript
from stages import check, refuses
from strategies import Case, annotation, array, cases, dtypes, laid_out, operand
from test_operators import Rows, by_dtype, rows, types

from minitri.base.operators import REDUCTIONS as TABLE, SCANS
from minitri.base.types import DTYPES, DType, bool_, f32
from minitri.language import signatures
from minitri.language.ast_dump import format_module
from minitri.language.parser import parse_module, parse_module_at
from minitri.language.signatures import SIGNATURES, library_function, library_spans

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the oracles may warn, stages must not
EVERY = dtypes("fiub")
EMPTY = "MT0209"  # the maximum of an empty axis: an error when compiled or at the call


# ---- reductions and scans ------------------------------------------------------------------

POSITIONS = ("argmax", "argmin")
REDUCTIONS = ("sum", "prod", "mean", "max", "min", "any", "all", "var", "std", *POSITIONS)


def pick(items: list[Any], case: Case) -> Any:
    return items[case.choice % len(items)]


def some_axes(case: Case, one: bool) -> Any:
    """None, an axis counted from either end, or several axes."""
    rank = len(case.shape)
    singles: list[Any] = [None, *range(rank), *range(-rank, 0)]
    several = [] if one else [(), *itertools.combinations(range(rank), 2), tuple(range(rank)), tuple(range(-rank, 0))]
    return pick([*singles, *several], case)


def reduced_values(name: str, case: Case, d: DType) -> Any:
    """`var` squares in f32, so 64-bit integers are small."""
    domain = (0.9, 1.1) if name == "prod" else (-9.0, 9.0)
    if name in ("var", "std") and d.bits == 64 and d.is_integer:
        case = replace(case, kind="plain")
    return operand(case, 0, d, domain, sums=name in ("sum", "prod", "mean", "var", "std"))


@pytest.mark.parametrize("names, d, on", rows((n, d) for n in REDUCTIONS for d in EVERY))
@given(data=st.data())
def test_reductions(names: Rows, d: DType, on: str, data: Any) -> None:
    """`max`, `min`, `argmax` and `argmin` of empty axes are refused."""
    case = data.draw(cases(on, broadcast=False, choices=8))
    axis = some_axes(case, any(n in POSITIONS for n in names))
    keepdims, correction = case.seed % 2 == 0, (0, 1, 2, 1.0, 0.5, -1.5, 3, 40)[case.seed % 8]
    x = reduced_values("prod" if "prod" in names else names[0], case, d)
    x = reduced_values("var", case, d) if len(names) > 1 else x
    declared = types(case, [x], [d])
    whole = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    texts, wants = [], []
    for name in names:
        rest = f", correction={correction}" if name in ("var", "std") else ""
        text = f"{name}(x, axis={axis}, keepdims={keepdims}{rest})"
        if name in ("max", "min", *POSITIONS) and any(x.shape[k] == 0 for k in whole):
            refuses(text, declared, [x], EMPTY, on)
        else:
            texts.append(text)
            wants.append(reduction(name, x, axis, keepdims, correction if rest else 0))
    if texts:
        check(", ".join(texts), declared, [x], wants, case, on)


@pytest.mark.parametrize("names, d, on", rows((n, d) for n in ("sum", "prod") for d in EVERY))
@given(data=st.data())
def test_sums_in_another_dtype(names: Rows, d: DType, on: str, data: Any) -> None:
    """The sum is computed in `dtype`: elements are converted first."""
    case = data.draw(cases(on, broadcast=False, choices=8))
    target = pick([t for t in EVERY if t != bool_], case)
    axis = some_axes(Case(case.shape, choice=case.seed % 97), False)
    x = operand(case, 0, d, (0.9, 1.1) if "prod" in names else (-9.0, 9.0), sums=True)
    if "prod" in names and target.is_float and not d.is_float:  # the product of many integers would be infinite
        x = laid_out(x % 2 if d.is_integer else np.array(x), case.operands[0].layout)
    texts = [f"{n}(x, axis={axis}, dtype={target})" for n in names]
    check(
        ", ".join(texts), types(case, [x], [d]), [x], [reduction(n, x, axis, False, 0, target) for n in names], case, on
    )


@pytest.mark.parametrize("names, d, on", rows((n, d) for n in ("cumulative_sum", "cumulative_prod") for d in EVERY))
@given(data=st.data())
def test_scans(names: Rows, d: DType, on: str, data: Any) -> None:
    case = data.draw(cases(on, least=1, broadcast=False, choices=8))
    axis = some_axes(case, True) if len(case.shape) > 1 else pick([None, 0, -1], case)
    axis = 0 if axis is None and len(case.shape) > 1 else axis
    x = operand(case, 0, d, (0.9, 1.1) if "cumulative_prod" in names else (-9.0, 9.0), sums=True)
    initial = case.seed % 2 == 0
    texts = [f"{n}(x, axis={axis}{', include_initial=True' * initial})" for n in names]
    check(", ".join(texts), types(case, [x], [d]), [x], [running(n, x, axis, initial) for n in names], case, on)


# ---- products ------------------------------------------------------------------------------

FORMS = (
    "mk kn",
    "mk kn",
    "k k",
    "k kn",
    "mk k",
    "bmk kn",
    "mk bkn",
    "bmk bkn",
    "1mk bkn",
    "b1mk ckn",
    "k bkn",
    "bmk k",
)
EXTENTS = st.fixed_dictionaries({
    "m": st.sampled_from([0, 1, 2, 3, 16, 17]), "k": st.sampled_from([0, 1, 2, 5, 16, 17, 33]),
    "n": st.sampled_from([0, 1, 2, 5, 15, 16, 31]), "b": st.sampled_from([0, 1, 2, 3]), "c": st.sampled_from([1, 2]),
})  # fmt: skip
GPU_EXTENTS = st.sampled_from([
    {"m": 17, "k": 33, "n": 15, "b": 2, "c": 3}, {"m": 3, "k": 1, "n": 1, "b": 1, "c": 2}, {"m": 16, "k": 0, "n": 2, "b": 2, "c": 1},
])  # fmt: skip


def product(a: DType, b: DType, on: str, data: Any) -> None:
    case = data.draw(cases(on, least=1, broadcast=False))
    form = pick(list(FORMS[1:]) if on == "cpu" else ["mk kn", "bmk kn", "b1mk ckn", "k bkn"], case)
    sizes = data.draw(EXTENTS if on == "cpu" else GPU_EXTENTS)
    shapes = [tuple(1 if c == "1" else sizes[c] for c in part) for part in form.split()]
    operands = [array(case, j, d, s, sums=True) for j, (d, s) in enumerate(zip((a, b), shapes))]
    declared: dict[str, str] = {}
    for letter, d, part in zip("xy", (a, b), form.split()):
        extents = [c.upper() if case.symbolic and c != "1" else "1" if c == "1" else str(sizes[c]) for c in part]
        declared[letter] = f"{d}[{', '.join(extents)}]"
    if 1 in (sizes["b"], sizes["c"]) and case.symbolic:  # a symbolic size that is 1 only at the call does not broadcast
        declared = {v: t.replace("B", str(sizes["b"])).replace("C", str(sizes["c"])) for v, t in declared.items()}
    check("x @ y" if case.seed % 2 else "matmul(x, y)", declared, operands, [matmul(*operands)], case, on)


@pytest.mark.parametrize("d, on", by_dtype())
@given(data=st.data())
def test_products(d: DType, on: str, data: Any) -> None:
    product(d, d, on, data)


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_products_of_two_dtypes(d: DType, on: str, data: Any) -> None:
    product(d, pick(EVERY, data.draw(cases(on))), on, data)


# ---- views ---------------------------------------------------------------------------------

Moved = tuple[str, Any]  # the call, and numpy's result


def _regrouped(rng: Any, x: Any) -> tuple[int, ...]:
    """A shape with as many elements: the prime factors in random groups, with some ones between them."""
    left, factors = x.size, list[int]()
    for p in (2, 3, 5, 7, 11, 13, 17, 31):
        while left > 1 and left % p == 0:
            factors.append(p)
            left //= p
    groups = [[left]] if left != 1 else [[]]
    for p in rng.permutation(factors).tolist() if factors else []:
        if rng.random() < 0.5 or not groups:
            groups.append([])
        groups[-1].append(p)
    out = [math.prod(g) for g in groups]
    return tuple([*out, 1] if rng.random() < 0.2 else [1, *out] if rng.random() < 0.2 else out)


def reshape(rng: Any, x: Any) -> Moved:
    shape = _regrouped(rng, x) if x.size else tuple(rng.permutation(x.shape).tolist())
    wanted = x.reshape(shape)
    if x.size and shape and rng.random() < 0.4:
        hole = int(rng.integers(len(shape)))
        shape = (*shape[:hole], -1, *shape[hole + 1 :])
    return f"reshape(x, {shape})", wanted


def expand_dims(rng: Any, x: Any) -> Moved:
    axis: Any = int(rng.integers(-x.ndim - 1, x.ndim + 1))
    axis = (0, -1) if rng.random() < 0.2 else axis
    return f"expand_dims(x, axis={axis})", np.expand_dims(x, axis)


def squeeze(rng: Any, x: Any) -> Moved:
    ones = [k for k, n in enumerate(x.shape) if n == 1]
    axis: Any = tuple(ones[:: int(rng.integers(1, 3))])
    axis = axis[0] - x.ndim if len(axis) == 1 and rng.random() < 0.5 else axis
    return f"squeeze(x, {axis})", np.squeeze(x, axis)


def permute_dims(rng: Any, x: Any) -> Moved:
    axes = tuple(rng.permutation(x.ndim).tolist())
    if rng.random() < 0.3:
        return rng.choice(["x.T", "transpose(x)", "permute_dims(x)"]), x.T
    return f"permute_dims(x, {axes})", np.transpose(x, axes)


def matrix_transpose(rng: Any, x: Any) -> Moved:
    return rng.choice(["x.mT", "matrix_transpose(x)"]), np.swapaxes(x, -1, -2)


def broadcast_to(rng: Any, x: Any) -> Moved:
    own = tuple(3 if n == 1 and rng.random() < 0.5 else n for n in x.shape)
    shape = (*[[], [2], [1], [0], [2, 1]][int(rng.integers(5))], *own)
    return f"broadcast_to(x, {shape})", np.broadcast_to(x, shape)


def _axes(rng: Any, x: Any) -> Any:
    picks: list[Any] = [None, *range(-x.ndim, x.ndim), *itertools.permutations(range(x.ndim), 2)]
    return picks[int(rng.integers(len(picks)))]


def flip(rng: Any, x: Any) -> Moved:
    axis = _axes(rng, x)
    return f"flip(x, axis={axis})", np.flip(x, axis)


def roll(rng: Any, x: Any) -> Moved:
    axis = _axes(rng, x)
    shift: Any = int(rng.integers(-40, 40))
    shift = (shift, int(rng.integers(-3, 4))) if isinstance(axis, tuple) else shift
    return f"roll(x, {shift}, axis={axis})", np.roll(x, shift, axis)


def swapaxes(rng: Any, x: Any) -> Moved:
    i, j = (int(k) for k in rng.integers(-x.ndim, x.ndim, 2))
    return f"swapaxes(x, {i}, {j})", np.swapaxes(x, i, j)


def pad(rng: Any, x: Any) -> Moved:
    widths: Any = tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (x.ndim, 2)))
    widths = [widths, 2, (1, 2), (0, 0)][int(rng.integers(4))]
    value = int(rng.integers(0, 2)) if x.dtype.kind == "b" else int(rng.integers(0, 9))
    return f"pad(x, {widths}, constant_values={value})", np.pad(
        x, widths, constant_values=np.array(value).astype(x.dtype)
    )


def _joined(rng: Any, x: Any, function: str, apply: Any, rank: int) -> Moved:
    axis = None if function == "concat" and rng.random() < 0.3 else int(rng.integers(-rank, rank))
    parts = ["x", "x * 1" if x.dtype.kind != "b" else "x & True", "flip(x)"][: int(rng.integers(1, 4))]
    arrays = [x, x, np.flip(x)][: len(parts)]
    return f"{function}(({', '.join(parts)},), axis={axis})", apply(arrays, axis=axis)


def concat(rng: Any, x: Any) -> Moved:
    return _joined(rng, x, "concat", np.concatenate, x.ndim)


def stack(rng: Any, x: Any) -> Moved:
    return _joined(rng, x, "stack", np.stack, x.ndim + 1)


def _triangle(rng: Any, x: Any, function: str) -> Moved:
    k = int(rng.integers(-6, 7))
    return f"{function}(x, k={k})", getattr(np, function)(x, k).astype(x.dtype)


def tril(rng: Any, x: Any) -> Moved:
    return _triangle(rng, x, "tril")


def triu(rng: Any, x: Any) -> Moved:
    return _triangle(rng, x, "triu")


def zeros_like(rng: Any, x: Any) -> Moved:
    return "zeros_like(x)", np.zeros_like(x)


def ones_like(rng: Any, x: Any) -> Moved:
    return "ones_like(x, dtype=f16)", np.ones(x.shape, np.float16)


def full_like(rng: Any, x: Any) -> Moved:
    value = int(rng.integers(0, 2))
    return f"full_like(x, {value})", np.full(x.shape, value).astype(x.dtype)


def one_hot(rng: Any, x: Any) -> Moved:
    n, to = int(rng.integers(0, 9)), pick(EVERY, Case((), choice=int(rng.integers(99))))
    return f"one_hot(x, {n}, dtype={to})", cast(x[..., None] == np.arange(n), to)


MOVES: dict[str, tuple[Callable[[Any, Any], Moved], int, str]] = {  # function, least rank, kinds of dtypes
    f.__name__: (f, least, kinds)
    for f, least, kinds in [
        (reshape, 0, "fiub"), (expand_dims, 0, "fiub"), (squeeze, 0, "fiub"), (permute_dims, 0, "fiub"),
        (matrix_transpose, 2, "fiub"), (broadcast_to, 0, "fiub"), (flip, 0, "fiub"), (roll, 0, "fiub"),
        (swapaxes, 1, "fiub"), (pad, 1, "fiub"), (concat, 1, "fiub"), (stack, 0, "fiub"), (tril, 2, "fiub"), (triu, 2, "fiub"),
        (zeros_like, 0, "fiub"), (ones_like, 0, "fiub"), (full_like, 0, "fiub"), (one_hot, 0, "iu"),
    ]
}  # fmt: skip


def alike(name: str) -> tuple[int, str]:
    """Movements with equal values can share a program. The sizes of 1 that `squeeze` removes must be literal."""
    return MOVES[name][1], name if name in LITERAL else ""


LITERAL = ("squeeze", "broadcast_to")


@pytest.mark.parametrize("names, d, on", rows(((n, d) for n, m in MOVES.items() for d in dtypes(m[2])), alike))
@given(data=st.data())
def test_movement(names: Rows, d: DType, on: str, data: Any) -> None:
    """Elements keep all their bits: NaN, signed zeros, limits. Sizes of 1 are literal, for squeeze."""
    case = data.draw(cases(on, least=max(MOVES[n][1] for n in names), broadcast=False))
    x = operand(case, 0, d)
    rng = case.rng if on == "cpu" else np.random.default_rng([case.choice, *case.shape])
    moved = [MOVES[n][0](rng, x) for n in names]
    declared = annotation(case, d, x.shape)
    if names[0] in LITERAL or on == "gpu":
        declared = f"{d}[{', '.join(map(str, x.shape))}]"
    check(
        ", ".join(text for text, _ in moved),
        {"x": declared},
        [x],
        [exact(np.asarray(v), d_of(v)) for _, v in moved],
        case,
        on,
    )


def d_of(x: Any) -> DType:
    return next(d for d in DTYPES.values() if d.numpy == x.dtype)


# ---- creation of arrays --------------------------------------------------------------------


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_making(d: DType, on: str, data: Any) -> None:
    """zeros, ones, full, eye and arange of a dtype, with literal sizes and with the sizes of an array."""
    case = data.draw(cases(on, least=1, most=2, broadcast=False))
    x = operand(case, 0, d)
    rng = np.random.default_rng(case.seed if on == "cpu" else case.choice)
    shape = tuple(rng.choice([0, 1, 3, 17], int(rng.integers(0, 3))).tolist())
    value = bool(rng.integers(2)) if d == bool_ else int(rng.integers(0, 100))
    n, m, k = (int(v) for v in rng.integers(-3, 9, 3))
    n, m = abs(n), abs(m)
    start, stop, step = int(rng.integers(-9, 9)), int(rng.integers(-9, 20)), int(rng.choice([-3, -1, 1, 2, 5]))
    made: dict[str, Any] = {
        f"zeros({shape}, dtype={d})": np.zeros(shape), f"ones({shape}, {d})": np.ones(shape),
        f"full({shape}, {value}, dtype={d})": np.full(shape, value),
        f"eye({n}, {m}, k={k}, dtype={d})": np.eye(n, m, k), f"eye({n}, dtype={d})": np.eye(n),
        f"arange({start}, {stop}, {step}, dtype={d})": np.arange(start, stop, step),
        f"arange(x.shape[0], dtype={d})": np.arange(x.shape[0]), f"full(x.shape, 1, {d})": np.ones(x.shape),
    }  # fmt: skip
    wants = [exact(cast(np.asarray(v, np.int64), d), d) for v in made.values()]
    check(", ".join(made), types(case, [x], [d]), [x], wants, case, on)


@pytest.mark.parametrize("on", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
@given(data=st.data())
def test_defaults_of_making(on: str, data: Any) -> None:
    """arange of integers is i64, of floats f32: start + step * k. zeros, ones and eye are f32."""
    case = data.draw(cases(on, least=1, most=1, broadcast=False))
    x = operand(case, 0, f32)
    rng = np.random.default_rng(case.seed if on == "cpu" else case.choice)
    start, stop, step = (
        float(rng.integers(-9, 9)) / 2,
        float(rng.integers(-9, 30)) / 4,
        float(rng.choice([0.25, 0.1, 1.5, -0.3])),
    )
    steps = np.arange(max(0, math.ceil((stop - start) / step)))
    floats = np.float32(start) + steps.astype(np.float32) * np.float32(step)
    made: dict[str, Any] = {
        "arange(7)": np.arange(7), f"arange({start}, {stop}, {step})": floats.astype(np.float32),
        "zeros((2, 3))": np.zeros((2, 3), np.float32), "ones(3)": np.ones(3, np.float32), "eye(4)": np.eye(4, dtype=np.float32),
        "full((2,), 3)": np.full(2, 3), "full((2,), 0.1)": np.full(2, 0.1, np.float32), "full(2, True)": np.full(2, True),
    }  # fmt: skip
    check(", ".join(made), types(case, [x], [f32]), [x], [exact(v, d_of(v)) for v in made.values()], case, on)


# ---- indexing ------------------------------------------------------------------------------


def _slice(rng: Any, n: int) -> slice:
    bounds = [None if rng.random() < 0.4 else int(rng.integers(-n - 3, n + 4)) for _ in range(2)]
    return slice(*bounds, pick([None, None, 1, 2, 3, -1, -1, -2, -5], Case((), choice=int(rng.integers(999)))))


def _basic(rng: Any, x: Any) -> list[Any]:
    """Slices and integers for some leading axes, then ... and items for the last axes, with None between them."""
    items: list[Any] = []
    for n in x.shape:
        items.append(int(rng.integers(-n, n)) if n and rng.random() < 0.3 else _slice(rng, n))
    if items and rng.random() < 0.4:
        at = int(rng.integers(len(items)))
        items[at : at + int(rng.integers(0, 3))] = [Ellipsis]
    elif rng.random() < 0.3:
        items = items[: int(rng.integers(len(items) + 1))]
    for _ in range(int(rng.integers(0, 3))):
        items.insert(int(rng.integers(len(items) + 1)), None)
    return items or [Ellipsis]


def written(items: list[Any]) -> str:
    """The subscript as text. Index arrays are i, j, … in order."""
    names = iter("ijkl")

    def one(item: Any) -> str:
        match item:
            case slice():
                parts = ["" if v is None else str(v) for v in (item.start, item.stop)]
                return ":".join(parts) + (f":{item.step}" if item.step is not None else "")
            case np.ndarray():
                return next(names)
        return "..." if item is Ellipsis else str(item)

    return f"x[{', '.join(map(one, items))}]"


@pytest.mark.parametrize("d, on", by_dtype())
@given(data=st.data())
def test_basic_indexing(d: DType, on: str, data: Any) -> None:
    case = data.draw(cases(on, broadcast=False, choices=8))
    x = operand(case, 0, d)
    rng = case.rng if on == "cpu" else np.random.default_rng([case.choice, *case.shape])
    items = _basic(rng, x)
    check(written(items), types(case, [x], [d]), [x], [subscript(x, items)], case, on)


def indices(rng: Any, n: int, shape: tuple[int, ...], bad: bool) -> Any:
    """Integers of any integer dtype, counted from both ends. With `bad`, some are out of range."""
    d = pick(dtypes("iu"), Case((), choice=int(rng.integers(99))))
    low, high = (-n - 3, n + 4) if bad else (-n, max(n, 1))
    index = rng.integers(max(low, d.limits[0]), min(max(high, 1), d.limits[1]), shape)
    if bad and rng.random() < 0.3:
        index = np.where(
            rng.random(shape) < 0.2, rng.choice(np.array(d.limits, object), shape), np.asarray(index, object)
        )
    return np.asarray(index).astype(d.numpy)


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_index_arrays(d: DType, on: str, data: Any) -> None:
    """Negative indices count from the end. Indices out of range read NaN, 0 or False. Several index arrays broadcast."""
    case = data.draw(cases(on, least=1, broadcast=False, choices=8))
    x = operand(case, 0, d)
    rng = case.rng if on == "cpu" else np.random.default_rng([case.choice, *case.shape])
    items = _basic(rng, x)
    spots = [k for k, i in enumerate(items) if isinstance(i, (slice, int))]
    axes = _item_axes(x.ndim, items)
    common = pick([(), (3,), (1,), (0,), (5, 2), (2, 1)], case)
    for place in rng.permutation(spots)[: int(rng.integers(1, 3))].tolist() if spots else []:
        shape = pick([common, common, common[1:], tuple(1 for _ in common)], Case((), choice=int(rng.integers(99))))
        items[place] = indices(rng, x.shape[axes[place]], shape, rng.random() < 0.7)
    arrays = [i for i in items if isinstance(i, np.ndarray)]
    declared = types(case, [x], [d]) | {n: f"{d_of(a)}[{', '.join(map(str, a.shape))}]" for n, a in zip("ijkl", arrays)}
    check(written(items), declared, [x, *arrays], [subscript(x, items)], case, on)


def _item_axes(rank: int, items: list[Any]) -> list[int]:
    used = sum(i is not None and i is not Ellipsis for i in items)
    starts = itertools.accumulate([0, *(rank - used if i is Ellipsis else int(i is not None) for i in items)])
    return list(starts)[:-1]


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_take(d: DType, on: str, data: Any) -> None:
    """take along an axis or of all elements, and take_along_axis, whose other axes may broadcast."""
    case = data.draw(cases(on, least=1, broadcast=False))
    x = operand(case, 0, d)
    rng = case.rng if on == "cpu" else np.random.default_rng([case.choice, *case.shape])
    axis = int(rng.integers(-x.ndim, x.ndim))
    flat = rng.random() < 0.3
    shape = pick([(), (3,), (0,), (2, 2)], case)
    i = indices(rng, x.size if flat else x.shape[axis], shape, True)
    along = tuple(
        int(rng.integers(0, 4)) if k == axis % x.ndim else 1 if rng.random() < 0.3 else n for k, n in enumerate(x.shape)
    )
    j = indices(rng, x.shape[axis], along, True)
    rest = [slice(None)] * (axis % x.ndim)
    taken = subscript(np.array(x).reshape(-1), [i]) if flat else subscript(x, [*rest, i])
    text = f"take(x, i, axis={None if flat else axis}), take_along_axis(x, j, axis={axis})"
    declared = {v: f"{d_of(a)}[{', '.join(map(str, a.shape))}]" for v, a in (("x", x), ("i", i), ("j", j))}
    check(text, declared, [x, i, j], [taken, along_axis(x, j, axis)], case, on)


# ---- the library -----------------------------------------------------------------------------


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_activations(d: DType, on: str, data: Any) -> None:
    case = data.draw(cases(on, broadcast=False))
    x = operand(case, 0, d, sums=True)
    text = "relu(x), silu(x), softplus(x), gelu_erf(x), gelu_tanh(x), gelu(x), gelu(x, approximate='tanh')"
    wants = [elementwise("maximum", [x, 0])]
    wants += [library(name, d, x) for name in ("silu", "softplus", "gelu_erf", "gelu_tanh", "gelu_erf", "gelu_tanh")]
    check(text, types(case, [x], [d]), [x], wants, case, on)


@pytest.mark.parametrize("d, on", by_dtype(step=2))
@given(data=st.data())
def test_normalisations(d: DType, on: str, data: Any) -> None:
    case = data.draw(cases(on, least=1, broadcast=False))
    axis = int(case.choice % len(case.shape)) - (len(case.shape) if case.seed % 2 else 0)
    case = replace(case, kind="plain") if d.bits == 64 and d.is_integer else case  # their means would wrap
    x = operand(case, 0, d, sums=True)
    g = array(case, 1, d, (x.shape[-1],), sums=True)
    normal: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("layer_norm", (x,), {"axis": axis}), ("rms_norm", (x,), {"axis": axis, "eps": 1e-3}),
        ("layer_norm", (x, g, g), {"eps": 1e-3}), ("rms_norm", (x, g), {}),
    ]  # fmt: skip
    extreme: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("softmax", (x,), {"axis": axis}), ("log_softmax", (x,), {"axis": axis}),
        ("logsumexp", (x,), {"axis": axis}), ("logsumexp", (x,), {"axis": axis, "keepdims": True}),
    ]  # fmt: skip
    declared = types(case, [x], [d]) | {"y": f"{d}[{g.shape[0]}]"}
    if case.symbolic:
        declared["y"] = f"{d}[N1]"
    calls = normal if x.shape[axis] == 0 else normal + extreme
    texts = [f"{n}({', '.join('xyy'[: len(a)])}{''.join(f', {k}={v}' for k, v in o.items())})" for n, a, o in calls]
    check(", ".join(texts), declared, [x, g], [library(n, d, *a, **o) for n, a, o in calls], case, on)
    for text in texts[len(calls) :]:
        refuses(text, declared, [x, g], EMPTY, on)


@pytest.mark.parametrize("d, on", by_dtype("f"))
@given(data=st.data())
def test_models(d: DType, on: str, data: Any) -> None:
    """attention and cross_entropy, compared with f64; the error bound depends on the size of their terms."""
    case = data.draw(cases(on, least=1, most=1, broadcast=False))
    rng = np.random.default_rng(case.seed)
    b, t, s, k = (rng.choice([[1, 3, 5, 4], [2, 17, 9, 16], [3, 1, 1, 1], [1, 5, 33, 7]])).tolist()
    q, key, v = (array(case, 0, d, shape, (-2.0, 2.0)) for shape in ((b, t, k), (b, s, k), (b, s, k)))
    q, key, v = (
        np.where(np.isfinite(a.astype(float)) & (np.abs(a.astype(float)) < 9), a, a.dtype.type(1)) for a in (q, key, v)
    )
    wide = [a.astype(np.float64) for a in (q, key, v)]
    logits = wide[0] @ np.swapaxes(wide[1], 1, 2) * k**-0.5
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-22, "f64": 2.0**-51}[d.name]
    bound = unit * (4 + k + s + np.abs(logits).max()) * np.abs(wide[2]).max()
    y = rng.integers(0, s, (b, t))
    picked = np.take_along_axis(logits, y[..., None], -1)[..., 0]
    entropy = (np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1) - picked).mean()
    z = cast(logits, d)
    exactly = z.astype(np.float64)
    top = exactly.max(-1, keepdims=True)
    losses = np.log(np.exp(exactly - top).sum(-1)) + top[..., 0] - np.take_along_axis(exactly, y[..., None], -1)[..., 0]
    wants = [between(p @ wide[2], bound, d), between(losses.mean(), unit * (s + b * t + np.abs(exactly).max()), d)]
    assert math.isfinite(entropy)
    declared = {
        "x": f"{d}[B, T, K]",
        "y": f"{d}[B, S, K]",
        "z": f"{d}[B, S, K]",
        "l": f"{d}[B, T, S]",
        "i": "i64[B, T]",
    }
    check("attention(x, y, z), cross_entropy(l, i)", declared, [q, key, v, z, y], wants, case, on)


# ---- completeness ------------------------------------------------------------------------------


def test_every_function_is_tested() -> None:
    tested = {
        *REDUCTIONS,
        *TABLE,  # test_reduction_table.py
        *(f"cumulative_{name}" for name in SCANS),
        *MOVES,
        "matmul",
        "take",
        "take_along_axis",
    }
    tested.add("einsum")  # test_contractions.py
    tested.add("asarray")  # test_static_values.py
    tested.add("next_half")  # the part of nextafter for 16 bits: test_nextafter_of_every_half in test_array_api.py
    tested |= {"zeros", "ones", "full", "eye", "arange", "astype"}
    tested |= {
        "relu", "silu", "softplus", "gelu_erf", "gelu_tanh", "gelu", "softmax", "logsumexp", "log_softmax",
        "layer_norm", "rms_norm", "attention", "cross_entropy",
    }  # fmt: skip
    others = (Path(__file__).parent / "test_array_api.py").read_text(encoding="utf-8")
    missing = {n for n in {*SIGNATURES, *library_spans()} - tested if not re.search(rf"\b{n}\b", others)}
    assert not missing and tested <= {*SIGNATURES, *library_spans()}


def test_a_library_function_is_parsed_alone_at_its_first_use(monkeypatch):
    parsed = []
    monkeypatch.setattr(
        signatures, "parse_module_at", lambda place: parsed.append(place.text) or parse_module_at(place)
    )
    library_function.cache_clear()
    assert "softmax" in library_spans() and not parsed
    assert library_function("softmax") is library_function("softmax")
    assert len(parsed) == 1 and parsed[0].startswith("def softmax(")


def test_each_library_function_is_the_one_of_its_file():
    files = (Path(signatures.__file__).parent / "library").glob("*.mt")
    modules = [parse_module(file.read_text()) for file in files]
    whole = {function.name: (module, function) for module in modules for function in module.functions}
    assert whole.keys() == library_spans().keys()
    for name, (module, function) in whole.items():
        alone = replace(module, functions=(library_function(name),))
        assert format_module(alone) == format_module(replace(module, functions=(function,)))
