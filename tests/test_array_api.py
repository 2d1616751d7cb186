"""Functions of the array API, and some more of numpy: the results of every stage are compared with numpy.

Each generator returns the text of one call and numpy's result. The calls of one group are the outputs of
one program, because most of the time goes into running the stages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracle import UNIT, Want, between, cast, exact, summed, widest
from oracle_arrays import accumulator
from short_profile import every_second, one_in
from stages import CPU_STAGES, check, program, refuses
from strategies import array, cases, dtypes, operand
from test_functions import d_of, pick
from test_operators import types

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.base.types import DTYPES, DType, bool_, f32, finfo, i64

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the oracles may warn, stages must not

Call = tuple[str, Any]  # the text, and numpy's result: an array, or a Want


def usual(names: str, kinds: str = "fiub") -> list[Any]:
    """Dtypes of these kinds. Dtypes that are not in `names` run only in the full profile."""
    found = dtypes(kinds)
    return [d if d.name in names.split() else pytest.param(d, marks=pytest.mark.slow) for d in found]


def wide(x: Any) -> Any:
    """f16 and bf16 as f32. The numbers are the same, and numpy can sort and compare them."""
    return x.astype(np.float32) if d_of(x).is_float and d_of(x).bits == 16 else x


def axis_of(rng: Any, x: Any) -> int:
    return int(rng.integers(-x.ndim, x.ndim))


# ---- movement of data ------------------------------------------------------------------------


def moveaxis(rng: Any, x: Any) -> Call:
    source, destination = axis_of(rng, x), axis_of(rng, x)
    if x.ndim > 1 and rng.random() < 0.5:
        pairs = rng.permutation(x.ndim)[:2], rng.permutation(x.ndim)[:2]
        return _moved(x, *(tuple(p.tolist()) for p in pairs))
    return _moved(x, source, destination)


def _moved(x: Any, source: Any, destination: Any) -> Call:
    return f"moveaxis(x, {source}, {destination})", np.moveaxis(x, source, destination)


def swapaxes(rng: Any, x: Any) -> Call:
    j, k = axis_of(rng, x), axis_of(rng, x)
    return f"swapaxes(x, {j}, {k})", np.swapaxes(x, j, k)


def flatten(rng: Any, x: Any) -> Call:
    if rng.random() < 0.5:
        return rng.choice(["flatten(x)", "x.ravel()"]), x.ravel()
    first = int(rng.integers(x.ndim))
    last = int(rng.integers(first, x.ndim))
    joined = (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return f"flatten(x, {first}, {last - x.ndim})", x.reshape(joined)


def split(rng: Any, x: Any) -> Call:
    axis, part = axis_of(rng, x), int(rng.integers(3))
    cuts: Any = tuple(rng.integers(-4, 8, 2).tolist())
    if rng.random() < 0.5:
        cuts = next(n for n in (3, 2, 1) if x.shape[axis] % n == 0)
        part = part % cuts
    return f"split(x, {cuts}, axis={axis})[{part}]", np.split(x, cuts, axis)[part]


def tile(rng: Any, x: Any) -> Call:
    times: Any = tuple(rng.integers(0, 3, int(rng.integers(1, x.ndim + 2))).tolist())
    times = 2 if rng.random() < 0.2 else times
    return f"tile(x, {times})", np.tile(x, times)


def repeat(rng: Any, x: Any) -> Call:
    axis = None if rng.random() < 0.3 else axis_of(rng, x)
    times = int(rng.integers(0, 4))
    return f"repeat(x, {times}, axis={axis})", np.repeat(x, times, axis)


def roll(rng: Any, x: Any) -> Call:
    axes = tuple(rng.integers(-x.ndim, x.ndim, 3).tolist())
    return f"roll(x, (1, -2, 40), axis={axes})", np.roll(x, (1, -2, 40), axes)


# ---- several arrays --------------------------------------------------------------------------


def unstack(rng: Any, x: Any) -> Call:
    axis = axis_of(rng, x)
    if not x.shape[axis]:
        return "x", x
    k = int(rng.integers(x.shape[axis]))
    return f"unstack(x, axis={axis})[{k}]", np.moveaxis(x, axis, 0)[k]


def repeat_each(rng: Any, x: Any) -> Call:
    axis = axis_of(rng, x)
    times = tuple(rng.integers(0, 3, x.shape[axis]).tolist())
    return f"repeat(x, {times}, axis={axis})", np.repeat(x, np.array(times, int), axis)


def stacked(rng: Any, x: Any) -> Call:
    name = str(rng.choice(["hstack", "vstack", "dstack", "column_stack"]))
    if x.ndim < 2:
        return f"{name}((x, flip(x)))", getattr(np, name)((x, np.flip(x)))
    return f"{name}([x, x])", getattr(np, name)((x, x))


def row(x: Any) -> Any:
    """A vector of x. Its text is `ROW[x.ndim]`."""
    return x[(0,) * (x.ndim - 1)] if 0 not in x.shape[:-1] else x.reshape(-1)


ROW = ("", "x", "x[0]", "x[0, 0]", "x[0, 0, 0]")


def row_text(x: Any) -> str:
    return ROW[x.ndim] if 0 not in x.shape[:-1] else "flatten(x)"


def meshgrid(rng: Any, x: Any) -> Call:
    indexing, text, v = str(rng.choice(["xy", "ij"])), row_text(x), row(x)
    k = int(rng.integers(3))
    grids = np.meshgrid(v, np.arange(2), v[:1], indexing=indexing)
    return f'meshgrid({text}, arange(2), {text}[:1], indexing="{indexing}")[{k}]', grids[k]


def broadcast_arrays(rng: Any, x: Any) -> Call:
    other = x[:1]
    return "broadcast_arrays(x[:1], x)[0]", np.broadcast_arrays(other, x)[0] if len(x) != 1 else x


def asarray(rng: Any, x: Any) -> Call:
    return "asarray((x, x))", np.stack((x, x))


# ---- matrices --------------------------------------------------------------------------------


def diagonal(rng: Any, x: Any) -> Call:
    j, k = rng.permutation(x.ndim)[:2].tolist()
    offset = int(rng.integers(-5, 6))
    return f"diagonal(x, {offset}, axis1={j}, axis2={k - x.ndim})", np.diagonal(x, offset, j, k)


def diag(rng: Any, x: Any) -> Call:
    k = int(rng.integers(-3, 4))
    return f"diag({row_text(x)}, k={k})", np.diag(row(x), k)


def diag_of_a_matrix(rng: Any, x: Any) -> Call:
    k = int(rng.integers(-3, 4))
    return f"diag(flatten(x, 0, -2), {k})", np.diag(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), k)


def outer(rng: Any, x: Any) -> Call:
    return f"outer({row_text(x)}, {row_text(x)})", cast(np.multiply.outer(wide(row(x)), wide(row(x))), d_of(x))


def kron(rng: Any, x: Any) -> Call:
    y = row(x)[:2]
    return f"kron(x, {row_text(x)}[:2])", cast(np.kron(wide(x), wide(y)), d_of(x))


# ---- order -----------------------------------------------------------------------------------


def _order(x: Any, axis: int, descending: bool) -> Any:
    """The order of numpy's stable sort: NaN is the largest, and equal elements keep their order."""
    if not descending:
        return np.argsort(wide(x), axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(wide(x), axis), axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


def argsort(rng: Any, x: Any) -> Call:
    axis, descending = axis_of(rng, x), bool(rng.integers(2))
    return f"argsort(x, axis={axis}, descending={descending})", _order(x, axis, descending)


def sort(rng: Any, x: Any) -> Call:
    axis, descending = axis_of(rng, x), bool(rng.integers(2))
    text = f"sort(x, axis={axis}, descending=True)" if descending else f"sort(x, {axis})"
    return text, np.take_along_axis(x, _order(x, axis, descending), axis)


def running_extremes(rng: Any, x: Any) -> Call:
    axis, least = axis_of(rng, x), bool(rng.integers(2))
    function = np.minimum if least else np.maximum
    return f"cumulative_{'min' if least else 'max'}(x, {axis})", exact(
        function.accumulate(wide(x), axis), d_of(x), zeros=False
    )


def count_nonzero(rng: Any, x: Any) -> Call:
    axis = axis_of(rng, x)
    return f"count_nonzero(x, axis={axis}, keepdims=True)", np.sum(x != 0, axis, keepdims=True)


def isin(rng: Any, x: Any) -> Call:
    invert, few = bool(rng.integers(2)), row(x)[:3]
    found = (wide(x)[..., None] == wide(few)).any(-1)
    return f"isin(x, {row_text(x)}[:3], invert={invert})", found != invert


def diff(rng: Any, x: Any) -> Call:
    axis, n = axis_of(rng, x), int(rng.integers(0, 3))
    if rng.random() < 0.3:
        return f"diff(x, axis={axis}, append=x, prepend=0)", _difference(x, axis, 1, prepend=0, append=wide(x))
    return f"diff(x, {axis}, {n})", _difference(x, axis, n)


def _difference(x: Any, axis: int, n: int, **ends: Any) -> Any:
    w = wide(x)
    if ends and w.dtype == bool:
        w, ends = w.astype(np.int64), {k: np.asarray(v).astype(np.int64) for k, v in ends.items()}
        return np.diff(w, n, axis, **ends)
    ends = {k: np.asarray(v).astype(w.dtype) for k, v in ends.items()}
    return cast(np.diff(w, n, axis, **ends), d_of(x))


GROUPS: dict[str, tuple[list[Callable[[Any, Any], Call]], int, bool]] = {  # functions, least rank, literal sizes
    "axes": ([moveaxis, swapaxes, flatten, tile, repeat, roll], 1, False),
    "parts": ([split, unstack, repeat_each, stacked], 1, True),
    "several": ([meshgrid, broadcast_arrays, asarray], 1, True),
    "matrices": ([diagonal, diag, diag_of_a_matrix, outer, kron], 2, False),
    "order": ([argsort, sort, count_nonzero, isin, diff, running_extremes], 1, False),
}


@pytest.mark.parametrize("group, d", one_in(5, list(GROUPS), dtypes("fiub")), ids=str)
@given(data=st.data())
def test_groups(group: str, d: DType, data: Any) -> None:
    """Elements keep all their bits: NaN, signed zeros, limits."""
    functions, least, literal = GROUPS[group]
    case = data.draw(cases("cpu", least=least, most=3, broadcast=False))
    case = replace(case, symbolic=case.symbolic and not literal)
    x = operand(case, 0, d)
    calls = [f(case.rng, x) for f in functions]
    wants = [v if isinstance(v, Want) else exact(np.asarray(v), d_of(np.asarray(v))) for _, v in calls]
    check(", ".join(text for text, _ in calls), types(case, [x], [d]), [x], wants, case, "cpu")


@pytest.mark.parametrize("d", usual("f32 i8", "fiu"), ids=str)
@given(data=st.data())
def test_searchsorted(d: DType, data: Any) -> None:
    """Each program has one call on few elements: a search is a long chain of small steps."""
    case = data.draw(cases("cpu", most=1, broadcast=False))
    x, rng = operand(case, 0, d), case.rng
    x = x[:9] if x.ndim else x
    v = np.sort(wide(array(case, 1, d, (int(rng.choice([0, 1, 2, 7, 8, 9, 33])),)))).astype(d.numpy)
    side, order = ("left", "right")[case.choice % 2], rng.permutation(len(v))
    size = "V" if case.symbolic else len(v)
    declared = {"x": f"{d}[{', '.join(map(str, x.shape))}]", "v": f"{d}[{size}]"}
    want = exact(np.asarray(np.searchsorted(wide(v), wide(x), side=side)), i64)
    if case.seed % 2:
        check(f"searchsorted(v, x, side='{side}')", declared, [x, v], [want], case, "cpu")
    else:
        text = f"searchsorted(v, x, side='{side}', sorter=i)"
        check(text, declared | {"i": f"i64[{size}]"}, [x, v[order], np.argsort(order)], [want], case, "cpu")


def test_searchsorted_of_an_array_that_is_not_sorted_is_the_same_at_every_stage() -> None:
    v, x = np.array([3, 1, 2, 9, 0], np.float32), np.arange(10, dtype=np.float32)
    f = mt.compile("searchsorted(v, x)", v="f32[V]", x="f32[N]")
    assert len({f.run(stage, v, x).tobytes() for stage in CPU_STAGES}) == 1


# ---- products --------------------------------------------------------------------------------


def product(d: DType, x: Any, y: Any, apply: Callable[[Any, Any], Any], terms: int) -> Want:
    """A sum of `terms` products of elements of x and y."""
    if not d.is_float:
        return exact(np.asarray(apply(x, y)), d)
    a, b = x.astype(widest(d)), y.astype(widest(d))
    return summed(np.asarray(apply(a, b)), np.asarray(apply(np.abs(a), np.abs(b))), terms + 1, d)


def _crossed(x: Any, y: Any) -> Any:
    """The sum of the absolute products of a cross product, for its error bound."""
    j, k = [1, 2, 0], [2, 0, 1]
    return np.abs(x[..., j] * y[..., k]) + np.abs(x[..., k] * y[..., j])


@pytest.mark.parametrize("d", usual("f32 i8 bool"), ids=str)
@given(data=st.data())
def test_products(d: DType, data: Any) -> None:
    case = data.draw(cases("cpu", least=1, most=1, broadcast=False))
    m, k, n, b = case.rng.choice([[3, 5, 2, 1], [1, 1, 1, 2], [2, 0, 3, 2], [0, 4, 1, 1], [4, 17, 3, 2]]).tolist()
    shapes = {"x": (b, m, k), "y": (k, n), "u": (m, k), "v": (k,), "w": (b, m, 3)}
    given = {
        name: array(case, j, d, shape, sums=True)
        for j, (name, shape) in enumerate(zip(shapes, shapes.values()), 0)
        if j < 3
    }
    given |= {"v": array(case, 0, d, shapes["v"], sums=True), "w": array(case, 1, d, shapes["w"], sums=True)}
    x, y, u, v, w = given.values()
    rows: dict[str, Want] = {
        "tensordot(x, y, 1)": product(d, x, y, lambda a, b: np.tensordot(a, b, 1), k),
        "tensordot(x, u, axes=((2, -2), (1, 0)))": product(d, x, u, lambda a, b: np.tensordot(a, b, ((2, 1), (1, 0))), m * k),
        "tensordot(u, y, 0)": product(d, u, y, lambda a, b: np.tensordot(a, b, 0), 1),
        "dot(x, y)": product(d, x, y, np.dot, k), "dot(v, v)": product(d, v, v, np.dot, k),
        "inner(x, u)": product(d, x, u, np.inner, k), "inner(v, v)": product(d, v, v, np.inner, k),
        "vecdot(x, u)": product(d, x, u, lambda a, b: _vecdot(a, b, -1), k),
        "vecdot(u, u, axis=-2)": product(d, u, u, lambda a, b: _vecdot(a, b, 0), m),
    }  # fmt: skip
    if d != bool_:
        crossed = np.cross(wide(w), wide(w[..., ::-1]))
        rows["cross(w, w[..., ::-1])"] = (
            summed(np.cross(*(a.astype(widest(d)) for a in (w, w[..., ::-1]))), _crossed(*(a.astype(widest(d)) for a in (w, w[..., ::-1]))), 4, d)
            if d.is_float else exact(crossed, d)
        )  # fmt: skip
    names = {"x": "B, M, K", "y": "K, N", "u": "M, K", "v": "K", "w": "B, M, 3"}
    declared = {g: f"{d}[{names[g] if case.symbolic else ', '.join(map(str, shapes[g]))}]" for g in given}
    declared = {g: t for g, t in declared.items() if g != "w" or d != bool_}
    check(", ".join(rows), declared, [given[g] for g in declared], [*rows.values()], case, "cpu")


def _vecdot(a: Any, b: Any, axis: int) -> Any:
    return (a & b).any(axis) if a.dtype == bool else (a * b).sum(axis, dtype=a.dtype)


@pytest.mark.parametrize(
    "text", ["trace(x @ y)", "trace(tanh(x @ y), 1)", "sum(diagonal(exp(x @ y), -1))", "trace(softmax(x @ x.mT) @ y)"]
)
def test_the_diagonal_of_a_product_is_summed(text: str) -> None:
    """The rows and the columns of the product become one axis. No other program loops over such an axis."""
    x, y = np.random.default_rng(2).normal(size=(2, 5, 5)).astype(np.float32)
    for declared in ({"x": "f32[N, N]", "y": "f32[N, N]"}, {"x": "f32[5, 5]", "y": "f32[5, 5]"}):
        report = mt.compile(text, **declared).check(x, y)
        assert report.ok, str(report)


def test_products_of_numbers_and_scalars() -> None:
    x = np.arange(3, dtype=np.float32)
    for text in ("dot(x, 2)", "dot(2, x)", "inner(x, 2.0)", "outer(x, 2)[:, 0]"):
        assert np.array_equal(mt.evaluate(text, x=x), 2 * x), text
    assert mt.evaluate("cross(x, x, axis=0)", x=x).tolist() == [0, 0, 0]


@pytest.mark.parametrize("d", every_second(dtypes("iu")), ids=str)
def test_powers_of_matrices_of_integers(d: DType) -> None:
    x = np.random.default_rng(1).integers(0, 5, (2, 3, 3)).astype(d.numpy)
    f = mt.compile(", ".join(f"matrix_power(x, {n})" for n in (0, 1, 2, 3, 10)), x=f"{d}[B, N, N]")
    for stage in CPU_STAGES:
        for n, got in zip((0, 1, 2, 3, 10), f.run(stage, x)):
            want = np.broadcast_to(np.eye(3, dtype=d.numpy), x.shape)
            for _ in range(n):
                want = np.matmul(want, x)
            assert got.dtype == d.numpy and np.array_equal(got, want), (stage, n)


@pytest.mark.parametrize("d", dtypes("f"), ids=str)
def test_powers_of_matrices_of_floats(d: DType) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (4, 4)).astype(d.numpy)
    f = mt.compile("matrix_power(x, 5)", x=f"{d}[4, 4]")
    w = x.astype(widest(d))
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}.get(d.name, 4 * UNIT[d.compute.name])
    want = between(np.linalg.matrix_power(w, 5), 20 * unit * np.linalg.matrix_power(np.abs(w), 5), d)
    for stage in CPU_STAGES:
        want.check(f.run(stage, x), stage)


