"""A small fixed oracle: short programs at ragged sizes, whose results are compared with numpy after every pass.

In: the compiler as it is imported. Out: `first_failure()`, the first wrong result as a `Failure` (case,
schedule, the pass that made it, the error), or None. Planted bugs (tests/mutants.py) and mutated files
(tests/mutation.py) are run against this oracle. So it is quick and stops at the first failure. Only the
results come from the compiler: numpy computes the expected values (`Case.want`). If sums must be exact,
inputs are small integers.

The schedules, all run by numpy and by Triton's interpreter:

    own        the interpreter's schedule
    small      blocks of 2 to 8
    odd        blocks of 3, so that the last element of each tile is masked
    cuda       the kernel that a GPU gets for these sizes
    rotated    the same with rotated loops (minitri/optimize/software_pipelining.py)
    general    the kernel for any sizes
    wide       the kernel for any sizes, with 64-bit offsets
    bare       without the optional passes
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.hardware.targets import StageUnavailable
from minitri.runtime.call_binding import Call, bind
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check_passes import check, compilation


class Blocks(dict[str, int]):
    """Block sizes by the first letter of an axis. As a mapping it is empty, so no name counts as unknown."""

    def __init__(self, **blocks: int) -> None:
        self.blocks = {letter: block for letters, block in blocks.items() for letter in letters}

    def get(self, name: str, default: int | None = None) -> int | None:  # type: ignore[override]
        return self.blocks.get(name, default)


SMALL = Options(blocks=Blocks(ijr=8, efghklstuvw=2))
ODD = Options(blocks=Blocks(ijkl=3))  # three of a tile's four elements are used
ROTATED = Options(blocks=Blocks(ijkr=16), descriptors=True)  # an iteration starts with a value of the one before
VARIANTS = {"rotated": "cuda", "cuda": "cuda", "general": "cuda general", "wide": "cuda wide"}
ALL = ("own", "small", "odd", "cuda", "general", "wide", "bare")


@dataclass(frozen=True)
class Case:
    """`want` takes the arrays and returns the result (or a tuple). `values` says how arrays are filled (see `_draw`).

    off        the relative error allowed; 0: every bit must be right, also the sign of a zero
    layout     how the arrays are laid out in memory
    """

    text: str
    types: Mapping[str, str]
    want: Callable[..., Any] | None
    sizes: tuple[Mapping[str, int], ...] = ({"M": 7, "N": 33, "K": 5}, {"M": 1, "N": 3, "K": 2})
    values: Mapping[str, str] = field(default_factory=dict)
    off: float = 0.0
    schedules: tuple[str, ...] = ("own", "small", "cuda", "general")
    layout: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Failure:
    case: str
    schedule: str
    guilty: str
    what: str


# ---- the cases -------------------------------------------------------------------------

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
bf16 = ml_dtypes.bfloat16
MN = {"x": "f32[M, N]"}
TWO = {"x": "f32[M, N]", "y": "f32[M, N]"}
MK_KN = {"x": "f32[M, K]", "w": "f32[K, N]"}
PLAIN = ({"M": 7, "N": 33, "K": 5},)
SQUARE = ({"M": 19, "N": 35, "K": 21}, {"M": 3, "N": 2, "K": 5})
QKV = {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, D]"}
NORMAL: Any = {"values": {"q": "normal", "k": "normal", "v": "normal"}}
EMPTY = ({"M": 3, "N": 0, "K": 2}, {"M": 0, "N": 3, "K": 2})


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x.astype(f8) - x.max(axis, keepdims=True))
    return (e / e.sum(axis, keepdims=True)).astype(f4)


def _causal(q: Any, k: Any, v: Any) -> Any:
    scores = 30 * (q.astype(f8) @ k.T)
    return (_softmax(np.where(np.arange(len(q))[:, None] >= np.arange(len(k)), scores, -np.inf)).astype(f8) @ v).astype(
        f4
    )


def _seen(q: Any, k: Any, v: Any, seen: Callable[[Any], Any]) -> Any:
    """Attention that reads the pairs for which `seen(row - key)` is true."""
    scores = np.where(seen(np.arange(len(q))[:, None] - np.arange(len(k))), q.astype(f8) @ k.T, -np.inf)
    return (_softmax(scores).astype(f8) @ v).astype(f4)


def _where(condition: str, want: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A function that evaluates a condition on the indices i and j of x with numpy."""

    def found(x: Any) -> Any:
        places = {"i": np.arange(x.shape[0])[:, None], "j": np.arange(x.shape[1])}
        with np.errstate(all="ignore"):
            results = want(np.broadcast_to(eval(condition, places), x.shape), x)
        return tuple(r.astype(f4) for r in results) if isinstance(results, tuple) else results.astype(f4)

    return found


def _placed(text: str, condition: str, want: Callable[[Any, Any], Any], values: str) -> Case:
    """A program whose text has C in place of `condition`, a condition on the row i and the column j of x."""
    written = condition.replace("j", "arange(N)").replace("i", "arange(M)[:, None]")
    return Case(
        text.replace("C", written), MN, _where(condition, want), ({"M": 19, "N": 37},), {"x": values}, 1e-5, ("small",)
    )


def _even_exponentials(x: Any) -> Any:
    e = np.exp(x.astype(f8) - x.max(1, keepdims=True))
    return np.where(np.arange(x.shape[1]) % 2 == 0, e, 0).sum(1)


def _triangle(x: Any) -> Any:
    y = np.where(np.tri(len(x), dtype=bool), x, 1).astype(f8)
    return np.exp(y - y.max(1, keepdims=True)).sum(1).astype(f4)


def _logsumexp(x: Any) -> Any:
    return np.log(np.exp(x.astype(f8)).sum(-1)).astype(f4)


def _normalised(x: Any) -> Any:
    x = x.astype(f8)
    return ((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)).astype(f4)


def _gathered(x: Any, k: Any) -> Any:
    """x[k] with NaN where an index is out of range. Negative indices count from the end."""
    k = np.where(k < 0, k + len(x), k)
    inside = (k >= 0) & (k < len(x))
    return np.where(inside[..., None], x[np.where(inside, k, 0)], np.nan).astype(x.dtype)


def _argmax(x: Any, axis: int) -> Any:
    return np.argmax(x, axis).astype(i8)


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return call


def _attention(q: Any, k: Any, v: Any) -> Any:
    return (_softmax((q.astype(f8) @ k.T) / np.sqrt(q.shape[-1])).astype(f8) @ v).astype(f4)


