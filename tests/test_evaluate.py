"""The reference evaluator, compared with the graph, the simplified graph, and hand-written numpy.

A row of `CASES` is an expression, the types of its parameters and, for most rows, the same expression
in plain numpy (which gets f16 and bf16 inputs as f32). Every row runs at several sizes, among them 0,
1 and odd ones. It runs with ordinary numbers, and with NaN, infinities and extreme values among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from minitri.base import numpy_array_operations
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.operators_unlike_numpy import round_to_tf32
from minitri.base.types import DTYPES, ArrayType, DType
from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.graph.lower_ast import build
from minitri.graph.parameter_binding import Instance
from minitri.language import ast
from minitri.language.parser import parse_module
from minitri.language.program_forms import parse_program
from minitri.language.reference_evaluator import evaluate
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, library_spans
from minitri.optimize.simplify import simplify

Sizes = dict[str, int]
SIZES: list[Sizes] = [
    {"M": 3, "N": 5, "K": 4, "P": 2},
    {"M": 1, "N": 1, "K": 1, "P": 1},
    {"M": 7, "N": 2, "K": 9, "P": 1},
    {"M": 0, "N": 5, "K": 3, "P": 2},
    {"M": 5, "N": 0, "K": 0, "P": 3},
]
RELATIVE = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6, "f64": 1e-13}


# ---- running one program -----------------------------------------------------------------


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], special: bool) -> Any:
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float:
        x = rng.normal(0, 3, shape)
        specials = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 100.5, -300.25]
        chosen = rng.random(shape) < (0.3 if special else 0)
        with np.errstate(all="ignore"):
            return np.where(chosen, rng.choice(specials, shape), x).astype(dtype.numpy)
    low, high = dtype.limits
    x = rng.integers(max(low, -9), 10, shape)
    chosen = rng.random(shape) < (0.2 if special else 0)
    return np.where(chosen, rng.choice(np.array([low, high, 0], dtype.numpy), shape), x.astype(dtype.numpy))


def extents(type: ast.ArrayType, sizes: Sizes, packs: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    out: list[int] = []
    for d in type.dims:
        match d:
            case ast.Pack():
                out += packs[d.id]
            case ast.Name():
                out.append(sizes[d.id])
            case ast.Number():
                out.append(int(d.value))
            case ast.Binary(op="*", left=ast.Number(value=n), right=ast.Name(id=name)):
                out.append(int(n) * sizes[name])
            case _:
                raise AssertionError("a dimension the tests do not use")
    return tuple(out)


def used_sizes(function: ast.Function, sizes: Sizes) -> Sizes:
    names = {
        n.id
        for p in function.params
        if isinstance(p.annotation, ast.ArrayType)
        for n in ast.postorder(p.annotation)
        if isinstance(n, ast.Name)
    }
    return {name: sizes[name] for name in sorted(names)}


def holds(condition: Any, env: Sizes) -> bool:
    left, right = condition.left.evaluate(env), condition.right.evaluate(env)
    return left == right if condition.relation == "==" else left >= right


def assert_close(got: Any, want: Any, what: str, relative: float | None = None) -> None:
    assert got.dtype == want.dtype, f"{what}: {got.dtype} is not {want.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape} is not {want.shape}"
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, what)
        return
    name = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}[got.dtype.name]
    relative = relative or RELATIVE[name]
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), relative, relative * 10, err_msg=what)


def run(
    module: ast.Module,
    sizes: Sizes,
    packs: Mapping[str, tuple[int, ...]] = {},
    special: bool = False,
    arguments: Mapping[str, Any] = {},
    seed: int = 0,
) -> tuple[dict[str, Any], tuple[Any, ...]] | None:
    """Evaluates the last function in three ways and compares. None if a condition excludes the sizes."""
    rng = np.random.default_rng([seed, *sizes.values()])
    function = module.functions[-1]
    sizes = used_sizes(function, sizes)
    given = dict(arguments)
    for p in function.params:
        if isinstance(p.annotation, ast.ArrayType) and p.name not in given:
            shape = extents(p.annotation, sizes, packs)
            given[p.name] = random_array(rng, DTYPES[p.annotation.dtype], shape, special)
        elif isinstance(p.annotation, ast.ScalarType) and p.annotation.kind == "float":
            given.setdefault(p.name, 0.75)
    untyped = {p.name for p in function.params if p.annotation is None}
    dtypes = {d.numpy: d for d in DTYPES.values()}
    types = {
        k: ArrayType(dtypes[v.dtype], tuple(map(Dim.of, v.shape)))
        for k, v in given.items()
        if k in untyped and isinstance(v, np.ndarray)
    }
    statics = {k: v for k, v in given.items() if not isinstance(v, (np.ndarray, float))}
    graph = build(module, function.name, Instance({k: len(v) for k, v in packs.items()}, types, statics))
    env = {**sizes, **{f"{k}{j}": e for k, axes in packs.items() for j, e in enumerate(axes)}}
    if not all(holds(c, env) for c in graph.conditions):
        return None
    results = evaluate(module, function.name, given, sizes)
    for stage, g in (("graph", graph), ("graph.simplified", simplify(graph))):
        others = evaluate_graph(g, given, env)
        assert len(results) == len(others)
        for k, (ours, theirs) in enumerate(zip(results, others)):
            assert_close(np.asarray(theirs), ours, f"output {k} of {stage} at {env}")
    return given, results


def widened(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x


# ---- the table ---------------------------------------------------------------------------

F32, F16 = np.float32, np.float16
MN = {"x": "f32[M, N]"}
XY = {"x": "f32[M, N]", "y": "f32[M, N]"}
INT = {"n": "i32[M, N]"}
BOOL = {"p": "bool[M, N]"}
CUBE = {"x": "f32[M, N, K]"}
CUBE_I = {"x": "f32[M, N, K]", "i": "i64[P]", "j": "i64[P]"}
MATRICES = {"a": "f32[M, K]", "b": "f32[K, N]"}


def gathered(x: Any, axis: int, i: Any) -> Any:
    """x indexed along an axis by an array, computed in a loop."""
    n = x.shape[axis]
    rows = np.moveaxis(x, axis, 0)
    fill = np.full(rows.shape[1:], np.nan if x.dtype.kind == "f" else 0, x.dtype)
    flat = [rows[k] if -n <= k < n else fill for k in i.ravel().tolist()]
    out = np.array(flat, x.dtype).reshape(*i.shape, *rows.shape[1:])
    return np.moveaxis(out, range(i.ndim), range(axis, axis + i.ndim))


def erf(x: Any) -> Any:
    from math import erf as one

    return np.vectorize(one, otypes=[np.float64])(x).astype(F32)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


Hand = Callable[..., Any]
Case = tuple[str, dict[str, str], "Hand | None"]

ARITHMETIC: list[Case] = [
    ("x + y", XY, lambda x, y: x + y),
    ("x - y", XY, lambda x, y: x - y),
    ("x * y", XY, lambda x, y: x * y),
    ("x / y", XY, lambda x, y: x / y),
    ("x // y", XY, lambda x, y: x // y),
    ("x % y", XY, lambda x, y: x % y),
    ("x ** 2", MN, lambda x: x**2),
    ("abs(x) ** 1.5", MN, lambda x: np.abs(x) ** F32(1.5)),
    ("2 ** n", INT, None),
    ("-x", MN, lambda x: -x),
    ("+x", MN, lambda x: x),
    ("~n", INT, lambda n: ~n),
    ("~p", BOOL, lambda p: ~p),
    ("n & 6 | 1 ^ n", INT, lambda n: n & 6 | 1 ^ n),
    ("n << 2", INT, lambda n: n << 2),
    ("n >> 1", INT, lambda n: n >> 1),
    ("n // 3 + n % 3", INT, lambda n: n // 3 + n % 3),
    ("n // m", {"n": "i32[M]", "m": "i32[M]"}, None),
    ("n / 2", INT, lambda n: n.astype(F32) / F32(2)),
    ("n / n", {"n": "i64[M]"}, lambda n: n.astype(F32) / n.astype(F32)),
    ("sqrt(n)", {"n": "u8[M]"}, lambda n: np.sqrt(n.astype(F32))),
    ("x == y", XY, lambda x, y: x == y),
    ("x != y", XY, lambda x, y: x != y),
    ("x < y", XY, lambda x, y: x < y),
    ("x <= 1", MN, lambda x: x <= 1),
    ("1 > x", MN, lambda x: x < 1),
    ("x >= y", XY, lambda x, y: x >= y),
    ("p + p", BOOL, lambda p: p),
    ("p * q", {"p": "bool[M]", "q": "bool[M]"}, lambda p, q: p & q),
    ("p & (x > 0)", {**BOOL, **MN}, lambda p, x: p & (x > 0)),
    ("where(x > y, x, y)", XY, lambda x, y: np.where(x > y, x, y)),
    ("where(x, 1, 0)", MN, lambda x: np.where(x != 0, 1, 0)),
    ("where(p, x, 0)", {**BOOL, **MN}, lambda p, x: np.where(p, x, F32(0))),
    ("clip(x, -1, 2.5)", MN, lambda x: np.clip(x, F32(-1), F32(2.5))),
    ("clip(x, None, 1)", MN, lambda x: np.minimum(x, F32(1))),
    ("clip(x, max=1, min=0)", MN, lambda x: np.clip(x, F32(0), F32(1))),
    ("clip(x, min=0)", MN, lambda x: np.maximum(x, F32(0))),
    ("clamp(n, -2, 2)", INT, lambda n: np.clip(n, -2, 2)),
    ("maximum(x, 0) + minimum(y, 1)", XY, lambda x, y: np.maximum(x, F32(0)) + np.minimum(y, F32(1))),
    ("x.abs().sqrt()", MN, lambda x: np.sqrt(np.abs(x))),
    ("exp(-x * x)", MN, lambda x: np.exp(-x * x)),
    ("rsqrt(abs(x))", MN, lambda x: 1 / np.sqrt(np.abs(x))),
    ("(x + 1) / (abs(y) + 2)", XY, lambda x, y: (x + 1) / (np.abs(y) + 2)),
    ("x + b", {**MN, "b": "f32[N]"}, lambda x, b: x + b),
    ("x + b[:, None]", {**MN, "b": "f32[M]"}, lambda x, b: x + b[:, None]),
    ("x * c", {**MN, "c": "f32[1, N]"}, lambda x, c: x * c),
    ("a[:, None] - b", {"a": "f32[M]", "b": "f32[N]"}, lambda a, b: a[:, None] - b),
    ("atan2(x, y) + hypot(x, y)", XY, lambda x, y: np.arctan2(x, y) + np.hypot(x, y)),
    ("isnan(x) | isinf(x)", MN, lambda x: ~np.isfinite(x)),
    ("logical_not(n) ^ logical_and(n, n)", INT, lambda n: np.ones(n.shape, bool)),
]

PROMOTION: list[Case] = [
    ("a + b", {"a": "i8[M]", "b": "i32[M]"}, lambda a, b: a + b),
    ("a + b", {"a": "i8[M]", "b": "u8[M]"}, lambda a, b: a + b),
    ("a * b", {"a": "u32[M]", "b": "i32[M]"}, lambda a, b: a * b),
    ("a + b", {"a": "u64[M]", "b": "i64[M]"}, lambda a, b: a + b),
    ("a + b", {"a": "i64[M]", "b": "f32[M]"}, lambda a, b: a.astype(F32) + b),
    ("a * b", {"a": "i32[M]", "b": "f16[M]"}, lambda a, b: (a.astype(F32) * b).astype(np.float16)),
    ("a + b", {"a": "f16[M]", "b": "bf16[M]"}, lambda a, b: a + b),
    ("a * b", {"a": "f16[M]", "b": "f32[M]"}, lambda a, b: a * b),
    ("a + b", {"a": "f32[M]", "b": "f64[M]"}, lambda a, b: a + b),
    ("a + b", {"a": "bool[M]", "b": "i8[M]"}, lambda a, b: a + b),
    ("a + b", {"a": "bool[M]", "b": "f16[M]"}, None),
    ("a < b", {"a": "i32[M]", "b": "u32[M]"}, lambda a, b: a.astype(np.int64) < b),
    ("h * 3 + 0.1", {"h": "f16[M]"}, lambda h: (h * F32(3) + F32(0.1)).astype(np.float16)),
    ("h * 2.5", {"h": "bf16[M, N]"}, None),
    ("h * h - h", {"h": "bf16[M]"}, None),
    ("n + 1", {"n": "i8[M]"}, lambda n: n + np.int8(1)),
    ("n * 0.5", {"n": "i8[M]"}, lambda n: n.astype(F32) * F32(0.5)),
    ("p + 1", BOOL, lambda p: p.astype(np.int64) + 1),
    ("p * 0.5", BOOL, lambda p: p * F32(0.5)),
    ("p + True", BOOL, lambda p: p | True),
    ("x + True", MN, lambda x: x + 1),
    ("x + inf - nan * pi / e", MN, None),
    ("x * N + M / 2", MN, lambda x: x * x.shape[1] + F32(x.shape[0] / 2)),
    ("x * N ** -0.5", MN, None),
    ("x * (1 / N)", MN, None),
    ("x * N ** -1", MN, lambda x: x * F32(1 / x.shape[1]) if x.shape[1] else x),
    ("x + sqrt(2) + floor(2.5) + maximum(1, 2)", MN, lambda x: x + F32(np.sqrt(2)) + F32(2) + F32(2)),
    ("x * sqrt(N) + log(M * N + 1)", MN, None),
    ("x * (N // 2 + M % 2 - N * M)", MN, lambda x: x * (x.shape[1] // 2 + x.shape[0] % 2 - x.size)),
    ("n + N", {"n": "i8[N]"}, lambda n: n + np.int8(len(n))),
    ("h + where(h > 0, 1.0, 0.5)", {"h": "f16[M]"}, None),
    ("where(x > 0, 1.0, -inf)", MN, lambda x: np.where(x > 0, F32(1), F32(-np.inf))),
    ("where(p, 1, 0) * 2.5", BOOL, lambda p: p * F32(2.5)),
    ("where(p, 1, 0)[None, :, 0].T", {"p": "bool[M, 3]"}, lambda p: p[:, :1].astype(np.int64)),
    ("sum(where(p, 1.0, 0.0))", BOOL, lambda p: p.sum().astype(F32)),
    ("sum(where(p, 1, 0))", BOOL, lambda p: p.sum()),
    ("max(where(p, 1.0, 0.0), axis=0)", {"p": "bool[3, N]"}, lambda p: p.max(0).astype(F32)),
    (
        "mean(where(p, 1.0, 0.0), axis=0) + var(where(p, 1.0, 0.0), axis=0)",
        {"p": "bool[4, N]"},
        lambda p: p.mean(0).astype(F32) + p.var(0).astype(F32),
    ),
    ("where(p, 1.0, 0.0) @ where(p, 1.0, 0.0).T", BOOL, lambda p: p.astype(F32) @ p.T.astype(F32)),
    ("cumsum(where(p, 1.0, 0.0), axis=1)", BOOL, lambda p: np.cumsum(p.astype(F32), 1)),
    ("stack((1.0, 2.0))", MN, lambda x: np.array([1, 2], F32)),
    ("stack((x[0], 1.0))", {"x": "f16[3]"}, lambda x: np.array([x[0], 1], np.float16)),
    ("broadcast_to(1.5, (M, 2))", MN, lambda x: np.full((len(x), 2), 1.5, F32)),
    ("pad(where(p, 1.0, 2.0), 1)", BOOL, lambda p: np.pad(np.where(p, F32(1), F32(2)), 1)),
    ("tril(where(p, 1.0, 2.0))", BOOL, lambda p: np.tril(np.where(p, F32(1), F32(2)))),
    ("zeros_like(where(p, 1.0, 2.0))", BOOL, lambda p: np.zeros(p.shape, F32)),
    ("where(p, 1.0, 2.0)[i]", {**BOOL, "i": "i32[P]"}, lambda p, i: gathered(np.where(p, F32(1), F32(2)), 0, i)),
    ("sum(2.5) + sum(N)", MN, lambda x: F32(2.5) + F32(x.shape[1])),
    ("1", MN, lambda x: np.int64(1)),
    ("2.5", MN, lambda x: F32(2.5)),
    ("N", MN, lambda x: np.int64(x.shape[1])),
    ("N / 2", MN, lambda x: F32(x.shape[1] / 2)),
    ("N == 5", MN, lambda x: np.bool_(x.shape[1] == 5)),
    ("exp(1)", MN, lambda x: F32(np.e)),
    ("x if x.ndim == 2 else y", XY, lambda x, y: x),
    ("x * x.shape[-1] + x.ndim", MN, lambda x: x * x.shape[1] + 2),
    ("reshape(x, x.shape + (1,))", MN, lambda x: x[..., None]),
    ("reshape(x, x.shape[::-1])", MN, lambda x: x.reshape(x.shape[::-1])),
    ("x + ~False", MN, lambda x: x + 1),
    ("u ^ 18446744073709551615", {"u": "u64[M]"}, lambda u: ~u),
]

REDUCTIONS: list[Case] = [
    ("sum(x)", MN, lambda x: x.sum()),
    ("sum(x, axis=0)", MN, lambda x: x.sum(0)),
    ("sum(x, axis=(0, -1), keepdims=True)", CUBE, lambda x: x.sum((0, 2), keepdims=True)),
    ("sum(x, dim=1, keepdim=True)", MN, lambda x: x.sum(1, keepdims=True)),
    ("sum(x, ())", MN, lambda x: x),
    ("x.sum(-1)", CUBE, lambda x: x.sum(-1)),
    ("sum(n)", {"n": "i8[M, N]"}, lambda n: n.astype(np.int64).sum()),
    ("sum(p, axis=1)", BOOL, lambda p: p.sum(1)),
    ("sum(u)", {"u": "u64[M]"}, lambda u: u.sum()),
    ("sum(n, dtype=f32)", INT, lambda n: n.astype(F32).sum()),
    ("sum(n, dtype=i32)", {"n": "i64[M]"}, None),
    ("sum(h, axis=0)", {"h": "f16[M, N]"}, lambda h: h.sum(0).astype(np.float16)),
    ("sum(h * 0.1, dtype=f32)", {"h": "bf16[M, N]"}, lambda h: (h * F32(0.1)).sum()),
    ("sum(x, dtype=f16)", MN, None),
    ("prod(x, axis=1)", MN, lambda x: x.prod(1)),
    ("prod(n, axis=-1)", {"n": "u8[M, N]"}, lambda n: n.prod(-1)),
    ("mean(x)", MN, lambda x: x.sum() / F32(x.size)),
    ("mean(x, axis=(0, 2))", CUBE, lambda x: x.sum((0, 2)) / F32(x.shape[0] * x.shape[2])),
    ("mean(n, axis=0)", INT, lambda n: n.astype(np.int64).sum(0).astype(F32) / F32(len(n))),
    ("mean(p)", BOOL, None),
    ("mean(h, axis=-1)", {"h": "bf16[M, N]"}, None),
    ("var(x)", {"x": "f32[3, N]"}, lambda x: x.astype(np.float64).var().astype(F32) if x.size else F32(np.nan)),
    ("var(x, axis=0, correction=1)", {"x": "f32[3, N]"}, lambda x: x.astype(np.float64).var(0, ddof=1).astype(F32)),
    ("var(n, axis=1, keepdims=True)", {"n": "i16[M, 4]"}, lambda n: n.var(1, keepdims=True).astype(F32)),
    ("std(x, axis=1, ddof=1)", {"x": "f64[M, 3]"}, lambda x: x.std(1, ddof=1)),
    ("std(x, axis=-1, keepdims=True)", MN, None),
    ("var(h, correction=2, axis=0)", {"h": "f16[M, N]"}, None),
    ("max(x)", MN, lambda x: x.max()),
    ("max(x, axis=1, keepdims=True)", MN, lambda x: x.max(1, keepdims=True)),
    ("min(x, axis=(0, 1))", CUBE, lambda x: x.min((0, 1))),
    ("amax(n, axis=0) - amin(n, axis=0)", INT, lambda n: n.max(0) - n.min(0)),
    ("max(p, axis=1) | min(p, axis=1)", BOOL, lambda p: p.max(1)),
    ("any(p, axis=0) & all(p, axis=0)", BOOL, lambda p: p.any(0) & p.all(0)),
    ("any(x > 1, axis=1, keepdims=True)", MN, lambda x: (x > 1).any(1, keepdims=True)),
    ("all(n)", INT, lambda n: (n != 0).all()),
    ("argmax(x)", MN, lambda x: x.argmax()),
    ("argmax(x, axis=1)", MN, lambda x: x.argmax(1)),
    ("argmin(n, axis=0, keepdims=True)", INT, lambda n: n.argmin(0, keepdims=True)),
    ("argmin(x, keepdims=True)", CUBE, lambda x: x.argmin(keepdims=True)),
    ("argmax(p, axis=-1)", BOOL, lambda p: p.argmax(-1)),
    ("argmax(x, axis=(0,))", MN, lambda x: x.argmax(0)),
    ("cumulative_sum(x, axis=1)", MN, lambda x: x.cumsum(1)),
    ("cumsum(n, axis=0)", {"n": "i8[M, N]"}, lambda n: n.astype(np.int64).cumsum(0)),
    ("cumsum(x)", {"x": "f64[N]"}, lambda x: x.cumsum()),
    ("cumulative_prod(x, -1)", MN, lambda x: x.cumprod(-1)),
    ("cumulative_max(x, axis=1)", MN, lambda x: np.maximum.accumulate(x, 1)),
    ("cumulative_min(n)", {"n": "i8[N]"}, lambda n: np.minimum.accumulate(n)),
    ("cumprod(p, axis=0, dtype=i32)", BOOL, lambda p: p.astype(np.int32).cumprod(0, dtype=np.int32)),
    ("sum(x * y, axis=-1) / sqrt(sum(x * x, axis=-1))", XY, None),
]

PRODUCTS: list[Case] = [
    ("a @ b", MATRICES, lambda a, b: a @ b),
    ("matmul(a, b)", MATRICES, lambda a, b: a @ b),
    ('einsum("ij,jk->ki", a, b)', MATRICES, lambda a, b: np.einsum("ij,jk->ki", a, b)),
    ("a @ b", {"a": "f32[K]", "b": "f32[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[M, K]", "b": "f32[K]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[K]", "b": "f32[K]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[P, M, K]", "b": "f32[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[M, K]", "b": "f32[P, K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[P, 1, M, K]", "b": "f32[3, K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f32[K]", "b": "f32[P, K, N]"}, lambda a, b: a @ b),
    ("a @ b.mT", {"a": "f32[P, M, K]", "b": "f32[P, N, K]"}, lambda a, b: a @ b.swapaxes(1, 2)),
    ("a @ b", {"a": "f32[1, K]", "b": "f32[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "i32[M, K]", "b": "i32[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "i8[M, K]", "b": "i8[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "u8[M, K]", "b": "i8[K]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "bool[M, K]", "b": "bool[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "f64[M, K]", "b": "f32[K, N]"}, lambda a, b: a @ b),
    ("a @ b", {"a": "i32[M, K]", "b": "f32[K, N]"}, lambda a, b: a.astype(F32) @ b),
    ("a @ b", {"a": "f16[M, K]", "b": "f16[K, N]"}, lambda a, b: (a @ b).astype(np.float16)),
    ("a @ b", {"a": "bf16[M, K]", "b": "bf16[K, N]"}, None),
    ("(a * 0.1) @ b", {"a": "f16[M, K]", "b": "f16[K, N]"},
     lambda a, b: ((a * F32(0.1)).astype(np.float16).astype(F32) @ b).astype(np.float16)),
    ("a @ b", {"a": "f16[M, K]", "b": "bf16[K, N]"}, lambda a, b: a @ b),
    ("relu(x @ w + b)", {"x": "f16[M, K]", "w": "f16[K, N]", "b": "f16[N]"}, None),
    ("(a * a) @ (b + 1) / 2", MATRICES, lambda a, b: (a * a) @ (b + 1) / 2),
]  # fmt: skip

MOVEMENT: list[Case] = [
    ("reshape(x, (M * N,))", MN, lambda x: x.reshape(-1)),
    ("reshape(x, (N, M))", MN, lambda x: x.reshape(x.shape[::-1])),
    ("reshape(x, -1)", MN, lambda x: x.reshape(-1)),
    ("x.reshape(M, -1)", {"x": "f32[M, 2, 3]"}, lambda x: x.reshape(len(x), 6)),
    ("x.view(2, M)", {"x": "f32[2 * M]"}, lambda x: x.reshape(2, -1)),
    ("reshape(x, (M, 4 // 2, 2, N))", {"x": "f32[M, 4, N]"}, None),
    ("expand_dims(x, 1)", MN, lambda x: x[:, None]),
    ("expand_dims(x, (0, -1))", MN, lambda x: x[None, ..., None]),
    ("x.unsqueeze(-1).squeeze(-1)", MN, lambda x: x),
    ("squeeze(x)", {"x": "f32[1, 3, 1]"}, lambda x: x.squeeze()),
    ("squeeze(x, axis=(0, 2))", {"x": "f32[1, N, 1]"}, lambda x: x.squeeze((0, 2))),
    ("squeeze(x, 0)", MN, lambda x: x[0]),
    ("permute_dims(x, (2, 0, 1))", CUBE, lambda x: x.transpose(2, 0, 1)),
    ("x.swapaxes(0, 2) + swapdims(x, -1, 0)", CUBE, lambda x: 2 * x.transpose(2, 1, 0)),
    ("x.permute(1, 0, -1)", CUBE, lambda x: x.transpose(1, 0, 2)),
    ("transpose(x)", CUBE, lambda x: x.T),
    ("x.T - x.mT.transpose(1, 0)", MN, None),
    ("matrix_transpose(x) + x.mT", CUBE, lambda x: 2 * x.swapaxes(1, 2)),
    ("broadcast_to(b, (M, N))", {"x": "f32[M]", "b": "f32[N]"}, lambda x, b: np.broadcast_to(b, (len(x), len(b)))),
    ("b.expand(3, M, N)", {"b": "f32[M, 1]", "x": "f32[N]"}, lambda b, x: np.broadcast_to(b, (3, len(b), len(x)))),
    ("flip(x)", MN, lambda x: x[::-1, ::-1]),
    ("flip(x, axis=1)", MN, lambda x: x[:, ::-1]),
    ("roll(x, 1)", MN, lambda x: np.roll(x, 1)),
    ("roll(x, -2, axis=1)", MN, lambda x: np.roll(x, -2, 1)),
    ("roll(x, (1, 7), axis=(0, 1))", MN, lambda x: np.roll(x, (1, 7), (0, 1))),
    ("roll(x, 2, axis=(0, 1))", MN, lambda x: np.roll(x, 2, (0, 1))),
    ("pad(x, 1)", MN, lambda x: np.pad(x, 1)),
    ("pad(x, (2, 1), constant_values=1.5)", MN, lambda x: np.pad(x, (2, 1), constant_values=1.5)),
    ("pad(x, ((0, 1), (2, 0)), -inf)", MN, lambda x: np.pad(x, ((0, 1), (2, 0)), constant_values=-np.inf)),
    ("pad(n, ((1, 0), (0, 3)), constant_values=7)", INT,
     lambda n: np.pad(n, ((1, 0), (0, 3)), constant_values=7)),
    ("pad(h * 1, 1, constant_values=0.1) * 3", {"h": "f16[M]"}, None),
    ("concat((x, y), axis=0)", XY, lambda x, y: np.concatenate([x, y])),
    ("concat([x, y, x], -1)", XY, lambda x, y: np.concatenate([x, y, x], 1)),
    ("cat((n, x), axis=1)", {"n": "i32[M, K]", **MN}, lambda n, x: np.concatenate([n.astype(F32), x], 1)),
    ("concatenate((x, x[:0], x[:1]))", {"x": "f32[5, N]"}, lambda x: np.concatenate([x, x[:1]])),
    ("stack((x, y))", XY, lambda x, y: np.stack([x, y])),
    ("stack([x, y, x + y], axis=-1)", XY, lambda x, y: np.stack([x, y, x + y], -1)),
    ("tril(x)", MN, lambda x: np.tril(x)),
    ("triu(x, 1) + tril(x, k=-2)", CUBE, lambda x: np.triu(x, 1) + np.tril(x, -2)),
    ("triu(n, -1)", INT, lambda n: np.triu(n, -1)),
    ("arange(N)", MN, lambda x: np.arange(x.shape[1])),
    ("arange(1, N + 3, 2)", MN, lambda x: np.arange(1, x.shape[1] + 3, 2)),
    ("arange(N, 0, -2) + arange(5, 0, -1)[0]", MN, lambda x: np.arange(x.shape[1], 0, -2) + 5),
    ("arange(3, dtype=f16)", MN, lambda x: np.arange(3).astype(np.float16)),
    ("arange(0, 1, 0.25)", MN, lambda x: np.arange(0, 1, 0.25).astype(F32)),
    ("arange(2.0, -1.0, -0.7, dtype=f64)", MN, lambda x: np.arange(2.0, -1.0, -0.7)),
    ("arange(0, 1300, 0.5, dtype=f16)", MN, lambda x: (np.arange(2600) / 2).astype(np.float16)),
    ("zeros((M, 2))", MN, lambda x: np.zeros((len(x), 2), F32)),
    ("ones(N, dtype=i32)", MN, lambda x: np.ones(x.shape[1], np.int32)),
    ("full((2, N), 7)", MN, lambda x: np.full((2, x.shape[1]), 7)),
    ("full((2, N), 2.5)", MN, lambda x: np.full((2, x.shape[1]), 2.5, F32)),
    ("full(3, True)", MN, lambda x: np.ones(3, bool)),
    ("full(M, x[0, 0])", {"x": "f16[3, 2]", "y": "f32[M]"}, lambda x, y: np.full(len(y), x[0, 0], np.float16)),
    ("zeros_like(n) + ones_like(n)", INT, lambda n: np.ones_like(n)),
    ("full_like(n, 2.5, dtype=f32)", INT, lambda n: np.full(n.shape, 2.5, F32)),
    ("full_like(n, 2.5)", INT, lambda n: np.full(n.shape, 2, np.int32)),
    ("full_like(h, 0.1)", {"h": "bf16[M]"}, None),
    ("eye(N)", MN, lambda x: np.eye(x.shape[1], dtype=F32)),
    ("eye(M, N, k=1, dtype=bool)", MN, lambda x: np.eye(*x.shape, k=1, dtype=bool)),
    ("eye(M, N, -1)", MN, lambda x: np.eye(*x.shape, k=-1, dtype=F32)),
    ("one_hot(n, 5)", INT, lambda n: (n[..., None] == np.arange(5)).astype(F32)),
    ("one_hot(u, N, dtype=bool)", {"u": "u64[M]", "x": "f32[N]"}, lambda u, x: u[:, None] == np.arange(len(x))),
    ("asarray([1.5, 2])[0] * tensor(x, f64) + as_tensor(x) + array(n)", {"x": "f32[N]", "n": "i32[N]"}, None),
    ("astype(x, i32)", {"x": "f16[M]"}, None),
    ("x.astype(f16).astype(f32)", MN, lambda x: x.astype(np.float16).astype(F32)),
    ("astype(x, bf16) + 1", MN, None),
    ("astype(astype(x, f16) * 0.1, f32)", MN, lambda x: x.astype(np.float16).astype(F32) * F32(0.1)),
    ("astype(x, bool)", MN, lambda x: x != 0),
    ("astype(n, u8)", INT, lambda n: n.astype(np.uint8)),
    ("astype(p, f64)", BOOL, lambda p: p.astype(np.float64)),
    ("astype(N, f32) + astype(2.5, i32)", MN, lambda x: F32(x.shape[1] + 2)),
    ("astype(x, i8) + astype(x, u16)", MN, None),
]  # fmt: skip

INDEXING: list[Case] = [
    ("x[0]", {"x": "f32[3, N]"}, lambda x: x[0]),
    ("x[-1]", MN, lambda x: x[-1]),
    ("x[1, -2]", {"x": "f32[2, 3]"}, lambda x: x[1, -2]),
    ("x[N - 1]", {"x": "f32[N]"}, lambda x: x[-1]),
    ("x[-N]", {"x": "f32[N]"}, lambda x: x[0]),
    ("x[N - 4]", {"x": "f32[N]"}, lambda x: x[len(x) - 4]),
    ("x[...]", CUBE, lambda x: x),
    ("x[..., 0]", {"x": "f32[M, N, 2]"}, lambda x: x[..., 0]),
    ("x[0, ..., 1:]", {"x": "f32[3, M, N]"}, lambda x: x[0, ..., 1:]),
    ("x[:, None]", MN, lambda x: x[:, None]),
    ("x[None, :, None, ..., None]", MN, lambda x: x[None, :, None, :, None]),
    ("x[1:]", MN, lambda x: x[1:]),
    ("x[:-1] + x[1:]", MN, lambda x: x[:-1] + x[1:]),
    ("x[:, ::2]", MN, lambda x: x[:, ::2]),
    ("x[::-1, ::-2]", MN, lambda x: x[::-1, ::-2]),
    ("x[3:0:-1]", MN, lambda x: x[3:0:-1]),
    ("x[-2:]", MN, lambda x: x[-2:]),
    ("x[:100, 2:2]", MN, lambda x: x[:100, 2:2]),
    ("x[-100:-1:3]", MN, lambda x: x[-100:-1:3]),
    ("x[:N // 2]", {"x": "f32[N]"}, lambda x: x[: len(x) // 2]),
    ("x[N // 2:]", {"x": "f32[N]"}, lambda x: x[len(x) // 2 :]),
    ("x[N - 3:]", {"x": "f32[N]"}, lambda x: x[len(x) - 3 :]),
    ("x[:N - 3]", {"x": "f32[N]"}, lambda x: x[: len(x) - 3]),
    ("x[-N:]", {"x": "f32[N]"}, lambda x: x[-len(x) :]),
    ("x[:, 0][::-1].reshape(M, 1)", {"x": "f32[M, 2]"}, lambda x: x[::-1, :1]),
    ("x[i]", {"x": "f32[M, N]", "i": "i64[P]"}, lambda x, i: gathered(x, 0, i)),
    ("x[:, i]", {"x": "f32[M, N]", "i": "i32[P]"}, lambda x, i: gathered(x, 1, i)),
    ("x[i]", {"x": "i32[M, N]", "i": "i8[P, 2]"}, lambda x, i: gathered(x, 0, i)),
    ("p[i]", {"p": "bool[M]", "i": "u64[P]"}, lambda p, i: gathered(p, 0, i)),
    ("x[..., i]", {**CUBE, "i": "u8[P]"}, lambda x, i: gathered(x, 2, i)),
    ("x[i, :, j]", CUBE_I, None),
    ("x[i, j]", CUBE_I, None),
    ("x[:, i, j]", CUBE_I, None),
    ("x[:, i, ..., j]", CUBE_I, None),
    ("x[i, None, j]", CUBE_I, None),
    ("x[i, ..., j]", CUBE_I, None),
    ("x[0, :, i]", {"x": "f32[3, N, K]", "i": "i64[P]"}, None),
    ("x[:, -1, i]", {"x": "f32[M, 2, K]", "i": "i64[P]"}, None),
    ("x[i[:, None], j]", CUBE_I, None),
    ("x[i][:, 1:]", {"x": "f32[M, 4]", "i": "i64[P]"}, lambda x, i: gathered(x, 0, i)[:, 1:]),
    ("x[i, 1:, None]", {**MN, "i": "i64[P, 2]"}, lambda x, i: gathered(x[:, 1:], 0, i)[..., None]),
    ("x[::2, i]", {**MN, "i": "i64[P]"}, lambda x, i: gathered(x[::2], 1, i)),
    ("x[argmax(x)]", {"x": "f32[N]"}, lambda x: x.max()),
    ("x[argmax(y)]", {"x": "f32[M]", "y": "f32[N]"}, None),
    ("x[:, argmax(y), argmax(y)]", {**CUBE, "y": "f32[P]"}, None),
    ("x[argmax(y), :, argmax(y)]", {**CUBE, "y": "f32[P]"}, None),
    ("take(x, i)", {**MN, "i": "i64[P]"}, lambda x, i: gathered(x.reshape(-1), 0, i)),
    ("take(x, i, axis=1)", {**MN, "i": "i64[P, 2]"}, lambda x, i: gathered(x, 1, i)),
    ("take(x, i, axis=-2)", {**CUBE, "i": "i64[P]"}, lambda x, i: gathered(x, 1, i)),
    ("take(x, 2, axis=0)", MN, lambda x: gathered(x, 0, np.array(2))),
    ("take_along_axis(x, i, axis=1)", {**MN, "i": "i64[M, P]"},
     lambda x, i: np.array([gathered(r, 0, k) for r, k in zip(x, i)], F32).reshape(i.shape)),
    ("take_along_axis(x, i)", {**MN, "i": "i32[1, P]"}, lambda x, i: gathered(x, 1, i[0])),
    ("take_along_axis(x, i, 0)", {"x": "f32[M, 1]", "i": "i64[P, N]"}, lambda x, i: gathered(x[:, 0], 0, i)),
    ("take_along_axis(x, argmax(x, axis=0, keepdims=True), 0)", MN, lambda x: x.max(0, keepdims=True)),
    ("take_along_axis(z, y[:, None], axis=-1)[:, 0]", {"z": "f32[M, N]", "y": "i64[M]"}, None),
]  # fmt: skip

LIBRARY: list[Case] = [
    ("relu(x)", MN, lambda x: np.maximum(x, F32(0))),
    ("relu(n)", INT, lambda n: np.maximum(n, 0)),
    ("silu(x)", MN, lambda x: x / (1 + np.exp(-x))),
    ("softplus(x)", MN, lambda x: np.logaddexp(x, F32(0))),
    ("gelu(x)", MN, lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
    ("gelu(x, approximate='tanh')", MN, None),
    ("gelu_erf(x) + gelu_tanh(x)", MN, None),
    ("softmax(x)", MN, lambda x: softmax(x)),
    ("softmax(x, dim=0)", {"x": "f32[3, N]"}, lambda x: softmax(x, 0)),
    ("log_softmax(x, axis=-1)", MN, lambda x: np.log(softmax(x))),
    ("logsumexp(x)", MN, lambda x: np.logaddexp.reduce(x.reshape(-1))),
    ("logsumexp(x, axis=0, keepdims=True)", MN, lambda x: np.logaddexp.reduce(x, 0, keepdims=True)),
    ("layer_norm(x, g, b)", {**MN, "g": "f32[N]", "b": "f32[N]"}, None),
    ("layer_norm(x, eps=1e-3)", {"x": "f16[M, N]"}, None),
    ("rms_norm(x, g)", {**MN, "g": "f32[N]"}, None),
    ("cross_entropy(z, y)", {"z": "f32[M, N]", "y": "i64[M]"}, None),
    ("attention(q, k, v)", {"q": "f32[P, M, K]", "k": "f32[P, N, K]", "v": "f32[P, N, K]"},
     lambda q, k, v: softmax(q @ k.swapaxes(1, 2) * F32(q.shape[-1] ** -0.5)) @ v),
    ("attention(q, k, v, scale=0.5)", {"q": "bf16[M, K]", "k": "bf16[N, K]", "v": "bf16[N, K]"}, None),
    ("softmax(q @ k.mT * K**-0.5 + where(arange(M)[:, None] >= arange(N), 0, -inf)) @ v",
     {"q": "bf16[M, K]", "k": "bf16[N, K]", "v": "bf16[N, K]"}, None),
]  # fmt: skip

V_AND_X = {**MN, "v": "f32[K]"}
ARRAY_API: list[Case] = [
    ("moveaxis(x, 0, -1)", CUBE, lambda x: np.moveaxis(x, 0, -1)),
    ("swapaxes(x, 0, 2)", CUBE, lambda x: np.swapaxes(x, 0, 2)),
    ("flatten(x)", CUBE, lambda x: x.ravel()),
    ("ravel(x) + flatten(x, 0, 1)", {"x": "f32[M, 1]"}, lambda x: 2 * x[:, 0]),
    ("flatten(x, 1)", CUBE, lambda x: x.reshape(len(x), x.shape[1] * x.shape[2])),
    ("unstack(x, axis=1)[2]", {"x": "f32[M, 3]"}, lambda x: x[:, 2]),
    ("split(x, 3, axis=1)[1]", {"x": "f32[M, 3 * N]"}, lambda x: np.split(x, 3, 1)[1]),
    ("split(x, (1, -1))[1]", MN, lambda x: np.split(x, (1, -1))[1]),
    ("tile(x, (2, 1, 3))", MN, lambda x: np.tile(x, (2, 1, 3))),
    ("tile(x, N)", MN, lambda x: np.tile(x, x.shape[1])),
    ("repeat(x, 3)", MN, lambda x: np.repeat(x, 3)),
    ("repeat(x, M, axis=1)", MN, lambda x: np.repeat(x, len(x), 1)),
    ("repeat(x, (2, 0, 1), axis=1)", {"x": "f32[M, 3]"}, lambda x: np.repeat(x, (2, 0, 1), 1)),
    ("broadcast_arrays(x, x[:, :1])[1]", {"x": "f32[M, 3]"}, lambda x: np.broadcast_to(x[:, :1], x.shape)),
    ("x * broadcast_shapes(x.shape, (3, 1, 1))[0]", MN, lambda x: 3 * x),
    ('meshgrid(x[:, 0], v, indexing="ij")[1]', {"x": "f32[M, 1]", "v": "f32[K]"}, lambda x, v: np.meshgrid(x[:, 0], v, indexing="ij")[1]),
    ("meshgrid(v, arange(3), 1.5)[0]", {"v": "f32[K]"}, lambda v: np.meshgrid(v, np.arange(3), 1.5)[0]),
    ("hstack((v, v))", {"v": "f32[K]"}, lambda v: np.hstack((v, v))),
    ("hstack((x, n))", {**MN, "n": "i32[M, N]"}, lambda x, n: np.hstack((x, n.astype(F32)))),
    ("vstack((x, x[0])) + row_stack((x, x[0]))", {"x": "f32[2, N]"}, lambda x: 2 * np.vstack((x, x[0]))),
    ("dstack((x, 2 * x))", MN, lambda x: np.dstack((x, 2 * x))),
    ("column_stack((x, x[:, 0]))", {"x": "f32[M, 2]"}, lambda x: np.column_stack((x, x[:, 0]))),
    ("diff(x)", MN, lambda x: np.diff(x)),
    ("diff(x, axis=0, n=2)", MN, lambda x: np.diff(x, 2, 0)),
    ("diff(n, prepend=0, append=n)", INT, lambda n: np.diff(n, prepend=np.int32(0), append=n)),
    ("diagonal(x)", CUBE, lambda x: np.diagonal(x, 0, 1, 2)),
    ("diagonal(x, -1, axis1=2, axis2=0)", CUBE, lambda x: np.diagonal(x, -1, 2, 0)),
    ("diag(v, k=1)", {"v": "f32[K]"}, lambda v: np.diag(v, 1)),
    ("diag(x, k=-1)", MN, lambda x: np.diag(x, -1)),
    ("tensordot(x, y, axes=((2, 0), (0, 1)))", {"x": "f32[M, N, K]", "y": "f32[K, M]"}, lambda x, y: np.tensordot(x, y, ((2, 0), (0, 1)))),
    ("dot(a, b)", MATRICES, lambda a, b: a @ b),
    ("inner(a, a)", MATRICES | {"b": "f32[1]"}, lambda a, b: a @ a.T),
    ("kron(a, b)", MATRICES, lambda a, b: np.kron(a, b)),
    ("cross(x, y)", {"x": "f32[M, 3]", "y": "f32[3]"}, lambda x, y: np.cross(x, y)),
    ("matrix_power(x, 5)", {"x": "i64[2, N, N]"}, lambda x: np.linalg.matrix_power(x, 5)),
    ("matrix_norm(x)", CUBE, lambda x: np.linalg.matrix_norm(x)),
    ("matrix_norm(x, ord=1, keepdims=True)", {"x": "f32[3, 2]"}, lambda x: np.linalg.matrix_norm(x, ord=1, keepdims=True)),
    ("vecdot(x, x, axis=0)", MN, lambda x: np.vecdot(x, x, axis=0)),
    ("outer(v, x)", V_AND_X, lambda x, v: np.outer(v, x)),
    ("trace(x, 1)", CUBE, lambda x: np.trace(x, 1, 1, 2)),
    ("vector_norm(x)", MN, lambda x: np.linalg.vector_norm(x)),
    ("vector_norm(x, axis=1, ord=3)", MN, lambda x: np.linalg.vector_norm(x, axis=1, ord=3)),
    ("sort(x, axis=0)", MN, lambda x: np.sort(x, 0)),
    ("argsort(n, descending=True)", INT, lambda n: np.argsort(-n.astype(np.int64), kind="stable")),
    ("searchsorted(sort(v), x)", V_AND_X, lambda x, v: np.searchsorted(np.sort(v), x)),
    ('searchsorted(v, x, side="right", sorter=argsort(v))', V_AND_X, lambda x, v: np.searchsorted(np.sort(v), x, "right")),
    ("median(x, axis=1)", MN, lambda x: np.median(x, 1)),
    ("quantile(x, 0.3, axis=0, keepdims=True)", MN, lambda x: np.quantile(x, 0.3, 0, keepdims=True).astype(F32)),
    ("count_nonzero(x, axis=1)", MN, lambda x: np.count_nonzero(x, 1)),
    ("isin(n, m)", {"n": "i32[M, N]", "m": "i32[K]"}, lambda n, m: np.isin(n, m)),
    ("logaddexp(x, y)", XY, lambda x, y: np.logaddexp(x, y)),
    ("heaviside(x, 0.5)", MN, lambda x: np.heaviside(x, F32(0.5))),
    ("isclose(x, y, atol=1.0)", XY, lambda x, y: np.isclose(x, y, atol=1)),
    ("allclose(x, x + 1e-6)", MN, lambda x: np.allclose(x, x + F32(1e-6))),
    ("nan_to_num(x)", MN, lambda x: np.nan_to_num(x)),
    ("linspace(0, 1, N)", MN, lambda x: np.linspace(0, 1, x.shape[1], dtype=F32)),
    ("nextafter(x, y)", XY, lambda x, y: np.nextafter(x, y)),
    ("next_half(x, y)", {"x": "f16[M, N]", "y": "f16[M, N]"}, lambda x, y: np.nextafter(x.astype(F16), y.astype(F16))),
    ("asarray(x, dtype=f64)", MN, lambda x: x.astype(np.float64)),
    ("asarray(((1, 2), (3, 4)))", MN, lambda x: np.array([[1, 2], [3, 4]])),
    ("zeros_like(x) + empty((M, N)) * 0 + empty_like(x) * 0", MN, lambda x: np.zeros_like(x)),
    ("astype(x, result_type(n, f16))", {**MN, "n": "i8[M]"}, lambda x, n: x.astype(np.float16)),
    ("x if can_cast(f32, f64) & isdtype(f32, f32) else x[0]", MN, lambda x: x),
    ("x * finfo(x).max + iinfo(i8).min", MN, None),
]  # fmt: skip

CASES = ARITHMETIC + PROMOTION + REDUCTIONS + PRODUCTS + MOVEMENT + INDEXING + LIBRARY + ARRAY_API


# ---- tests of the table ------------------------------------------------------------------


@pytest.mark.parametrize("text, types, hand", CASES, ids=[f"{c[0]}; {', '.join(c[1].values())}" for c in CASES])
def test_case(text: str, types: dict[str, str], hand: Hand | None) -> None:
    module = parse_program(text, "<case>", types)
    ran = 0
    for sizes, special in itertools.product(SIZES, (False, True)):
        outcome = run(module, sizes, special=special)
        if outcome is None:
            continue
        ran += 1
        if hand is not None and not special:
            given, (result,) = outcome
            with np.errstate(all="ignore"):
                want = np.asarray(hand(**{k: widened(v) for k, v in given.items()}))
            relative = {"float32": 2e-5, "float16": 2e-3}.get(result.dtype.name)
            assert_close(result, want, f"numpy at {sizes}", relative)
    assert ran


def test_the_table_covers_the_language() -> None:
    assert len(CASES) >= 150
    assert sum(hand is not None for _, _, hand in CASES) >= 60
    called = {
        node.function
        for text, types, _ in CASES
        for node in ast.postorder(parse_program(text, "<case>", types))
        if isinstance(node, ast.Call)
    }
    assert set(SIGNATURES) | set(FUNCTION_ALIASES) | set(library_spans()) <= called


@pytest.mark.parametrize("name", [*OPERATORS, *ALIASES])
def test_operator_of_every_dtype(name: str) -> None:
    """Each row of the operator table, called by name on each dtype, alone and with a weak scalar."""
    row = OPERATORS[ALIASES.get(name, name)]
    letters = "xyz"[: row.arity]
    for dtype in DTYPES.values():
        if row.operands == "same" and dtype.kind not in row.accepts:
            continue
        types = {v: f"{dtype}[M, N]" for v in letters}
        calls = [f"{name}({', '.join(letters)})"]
        if row.arity == 2:
            calls += [f"{name}(x, 2)", f"{name}(3, x)"]
            calls += [f"x {row.symbol} y", f"1 {row.symbol} x"] if row.symbol else []
        elif row.symbol:
            calls.append(f"{row.symbol}x")
        for call in calls:
            module = parse_program(call, "<case>", types)
            given, (result,) = run(module, SIZES[0], special=True) or ({}, (None,))
            if call == calls[0] and row.operands == "same" and row.result == "operand" and dtype.bits > 16:
                with np.errstate(all="ignore"):
                    assert_close(result, np.asarray(row.numpy(*(given[v] for v in letters))), call)


@pytest.mark.parametrize("a, b", [*itertools.product(DTYPES, DTYPES)])
def test_promotion_of_every_pair(a: str, b: str) -> None:
    for text in ("x + y", "x / y", "x < y", "where(x > 0, x, y)", "concat((x, y))", "x @ y"):
        run(parse_program(text, "<case>", {"x": f"{a}[N]", "y": f"{b}[N]"}), SIZES[0], special=text[2] != "@")


@pytest.mark.parametrize("a, b", [*itertools.product(DTYPES, DTYPES)])
def test_conversion_of_every_pair(a: str, b: str) -> None:
    for special in (False, True):
        run(parse_program(f"astype(x, {b})", "<case>", {"x": f"{a}[N]"}), SIZES[0], special=special)


# ---- whole modules -----------------------------------------------------------------------


def check(text: str, hand: Hand | None = None, packs: Mapping[str, tuple[int, ...]] = {}, **arguments: Any) -> None:
    module = parse_module(text)
    ran = 0
    for sizes in SIZES:
        outcome = run(module, sizes, packs, arguments=arguments)
        ran += outcome is not None
        if outcome is None or hand is None:
            continue
        given, results = outcome
        with np.errstate(all="ignore"):
            names = [p.name for p in module.functions[-1].params if p.name in given]
            wanted = hand(*(widened(given[n]) if isinstance(given[n], np.ndarray) else given[n] for n in names))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for result, want in zip(results, wanted, strict=True):
            assert_close(result, np.asarray(want), f"numpy at {sizes}", 2e-5)
    assert ran


def test_several_outputs_and_assignments() -> None:
    check(
        """