NORMS = ("2", "1", "0", "inf", "-inf", "3", "0.5", "-1")


@pytest.mark.parametrize("d", usual("f32 bf16 i8 u64 bool"), ids=str)
@given(data=st.data())
def test_norms_and_traces(d: DType, data: Any) -> None:
    case = data.draw(cases("cpu", least=2, most=3, broadcast=False))
    x = array(case, 0, d, case.shape, (-4.0, 4.0))
    small = case.kind in ("wild", "special") or d.bits == 64 and not d.is_float
    x = np.where(np.isfinite(wide(x)) & (np.abs(wide(x).astype(float)) < 100), x, x.dtype.type(1)) if small else x
    out = d if d.is_float else f32
    w, unit = x.astype(widest(out)), {"f16": 2.0**-11, "bf16": 2.0**-8}.get(d.name, UNIT[out.compute.name])
    axis, order, keep = axis_of(case.rng, x), pick([*NORMS], case), bool(case.seed % 2)
    rows: dict[str, Want] = {}
    if x.shape[axis] or not order.endswith("inf"):
        value = np.linalg.vector_norm(w, axis=axis, keepdims=keep, ord=float(order))
        rows[f"vector_norm(x, axis={axis}, keepdims={keep}, ord={order})"] = between(
            value, (40 + 4 * x.shape[axis]) * unit * np.abs(value) + 1e-30, out
        )
    name = str(case.rng.choice(["'fro'", "1", "-1", "inf", "-inf"]))
    if name == "'fro'" or 0 not in x.shape[-2:]:
        value = np.linalg.matrix_norm(w, keepdims=keep, ord="fro" if name == "'fro'" else float(name))
        bound = (40 + 4 * x.shape[-1] * x.shape[-2]) * unit * np.abs(value) + 1e-30
        rows[f"matrix_norm(x, ord={name}, keepdims={keep})"] = between(value, bound, out)
    offset = int(case.rng.integers(-2, 3))
    total = accumulator(d)
    along = np.diagonal(x, offset, -2, -1)
    exactly = not d.is_float
    rows[f"trace(x, {offset})"] = (
        exact(along.sum(-1, dtype=total.numpy), total) if exactly
        else summed(along.astype(widest(d)).sum(-1), np.abs(along.astype(widest(d))).sum(-1), along.shape[-1] + 1, d)
    )  # fmt: skip
    check(", ".join(rows), types(case, [x], [d]), [x], [*rows.values()], case, "cpu")


