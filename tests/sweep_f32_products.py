"""Measures products of f32 arrays on a GPU: times and errors by shape and layout, compared with cuBLAS.

    python tests/sweep_f32_products.py [probe] [special] [products] [candidates]        none: all parts

    probe       how tensor cores round TF32 sums: the error bound of minitri/base/tf32_products.py is based on it
    special     infinities, NaN, subnormal and very large numbers; the time if every tile has one
    products    12 shapes, the layouts NN NT TN TT and a computed second factor: IEEE, and the compiler's choice
    candidates  other tiles for a few shapes, fastest first

In: nothing. Out: tables. Times are medians in milliseconds; a ratio is cuBLAS's time for the same layout divided by
ours. An error is the largest difference from the product in f64, divided by that product's largest element. It needs
a GPU.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

import minitri as mt

Call = Callable[[], Any]
SHAPES = (  # rows, depth, columns
    (4096, 4096, 4096), (2048, 8192, 4096), (8205, 2949, 5921), (16384, 32, 16384), (256, 524288, 256), (1024, 1024, 1024),
    (2048, 2048, 2048), (8192, 1024, 8192), (128, 8192, 8192), (3000, 3000, 3000), (16384, 512, 1024), (512, 4096, 11008),
)  # fmt: skip
LAYOUTS = {  # types of x and w, the product, and cuBLAS's
    "NN": ("f32[M, K]", "f32[K, N]", "x", "w", lambda x, w: x @ w),
    "NT": ("f32[M, K]", "f32[N, K]", "x", "w.mT", lambda x, w: x @ w.mT),
    "TN": ("f32[K, M]", "f32[K, N]", "x.mT", "w", lambda x, w: x.mT @ w),
    "TT": ("f32[K, M]", "f32[N, K]", "x.mT", "w.mT", lambda x, w: x.mT @ w.mT),
    "NC": ("f32[M, K]", "f32[K, N]", "x", "w * s", lambda x, w: x @ (w * 0.5)),
}
PRECISIONS = ("ieee", "f32")


def seconds(call: Call, budget: float = 0.02) -> float:
    """The median time of calls within about `budget` seconds, after a warm-up. The host queues calls in the meantime."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(3, min(60, int(budget / max(time.perf_counter() - start, 1e-5))))
    for _ in range(count):
        call()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for before, after in marks:
        torch.cuda._sleep(200_000)
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in marks)[count // 2] * 1e-3


def attempt(call: Call) -> Any:
    """The result of a call, or the text of its exception."""
    try:
        return call()
    except Exception as problem:
        return f"{type(problem).__name__} {str(problem)[:80]}"


def in_parallel(calls: Sequence[Call]) -> list[Any]:
    with ThreadPoolExecutor(14) as pool:
        return list(pool.map(attempt, calls))


# ---- products ----------------------------------------------------------------------------


class Problem:
    """The arrays of a shape in both layouts, and some rows of the exact product."""

    def __init__(self, m: int, k: int, n: int) -> None:
        torch.manual_seed(m + k + n)
        self.shape = (m, k, n)
        x, w = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        self.x, self.w = {"N": x, "T": x.mT.contiguous()}, {"N": w, "T": w.mT.contiguous(), "C": w}
        self.few = slice(0, min(m, max(16, (1 << 31) // (k * n))))
        self.exact = x[self.few].double() @ w.double()

    def given(self, layout: str) -> tuple[Any, ...]:
        given = (self.x[layout[0]], self.w[layout[1]])
        return (*given, torch.full((self.shape[2],), 0.5, device="cuda")) if layout == "NC" else given

    def error(self, result: Any, layout: str) -> float:
        exact = self.exact * 0.5 if layout == "NC" else self.exact
        return ((result[self.few].double() - exact).abs().max() / exact.abs().max()).item()

    def cublas(self, layout: str) -> tuple[float, float]:
        """The time and the error of cuBLAS."""
        call = partial(LAYOUTS[layout][4], *self.given(layout)[:2])
        return seconds(call, 0.04), self.error(call(), layout)

    def measured(self, call: Any, layout: str) -> tuple[Any, float]:
        """The time and the error of a call. Without a call or if it fails: the text of an exception and NaN."""
        took = call if isinstance(call, str) else attempt(partial(seconds, call))
        return took, math.nan if isinstance(took, str) else self.error(call(), layout)

    def bound(self, layout: str, precision: str, **options: Any) -> Call:
        """A call of a compiled program, after its kernels have been compiled."""
        x, w, first, second, _ = LAYOUTS[layout]
        more = {"s": "f32[N]"} if layout == "NC" else {}
        text = f'matmul({first}, {second}, precision="{precision}")'
        chosen = {"options": mt.Options(**options)} if options else {}
        return mt.compile(text, x=x, w=w, **more, **chosen).bind(*self.given(layout))


def products() -> None:
    ratios: dict[str, list[float]] = {p: [] for p in PRECISIONS}
    worse = 0
    print("rows x depth x columns; cuBLAS ms, error; for each precision: ms, ratio, error / cuBLAS's error", flush=True)
    for shape in SHAPES:
        p = Problem(*shape)
        cases = list(itertools.product(LAYOUTS, PRECISIONS))
        found = dict(zip(cases, in_parallel([partial(p.bound, *c) for c in cases])))
        for layout in LAYOUTS:
            peer, own = p.cublas(layout)
            line = f"{'x'.join(map(str, shape)):18} {layout}  {peer * 1e3:8.3f} {own:.1e}"
            for precision in PRECISIONS:
                took, error = p.measured(found[layout, precision], layout)
                if isinstance(took, str):
                    line += f"   {precision} {took}"
                    continue
                ratios[precision].append(peer / took)
                worse += precision == "f32" and error > own
                line += f"   {precision:4} {took * 1e3:8.3f} {peer / took:5.2f} {error / own:5.2f}"
            print(line, flush=True)
    for precision, all_ratios in ratios.items():
        mean = math.exp(sum(map(math.log, all_ratios)) / len(all_ratios))
        below = sum(r < 0.95 for r in all_ratios)
        print(
            f"{precision}: geometric mean {mean:.2f}, {below} of {len(all_ratios)} below 0.95, least {min(all_ratios):.2f}"
        )
    print(f"the compiler's choice has a larger error than cuBLAS in {worse} cases")


# ---- candidates --------------------------------------------------------------------------

TILES = {  # rows, columns, depth, warps, stages
    "f32": ((64, 128, 32, 4, 3), (64, 128, 32, 4, 4), (64, 128, 32, 4, 2), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4), (128, 64, 32, 4, 3),
            (64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 128, 64, 4, 2), (64, 128, 16, 4, 4), (64, 256, 32, 8, 3), (128, 256, 32, 8, 2),
            (128, 128, 64, 8, 2), (64, 256, 32, 4, 3), (128, 128, 16, 8, 5)),
    "ieee": ((128, 128, 32, 8, 3), (128, 128, 32, 8, 4), (128, 128, 32, 8, 2), (64, 64, 16, 4, 3), (128, 64, 32, 8, 3), (64, 128, 32, 4, 3),
             (64, 64, 32, 4, 3), (128, 128, 64, 8, 2), (128, 128, 16, 4, 3), (64, 64, 16, 4, 4), (64, 64, 64, 4, 2), (64, 64, 16, 2, 3)),
}  # fmt: skip
SEARCHED = (("f32", "NT", (4096, 4096, 4096)), ("f32", "NT", (1024, 1024, 1024)), ("f32", "NT", (128, 8192, 8192)),
            ("ieee", "TN", (4096, 4096, 4096)), ("ieee", "NN", (4096, 4096, 4096)), ("ieee", "NN", (1024, 1024, 1024)))  # fmt: skip


def variants(precision: str) -> Iterator[dict[str, Any]]:
    for (rows, columns, depth, warps, stages), descriptors in itertools.product(TILES[precision], (True, False)):
        blocks = {"i": rows, "j": columns, "r": depth}
        yield {"blocks": blocks, "warps": warps, "stages": stages, "group": 8, "descriptors": descriptors}


def candidates() -> None:
    for precision, layout, shape in SEARCHED:
        p = Problem(*shape)
        peer, own = p.cublas(layout)
        tried = [{}, *variants(precision)]
        calls = in_parallel([partial(p.bound, layout, precision, **o) for o in tried])
        found: list[tuple[float, str]] = []
        for options, call in zip(tried, calls):
            took, error = p.measured(call, layout)
            name = " ".join(map(str, options["blocks"].values())) if options else "the compiler's choice"
            name += f" warps {options['warps']} stages {options['stages']}" if options else ""
            name += " descriptors" if options.get("descriptors") else ""
            if isinstance(took, str):
                found.append((math.inf, f"{name}: {took}"))
            else:
                found.append((took, f"{took * 1e3:8.3f} ms  {peer / took:5.2f}  error {error / own:5.2f}  {name}"))
        print(f"{precision} {layout} {'x'.join(map(str, shape))}: cuBLAS {peer * 1e3:.3f} ms")
        print("\n".join(f"   {text}" for _, text in sorted(found)), flush=True)


# ---- special values ----------------------------------------------------------------------


def special() -> None:
    """Compares rows that contain special values with f64. Measures a product in which every tile has such a value."""
    m = k = n = 1024
    f = mt.compile("x @ w.mT", x="f32[M, K]", w="f32[N, K]")
    x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    plain = f.bind(x, w)
    print(f"special values: no special value {seconds(plain) * 1e3:.3f} ms", flush=True)
    inf, nan, largest, least = math.inf, math.nan, 3.4028234663852886e38, 2.0**-149
    cases = {
        "largest and small": ([largest], [2.0**-100]), "largest times 0": ([largest, 2.0], [0.0, 3.0]),
        "subnormal and large": ([least], [2.0**120]), "bits of a subnormal": ([0x7FFFFF * least], [2.0**20]),
        "low part subnormal": ([2.0**-120 * (1 + 2.0**-23)], [2.0**30]), "subnormal result": ([2.0**-70], [2.0**-75]),
        "overflow": ([2.0**100], [2.0**100]), "scaled overflow": ([2.0**60], [2.0**60]), "inf": ([inf, 1.0], [-2.0, 3.0]),
        "inf times 0": ([inf], [0.0]), "inf - inf": ([inf, inf], [1.0, -1.0]), "nan": ([nan], [0.0]),
        "-0": ([-0.0], [1.0]), "negative underflow": ([-least], [least]), "exact": ([3.0, 5.0], [7.0, 2047.0]),
    }  # fmt: skip
    for name, (a, b) in cases.items():
        y, v = x.clone(), w.clone()
        y[0], v[0] = 0, 0
        y[0, : len(a)], v[0, : len(b)] = torch.tensor(a, device="cuda"), torch.tensor(b, device="cuda")
        got, peer = f(y, v)[0, 0], (y @ v.mT)[0, 0]
        exact = (y[:1].double() @ v[:1].double().mT)[0, 0].float()
        same = got.isnan() & peer.isnan() | (got == peer)
        sign = got.isnan() | (torch.signbit(got) == torch.signbit(peer))
        print(f"   {name:22} {got.item():.9g}  cuBLAS {peer.item():.9g}  f64 {exact.item():.9g}"
              f"{'' if same else '  OTHER VALUE'}{'' if sign else '  OTHER SIGN'}", flush=True)  # fmt: skip
    x[:: m // 64, 5] = inf
    finite = torch.isfinite(x).all(1)
    call = f.bind(x, w)
    same = ((call() == x @ w.mT) | ~torch.isfinite(x @ w.mT)).all(1)[~finite].all().item()
    print(f"   an infinity in every tile: {seconds(call) * 1e3:.3f} ms; rows as cuBLAS: {same}", flush=True)
    ones = (
        torch.randint(-1024, 1024, (m, k), device="cuda").float(),
        torch.randint(-8, 8, (n, k), device="cuda").float(),
    )
    print(f"   whole numbers are exact: {(f(*ones).double() == ones[0].double() @ ones[1].double().mT).all().item()}")


# ---- how tensor cores round --------------------------------------------------------------


@triton.jit
def tiny(a, b, c, out):
    r, s = tl.arange(0, 64), tl.arange(0, 32)
    x = tl.load(a + r[:, None] * 32 + s[None, :])
    y = tl.load(b + r[None, :] * 32 + s[:, None])
    z = tl.load(c + r[:, None] * 64 + r[None, :])
    tl.store(out + r[:, None] * 64 + r[None, :], tl.dot(x, y, z, input_precision="tf32"))


def probe() -> None:
    """Prints elements of products, each next to the value that minitri/base/tf32_products.py expects."""
    u = 2.0**-23
    cases: dict[str, tuple[list[float], list[float], float, float]] = {
        "a factor is truncated": ([1 + 1.5 * 2.0**-10], [1.0], 0.0, 1 + 2.0**-10),
        "a sum is truncated": ([0.75 * u], [1.0], 1.0, 1.0),
        "two more bits of each term": ([u / 4] * 4, [1.0] * 4, 1.0, 1 + u),
        "no third bit": ([u / 8] * 8, [1.0] * 8, 1.0, 1.0),
        "subnormal TF32 numbers": ([2.0**-136], [2.0**100], 0.0, 2.0**-36),
        "nothing smaller": ([2.0**-137], [2.0**100], 0.0, 0.0),
    }
    for name, (a, b, start, wanted) in cases.items():
        x, y = torch.zeros(64, 32, device="cuda"), torch.zeros(64, 32, device="cuda")
        z, out = torch.full((64, 64), start, device="cuda"), torch.empty(64, 64, device="cuda")
        x[0, : len(a)], y[0, : len(b)] = torch.tensor(a), torch.tensor(b)
        tiny[(1,)](x, y, z, out)
        got = out[0, 0].item()
        print(f"   {name:28} {got:.9g}" + ("" if got == wanted else f"  EXPECTED {wanted:.9g}"), flush=True)


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    parts = {"probe": probe, "special": special, "products": products, "candidates": candidates}
    for name in sys.argv[1:] or parts:
        start = time.perf_counter()
        parts[name]()
        print(f"# {name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