def f(x: f32[M, N]):
    m = mean(x, axis=1, keepdims=True)
    m, y = m, x - m
    return y, m[:, 0], N, x.shape[0] * 0.5
""",
        lambda x: (
            x - x.sum(1, keepdims=True) / F32(x.shape[1]),
            x.sum(1) / F32(x.shape[1]),
            np.int64(x.shape[1]),
            F32(len(x) / 2),
        ),
    )


def test_calls_bind_the_callee_s_dimensions() -> None:
    check(
        """
def scale(v: f32[A, 2 * B], w: f32[B], by: float = 2.0) -> f32[A, 2 * B]:
    return v * by / (1 + A + B) + concat((w, w))

def f(x: f32[M, 2 * N], w: f32[N]):
    return scale(x, w), scale(x, w=w, by=0.5)
""",
        lambda x, w: tuple(x * by / (1 + len(x) + len(w)) + np.concatenate([w, w]) for by in (2, 0.5)),
    )


def test_a_weak_argument_takes_the_declared_dtype() -> None:
    check("def g(v: f16[]):\n    return v * 3\n\ndef f(x: f32[M]):\n    return g(0.1), x", None)


@pytest.mark.parametrize("extents", [(), (3,), (2, 3), (0, 2)])
def test_star_dimensions(extents: tuple[int, ...]) -> None:
    check(
        """