# ---- elementwise -----------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, -3e38, 88.0, 1 + 2.0**-23], np.float32)
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32)


@pytest.mark.parametrize("stage", CPU_STAGES)
def test_special_cases_of_functions_of_two_numbers(stage: str) -> None:
    x, y = PAIRS[:, 0].copy(), PAIRS[:, 1].copy()
    rows: dict[str, Any] = {
        "heaviside(x, y)": np.heaviside(x, y), "isclose(x, y)": np.isclose(x, y),
        "isclose(x, y, rtol=0.5, atol=2, equal_nan=True)": np.isclose(x, y, np.float32(0.5), np.float32(2), True),
        "copysign(x, y)": np.copysign(x, y), "fmod(x, y)": np.fmod(x, y), "nextafter(x, y)": np.nextafter(x, y),
        "signbit(where(isnan(x), y, x))": np.signbit(np.where(np.isnan(x), y, x)),
    }  # fmt: skip
    f = mt.compile(", ".join([*rows, "logaddexp(x, y)"]), x="f32[N]", y="f32[N]")
    *got, added = f.run(stage, x, y)
    for text, g in zip(rows, got):
        want = rows[text]
        good = ~np.isnan(x) | ~np.isnan(y) if text.startswith("signbit") else np.ones(x.shape, bool)
        np.testing.assert_array_equal(g[good], want[good], text)
        if g.dtype == np.float32 and not text.startswith("heaviside"):
            np.testing.assert_array_equal(np.signbit(g[want == 0]), np.signbit(want[want == 0]), text)
    np.testing.assert_allclose(added, np.logaddexp(x, y), 1e-6)


