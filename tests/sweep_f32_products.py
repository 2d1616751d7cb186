"""Products of f32 arrays on a GPU: cuBLAS, the tiles of IEEE products, and three TF32 products of split factors.

    python tests/sweep_f32_products.py [probe] [ieee] [tf32] [bf16] [errors] [now]      none: all parts

In: nothing. Out: for each shape a line for each kernel and tile, best first: milliseconds, the ratio to cuBLAS, and the
largest error beside cuBLAS's. The kernels here are written by hand, to find good tiles before the compiler makes them:

    ieee    the sum of exact products; `TN` means that both arrays are contiguous along rows and columns
    packed  both factors were split into a high and a low part before, by a kernel of its own (the line `split`)
    second  only the second factor was split before; the loop splits the first
    loop    the loop splits both factors
    one     a single sum; otherwise one sum of high parts and one of the rest
    bf16    six products of three bf16 parts

Needs a GPU; nothing is stored.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SHAPES = ((4096, 4096, 4096), (2048, 8192, 4096), (8205, 2949, 5921), (1024, 1024, 1024), (16384, 32, 16384),
          (256, 524288, 256))  # fmt: skip
TEXTS = {
    "NN": "def f(x: f32[M, K], w: f32[K, N]) -> f32[M, N]:\n    return x @ w",
    "NT": "def f(x: f32[M, K], w: f32[N, K]) -> f32[M, N]:\n    return x @ w.mT",
    "TN": "def f(x: f32[K, M], w: f32[K, N]) -> f32[M, N]:\n    return x.mT @ w",
    "TT": "def f(x: f32[K, M], w: f32[N, K]) -> f32[M, N]:\n    return x.mT @ w.mT",
}


class Tile(NamedTuple):
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# ---- kernels -----------------------------------------------------------------------------


@triton.jit
def place(m, n, BM: tl.constexpr, BN: tl.constexpr):
    tile, rows, columns = tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = tile // (8 * columns) * 8
    height = tl.minimum(rows - first, 8)
    return first + (tile % (8 * columns)) % height, (tile % (8 * columns)) // height


@triton.jit
def write(out, r, i, j, m, n, BM: tl.constexpr, BN: tl.constexpr):
    row, column = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    tl.store(out + row[:, None] * n + column[None, :], r, mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def ieee(
    x, w, out, m, n, k, sxm, sxk, swk, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASK: tl.constexpr
):
    i, j = place(m, n, BM, BN)
    row, column = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        r = start + tl.arange(0, BK)
        px, pw = x + row[:, None] * sxm + r[None, :] * sxk, w + r[:, None] * swk + column[None, :] * swn
        if MASK:
            a = tl.load(px, mask=(row[:, None] < m) & (r[None, :] < k), other=0.0)
            b = tl.load(pw, mask=(column[None, :] < n) & (r[:, None] < k), other=0.0)
        else:
            a, b = tl.load(px), tl.load(pw)
        total = tl.dot(a, b, total, input_precision="ieee")
    write(out, total, i, j, m, n, BM, BN)


@triton.jit
def high(x):
    bits = x.to(tl.int32, bitcast=True)
    rounded = ((bits + 0x1000) & -8192).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(x) < 3.4011621342146535e38, rounded, x)


@triton.jit
def split(x, hi, lo, m, n, sm, sn, ohm, scale, BM: tl.constexpr, BN: tl.constexpr):
    """The parts of x[m, n] in row-major arrays with rows of `ohm` elements."""
    row, column = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (row < m) & (column < n)
    v = tl.load(x + row * sm + column * sn, mask=inside, other=0.0)
    h = high(v)
    tl.store(hi + row * ohm + column, h, mask=(row < m) & (column < ohm))
    tl.store(lo + row * ohm + column, (v - h) * scale, mask=(row < m) & (column < ohm))


@triton.jit
def split3(x, one, two, three, m, n, sm, sn, ohm, scale, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (row < m) & (column < n)
    v = tl.load(x + row * sm + column * sn, mask=inside, other=0.0)
    a = v.to(tl.bfloat16)
    rest = v - a.to(tl.float32)
    b = rest.to(tl.bfloat16)
    c = (rest - b.to(tl.float32)).to(tl.bfloat16)
    kept = (row < m) & (column < ohm)
    tl.store(one + row * ohm + column, a, mask=kept)
    tl.store(two + row * ohm + column, b, mask=kept)
    tl.store(three + row * ohm + column, c, mask=kept)


@triton.jit
def packed(ah, al, bh, bl, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ONE: tl.constexpr):
    i, j = place(m, n, BM, BN)
    main = tl.zeros((BM, BN), tl.float32)
    cross = tl.zeros((BM, BN), tl.float32)
    for r in range(0, k, BK):
        xh, xl = ah.load([i * BM, r]), al.load([i * BM, r])
        yh, yl = bh.load([j * BN, r]).T, bl.load([j * BN, r]).T
        if ONE:
            main = tl.dot(xh, yl, main, input_precision="tf32")
            main = tl.dot(xl, yh, main, input_precision="tf32")
            main = tl.dot(xh, yh, main, input_precision="tf32")
        else:
            main = tl.dot(xh, yh, main, input_precision="tf32")
            cross = tl.dot(xh, yl, cross, input_precision="tf32")
            cross = tl.dot(xl, yh, cross, input_precision="tf32")
    if not ONE:
        main = tl.where(tl.abs(main) < float("inf"), main + cross * (1 / 2048), main)
    write(out, main, i, j, m, n, BM, BN)


@triton.jit
def apart(
    ah, al, bh, bl, out, m, n, k, factor, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ONE: tl.constexpr
):
    """The sum of high parts of each block is added outside of the tensor cores, which rounds to nearest.

    `factor` is 1; Triton does not know this, and so does not let the tensor cores add.
    """
    i, j = place(m, n, BM, BN)
    main = tl.zeros((BM, BN), tl.float32)
    cross = tl.zeros((BM, BN), tl.float32)
    for r in range(0, k, BK):
        xh, xl = ah.load([i * BM, r]), al.load([i * BM, r])
        yh, yl = bh.load([j * BN, r]).T, bl.load([j * BN, r]).T
        cross = tl.dot(xh, yl, cross, input_precision="tf32")
        cross = tl.dot(xl, yh, cross, input_precision="tf32")
        main += tl.dot(xh, yh, input_precision="tf32") * factor
    main = tl.where(tl.abs(main) < float("inf"), main + cross * (1 / 2048), main)
    write(out, main, i, j, m, n, BM, BN)


@triton.jit
def second(a, bh, bl, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ONE: tl.constexpr):
    i, j = place(m, n, BM, BN)
    main = tl.zeros((BM, BN), tl.float32)
    cross = tl.zeros((BM, BN), tl.float32)
    for r in range(0, k, BK):
        x = a.load([i * BM, r])
        yh, yl = bh.load([j * BN, r]).T, bl.load([j * BN, r]).T
        xh = high(x)
        xl = (x - xh) * 2048
        main = tl.dot(xh, yh, main, input_precision="tf32")
        cross = tl.dot(xh, yl, cross, input_precision="tf32")
        cross = tl.dot(xl, yh, cross, input_precision="tf32")
    main = tl.where(tl.abs(main) < float("inf"), main + cross * (1 / 2048), main)
    write(out, main, i, j, m, n, BM, BN)


@triton.jit
def loop(a, b, out, m, n, k, parts, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TURN: tl.constexpr):
    """`TURN`: b is [n, k], else [k, n]. Each of `parts` programs sums over its part of the depth."""
    i, j = place(m, n, BM, BN)
    z = tl.program_id(1)
    length = k // parts
    main = tl.zeros((BM, BN), tl.float32)
    cross = tl.zeros((BM, BN), tl.float32)
    for r in range(z * length, z * length + length, BK):
        x = a.load([i * BM, r])
        y = b.load([j * BN, r]) if TURN else b.load([r, j * BN])
        xh, yh = high(x), high(y)
        xl, yl = (x - xh) * 2048, (y - yh) * 2048
        if TURN:
            yh, yl = yh.T, yl.T
        main = tl.dot(xh, yh, main, input_precision="tf32")
        cross = tl.dot(xh, yl, cross, input_precision="tf32")
        cross = tl.dot(xl, yh, cross, input_precision="tf32")
    main = tl.where(tl.abs(main) < float("inf"), main + cross * (1 / 2048), main)
    write(out + z * m * n, main, i, j, m, n, BM, BN)


@triton.jit
def six(a1, a2, a3, b1, b2, b3, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ONE: tl.constexpr):
    i, j = place(m, n, BM, BN)
    main = tl.zeros((BM, BN), tl.float32)
    cross = tl.zeros((BM, BN), tl.float32)
    for r in range(0, k, BK):
        x1, x2, x3 = a1.load([i * BM, r]), a2.load([i * BM, r]), a3.load([i * BM, r])
        y1, y2, y3 = b1.load([j * BN, r]).T, b2.load([j * BN, r]).T, b3.load([j * BN, r]).T
        if ONE:
            main = tl.dot(x2, y2, main)
            main = tl.dot(x1, y3, main)
            main = tl.dot(x3, y1, main)
            main = tl.dot(x1, y2, main)
            main = tl.dot(x2, y1, main)
            main = tl.dot(x1, y1, main)
        else:
            cross = tl.dot(x2, y2, cross)
            cross = tl.dot(x1, y3, cross)
            cross = tl.dot(x3, y1, cross)
            cross = tl.dot(x1, y2, cross)
            cross = tl.dot(x2, y1, cross)
            main = tl.dot(x1, y1, main)
    write(out, main + cross, i, j, m, n, BM, BN)


# ---- calls -------------------------------------------------------------------------------

Call = Callable[[], Any]


def tiles_of(m: int, n: int, t: Tile) -> int:
    return -(-m // t.rows) * -(-n // t.columns)


def described(x: Any, rows: int, columns: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, [rows, columns])


def parts_of(x: Any, count: int, scale: float = 2048.0) -> list[Any]:
    """Arrays for the parts of x[m, n], with rows of a multiple of 16 bytes."""
    rows, columns = x.shape
    wide = -(-columns // 8) * 8
    kind = torch.float32 if count == 2 else torch.bfloat16
    made = [torch.empty(rows, wide, device="cuda", dtype=kind) for _ in range(count)]
    fill_parts(x, made, scale)
    return made


def fill_parts(x: Any, made: list[Any], scale: float = 2048.0) -> None:
    (rows, columns), wide = x.shape, made[0].shape[1]
    bm, bn = (64, 64) if x.stride(1) != 1 else (16, 256)
    grid = (-(-rows // bm), -(-wide // bn))
    (split if len(made) == 2 else split3)[grid](
        x, *made, rows, columns, *x.stride(), wide, scale, BM=bm, BN=bn, num_warps=4
    )


def started(kernel: Any, t: Tile, m: int, n: int, *given: Any, parts: int = 1, **flags: Any) -> Call:
    grid = (tiles_of(m, n, t), parts)
    options = dict(BM=t.rows, BN=t.columns, BK=t.depth, num_warps=t.warps, num_stages=t.stages, **flags)
    return lambda: kernel[grid](*given, **options)


IEEE = [Tile(*t) for t in (
    (128, 64, 32, 8, 3), (128, 128, 16, 8, 3), (128, 128, 16, 8, 4), (128, 128, 32, 8, 2), (128, 128, 16, 4, 3),
    (128, 128, 32, 8, 3), (256, 128, 16, 8, 3), (128, 256, 16, 8, 3), (64, 128, 16, 4, 3), (64, 128, 32, 4, 3),
    (64, 64, 16, 4, 3), (256, 64, 16, 8, 3), (128, 128, 16, 8, 2), (64, 128, 16, 2, 3), (64, 256, 16, 4, 3),
)]  # fmt: skip
TWO = [Tile(*t) for t in ((128, 128, 32, 8, 3), (128, 128, 32, 8, 2), (128, 128, 16, 8, 5), (128, 64, 32, 4, 3), (64, 128, 32, 4, 4),
                          (128, 128, 64, 8, 1), (64, 256, 32, 8, 2), (256, 64, 32, 8, 2))]  # fmt: skip
SINGLE = [
    Tile(*t)
    for t in (
        (128, 256, 32, 8, 2),
        (256, 128, 32, 8, 2),
        (128, 256, 16, 8, 4),
        (128, 128, 32, 8, 3),
        (128, 128, 32, 4, 3),
    )
]
LOOPED = [Tile(*t) for t in ((128, 128, 32, 8, 3), (128, 128, 32, 8, 4), (128, 128, 32, 8, 2), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3),
                             (64, 64, 32, 4, 3), (128, 128, 64, 8, 2))]  # fmt: skip
SIX = [Tile(*t) for t in ((128, 128, 32, 8, 3), (128, 128, 64, 8, 2), (128, 256, 32, 8, 3), (256, 128, 32, 8, 3))]


class Problem:
    """The arrays of one shape. `x`, `w` are row-major; `xt`, `wt` are their transposes, row-major too."""

    def __init__(self, m: int, k: int, n: int, positive: bool = False) -> None:
        make = torch.rand if positive else torch.randn
        self.m, self.k, self.n = m, k, n
        self.x, self.w = make(m, k, device="cuda"), make(k, n, device="cuda")
        self.xt, self.wt = self.x.mT.contiguous(), self.w.mT.contiguous()
        self.out = torch.empty(m, n, device="cuda")
        self.few = slice(0, min(m, max(16, (1 << 31) // (k * n))))
        self.exact = self.x[self.few].double() @ self.w.double()
        self.scale = self.exact.abs().max().item()

    def error(self, result: Any) -> float:
        return (result[self.few].double() - self.exact).abs().max().item() / self.scale

    def ieee(self) -> Iterator[tuple[str, Call]]:
        m, k, n = self.m, self.k, self.n
        if k > 100_000:
            return
        sources = {"NN": (self.x, self.w), "TN": (self.xt.mT, self.w), "NT": (self.x, self.wt.mT)}
        for (layout, (a, b)), t in itertools.product(sources.items(), IEEE):
            if layout == "NT" and t not in IEEE[:2]:
                continue
            mask = bool(m % t.rows or n % t.columns or k % t.depth)
            yield (
                f"ieee {layout} {tuple(t)}",
                started(ieee, t, m, n, a, b, self.out, m, n, k, *a.stride(), *b.stride(), MASK=mask),
            )

    def tf32(self) -> Iterator[tuple[str, Call]]:
        m, k, n = self.m, self.k, self.n
        deep = k > 100_000
        if not deep:
            ah, al = parts_of(self.x, 2)
            bh, bl = parts_of(self.wt, 2)
            plain_a, plain_b = parts_of(self.x, 2, 1.0), parts_of(self.wt, 2, 1.0)
            yield "split x", lambda: fill_parts(self.x, [ah, al])
            yield "split w.T, contiguous", lambda: fill_parts(self.wt, [bh, bl])
            yield "split w, turned", lambda: fill_parts(self.w.mT, [bh, bl])
            for name, kernel, tiles, one in (
                ("packed", packed, TWO, False),
                ("packed one", packed, SINGLE, True),
                ("apart", apart, TWO[:3], False),
            ):
                more = (1.0,) if kernel is apart else ()
                for t in tiles:
                    rows = [described(y, t.rows, t.depth) for y in (plain_a if one else (ah, al))]
                    columns = [described(y, t.columns, t.depth) for y in (plain_b if one else (bh, bl))]
                    yield (
                        f"{name} {tuple(t)}",
                        started(kernel, t, m, n, *rows, *columns, self.out, m, n, k, *more, ONE=one),
                    )
            if k % 4 == 0:
                for t in LOOPED:
                    columns = [described(y, t.columns, t.depth) for y in (bh, bl)]
                    yield (
                        f"second {tuple(t)}",
                        started(
                            second, t, m, n, described(self.x, t.rows, t.depth), *columns, self.out, m, n, k, ONE=False
                        ),
                    )
        if k % 4 == 0:
            parts = 64 if deep else 1
            out = torch.empty(parts, m, n, device="cuda") if deep else self.out
            for t, turn in itertools.product(LOOPED, (True, False)):
                if not turn and n % 4:
                    continue
                b = described(self.wt, t.columns, t.depth) if turn else described(self.w, t.depth, t.columns)
                a = described(self.x, t.rows, t.depth)
                yield (
                    f"loop {'NT' if turn else 'NN'} {tuple(t)}",
                    started(loop, t, m, n, a, b, out, m, n, k, parts, parts=parts, TURN=turn),
                )
            if deep:
                yield "sum of parts", lambda: torch.sum(out, 0, out=self.out)

    def bf16(self) -> Iterator[tuple[str, Call]]:
        m, k, n = self.m, self.k, self.n
        if k > 100_000:
            return
        a, b = parts_of(self.x, 3), parts_of(self.wt, 3)
        yield "split x to bf16", lambda: fill_parts(self.x, a)
        for t, one in itertools.product(SIX, (True, False)):
            if t.rows * t.columns > 128 * 128 and not one:
                continue
            rows, columns = [described(y, t.rows, t.depth) for y in a], [described(y, t.columns, t.depth) for y in b]
            yield (
                f"bf16 {'one' if one else 'two'} {tuple(t)}",
                started(six, t, m, n, *rows, *columns, self.out, m, n, k, ONE=one),
            )


# ---- measurements ------------------------------------------------------------------------


def seconds(call: Call, budget: float = 0.03) -> float:
    """The median of calls within about `budget` seconds, after a warm-up of the same length."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(3, min(100, int(budget / max(time.perf_counter() - start, 1e-5))))
    for _ in range(count):
        call()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for before, after in marks:
        torch.cuda._sleep(400_000)  # the host queues the call meanwhile
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in marks)[count // 2] * 1e-3


def attempt(call: Call) -> str:
    try:
        call()
        torch.cuda.synchronize()
        return ""
    except Exception as problem:
        return f"{type(problem).__name__} {str(problem)[:60]}"


def measure(shape: tuple[int, int, int], wanted: list[str]) -> None:
    p = Problem(*shape)
    m, k, n = shape
    peers = {"NN": (p.x, p.w), "NT": (p.x, p.wt.mT), "TN": (p.xt.mT, p.w), "TT": (p.xt.mT, p.wt.mT)}
    times = {name: seconds(lambda a=a, b=b: torch.matmul(a, b, out=p.out), 0.1) for name, (a, b) in peers.items()}
    best, own = min(times.values()), p.error(p.x @ p.w)
    rate = 2 * m * k * n / best / 1e12
    print(
        f"\n{m}x{k}x{n}  cuBLAS "
        + "  ".join(f"{c} {s * 1e3:.3f} ms" for c, s in times.items())
        + f"  {rate:.1f} TFLOP/s  error {own:.1e}"
    )
    calls = [c for part in ("ieee", "tf32", "bf16") if part in wanted for c in getattr(p, part)()]
    with ThreadPoolExecutor(12) as pool:
        failed = list(pool.map(lambda c: attempt(c[1]), calls))
    found = []
    for (name, call), problem in zip(calls, failed):
        if problem:
            print(f"   {name}: {problem}")
            continue
        p.out.zero_()
        call()
        error = p.error(p.out)
        found.append((name.split()[0], seconds(call), name, error))
    for kind in dict.fromkeys(f[0] for f in found):
        for _, t, name, error in sorted(f for f in found if f[0] == kind):
            print(
                f"   {t * 1e3:8.3f} ms  {best / t:5.2f}  {name:34} error {error:.1e} ({error / own:.2f} of cuBLAS)",
                flush=True,
            )


def now(shape: tuple[int, int, int]) -> None:
    """What minitri has today."""
    import minitri as mt

    p = Problem(*shape)
    layouts = {"NN": (p.x, p.w), "NT": (p.x, p.wt), "TN": (p.xt, p.w), "TT": (p.xt, p.wt)}
    for name, given in layouts.items():
        f = mt.compile(TEXTS[name]).bind(*given)
        print(f"   minitri {name} {seconds(partial(f, *given)) * 1e3:.3f} ms", flush=True)


@triton.jit
def tiny(a, b, c, out):
    r, s = tl.arange(0, 64), tl.arange(0, 32)
    x = tl.load(a + r[:, None] * 32 + s[None, :])
    y = tl.load(b + r[None, :] * 32 + s[:, None])
    z = tl.load(c + r[:, None] * 64 + r[None, :])
    tl.store(out + r[:, None] * 64 + r[None, :], tl.dot(x, y, z, input_precision="tf32"))


def probe() -> None:
    """How tensor cores round, and what they make of special values. Each line is the first element of one product."""

    def run(title: str, a: list[float], b: list[float], c: float = 0.0, bits: int | None = None) -> None:
        x, y = torch.zeros(64, 32, device="cuda"), torch.zeros(64, 32, device="cuda")
        z, out = torch.full((64, 64), c, device="cuda"), torch.empty(64, 64, device="cuda")
        x[0, : len(a)], y[0, : len(b)] = torch.tensor(a), torch.tensor(b)
        if bits is not None:
            x.view(torch.int32)[0, 0] = bits
        tiny[(1,)](x, y, z, out)
        wanted = (x[0].double() * y[0].double()).sum().item() + c
        print(
            f"   {title:58} {out[0, 0].item():.9g}  bits {out.view(torch.int32)[0, 0].item() & 0xFFFFFFFF:08x}  exact {wanted:.9g}"
        )

    e = 2.0**-23
    run("low bits of a factor: 1 + 1.5 ulp of tf32 (truncated: 1 + 1 ulp)", [1 + 1.5 * 2**-10], [1.0])
    run("1 + 0.75 ulp; nearest gives 1 + ulp", [0.75 * e], [1.0], 1.0)
    run("-1 - 0.75 ulp; nearest gives -1 - ulp", [-0.75 * e], [1.0], -1.0)
    run("1 - 0.25 ulp below; nearest gives 1 - ulp/2 or 1", [-0.125 * e], [1.0], 1.0)
    run("1 + 8 products of ulp/8", [e / 8] * 8, [1.0] * 8, 1.0)
    run("1 + 4 products of ulp/4", [e / 4] * 4, [1.0] * 4, 1.0)
    run("1 + 2 products of ulp/2", [e / 2] * 2, [1.0] * 2, 1.0)
    run("1 + 16 products of ulp/16", [e / 16] * 16, [1.0] * 16, 1.0)
    run("1 + 32 products of ulp/32", [e / 32] * 32, [1.0] * 32, 1.0)
    run("2**24, then 1 at distance 4, 8, 16", [2.0**12, 0, 0, 0, 1.0], [2.0**12, 0, 0, 0, 1.0], -(2.0**24))
    run("products cancel: 2**40 - 2**40 + 1", [2.0**20, -(2.0**20), 1.0], [2.0**20, 2.0**20, 1.0])
    run(
        "products cancel in other instructions",
        [2.0**20] + [0] * 7 + [1.0] + [0] * 7 + [-(2.0**20)],
        [2.0**20] + [0] * 7 + [1.0] + [0] * 7 + [2.0**20],
    )
    run("denormal factor 2**-136 * 2**100", [2.0**-136], [2.0**100])
    run("denormal factor 2**-130 * 2**100", [2.0**-130], [2.0**100])
    run("denormal factor 2**-149 * 2**100", [2.0**-149], [2.0**100])
    run("denormal result 2**-70 * 2**-75", [2.0**-70], [2.0**-75])
    run("denormal results 2**-150 + 2**-150", [2.0**-75] * 2, [2.0**-75] * 2)
    run("inf * 0", [float("inf")], [0.0])
    run("inf * 2", [float("inf")], [2.0])
    run("nan with only its last bit, * 0", [0.0], [0.0], bits=0x7F800001)
    run("nan with only its last bit, * 1", [0.0], [1.0], bits=0x7F800001)
    run("largest number * 1", [3.4028234663852886e38], [1.0])
    run("overflow 2**100 * 2**100", [2.0**100], [2.0**100])
    run("2**127 + 2**127 - 2**127 in one instruction", [2.0**127] * 3, [1.0, 1.0, -1.0])
    run("-0 * 1 + 0", [-0.0], [1.0])
    run("-0 * 1 + -0", [-0.0], [1.0], -0.0)


def errors() -> None:
    """Errors by depth: cuBLAS, and three products in two sums, of numbers of both signs and of positive numbers."""
    print("\nerrors by depth (largest / root mean square, relative to the largest result)")
    for positive, k in itertools.product((False, True), (32, 64, 128, 256, 512, 1024, 2048, 4096, 16384)):
        errors_at(positive, k)


def errors_at(positive: bool, k: int) -> None:
    t = Tile(128, 128, 32, 8, 3)
    p = Problem(256, k, 256, positive)
    rows, columns = parts_of(p.x, 2), parts_of(p.wt, 2)
    low = [(y - (y.view(torch.int32) & -8192).view(torch.float32)) * 2048 for y in (p.x, p.wt)]
    six_a, six_b = parts_of(p.x, 3), parts_of(p.wt, 3)

    def run(kernel: Any, a: list[Any], b: list[Any], *more: float) -> str:
        given = [described(y, t.rows, t.depth) for y in a] + [described(y, t.columns, t.depth) for y in b]
        started(kernel, t, 256, 256, *given, p.out, 256, 256, k, *more, ONE=False)()
        return shown(p.out)

    def shown(result: Any) -> str:
        e = result.double() - p.exact
        return f"{e.abs().max().item() / p.scale:.1e}/{e.square().mean().sqrt().item() / p.scale:.1e}"

    print(
        f"   {'positive' if positive else 'normal':8} {k:6}  cuBLAS {shown(p.x @ p.w)}  two {run(packed, rows, columns)}"
        f"  truncated {run(packed, [p.x, low[0]], [p.wt, low[1]])}  apart {run(apart, rows, columns, 1.0)}"
        f"  bf16 {run(six, six_a, six_b)}",
        flush=True,
    )


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    wanted = sys.argv[1:] or ["probe", "errors", "ieee", "tf32", "bf16", "now"]
    torch.manual_seed(0)
    if "probe" in wanted:
        probe()
    if "errors" in wanted:
        errors()
    for shape in SHAPES:
        if {"ieee", "tf32", "bf16"} & {*wanted}:
            measure(shape, wanted)
        if "now" in wanted:
            now(shape)


if __name__ == "__main__":
    main()