def normal(x: f32[*B, D], g: f32[D], eps: float = 1e-5) -> f32[*B, D]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g / D

def f(x: f32[*B, N], w: f32[K, N], i: i64[*B]) -> (f32[*B, N], f32[*B, N]):
    return normal(x, w[0]), w[i] + x
""",
        None,
        {"B": extents},
    )
    check("def f(x: f32[*B, N], w: f32[*B, N, K]):\n    return x[..., None, :] @ w, w.mT", None, {"B": extents})


def test_scalar_parameters() -> None:
    text = """
def f(x: f32[M], eps: float, axis: int = 0, flip_it: bool = False, mode="a"):
    y = flip(x, axis) if flip_it else x
    return y * eps + eps ** 2 + 1 / eps if mode == "a" else y - eps
"""
    check(text, lambda x, eps: x * F32(eps) + F32(eps**2) + F32(1 / eps), eps=0.25)
    check(text, lambda x, eps, flip_it: x[::-1] * F32(eps) + F32(eps**2) + F32(1 / eps), eps=0.25, flip_it=True)
    check(text, lambda x, eps, mode: x - F32(eps), eps=0.25, mode="b")
    text = "def f(x: f16[M], eps: float):\n    return x * eps**0.5, 1 / eps, eps // 2, x % eps, sqrt(eps), eps"
    for eps in (0.0, -0.25, float("inf")):
        check(text, eps=eps)


def test_untyped_parameters() -> None:
    x, n = np.arange(6, dtype=F32).reshape(2, 3), np.array([1, 2, 3], np.int16)
    check("def f(x, n, k=2):\n    return x * n + k, n.shape[0]", lambda x, n: (x * n + 2, np.int64(3)), x=x, n=n)


def test_a_function_may_return_the_results_of_another() -> None:
    check("def g(x):\n    return x + 1, x - 1\n\ndef f(x: f32[M]):\n    return g(x)", lambda x: (x + 1, x - 1))
    check("def g(x):\n    return x.shape\n\ndef f(x: f32[M]):\n    return x * g(x)[0]", lambda x: x * len(x))


def test_the_library_does_not_see_the_module() -> None:
    check(
        "def exp(x):\n    return x * 0\n\ndef softmax(x):\n    return attention(x, x, x) + exp(x)\n\n"
        "def f(x: f32[M, N]):\n    return softmax(x)",
        lambda x: softmax(x @ x.T * F32(x.shape[1] ** -0.5 if x.shape[1] else np.inf)) @ x,
    )


def test_shapes_are_compared_by_size() -> None:
    check("def f(x: f32[M, N], y: f32[M, N]):\n    return x if x.shape == y.shape else x.T", lambda x, y: x)
    with pytest.raises(CompileError, match="MT0106"):
        check("def f(x: f32[M], y: f32[N]):\n    return x if x.shape == y.shape else sum(y)")


def test_long_expressions() -> None:
    x = np.arange(3, dtype=np.int64)
    module = parse_program(" + ".join(["x"] * 20_000).replace(" ", ""), "<long>", {"x": "i64[N]"})
    (result,) = evaluate(module, "main", {"x": x}, {"N": 3})
    np.testing.assert_array_equal(result, 20_000 * x)


def test_half_precision_is_rounded_only_where_the_program_says() -> None:
    x = np.array([1 / 3], np.float16)
    module = parse_program("x * x * x, astype(x * x, f16) * x, (x * x) @ x", "<half>", {"x": "f16[1]"})
    product, cast, contracted = evaluate(module, "main", {"x": x}, {})
    wide = x.astype(F32)
    assert product == (wide**3).astype(np.float16)
    assert cast == ((x * x).astype(F32) * wide).astype(np.float16)
    assert contracted == ((x * x).astype(F32) * wide)[0].astype(np.float16)
    assert product.dtype == cast.dtype == contracted.dtype == np.float16


def test_big_endian_and_strided_inputs() -> None:
    x = np.arange(12, dtype=">f4").reshape(3, 4)[::-1, ::2]
    (result,) = evaluate(parse_program("x + 1", "<e>", {"x": "f32[M, N]"}), "main", {"x": x}, {"M": 3, "N": 2})
    np.testing.assert_array_equal(result, x + 1)
    assert result.dtype == np.float32 and result.dtype.isnative


@pytest.mark.parametrize(
    "text, types, good, bad",
    [
        ("n + N", {"n": "i8[N]"}, 127, 128),
        ("u * (N - 3)", {"u": "u8[N]"}, 3, 2),
        ("x[N - 4]", {"x": "f32[N]"}, 4, 3),
        ("x[-N]", {"x": "f32[N]"}, 1, 0),
        ("x[N - 3:]", {"x": "f32[N]"}, 3, 2),
        ("x[-N:]", {"x": "f32[N]"}, 1, 0),
        ("x[5, i]", {"x": "f32[N, 2]", "i": "i64[1]"}, 6, 5),
        ("max(x)", {"x": "f32[N]"}, 1, 0),
        ("reshape(x, (M, -1))", {"x": "f32[N, 6]", "y": "f32[M]"}, 4, 0),
    ],
)
def test_sizes_that_numpy_would_interpret_differently_are_refused(
    text: str, types: dict[str, str], good: int, bad: int
) -> None:
    module = parse_program(text, "<case>", types)
    assert run(module, {"N": good, "M": good}) is not None
    assert run(module, {"N": bad, "M": bad}) is None


@pytest.mark.parametrize(
    "text, arguments, code",
    [
        ("x[7] + y", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0306"),
        ("max(x[:0]) + y", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0306"),
        ("reshape(x, 2) + y", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0306"),
        ("x + z", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0101"),
        ("zebra(x, y)", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0101"),
        ("x & y", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0202"),
        ("x[y]", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0206"),
        ("x.strides + y", {"x": np.zeros(3, F32), "y": np.zeros(3, F32)}, "MT0103"),
    ],
)
def test_errors_are_errors(text: str, arguments: dict[str, Any], code: str) -> None:
    module = parse_program(text, "<e>", {"x": "f32[N]", "y": "f32[N]"})
    with pytest.raises(CompileError) as error:
        evaluate(module, "main", arguments, {"N": 3})
    assert error.value.code == code and error.value.span is not None


def test_tf32_rounds_operands_to_11_bits() -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-12, -0.0, np.inf, np.nan], F32)
    np.testing.assert_array_equal(
        round_to_tf32(x), np.array([1 + 2.0**-10, 1 + 2.0**-10, 1 + 2.0**-10, -0.0, np.inf, np.nan], F32)
    )


@pytest.mark.parametrize("precision, digits", [("ieee", 24), ("tf32", 10), ("tf32x3", 20)])
def test_products_have_the_digits_of_their_precision(precision: str, digits: int) -> None:
    x, y = np.random.default_rng(5).uniform(1, 2, (2, 9, 9)).astype(F32)
    exact = x.astype(np.float64) @ y
    error = np.abs(numpy_array_operations.contract(x, y, DTYPES["f32"], precision) / exact - 1).max()
    most = 9 if precision == "ieee" else 1  # one rounding for each of 9 sums, in any order; or one for each operand
    assert 2.0**-digits / 64 < error < 2.0**-digits * most
    assert (numpy_array_operations.contract(x, y, DTYPES["f64"], precision) == exact).all()


def test_plus_keeps_the_sign_of_zero() -> None:
    module = parse_program("copysign(x, +(-0.0))", "<e>", {"x": "f32[N]"})
    arguments, sizes = {"x": np.ones(3, F32)}, {"N": 3}
    for (result,) in (
        evaluate(module, "main", arguments, sizes),
        evaluate_graph(build(module, "main"), arguments, sizes),
    ):
        np.testing.assert_array_equal(result, -arguments["x"])