@pytest.mark.parametrize("d", usual("f32 bf16 i8 u64 bool"), ids=str)
@given(data=st.data())
def test_closeness_and_replacement(d: DType, data: Any) -> None:
    case = data.draw(cases("cpu"))
    x, y = operand(case, 0, d), operand(case, 1, d)
    a, b = (cast(v, (d if d.is_float else f32).compute) for v in (x, y))
    t = a.dtype.type
    close = (x == y) | np.isfinite(b) & (np.abs(a - b) <= t(0.5) + t(0.125) * np.abs(b))
    both = close | np.isnan(a) & np.isnan(b)
    calls = [
        "isclose(x, y, rtol=0.125, atol=0.5)",
        "isclose(x, y, 0.125, 0.5, equal_nan=True)",
        "allclose(x, y, 0.125, 0.5)",
    ]
    wants = [exact(close, bool_), exact(both, bool_), exact(np.asarray(close.all()), bool_)]
    if d.is_float:
        most = float(np.finfo(d.numpy).max) if d.name != "bf16" else float(DTYPES["bf16"].numpy.type(3.3895e38))
        for nan, top, bottom in ((0, None, None), (2, 3, -1)):
            ends = [most if top is None else top, -most if bottom is None else bottom]
            filled = np.where(wide(x) == np.inf, ends[0], np.where(wide(x) == -np.inf, ends[1], x.astype(float)))
            wants.append(exact(cast(np.where(np.isnan(wide(x)), nan, filled), d), d))
            calls.append(f"nan_to_num(x, nan={nan}, posinf={top}, neginf={bottom})")
    else:
        calls.append("nan_to_num(x)")
        wants.append(exact(np.array(x), d))
    check(", ".join(calls), types(case, [x, y], [d, d]), [x, y], wants, case, "cpu")