def _floor(x: Any, y: Any) -> Any:
    return np.where(y == 0, 0, x // np.where(y == 0, 1, y)).astype(x.dtype)


def _modulo(x: Any, y: Any) -> Any:
    return np.where(y == 0, 0, x % np.where(y == 0, 1, y)).astype(x.dtype)


def _halves(x: Any) -> Any:
    """f32 sums in f16 steps, rounded only where the program says so."""
    return (x.astype(f4) * f4(3) + f4(1)).astype(np.float16)


@functools.cache
def _wide_memory() -> Any:
    """4 GiB of memory, most of which is never touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE of Linux
    return np.frombuffer(mmap.mmap(-1, 2**32 + 2**20, flags=flags), np.int8)


def _far_apart(x: Any) -> Any:
    """x with 2**30 elements between neighbours. At offsets modulo 2**32 there is another value."""
    far = _wide_memory()[2**31 :][:: 2**30][: len(x)]
    _wide_memory()[0], far[...] = 77, x
    return far


def _shifts(x: Any, n: Any) -> tuple[Any, Any]:
    inside, safe = (n >= 0) & (n < 32), np.clip(n, 0, 31)
    return np.where(inside, x << safe, 0).astype(i4), np.where(inside, x >> safe, np.where(x < 0, -1, 0)).astype(i4)


CASES: dict[str, Case] = {
    # reductions
    "sum of rows": Case("sum(x, axis=1)", MN, lambda x: x.sum(1)),
    "sum of columns": Case("sum(x, axis=0)", MN, lambda x: x.sum(0)),
    "sum of all": Case("sum(x)", MN, lambda x: x.sum()),
    "sum of an empty axis": Case("sum(x + 1, axis=1)", MN, lambda x: (x + 1).sum(1, dtype=f4), EMPTY),
    "sum after an offset": Case("sum(x + 1, axis=1)", MN, lambda x: (x + 1).sum(1)),
    "sum with kept axis": Case("x - sum(x, axis=1, keepdims=True)", MN, lambda x: x - x.sum(1, keepdims=True)),
    "max of rows": Case("max(x, axis=1)", MN, lambda x: x.max(1), values={"x": "negative"}),
    "max of columns": Case("max(x, axis=0)", MN, lambda x: x.max(0), values={"x": "negative"}),
    "max after exp": Case("max(0 - exp(x), axis=1)", MN, lambda x: -np.exp(x.astype(f8)).min(1).astype(f4), off=1e-6),
    "min of rows": Case("min(x, axis=1)", MN, lambda x: x.min(1), values={"x": "positive"}),
    "min of integers": Case("min(x, axis=0)", {"x": "i32[M, N]"}, lambda x: x.min(0), values={"x": "positive"}),
    "max of integers": Case("max(x, axis=1)", {"x": "i32[M, N]"}, lambda x: x.max(1), values={"x": "negative"}),
    "max of nan": Case("max(x, axis=1)", MN, lambda x: x.max(1), values={"x": "special"}),
    "prod of rows": Case("prod(x, axis=1)", MN, lambda x: x.prod(1), values={"x": "signs"}),
    "prod of columns": Case("prod(x, axis=0)", MN, lambda x: x.prod(0), values={"x": "signs"}),
    "any and all": Case(
        "def f(x: f32[M, N]):\n    return any(x > 3, axis=1), all(x > -4, axis=1), any(x > 3, axis=0), all(x > -4, axis=0)\n",
        {}, lambda x: ((x > 3).any(1), (x > -4).all(1), (x > 3).any(0), (x > -4).all(0)),
    ),
    "argmax": Case("argmax(x, axis=1)", MN, lambda x: _argmax(x, 1), values={"x": "negative"}),
    "argmax of columns": Case("argmax(x, axis=0)", MN, lambda x: _argmax(x, 0), values={"x": "negative"}),
    "argmax of nan": Case("argmax(x, axis=1)", MN, lambda x: _argmax(x, 1), values={"x": "special"}),
    "argmin": Case("argmin(x, axis=1)", MN, lambda x: np.argmin(x, 1).astype(i8), values={"x": "positive"}),
    "mean": Case("mean(x, axis=1)", MN, lambda x: (x.sum(1) / f4(x.shape[1])).astype(f4), off=1e-6),
    "mean of means": Case("mean(mean(x, axis=-1))", MN, lambda x: x.astype(f8).mean().astype(f4), off=1e-5),
    "variance": Case("var(x + 3000, axis=1)", MN, lambda x: x.astype(f8).var(1).astype(f4), PLAIN, off=1e-4),
    "corrected deviation": Case(
        "std(x, axis=1, correction=1)", MN, lambda x: x.astype(f8).std(1, ddof=1).astype(f4), off=1e-5
    ),
    "rows and columns": Case(
        "sum(x, axis=0) + sum(x, axis=1)", {"x": "f32[N, N]"}, lambda x: x.sum(0) + x.sum(1), ({"N": 19}, {"N": 2})
    ),
    "mean of a product": Case("mean(x @ w, axis=1)", {"x": "bf16[M, K]", "w": "bf16[K, N]"}, lambda x, w: (x.astype(f8) @ w.astype(f8)).mean(1).astype(bf16), ({"M": 9, "K": 17, "N": 40},), {"x": "positive", "w": "positive"}, off=2e-2, schedules=("cuda",)),
    "mean of a compared product": Case("mean(where(x @ w > 400, b, 0), axis=1)", {"x": "bf16[M, K]", "w": "bf16[K, N]", "b": "bf16[N]"}, lambda x, w, b: np.where(x.astype(f8) @ w.astype(f8) > 400, b.astype(f8), 0).mean(1).astype(bf16), ({"M": 90, "K": 17, "N": 40},), {"x": "positive", "w": "positive", "b": "positive"}, off=1e-2, schedules=("cuda",)),
    "batch of products with one matrix": Case("x @ w", {"x": "f32[B, M, K]", "w": "f32[K, N]"}, lambda x, w: (x.astype(f8) @ w.astype(f8)).astype(f4), ({"B": 3, "M": 5, "K": 17, "N": 6},), schedules=("cuda",)),
    "sum of a matrix in parts": Case("sum(x)", {"x": "f32[M, N]"}, lambda x: x.sum(dtype=f8).astype(f4), ({"M": 215, "N": 77},), schedules=("cuda",)),
    "long sum": Case("sum(x)", {"x": "f32[L]"}, lambda x: x.sum(dtype=f8).astype(f4), ({"L": 16411},), schedules=("cuda",)),
    "long sum of integers": Case("sum(x)", {"x": "i32[L]"}, lambda x: x.sum(dtype=i8), ({"L": 16411},), schedules=("cuda",)),
    "sum beside its elements": Case("sum(x), x * 2", {"x": "f32[L]"}, lambda x: (x.sum(dtype=f8).astype(f4), x * 2), ({"L": 20480},), schedules=("cuda",)),
    "sum beside a part of each row": Case("sum(x[:128]), x[:, :128] * 2", {"x": "f32[M, N]"}, lambda x: (x[:128].sum(dtype=f8).astype(f4), x[:, :128] * 2), ({"M": 256, "N": 256},), schedules=("cuda",)),
    "sum beside transposed elements": Case("sum(x.mT * x.mT), x.mT + 1, relu(x)", {"x": "f32[M, N]"}, lambda x: ((x.astype(f8) ** 2).sum().astype(f4), x.T + 1, np.maximum(x, 0)), ({"M": 96, "N": 200},), schedules=("cuda",)),
    "long scan": Case("cumulative_sum(x)", {"x": "i32[L]"}, lambda x: x.cumsum(dtype=i8), ({"L": 20011},), schedules=("cuda",)),
    "long max": Case(
        "max(x, axis=1)", {"x": "f32[R, L]"}, lambda x: x.max(1), ({"R": 2, "L": 16411},), {"x": "negative"}, schedules=("cuda",)
    ),
    "long columns": Case("sum(x, axis=0)", {"x": "f32[L, R]"}, lambda x: x.sum(0), ({"R": 3, "L": 4100},), schedules=("cuda",)),
    "long sum of two axes": Case("sum(x, axis=(0, 2))", {"x": "f32[A, R, L]"}, lambda x: x.sum((0, 2)), ({"A": 3, "R": 2, "L": 5501},), schedules=("cuda",)),
    # rows kept in registers, and rows read in a loop
    "long variance": Case("var(x, axis=1)", {"x": "f32[A, L]"}, lambda x: x.astype(f8).var(1).astype(f4), ({"A": 2, "L": 16911},), {"x": "steps"}, off=1e-4, schedules=("cuda",)),
    "long logsumexp": Case("logsumexp(x, axis=1)", {"x": "f32[A, L]"}, _logsumexp, ({"A": 2, "L": 16411},), {"x": "sparse"}, off=1e-5, schedules=("cuda",)),
    "total of rows": Case("sum(x * sum(x, axis=1, keepdims=True))", {"x": "f32[A, M]"}, lambda x: (x.astype(f8) * x.astype(f8).sum(1, keepdims=True)).sum().astype(f4), ({"A": 256, "M": 65},), off=1e-4, schedules=("cuda",)),
    "variance of two axes": Case("var(x, axis=(0, 2))", {"x": "f32[A, M, L]"}, lambda x: x.astype(f8).var((0, 2)).astype(f4), ({"A": 19, "M": 3, "L": 19},), off=1e-5),
    "sum of exponentials of -inf": Case("sum(exp(x - max(x, axis=1, keepdims=True)), axis=1)", MN, _wrapped(lambda x: np.exp(x - x.max(1, keepdims=True)).sum(1)), values={"x": "sparse"}, off=1e-6),
    "causal attention": Case(
        "softmax(where(arange(T)[:, None] >= arange(S), 30 * (q @ k.mT), -inf), axis=-1) @ v",
        {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, D]"}, _causal, ({"T": 37, "S": 50, "D": 16},),
        {"q": "normal", "k": "normal", "v": "normal"}, off=1e-3,
    ),
    "long attention of few rows": Case(
        "softmax(where(arange(S) >= 700, q @ k.mT, -inf), axis=-1) @ v",
        QKV, lambda q, k, v: (_softmax(np.where(np.arange(len(k)) >= 700, q.astype(f8) @ k.T, -np.inf)).astype(f8) @ v).astype(f4),
        ({"T": 3, "S": 2100, "D": 16},), schedules=("cuda",), off=1e-3, **NORMAL,
    ),
    "attention in a window": Case(
        "softmax(where((arange(T)[:, None] - arange(S) >= -20) & (arange(T)[:, None] - arange(S) < 26), q @ k.mT, -inf), axis=-1) @ v",
        QKV, lambda q, k, v: _seen(q, k, v, lambda d: (d >= -20) & (d < 26)),
        ({"T": 37, "S": 70, "D": 16},), schedules=("small",), off=1e-3, **NORMAL,
    ),
    "attention near the diagonal": Case(
        "softmax(where(abs(arange(T)[:, None] - arange(S)) < 25, q @ k.mT, -inf), axis=-1) @ v",
        QKV, lambda q, k, v: _seen(q, k, v, lambda d: abs(d) < 25),
        ({"T": 53, "S": 70, "D": 16},), schedules=("small",), off=1e-3, **NORMAL,
    ),
    "attention to later keys": Case(
        "softmax(where(arange(T)[:, None] + 2 <= arange(S), q @ k.mT, -inf), axis=-1) @ v",
        QKV, lambda q, k, v: _seen(q, k, v, lambda d: d + 2 <= 0),
        ({"T": 37, "S": 50, "D": 16},), schedules=("small",), off=1e-3, **NORMAL,
    ),
    "largest score": Case("max(q @ k.mT, axis=-1)", {"q": "f32[T, D]", "k": "f32[S, D]"}, lambda q, k: (q @ k.T).max(1), ({"T": 19, "S": 21, "D": 16},), schedules=("small",)),
    "softmax of scaled rows": Case(
        "softmax(x * sum(y, axis=1, keepdims=True) / 8, axis=1)", TWO, lambda x, y: _softmax(x * y.sum(1, keepdims=True) / 8), off=1e-5,
    ),
    "attention without queries": Case(
        "softmax(where(abs(arange(37)[:, None] - arange(S)) < 25, b, -inf), axis=-1) @ v", {"b": "f32[S]", "v": "f32[S, D]"},
        lambda b, v: _seen(np.ones((37, 1), f4), b[:, None], v, lambda d: abs(d) < 25),
        ({"S": 70, "D": 16},), {"b": "normal", "v": "normal"}, schedules=("small",), off=1e-3,
    ),
    "rotated attention": Case(
        "softmax(where(arange(T)[:, None] >= arange(S) - 130, q @ k.mT, -inf), axis=-1) @ v",
        QKV, lambda q, k, v: _seen(q, k, v, lambda d: d >= -130),
        ({"T": 37, "S": 171, "D": 16},), schedules=("rotated",), off=1e-3, **NORMAL,
    ),
    "attention by a reciprocal": Case(
        "def f(q: f32[T, D], k: f32[S, D], v: f32[S, D]):\n    e = exp(q @ k.mT - max(q @ k.mT, axis=-1, keepdims=True))\n"
        "    return (e * (1 / sum(e, axis=-1, keepdims=True))) @ v\n",
        {}, lambda q, k, v: _seen(q, k, v, lambda d: d == d), ({"T": 21, "S": 33, "D": 16},), schedules=("small",), off=1e-3, **NORMAL,
    ),
    "sum of exponentials of a triangle": Case(
        "def f(x: f32[N, N]):\n    y = where(arange(N)[:, None] >= arange(N), x, 1)\n"
        "    return sum(exp(y - max(y, axis=1, keepdims=True)), axis=1)\n",
        {}, _triangle, ({"N": 33},), {"x": "normal"}, off=1e-6,
    ),
    # conditions on indices: loops leave blocks out
    'columns between a diagonal and a column': _placed(
        'sum(where(C, x, 0), axis=0)', '(j > i + 5) & (j <= 20)', lambda c, x: np.where(c, x, 0).sum(0), 'integers'
    ),
    'columns outside two conditions': _placed(
        'sum(where(~C, x, 0), axis=0)', '((i >= 4) | (j > i + 6))', lambda c, x: np.where(~c, x, 0).sum(0), 'integers'
    ),
    'one condition or another': _placed(
        'sum(where(C, x, 0), axis=1)', '(j < i) | (j > 30)', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'first columns or first rows': _placed(
        'sum(where(C, x, 0), axis=1)', '(j < 3) | (i < 5)', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'distances above a limit': _placed(
        'sum(where(C, x, 0), axis=1)', 'abs(i - j) > 9', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'all but a band': _placed(
        'sum(where(~C, x, 0), axis=1)', '((j <= i) & (j > i - 7))', lambda c, x: np.where(~c, x, 0).sum(1), 'integers'
    ),
    'two bands of columns': _placed(
        'sum(where(C, x, 0), axis=1)', '((j >= 2) & (j < 9)) | ((j > 20) & (j < 29))', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'columns below a diagonal': _placed(
        'sum(where(~C, x, 0), axis=0)', '(j > i + 6)', lambda c, x: np.where(~c, x, 0).sum(0), 'integers'
    ),
    'the first seven columns': _placed(
        'sum(where(C, x, 0), axis=1)', 'j < 7', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'a slope of one half': _placed(
        'sum(where(C, x, 0), axis=1)', '2 * j <= i', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'the diagonal': _placed(
        'max(where(C, x, -inf), axis=0)', 'i == j', lambda c, x: np.where(c, x, -np.inf).max(0), 'integers'
    ),
    'a product filled with zeros': _placed(
        'prod(where(C, x, 0), axis=0)', '(j <= i) & (j > i - 7)', lambda c, x: np.where(c, x, 0).prod(0), 'signs'
    ),
    'a sum filled with ones': _placed(
        'sum(where(C, x, 1), axis=0)', 'j <= i', lambda c, x: np.where(c, x, 1).sum(0), 'integers'
    ),
    'a maximum filled with zeros': _placed(
        'max(where(C, x, 0), axis=0)', 'j <= i', lambda c, x: np.where(c, x, 0).max(0), 'negative'
    ),
    'a masked array that is also stored': _placed(
        'sum(where(C, x, 0), axis=1), where(C, x, 0)', 'j <= i', lambda c, x: (np.where(c, x, 0).sum(1), np.where(c, x, 0)), 'integers'
    ),
    'a mask with swapped operands': _placed(
        'sum(where(C, 0, x), axis=0)', 'j <= i', lambda c, x: np.where(c, 0, x).sum(0), 'integers'
    ),
    'a where in a where': _placed(
        'sum(where(C, where(j > 3, x, 0), 0), axis=1)'.replace('j', 'arange(N)'), 'j <= i', lambda c, x: np.where(c & (np.arange(37) > 3), x, 0).sum(1), 'integers'
    ),
    'bits of indices': _placed(
        'sum(where(C, x, 0), axis=1)', '(j & 3) <= 1', lambda c, x: np.where(c, x, 0).sum(1), 'integers'
    ),
    'softmax of a triangle': _placed(
        'softmax(where(C, x, -inf), axis=0)', 'j <= i', lambda c, x: _softmax(np.where(c, x, -np.inf), 0), 'special'
    ),
    'exponentials of other elements': _placed(
        'sum(where(arange(N) % 2 == 0, exp(where(C, x, -inf) - max(where(C, x, -inf), axis=1, keepdims=True)), 0), axis=1)', 'j <= i', lambda c, x: _even_exponentials(np.where(c, x, -np.inf)), 'special'
    ),
    # rewrites of tile programs by passes and by the emitter
    "a gather by argmax": Case("a[argmax(x, axis=1)]", {**MN, "a": "f32[N]"}, lambda x, a: a[x.argmax(1)], PLAIN, schedules=("small",)),
    "argmax added to its row": Case(
        "x + argmax(x, axis=1, keepdims=True)", MN, lambda x: (x + x.argmax(1)[:, None]).astype(f4), PLAIN, schedules=("small",),
    ),
    "a bias for each row": Case("x[:, :67] * 2 + b", {**MN, "b": "f32[M, 1]"}, lambda x, b: x[:, :67] * 2 + b, ({"M": 9, "N": 72},), schedules=("small",)),
    "index arithmetic past 32 bits": Case(
        "where((arange(N) - 20) * 200000000 < 0, x, 1)", MN, lambda x: np.where((np.arange(x.shape[1]) - 20) * 200000000 < 0, x, 1).astype(f4), PLAIN,
    ),
    "weights that overflow f16": Case(
        "x @ (w.astype(f16) * s).astype(bf16)", {"x": "bf16[M, K]", "w": "i8[K, N]", "s": "f16[N]"},
        lambda x, w, s: (x.astype(f8) @ (w.astype(f8) * s)).astype(bf16), ({"M": 5, "K": 18, "N": 19},), {"x": "positive", "w": "just 100", "s": "just 900"}, off=5e-2, schedules=("small",),
    ),
    "weights of 8 bits": Case(
        "x @ (w.astype(f16) * s)", {"x": "f16[M, K]", "w": "i8[K, N]", "s": "f16[N]"},
        lambda x, w, s: (x.astype(f8) @ (w.astype(f8) * s)).astype(np.float16), ({"M": 35, "K": 32, "N": 48},), {"s": "positive"}, off=1e-2, schedules=("cuda",),
    ),
    "a product of slices": Case(
        "x[:, :20] @ w[:20]", {"x": "f16[M, K]", "w": "f16[K, N]"},
        lambda x, w: (x[:, :20].astype(f8) @ w[:20]).astype(np.float16), ({"M": 19, "K": 40, "N": 32},), schedules=("rotated",),
    ),
    "a product with a transposed factor": Case(
        "x @ w.mT", {"x": "f32[M, K]", "w": "f32[N, K]"}, lambda x, w: (x.astype(f8) @ w.T).astype(f4), ({"M": 19, "K": 68, "N": 35},),
        {"x": "normal", "w": "normal"}, 1e-4, schedules=("cuda",),
    ),
    "a product of special values": Case(
        'matmul(x, w.mT, precision="tf32x3")', {"x": "f32[M, K]", "w": "f32[N, K]"}, lambda x, w: (x.astype(f8) @ w.T).astype(f4),
        ({"M": 35, "K": 3, "N": 19},), {"x": "special", "w": "normal"}, 2e-5, schedules=("own", "cuda"),
    ),
    "a product of large padded values": Case(
        'matmul(pad(x * 1e35, ((0, 0), (40, 40))), pad(w, ((0, 0), (40, 40))).mT, precision="tf32x3")',
        {"x": "f32[M, K]", "w": "f32[N, K]"}, lambda x, w: ((x * f4(1e35)).astype(f8) @ w.T).astype(f4),
        ({"M": 35, "K": 67, "N": 19},), {"x": "positive", "w": "positive"}, 2e-5, schedules=("cuda",),
    ),
    "a product of rows": Case("x @ w", MK_KN, lambda x, w: x @ w, ({"M": 35, "K": 68, "N": 19},), schedules=("cuda",)),
    "a deep product": Case("x @ w", MK_KN, lambda x, w: x @ w, ({"M": 3, "K": 8192, "N": 5},), schedules=("cuda",)),
    "a deep padded product": Case(
        "pad(x, ((0, 0), (0, 3)), 1.5) @ w", {"x": "f32[M, K]", "w": "f32[K + 3, N]"},
        lambda x, w: np.pad(x, ((0, 0), (0, 3)), constant_values=1.5) @ w, ({"M": 3, "K": 1000, "N": 5},), schedules=("cuda",),
    ),
    "a deep product, transposed": Case("(x @ w).mT", MK_KN, lambda x, w: (x @ w).T, ({"M": 3, "K": 8192, "N": 5},), schedules=("cuda",)),
    "softmax": Case("softmax(x, axis=-1)", MN, _softmax, values={"x": "normal"}, off=3e-6),
    "softmax of columns": Case("softmax(x, axis=0)", MN, lambda x: _softmax(x, 0), values={"x": "normal"}, off=3e-6),
    "layer_norm": Case(
        "layer_norm(x, g, b)", {**MN, "g": "f32[N]", "b": "f32[N]"}, lambda x, g, b: _normalised(x) * g + b,
        PLAIN, {"x": "normal"}, 3e-5,
    ),
    "attention": Case(
        "attention(q, k, v)", {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, D]"}, _attention,
        ({"T": 5, "S": 19, "D": 6},), {"q": "normal", "k": "normal", "v": "normal"}, 3e-5,
    ),
    "cross_entropy": Case(
        "cross_entropy(z, y)", {"z": "f32[N, C]", "y": "i64[N]"},
        lambda z, y: -np.log(_softmax(z).astype(f8))[np.arange(len(y)), y].mean().astype(f4),
        ({"N": 9, "C": 21},), {"z": "normal", "y": "index 21"}, 1e-5,
    ),
    "logsumexp": Case("logsumexp(x * 50, axis=1)", MN, lambda x: (np.log(np.exp(50 * (x.astype(f8) - x.max(1, keepdims=True))).sum(1)) + 50.0 * x.max(1)).astype(f4), off=1e-6),
    "sum after a minimum": Case(
        "sum(exp(x - min(x, axis=1, keepdims=True)), axis=1)", MN,
        lambda x: np.exp(x.astype(f8) - x.min(1, keepdims=True)).sum(1).astype(f4), off=1e-5,
    ),
    "products of exponentials": Case(
        "sum(exp(x - max(x, axis=1, keepdims=True)) * exp(y - max(y, axis=1, keepdims=True)), axis=1)", TWO,
        lambda x, y: np.exp(x.astype(f8) + y - x.max(1, keepdims=True) - y.max(1, keepdims=True)).sum(1).astype(f4), off=1e-5,
    ),
    # fast math: only where 16-bit results are written
    "f32 rows by a column": Case("x / y[:, None]", {**MN, "y": "f32[M]"}, lambda x, y: x / y[:, None], values={"x": "positive", "y": "normal"}),
    "f16 rows by two columns": Case("x / y[:, None] + x / z[:, None]", {"x": "f16[M, N]", "y": "f16[M]", "z": "f16[M]"}, lambda x, y, z: (x.astype(f8) / y[:, None] + x.astype(f8) / z[:, None]).astype(np.float16), values={"y": "positive", "z": "positive"}, off=2e-3),
    "a floor of a quotient": Case("astype(floor(x / y[:, None]), f16)", {**MN, "y": "f32[M]"}, lambda x, y: np.floor(x / y[:, None]).astype(np.float16), values={"x": "times 41", "y": "just 41"}),
    "a quotient used in 16 and 32 bits": Case(
        "def f(x: f32[M, N], y: f32[M]):\n    q = x / y[:, None]\n    return astype(q @ eye(N), f16), q.mT @ eye(M, 5)\n", {},
        lambda x, y: ((x / y[:, None]).astype(np.float16), (x / y[:, None]).T[:, :5]), ({"M": 7, "N": 64},), {"x": "positive", "y": "normal"},
    ),
    "a floor of a stored quotient": Case(
        "def f(x: f32[M, N], y: f32[M]):\n    q = x / y[:, None]\n    return astype(q @ eye(N) + floor(q), f16)\n", {},
        lambda x, y: (x / y[:, None] + np.floor(x / y[:, None])).astype(np.float16), ({"M": 7, "N": 64},), {"x": "times 41", "y": "just 41"},
    ),
    "one and tanh": Case("x * (1 + tanh(y))", {"x": "f16[N]", "y": "f16[N]"}, lambda x, y: (x * (1 + np.tanh(y.astype(f8)))).astype(np.float16), ({"N": 40},), off=2e-3),
    "two and tanh": Case("x * (2 + tanh(y))", {"x": "f16[N]", "y": "f16[N]"}, lambda x, y: (x * (2 + np.tanh(y.astype(f8)))).astype(np.float16), ({"N": 40},), off=2e-3),
    # scans
    "cumsum": Case("cumulative_sum(x, axis=1)", MN, lambda x: x.cumsum(1)),
    "cumsum of columns": Case("cumulative_sum(x * 2, axis=0) + 1", MN, lambda x: (x * 2).cumsum(0) + 1),
    "cumprod": Case("cumulative_prod(x, axis=1)", MN, lambda x: x.cumprod(1), values={"x": "signs"}),
    "exclusive cumsum": Case("pad(cumulative_sum(exp(x), axis=1), ((0, 0), (2, 1)))", MN, lambda x: np.pad(np.exp(x.astype(f8)).cumsum(1), ((0, 0), (2, 1))).astype(f4), off=1e-5),
    "cumsum without its start": Case("pad(cumulative_sum(x, axis=1)[:, 1:], ((0, 0), (2, 0)))", MN, lambda x: np.pad(x.astype(f8).cumsum(1)[:, 1:], ((0, 0), (2, 0))).astype(f4), off=1e-5),
    "cumsum of softmax": Case(
        "cumulative_sum(softmax(x, axis=-1), axis=-1)", MN, lambda x: _softmax(x).cumsum(1), values={"x": "normal"}, off=1e-5
    ),
    "cumsum of a product of rows": Case(
        "cumulative_sum(x * sum(x, axis=1, keepdims=True), axis=1)", MN, lambda x: (x * x.sum(1, keepdims=True)).cumsum(1)
    ),
    # products
    "matmul": Case("x @ w", MK_KN, lambda x, w: x @ w, SQUARE),
    "matmul of transposes": Case("(w.mT @ x.mT) * 2", MK_KN, lambda x, w: (x @ w).T * 2, SQUARE),
    "transposed result": Case("(x @ w).mT", MK_KN, lambda x, w: (x @ w).T, SQUARE),
    "batched matmul": Case("x @ w", {"x": "f16[B, M, K]", "w": "f16[B, K, N]"}, lambda x, w: x @ w, ({"B": 2, "M": 5, "N": 17, "K": 18},)),
    "two batches": Case("x @ w", {"x": "f32[A, B, M, K]", "w": "f32[B, K, N]"}, lambda x, w: x @ w, ({"A": 2, "B": 3, "M": 18, "N": 17, "K": 5},)),
    "matmul with bias": Case(
        "relu(x @ w + b) * 2", {**MK_KN, "b": "f32[N]"}, lambda x, w, b: np.maximum(x @ w + b, 0) * 2, SQUARE
    ),
    "a product times picked numbers": Case(
        "x @ w * a[t][:, None]", {**MK_KN, "a": "f32[P]", "t": "i64[M]"},
        lambda x, w, a, t: x @ w * a[t][:, None], ({"M": 5, "N": 19, "K": 17, "P": 19},),
    ),
    "matmul of relu": Case("relu(x) @ w", MK_KN, lambda x, w: np.maximum(x, 0) @ w, SQUARE),
    "matmul of exp and one": Case("(x + 1) @ (w - 1)", MK_KN, lambda x, w: (x + 1) @ (w - 1), SQUARE),
    "two products": Case("(x @ w) * (x @ v)", {**MK_KN, "v": "f32[K, N]"}, lambda x, w, v: (x @ w) * (x @ v), SQUARE),
    "chain of products": Case("x @ w @ v", {**MK_KN, "v": "f32[N, P]"}, lambda x, w, v: x @ w @ v, ({"M": 5, "N": 19, "K": 4, "P": 3},)),
    "matrix times vector": Case("x @ v + v @ w", {"x": "f32[N, N]", "v": "f32[N]", "w": "f32[N, N]"}, lambda x, v, w: x @ v + v @ w, ({"N": 19},)),
    "one column": Case("(x @ w[:, :1])[:, 0]", MK_KN, lambda x, w: (x @ w[:, :1])[:, 0], SQUARE),
    "product of integers": Case("x @ w", {"x": "i32[M, K]", "w": "i32[K, N]"}, lambda x, w: x @ w),
    "product of bools": Case("x @ w", {"x": "bool[M, K]", "w": "bool[K, N]"}, lambda x, w: x @ w, values={"x": "truth", "w": "truth"}),
    "sums beside a product": Case(
        "(x @ w) / (1 + sum(x, axis=1, keepdims=True))", MK_KN,
        lambda x, w: (x @ w) / (1 + x.sum(1, keepdims=True)), SQUARE, {"x": "positive"},
    ),
    # views
    "transpose": Case("x.mT + y", {**MN, "y": "f32[N, M]"}, lambda x, y: x.T + y),
    "all but the last of the columns in one row": Case("flatten(x.mT)[:-1] * 2", MN, lambda x: x.T.ravel()[:-1] * 2),
    "argmax of columns in one row": Case("argmax(flatten(x.mT))", MN, lambda x: x.T.ravel().argmax()),
    "permuted": Case("permute_dims(x, (2, 0, 1)) * 2", {"x": "f32[K, M, N]"}, lambda x: x.transpose(2, 0, 1) * 2),
    "permuted twice": Case(
        "permute_dims(permute_dims(x, (2, 0, 1)), (1, 0, 2)) + 0.5", {"x": "f32[K, M, N]"},
        lambda x: x.transpose(2, 0, 1).transpose(1, 0, 2) + f4(0.5),
    ),
    "slices": Case("x[1:, ::3] + x[:-1, ::3]", MN, lambda x: x[1:, ::3] + x[:-1, ::3]),
    "backwards": Case("x[::-1, ::-2] * 2", MN, lambda x: x[::-1, ::-2] * 2),
    "flip and roll": Case("flip(x, axis=1) + roll(x, 2, axis=0)", MN, lambda x: x[:, ::-1] + np.roll(x, 2, 0)),
    "stencil": Case("x[:, :-2] + x[:, 1:-1] * 2 - x[:, 2:]", MN, lambda x: x[:, :-2] + x[:, 1:-1] * 2 - x[:, 2:]),
    "concat": Case("concat((exp(x), y * 2), axis=1)", {**MN, "y": "f32[M, K]"}, lambda x, y: np.concatenate((np.exp(x.astype(f8)).astype(f4), y * 2), 1), off=1e-6),
    "concat and sum": Case("sum(concat((x, y), axis=1), axis=1)", {**MN, "y": "f32[M, K]"}, lambda x, y: np.concatenate((x, y), 1).sum(1)),
    "unaligned slices of rows": Case("x[:, 2:] * 2", MN, lambda x: x[:, 2:] * 2, ({"M": 7, "N": 33}, {"M": 4, "N": 8})),
    "concat of three": Case("concat((x, y, x), axis=0) + 1", {"x": "f32[M, N]", "y": "f32[K, N]"}, lambda x, y: np.concatenate((x, y, x)) + 1),
    "slices of a result": Case("concat((x - max(x, axis=1, keepdims=True), y + 1, x), axis=1)", TWO, lambda x, y: np.concatenate((x - x.max(1, keepdims=True), y + 1, x), 1)),
    "stack": Case("stack((x, y), axis=1) * 2", TWO, lambda x, y: np.stack((x, y), 1) * 2),
    "pad": Case("pad(x, ((1, 2), (0, 3)), constant_values=7) * 2", MN, lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=7) * 2),
    "padded halves of rows": Case("pad(reshape(exp(reshape(x[:6], (3, 14))), (6, 7)), 1)[:, ::2]", {"x": "f32[8, 7]"}, lambda x: np.pad(np.exp(x[:6]), 1)[:, ::2], ({},)),
    "split axis": Case("sum(reshape(x, (M, 2, N)), axis=1)", {"x": "f32[M, 2 * N]"}, lambda x: x.reshape(len(x), 2, -1).sum(1)),
    "merged axes": Case("reshape(x, (M * N,)) + y", {**MN, "y": "f32[M * N]"}, lambda x, y: x.reshape(-1) + y),
    "regrouped": Case("reshape(x.mT, (M, N)) + x", MN, lambda x: x.T.reshape(x.shape) + x),
    "blocks of rows": Case("reshape(x, (2, N, M)) * 3", {"x": "f32[2 * M, N]"}, lambda x: x.reshape(2, x.shape[1], -1) * 3),
    "bias": Case("x + b", {**MN, "b": "f32[N]"}, lambda x, b: x + b, schedules=("own", "small", "odd", "cuda", "general")),
    "an odd length": Case("x + y", {"x": "f32[N]", "y": "f32[N]"}, lambda x, y: x + y, ({"N": 70_003},), schedules=("cuda",)),
    "column bias": Case("x + b[:, None]", {**MN, "b": "f32[M]"}, lambda x, b: x + b[:, None]),
    "outer": Case("x[:, None] * y", {"x": "f32[M]", "y": "f32[N]"}, lambda x, y: x[:, None] * y),
    "one row repeated": Case("x + y", {**MN, "y": "f32[1, N]"}, lambda x, y: x + y),
    "three axes": Case("x * 2 + y", {"x": "f32[K, M, N]", "y": "f32[M, N]"}, lambda x, y: x * 2 + y),
    "four sums": Case("sum(x, axis=(1, 3))", {"x": "f32[K, M, 3, N]"}, lambda x: x.sum((1, 3))),
    "strided input": Case("x * 2 + sum(x, axis=1, keepdims=True)", MN, lambda x: x * 2 + x.sum(1, keepdims=True), layout=lambda x: x[::-1, ::2]),
    "transposed input": Case("x * 2", MN, lambda x: x * 2, layout=lambda x: x.T),
    "repeated input": Case("x * 2", MN, lambda x: x * 2, layout=lambda x: np.broadcast_to(x[0], x.shape)),
    "window of rows": Case("sum(x, axis=1) + 1", MN, lambda x: x.sum(1) + 1, layout=lambda x: x[1:-1, 2:-3], sizes=PLAIN),
    # gathers
    "gather": Case("w[k] * 2", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: _gathered(w, k) * 2, ({"V": 9, "D": 6, "N": 27},), {"k": "index 9"}),
    "gather out of range": Case("w[k]", {"w": "f32[V, D]", "k": "i64[N]"}, _gathered, ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "gather of computed": Case("(w + 1)[k]", {"w": "f32[V, D]", "k": "i32[N]"}, lambda w, k: _gathered(w + 1, k), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "gather of computed integers": Case("(w + 1)[k]", {"w": "i32[V, D]", "k": "i32[N]"}, lambda w, k: np.nan_to_num(_gathered(w + f8(1), k)).astype(i4), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "gather of an empty array": Case("w[k]", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: np.full((len(k), w.shape[1]), np.nan, f4), ({"V": 0, "D": 6, "N": 5},), {"k": "any index 9"}),
    "two indices": Case("x[j, k] * 2", {"x": "f32[V, D]", "j": "i64[N]", "k": "i64[N]"}, lambda x, j, k: x[j, k] * 2, ({"V": 9, "D": 6, "N": 27},), {"j": "index 9", "k": "index 6"}),
    "moved too often": Case(
        f"def f(x: f32[N]):\n    y = concat((x, x * 2), axis=0)\n    return {' + '.join(f'y[{k} : {k} + N]' for k in range(34))}\n",
        {}, lambda x: sum(np.concatenate((x, x * 2))[k : k + len(x)] for k in range(34)), ({"N": 35},), schedules=("own", "general"),
    ),
    "gather of a slice": Case("w[2:][k]", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: _gathered(w[2:], k), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "gather of a transpose": Case("w.mT[k]", {"w": "f32[D, V]", "k": "i64[N]"}, lambda w, k: _gathered(w.T, k), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "sum of a gather": Case("sum(w[k], axis=0)", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: _gathered(w, k).sum(0), ({"V": 9, "D": 6, "N": 27},), {"k": "index 9"}),
    "sum of a gather out of range": Case("sum(w[k], axis=1)", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: _gathered(w, k).sum(1), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "along an axis": Case("take_along_axis(x, argmax(x, axis=-1)[:, None], axis=-1)", MN, lambda x: x.max(1, keepdims=True)),
    # arithmetic
    "sign of zero": Case("def f(x: f32[N]):\n    return x * 0, x + 0, x - 0, 0 - x, x * 1, x / 1\n", {}, _wrapped(lambda x: (x * 0, x + 0, x - 0, 0 - x, x * 1, x / 1)), ({"N": 19},), {"x": "special"}),
    "one by x and 0": Case("1 / (x + 0)", {"x": "f32[N]"}, _wrapped(lambda x: 1 / (x + 0)), ({"N": 19},), {"x": "special"}),
    "both zeros": Case("def f(x: f32[N]):\n    return copysign(x, 0.0), copysign(x, -0.0), x * -0.0 + 0.0\n", {}, _wrapped(lambda x: (np.copysign(x, f4(0)), np.copysign(x, f4(-0.0)), x * f4(-0.0) + f4(0))), ({"N": 19},), {"x": "special"}),
    "x with itself": Case("def f(x: f32[N]):\n    return x - x, x / x, x == x, x != x\n", {}, _wrapped(lambda x: (x - x, x / x, x == x, x != x)), ({"N": 19},), {"x": "special"}),
    "maximum": Case("def f(x: f32[N], y: f32[N]):\n    return maximum(x, y), minimum(x, y), clip(x, -1, 1)\n", {}, lambda x, y: (np.maximum(x, y), np.minimum(x, y), np.clip(x, -1, 1)), ({"N": 40},), {"x": "nan", "y": "nan turned"}),
    "integer division": Case("def f(x: i32[N], y: i32[N]):\n    return x // y, x % y\n", {}, _wrapped(lambda x, y: (_floor(x, y), _modulo(x, y))), ({"N": 40},)),
    "float division": Case("def f(x: f32[N], y: f32[N]):\n    return x // y, x % y, x / y\n", {}, _wrapped(lambda x, y: (x // y, x % y, x / y)), ({"N": 40},)),
    "shifts": Case("def f(x: i32[N], y: i32[N]):\n    return x << y, x >> y\n", {}, _shifts, ({"N": 40},), {"y": "shift"}),
    "powers": Case("x ** 3 + x ** 2 + x ** 1", {"x": "i32[N]"}, lambda x: x**3 + x**2 + x, ({"N": 19},)),
    "root as a power": Case("1 / x ** 0.5", {"x": "f32[N]"}, _wrapped(lambda x: 1 / np.sqrt(np.where(x == -np.inf, np.inf, x + 0).astype(f4))), ({"N": 19},), {"x": "special"}, 1e-6),
    "mish": Case("tanh(softplus(x))", {"x": "f32[N]"}, lambda x: np.tanh(np.logaddexp(0, x.astype(f8))).astype(f4), ({"N": 19},), {"x": "just 90"}, 1e-5),
    "negative powers": Case("(x * 1e19) ** -2 * 1e38", {"x": "f32[N]"}, lambda x: (1 / x.astype(f8) ** 2).astype(f4), ({"N": 19},), {"x": "positive"}, 1e-5),
    "exact divisions": Case("x / 8 - x / -0.25", {"x": "f32[N]"}, lambda x: x / f4(8) - x / f4(-0.25), ({"N": 19},)),
    "mixed signs": Case("x + y", {"x": "i32[N]", "y": "u32[N]"}, lambda x, y: x.astype(i8) + y.astype(i8), ({"N": 19},), {"y": "positive"}),
    "integer with half": Case("x * y", {"x": "i32[N]", "y": "f16[N]"}, lambda x, y: (x.astype(f4) * y.astype(f4)).astype(np.float16), ({"N": 19},)),
    "small integers": Case("x + y", {"x": "i8[N]", "y": "u8[N]"}, lambda x, y: x.astype(np.int16) + y.astype(np.int16), ({"N": 19},), {"y": "positive"}),
    "integer by integer": Case("x / y", {"x": "i32[N]", "y": "i32[N]"}, _wrapped(lambda x, y: x.astype(f4) / y.astype(f4)), ({"N": 19},)),
    "sum of bytes": Case("sum(x, axis=1)", {"x": "i8[M, N]"}, lambda x: x.sum(1, dtype=i8), values={"x": "large"}),
    "sum of truths": Case("sum(x, axis=1)", {"x": "bool[M, N]"}, lambda x: x.sum(1, dtype=i8), values={"x": "truth"}),
    "mean of halves": Case("mean(x, axis=1)", {"x": "f16[M, N]"}, lambda x: x.astype(f4).mean(1).astype(np.float16), off=2e-3),
    "halves": Case("x * 3 + 1", {"x": "f16[M, N]"}, _halves, values={"x": "normal"}),
    "rounded to f16 and back": Case("astype(astype(x, f16), f32) * 3", MN, lambda x: x.astype(np.float16).astype(f4) * 3, values={"x": "normal"}),
    "brain floats": Case("astype(x, bf16)", MN, lambda x: x.astype(bf16), values={"x": "normal"}),
    "brain arithmetic": Case("x * y + 1", {"x": "bf16[N]", "y": "bf16[N]"}, lambda x, y: (x.astype(f4) * y.astype(f4) + 1).astype(bf16), ({"N": 40},), {"x": "normal", "y": "normal"}),
    "float to integer": Case("def f(x: f32[N]):\n    return astype(x, i32), astype(x, u8), astype(x, bool)\n", {}, lambda x: (_saturated(x, i4), _saturated(x, np.uint8), x != 0), ({"N": 40},), {"x": "special"}),
    "integer narrowed": Case("astype(astype(x, f32), i8)", {"x": "i16[N]"}, lambda x: np.clip(x, -128, 127).astype(np.int8), ({"N": 40},), {"x": "large"}),
    "integer wrapped": Case("astype(x, i8)", {"x": "i32[N]"}, lambda x: x.astype(np.int8), ({"N": 40},), {"x": "large"}),
    "tenths": Case("x * 0.1 + (0.1 + 0.2)", {"x": "f64[N]"}, lambda x: x * 0.1 + (0.1 + 0.2), ({"N": 19},), {"x": "normal"}),
    "folded tenths": Case("full((N,), 0.1) * 3 + x", {"x": "f32[N]"}, lambda x: f4(0.1) * f4(3) + x, ({"N": 19},)),
    "scalar": Case("def f(x: f32[M, N], a: float = 1.5):\n    return x * a + a\n", {}, lambda x: x * f4(1.5) + f4(1.5)),
    "choice": Case("where(x > y, x, y * 2)", TWO, lambda x, y: np.where(x > y, x, y * 2)),
    "truths": Case("(x > 0) & (y > 0) | ~(x < y)", TWO, lambda x, y: (x > 0) & (y > 0) | ~(x < y)),
    "triangle": Case("tril(x) + triu(x, 1) * 2", {"x": "f32[N, N]"}, lambda x: np.tril(x) + np.triu(x, 1) * 2, ({"N": 19},)),
    "arange": Case("x + arange(N) * 2", {"x": "i64[M, N]"}, lambda x: x + np.arange(x.shape[1]) * 2),
    "functions": Case("exp(x) + log(abs(x) + 1) * tanh(x)", MN, lambda x: (np.exp(x.astype(f8)) + np.log(abs(x.astype(f8)) + 1) * np.tanh(x.astype(f8))).astype(f4), values={"x": "normal"}, off=2e-5),
    # programs of several kernels
    "two outputs": Case("def f(x: f32[M, N]):\n    y = x + 1\n    return y, y * 2, sum(y, axis=1)\n", {}, lambda x: (x + 1, (x + 1) * 2, (x + 1).sum(1))),
    "a value and a part of it": Case("def f(x: f32[N]):\n    y = x * 2\n    return y[:-1] + 1, y\n", {}, lambda x: ((x * 2)[:-1] + 1, x * 2), ({"N": 19},)),
    "a value and its rows": Case("def f(x: f32[N], y: f32[M, N]):\n    z = x * 2\n    return z, y + z\n", {}, lambda x, y: (x * 2, y + x * 2)),
    "ten axes": Case(
        "x + permute_dims(x, (9, 8, 7, 6, 5, 4, 3, 2, 1, 0))", {"x": f"f32[{', '.join('2' * 10)}]"},
        lambda x: x + x.transpose(), ({},), schedules=("own", "cuda"),
    ),
    "two loops over a running sum": Case(
        "cumulative_sum(x, axis=0) * sum(x, axis=(0, 1))", MN, lambda x: x.cumsum(0) * x.sum()
    ),
    "a running sum in two loops": Case(
        "cumulative_sum(x, axis=1) * sum(x, axis=(0, 1))", MN, lambda x: x.cumsum(1) * x.sum()
    ),
    "same output twice": Case("def f(x: f32[M, N]):\n    y = x + 1\n    return y, y\n", {}, lambda x: (x + 1, x + 1)),
    "input returned": Case("def f(x: f32[M, N]):\n    return x, x.mT\n", {}, lambda x: (x, x.T)),
    "stored between": Case(
        "def f(a: f32[M, N], b: f32[M, N], c: f32[M, N]):\n    y = a * b + c\n    return sum(y, axis=0), sum(y, axis=1)\n",
        {}, lambda a, b, c: ((a * b + c).sum(0), (a * b + c).sum(1)),
    ),
    "diamond": Case(
        "def f(x: f32[M, N]):\n    a = x * x\n    b = cumulative_sum(a, axis=0)\n    return a * sum(b, axis=1)[:, None]\n",
        {}, lambda x: x * x * (x * x).cumsum(0).sum(1)[:, None],
    ),
    "around two products": Case(
        "def f(x: f32[N, N], y: f32[N, N], z: f32[N, N], w: f32[N, N]):\n    a = x * y + z\n    return a + a @ w @ w\n",
        {}, lambda x, y, z, w: (x * y + z) + (x * y + z) @ w @ w, ({"N": 19},),
    ),
    "siblings": Case("def f(x: f32[M, N]):\n    return sum(x, axis=1), max(x, axis=1), x * 2\n", {}, lambda x: (x.sum(1), x.max(1), x * 2)),
    "unrelated": Case("def f(x: f32[M], y: f32[N]):\n    return x + 1, y - 1\n", {}, lambda x, y: (x + 1, y - 1)),
    "two temporaries": Case(
        "def f(x: f32[N, N]):\n    a = cumulative_sum(x, axis=0)\n    b = cumulative_sum(x, axis=1)\n    return a @ b, b - a.mT\n",
        {}, lambda x: (x.cumsum(0) @ x.cumsum(1), x.cumsum(1) - x.cumsum(0).T), ({"N": 19},),
    ),
    "known choice": Case("where(1 < 2, x, y) - y", TWO, lambda x, y: x - y),
    "cropped": Case("x[:-1] + y", {"x": "f32[N + 1]", "y": "f32[N]"}, lambda x, y: x[:-1] + y, ({"N": 19},)),
    "x minus y": Case("x - y", {"x": "f32[N]", "y": "f32[N]"}, lambda x, y: x - y, ({"N": 32},)),
    "rolled back": Case("roll(x, -1, axis=1) * 2", MN, lambda x: np.roll(x, -1, 1) * 2),
    "gather of a head": Case("w[:-2][k]", {"w": "f32[V, D]", "k": "i64[N]"}, lambda w, k: _gathered(w[:-2], k), ({"V": 9, "D": 6, "N": 27},), {"k": "any index 9"}),
    "sum of a repeated row": Case("sum(broadcast_to(x, (M, N)), axis=0) + sum(y)", {"x": "f32[N]", "y": "f32[M]"}, lambda x, y: x * len(y) + y.sum()),
    "square product": Case("x @ w", {"x": "f32[N, N]", "w": "f32[N, N]"}, lambda x, w: x @ w, ({"N": 19},)),
    "matmul in full precision": Case("x @ w", MK_KN, lambda x, w: (x.astype(f8) @ w).astype(f4), SQUARE, {"x": "normal", "w": "normal"}, 2e-5),
    "rolled along rows": Case("roll(x, 2, axis=1) * 2", MN, lambda x: np.roll(x, 2, 1) * 2),
    "thin products": Case("x @ w", MK_KN, lambda x, w: x @ w, ({"M": 1, "N": 7, "K": 5}, {"M": 5, "N": 1, "K": 7}, {"M": 5, "N": 3, "K": 1}), off=1e-7),
    "slices of rows": Case("x[:, :-2] * 2", MN, lambda x: x[:, :-2] * 2),
    "rows with gaps": Case("x * 2 + 1", MN, lambda x: x * 2 + 1, layout=lambda x: np.repeat(x, 2, 1)[:, : x.shape[1]]),
    "one row backwards": Case("x * 2", {"x": "f32[N]"}, lambda x: x * 2, ({"N": 4},), layout=lambda x: np.resize(x, 8)[3::-1]),
    "far apart": Case("x + 1", {"x": "i8[N]"}, lambda x: x + np.int8(1), ({"N": 3},), layout=lambda x: _far_apart(x), schedules=("own", "cuda", "wide")),
    "empty": Case("def f(x: f32[M, N]):\n    return x + 1, sum(x, axis=0), sum(x, axis=1)\n", {}, lambda x: (x + 1, x.sum(0), x.sum(1)), EMPTY),
}  # fmt: skip


def _saturated(x: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    whole = np.nan_to_num(np.trunc(x.astype(f8)), nan=0.0)
    return np.clip(whole, limits.min, limits.max).astype(dtype)


# ---- inputs ----------------------------------------------------------------------------

SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -3.5, 300.0, -1e-3, 2.5)


def _draw(kind: str, shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    name, _, limit = kind.rpartition(" ")
    match name or kind:
        case "index":
            return rng.integers(-int(limit) if np.dtype(dtype).kind == "i" and seed else 0, int(limit), shape).astype(
                dtype
            )
        case "any index":
            return np.resize(rng.permutation(np.arange(-int(limit) - 3, int(limit) + 4)), shape).astype(dtype)
        case "times":
            return (rng.integers(-4, 5, shape) * int(limit)).astype(dtype)
        case "tiny":
            return (rng.integers(1, 9, shape) * 2.0**-12).astype(dtype)
        case "just":
            return np.full(shape, int(limit), dtype)
        case "truth":
            return rng.integers(0, 2, shape).astype(bool)
        case "normal":
            return rng.standard_normal(shape).astype(dtype)
        case "large":
            return rng.integers(
                -1000 if np.dtype(dtype).itemsize > 1 else -128, 1000 if np.dtype(dtype).itemsize > 1 else 128, shape
            ).astype(dtype)
        case "sparse":
            far = np.where(rng.random(shape) < 0.01, 10 * rng.standard_normal(shape) - 300, -np.inf)
            return np.where(np.arange(shape[-1]) > shape[-1] // 2, -np.inf, far).astype(dtype)
        case "steps":
            return np.broadcast_to(np.arange(shape[-1]) * 4 // shape[-1], shape).astype(dtype)
        case "signs":
            return rng.choice([-1, 1, 2, -0.5], shape).astype(dtype)
        case "shift":
            return rng.integers(-3, 45, shape).astype(dtype)
        case "special":
            return np.resize(rng.permutation(SPECIAL), shape).astype(dtype)
        case "nan":
            return np.resize(np.array([1, np.nan, 2, 3, -4], dtype), shape)
        case "nan turned":
            return np.resize(np.array([np.nan, 1, 3, 2, -5, 7], dtype), shape)
        case _:
            low, high = {"negative": (-9, 0), "positive": (1, 9)}.get(kind, (-4, 5))
            return rng.integers(low, high, shape).astype(dtype)


@functools.cache
def program(name: str) -> mt.Program:
    return mt.compile(CASES[name].text, **CASES[name].types)


def inputs(name: str, sizes: Mapping[str, int]) -> list[Any]:
    """The arrays of a case, the same in every run."""
    case, arrays = CASES[name], []
    for k, (parameter, type) in enumerate(p for p in program(name).parameters if "[" in p[1]):
        dtype, _, dimensions = type.partition("[")
        shape = tuple(_size(d, sizes) for d in dimensions.rstrip("]").split(","))
        numpy = {"f": f"float{dtype[1:]}", "i": f"int{dtype[1:]}", "u": f"uint{dtype[1:]}"}.get(dtype[0])
        numpy = {"bf16": bf16, "bool": bool}.get(dtype, numpy)
        drawn = _draw(case.values.get(parameter, "integers"), shape, numpy, k)
        arrays.append(case.layout(drawn) if case.layout else drawn)
    return arrays


def _size(text: str, sizes: Mapping[str, int]) -> int:
    """The value of `7`, `N`, `2 * N` or `N + 1`."""
    whole, _, more = text.replace(" ", "").partition("+")
    return int(np.prod([sizes[w] if w in sizes else int(w) for w in whole.split("*")])) + int(more or 0)


# ---- after every pass ------------------------------------------------------------------


def outcomes(f: mt.Program, call: Call, schedule: str) -> Iterator[tuple[str, Callable[[], tuple[Any, ...]]]]:
    """(pass, a function that evaluates the program after this pass), in the order of the passes."""
    yield "parse", lambda: f.evaluate("ast", call)
    yield "build", lambda: f.evaluate("graph", call)
    compiled = compilation(f, call, VARIANTS.get(schedule, "interpreter"))
    for p in compiled.table[2:]:
        yield p.name, lambda stage=p.stage: run_stage.results(compiled, stage, call)


def _configured(f: mt.Program, schedule: str) -> mt.Program:
    variants = {
        "small": {"options": SMALL},
        "odd": {"options": ODD},
        "rotated": {"options": ROTATED},
        "bare": {"without": ("all",)},
    }
    return f.configured(**variants.get(schedule, {}))


# ---- comparing -------------------------------------------------------------------------


def differs(got: Any, want: Any, off: float) -> str:
    """What is wrong with a result; "" if nothing is wrong."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} is not {want.dtype}{list(want.shape)}"
    if got.dtype.kind in "biu":
        bad = got != want
    else:
        a, b = got.astype(f8), want.astype(f8)
        with np.errstate(all="ignore"):
            near = (a == b) | (abs(a - b) <= off * np.maximum(abs(b), 0.01))
        bad = ~(near | (np.isnan(a) & np.isnan(b)))
        if not off:
            bad |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    return f"{got[bad].flat[0]} is not {want[bad].flat[0]} ({bad.sum()} of {bad.size} wrong)" if bad.any() else ""


def first_failure(
    names: Sequence[str] = (), schedules: Sequence[str] = (), after: Sequence[str] = ()
) -> Failure | None:
    """The first case, schedule and pass whose result is wrong.

    Without arguments: all cases with all their schedules after all passes.
    """
    for name in names or CASES:
        for schedule in schedules or CASES[name].schedules:
            for sizes in CASES[name].sizes:
                failure = _failure(name, schedule, sizes, after)
                if failure is not None:
                    return failure
    return None


def _failure(name: str, schedule: str, sizes: Mapping[str, int], after: Sequence[str]) -> Failure | None:
    case, at = CASES[name], "parse"
    try:
        f = _configured(program(name), schedule)
        arrays = inputs(name, sizes)
        assert case.want is not None
        wanted = case.want(*arrays)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        at = "build"
        for at, run in outcomes(f, bind(f.function, arrays, {}), schedule):
            if after and at not in after:
                continue
            results = run()
            wrong = [] if len(results) == len(wanted) else [f"{len(results)} results"]
            wrong += [w for w in (differs(*two, case.off) for two in zip(results, wanted)) if w]
            if wrong:
                return Failure(name, schedule, at, f"{dict(sizes)}: {wrong[0]}")
    except StageUnavailable:  # an older Triton's interpreter has no loops with an argument as their bound
        return None
    except CompileError as error:
        return Failure(name, schedule, _broken(error) or at, str(error)[:300])
    except Exception as error:
        return Failure(name, schedule, at, f"{type(error).__name__}: {error}"[:300])
    return None


def _broken(error: CompileError) -> str | None:
    """The pass whose result the verifier refused."""
    return error.message.split("`")[1] if error.code == "MT0403" else None


def named(name: str, schedule: str, variants: Sequence[str] = ()) -> str | None:
    """The pass that `check` names for a case, None if nothing is wrong. The default variant is the schedule's own."""
    variants = variants or (VARIANTS.get(schedule, "interpreter"),)
    for sizes in CASES[name].sizes:
        try:
            f = _configured(program(name), schedule)
            report = check(f, bind(f.function, inputs(name, sizes), {}), variants, shrinking=False)
        except CompileError as error:
            return _broken(error)
        if not report.ok:
            return report.guilty
    return None