@pytest.mark.parametrize("stage", ["ast", "graph", "triton"])
@pytest.mark.parametrize("d", [DTYPES["f16"], DTYPES["bf16"]], ids=str)
def test_nextafter_of_every_half(d: DType, stage: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(d.numpy)
    x = x[~np.isnan(x.astype(np.float32))]
    f = mt.compile("nextafter(x, y)", x=f"{d}[N]", y=f"{d}[]")
    for towards in (np.inf, -np.inf, 0.0, 1.0, np.nan):
        y = np.array(towards, np.float32).astype(d.numpy)
        got, want = f.run(stage, x, y), np.where(x == y, y, np.nextafter(x, y))  # numpy's stays at -0.0
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(got.astype(np.float32)), np.signbit(want.astype(np.float32)))


# ---- making ----------------------------------------------------------------------------------

LINES = [
    (0, 1, 5), (0, 1, 1), (0, 1, 0), (2.5, -3, 7), (0.1, 0.1, 3), (-1e30, 1e30, 4), (0, 10, 11), (5, 5, 2), (0, 1, 2), (3, 1, 33),
]  # fmt: skip


@pytest.mark.parametrize("d, endpoint", every_second(dtypes("fi"), [True, False]), ids=str)
def test_linspace(d: DType, endpoint: bool) -> None:
    lines = [
        line for line in LINES if d.is_float and (d.name != "f16" or abs(line[0]) < 1e4) or max(map(abs, line)) < 99
    ]
    text = ", ".join(f"linspace({a}, {b}, {n}, dtype={d}, endpoint={endpoint})" for a, b, n in lines)
    f = mt.compile(text)
    work = np.float64 if d.bits == 64 or not d.is_float else np.float32
    for stage in CPU_STAGES:
        for (a, b, n), got in zip(lines, f.run(stage)):
            parts = max(n - 1 if endpoint else n, 1)
            want = work(a) + np.arange(n).astype(work) * work((b - a) / parts)
            want = np.where((np.arange(n) == n - 1) & (n > 1), work(b), want) if endpoint else want
            want = cast(want if d.is_float else np.floor(want), d)
            assert got.dtype == d.numpy and np.array_equal(got, want), (stage, a, b, n)
            if d.is_float and n:
                near = np.linspace(a, b, n, endpoint)
                unit = {"f16": 2.0**-10, "bf16": 2.0**-7}.get(d.name, 4 * UNIT[d.compute.name])
                assert np.abs(got.astype(float) - near).max() <= unit * max(abs(a), abs(b)), (a, b, n)


def test_linspace_of_sizes_and_parameters() -> None:
    f = mt.compile("def f(x: f32[N], a: float, b: float):\n    return x + linspace(a, b, N)\n")
    for n in (0, 1, 2, 9):
        for stage in CPU_STAGES:
            got = f.run(stage, np.zeros(n, np.float32), -1.0, 3.0)
            np.testing.assert_allclose(got, np.linspace(-1, 3, n, dtype=np.float32), 1e-6, 1e-6, err_msg=f"{stage} {n}")


def test_empty_arrays_have_their_shape_and_dtype() -> None:
    x = np.ones((2, 3), np.float16)
    a, b = mt.evaluate("empty((2, 0), dtype=i8), empty_like(x, dtype=u8)", x=x)
    assert (a.shape, a.dtype, b.shape, b.dtype) == ((2, 0), np.int8, (2, 3), np.uint8)


# ---- variances and running sums --------------------------------------------------------------

CORRECTIONS = ("0", "0.0", "1", "2", "3", "1.5", "-2", "2.0", "5", "inf", "nan", "1e300", "N", "M - 1")


@pytest.mark.parametrize("correction, n", every_second(CORRECTIONS, [0, 1, 2, 3, 5]))
def test_a_variance_with_divisor_zero_or_less_is_nan(correction: str, n: int) -> None:
    """n - correction <= 0 gives NaN, for known and for symbolic sizes."""
    x = np.random.default_rng(n).normal(size=(4, n)).astype(np.float32)
    value = eval(correction, {"N": n, "M": 4, "inf": math.inf, "nan": math.nan})
    rest = n - value if n - value > 0 else np.nan
    w = x.astype(float)
    want = ((w - w.mean(1, keepdims=True)) ** 2).sum(1) / rest
    for text, values in (("var", want), ("std", np.sqrt(want))):
        for declared in ({"x": "f32[M, N]"}, {"x": f"f32[4, {n}]"}):
            known = correction.replace("N", str(n)).replace("M", "4") if declared["x"] != "f32[M, N]" else correction
            f = program(f"{text}(x, axis=1, correction={known})", tuple(declared.items()))
            for stage in CPU_STAGES:
                np.testing.assert_allclose(f.run(stage, x), values, 1e-5, err_msg=f"{text} {stage}")


def test_a_correction_may_be_a_parameter() -> None:
    f = mt.compile("def f(x: f32[M, N], c: float):\n    return var(x, axis=1, correction=c)\n")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for c in (0.0, 1.0, 2.5, 3.0, 4.0):
        want = [2.0 / (3 - c)] * 2 if c < 3 else [np.nan] * 2
        for stage in CPU_STAGES:
            np.testing.assert_allclose(f.run(stage, x, c), want, 1e-6)


@pytest.mark.parametrize("correction", ["'1'", "None", "True", "x"])
def test_a_correction_is_a_number(correction: str) -> None:
    with pytest.raises(CompileError):
        mt.compile(f"var(x, correction={correction})", x="f32[N]")


# ---- dtypes ----------------------------------------------------------------------------------


def test_questions_about_dtypes() -> None:
    x, n = np.ones(3, np.float16), np.ones(3, np.int8)
    yes = (
        "can_cast(i8, i16)", "can_cast(x, f32)", "not_(can_cast(f64, f32))", "isdtype(f16, kind='real floating')",
        "isdtype(result_type(n), kind='signed integer')", "isdtype(u8, (bool, u8))", "isdtype(i8, i8)",
        "not_(isdtype(i8, kind='bool'))", "isdtype(result_type(x, n), f16)", "isdtype(result_type(n, 1.5), f32)",
        "isdtype(result_type(f16, bf16), f32)", "isdtype(finfo(x).dtype, f16)", "not_(isdtype(f32, kind='complex floating'))",
    )  # fmt: skip
    for text in yes:
        wanted = not text.startswith("not_")
        condition = text.removeprefix("not_")
        f = mt.compile(f"x + n if {condition} else x - n", x="f16[N]", n="i8[N]")
        for stage in ("ast", "graph"):
            assert f.run(stage, x, n)[0] == (2 if wanted else 0), text


@pytest.mark.parametrize("d", dtypes("fiu"), ids=str)
def test_limits_of_dtypes(d: DType) -> None:
    import ml_dtypes

    kind, info = ("finfo", ml_dtypes.finfo(d.numpy)) if d.is_float else ("iinfo", np.iinfo(d.numpy))
    names = ("bits", "max", "min", "eps", "smallest_normal") if d.is_float else ("bits", "max", "min")
    for name in names:
        got = mt.evaluate(
            f"full((), {kind}({d}).{name}, dtype={'f64' if d.is_float else d if name != 'bits' else 'i64'})"
        )
        assert got == d.numpy.type(getattr(info, name)) or name == "bits" and got == info.bits, name


# ---- refused programs ------------------------------------------------------------------------

REFUSED = {
    "moveaxis(x, 0, 2)": "MT0204", "moveaxis(x, (0, 1), 0)": "MT0204", "moveaxis(x, (0, 0), (0, 1))": "MT0204", "swapaxes(x, 0, 5)": "MT0204",
    "flatten(x, 1, 0)": "MT0204", "unstack(x, axis=2)": "MT0204", "split(x, 2, axis=0)": "MT0205", "split(x, 0)": "MT0205",
    "split(x, n)": "MT0106", "diagonal(x[0])": "MT0204", "diagonal(x, axis1=0, axis2=-2)": "MT0204", "diag(x[None])": "MT0204",
    "tile(x, -1)": "MT0205", "repeat(x, -1)": "MT0205", "repeat(x, n)": "MT0106", "repeat(x, (1, 2), axis=1)": "MT0205",
    "meshgrid(x)": "MT0201", 'meshgrid(x[0], indexing="yx")': "MT0102", "broadcast_arrays(x, x.T)": "MT0201", "broadcast_shapes((2,), (3,))": "MT0201",
    "hstack(x)": "MT0102", "vstack(())": "MT0102", "dstack((x, x[0]))": "MT0201", "diff(x, n=-1)": "MT0205", "diff(x, axis=2)": "MT0204",
    "tensordot(x, x, 1)": "MT0203", "tensordot(x, x, 3)": "MT0204", "tensordot(x, x, ((0,), (0, 1)))": "MT0204", "tensordot(x, x, (1, 1, 1))": "MT0102",
    "dot(x, x)": "MT0203", "inner(x, x.T)": "MT0203", "cross(x, x, axis=0)": "MT0203", "cross(x, x, axis=2)": "MT0204", "vecdot(x, x[:, :2])": "MT0203",
    "matrix_power(x, 2)": "MT0203", "matrix_power(x[0], 2)": "MT0204", "matrix_power(x @ x.T, -1)": "MT0205", "matrix_norm(x, ord=2)": "MT0102",
    'matrix_norm(x, ord="nuc")': "MT0102", "matrix_norm(x[0])": "MT0204", "vector_norm(x, axis=3)": "MT0204", "trace(x[0])": "MT0204",
    "searchsorted(x, x)": "MT0201", 'searchsorted(x[0], x, side="middle")': "MT0102", "sort(x, axis=2)": "MT0204", "sort(x[0, 0])": "MT0204",
    "linspace(0, 1, -1)": "MT0205", "linspace(x, 1, 3)": "MT0201", "cumulative_sum(x, axis=0, include_initial=x)": "MT0106",
    "finfo(i8)": "MT0202", "iinfo(x)": "MT0202", "finfo(f32).maximum": "MT0103", "isdtype(f32, kind='float')": "MT0202", "isdtype(x, f32)": "MT0202",
    "can_cast(x, 3)": "MT0202", "x + finfo(f32)": "MT0202", "nextafter(x, True, 1)": "MT0102", "isin(x)": "MT0102",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        mt.compile(
            text,
            x="f32[2, 3]" if "split(x, 2" not in text else "f32[3, 3]",
            **({"n": "i32[]"} if "n)" in text and " n)" in text else {}),
        )
    error = caught.value
    assert error.code == REFUSED[text] and error.span is not None and error.span.source.name == "<expression>"


def test_symbolic_sizes_are_checked_at_the_call() -> None:
    types = {"x": "f32[M, N]", "y": "f32[M, K]"}
    for text in (
        "split(x, 2, axis=1)[0]",
        "cross(x, x)",
        "tensordot(x, y)",
        "matrix_power(x, 2)",
        "repeat(x, (1, 2), axis=1)",
    ):
        given = {k: v for k, v in types.items() if k in text.split("(", 1)[1]}
        arrays = [np.zeros((3, 5), np.float32), np.zeros((3, 4), np.float32)][: len(given)]
        refuses(text, given, arrays, "MT0205 MT0203")


# ---- quantiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", usual("f32 u8"), ids=str)
@given(data=st.data())
def test_medians_and_quantiles(d: DType, data: Any) -> None:
    case = data.draw(cases("cpu", least=1, most=2, broadcast=False))
    case = replace(case, shape=tuple(min(max(n, 1), 9) for n in case.shape))  # a quantile compares all pairs
    x, rng = operand(case, 0, d, (-50.0, 50.0)), case.rng
    x = np.clip(np.nan_to_num(wide(x)), -50, 50).astype(x.dtype) if d.is_float else x
    axis, q = (None, axis_of(rng, x))[int(rng.integers(2))], float(rng.choice([0, 0.1, 0.25, 0.5, 0.75, 1]))
    out, values = d if d.is_float else f32, x.astype(np.float64)
    bound = 8 * float(finfo(out).facts["eps"]) * np.abs(values).max() + 1e-6 * (out.bits == 16)  # type: ignore[arg-type]
    wants = [between(v, bound, out) for v in (np.median(values, axis), np.quantile(values, q, axis, keepdims=True))]
    text = f"median(x, axis={axis}), quantile(x, {q}, {axis}, keepdims=True)"
    check(text, types(case, [x], [d]), [x], wants, case, "cpu")


@pytest.mark.parametrize("stage", CPU_STAGES)
def test_medians_and_quantiles_of_special_numbers(stage: str) -> None:
    x = np.array([[np.nan, 1, 2], [np.inf, np.inf, np.inf], [-np.inf, 0, 5], [3, 1, 2]], np.float32)
    text = "median(x, axis=1), quantile(x, 0.5, axis=1), quantile(x, 1, axis=1), quantile(x, 1.5, axis=1), quantile(x, -0.5, axis=1)"
    found = program(text, (("x", "f32[M, N]"),)).run(stage, x)
    wants = [[np.nan, np.inf, 0, 2], [np.nan, np.inf, 0, 2], [np.nan, np.inf, 5, 3], [np.nan] * 4, [np.nan] * 4]
    for got, want in zip(found, wants):
        np.testing.assert_array_equal(got, want)


def test_the_median_of_an_empty_array_is_refused() -> None:
    for text in ("median(x)", "quantile(x, 0.5)", "median(x, axis=0)"):
        f = mt.compile(text, x="f32[N]")
        for stage in CPU_STAGES[1:]:
            with pytest.raises(IndexError):
                f.run(stage, np.zeros(0, np.float32))
