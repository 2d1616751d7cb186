"""Tests conditions on indices below every reduction on a GPU, with default options, against numpy in f64.

    python tests/grid_conditions.py --cases 5000 --jobs 14 [--json FILE]

Example: `sum(where(i < j, x, 0), axis=1)`. A case is a condition of up to three comparisons of indices, a reduction
along one of two axes, sizes of up to 10,000 and a dtype. Elements are small whole numbers, so that f32 sums are exact;
some cases also have inf and nan. The first cases are known regressions.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sweep_conditions import COMPARISONS, FILLERS, NEED_ELEMENTS, Question, wanted

import minitri as mt

SIZES = ((300, 9000), (9000, 300), (1, 10_000), (10_000, 1), (40, 100), (128, 100), (1000, 1000), (2048, 2048),
         (777, 4100), (4100, 777), (64, 10_000), (10_000, 64), (33, 65), (0, 300), (300, 0), (5000, 500))  # fmt: skip
DTYPE_NAMES = ("f32", "f32", "bf16", "f16", "f64", "i32")
BAND, CORNER = "((j > i + 5) & (j <= 60))", "((j <= i) & (j > i - 7))"
ONCE_WRONG = (
    *((BAND, name, filler) for name, filler in (("sum", "0"), ("mean", "0"), ("max", "-inf"), ("softmax", "-inf"))),
    *(("((j < 76) & (j >= i + 8))", name, filler) for name, filler in (("sum", "0"), ("softmax", "-inf"))),
    (CORNER, "prod", "0"), ("((i < 4) & (j <= i + 6))", "prod", "0"), ("((j > i - 5) & (i >= 1))", "mean", "0"),
)  # fmt: skip


def question(seed: int) -> tuple[Question, tuple[int, int], str]:
    rng = random.Random(seed)
    if seed < 2 * len(ONCE_WRONG):
        condition, reduction, filler = ONCE_WRONG[seed // 2]
        return Question(condition, reduction, seed % 2, filler, False, (0, 0), True, seed), (300, 9000), "f32"
    reduction = rng.choice([r for r in FILLERS if r != "scan"])
    axis, (m, n), dtype = rng.randrange(2), rng.choice(SIZES), rng.choice(DTYPE_NAMES)
    filler = str(rng.choice(FILLERS[reduction]))
    if reduction in NEED_ELEMENTS and (m, n)[axis] == 0:
        m, n = 300, 9000
    if dtype == "i32":
        reduction, filler = rng.choice(
            (("sum", "0"), ("max", "-100"), ("min", "100"), ("argmax", "-100"), ("any", "0"))
        )
        m, n = (m, n) if m and n else (40, 100)
    return (
        Question(
            _condition(rng, rng.choice((1, 2, 2, 3)), m, n),
            reduction,
            axis,
            filler,
            rng.random() < 0.1,
            (0, 0),
            True,
            seed,
        ),
        (m, n),
        dtype,
    )


def _condition(rng: random.Random, comparisons: int, m: int, n: int) -> str:
    if comparisons > 1:
        first = rng.randint(1, comparisons - 1)
        text = f"({_condition(rng, first, m, n)} {rng.choice('&&|')} {_condition(rng, comparisons - first, m, n)})"
        return f"~{text}" if rng.random() < 0.15 else text
    left, right, size = rng.choice((("i", "j", m), ("j", "i", n), ("i", "", m), ("j", "", n), ("2 * j", "i", n)))
    offset = rng.choice((rng.randint(-9, 9), rng.randint(-size, size), size // 2, 60, 127, 128))
    text = f"({left} {rng.choice(COMPARISONS)} {f'{right} + {offset}' if right else offset})".replace("+ -", "- ")
    return f"~{text}" if rng.random() < 0.15 else text


def failure(seed: int) -> str:
    """What is wrong with a case; "" if nothing is wrong."""
    import torch

    q, (m, n), dtype = question(seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (m, n)).astype(np.float32)
    if q.reduction == "prod":
        x = rng.choice(np.array([1, -1, 1, 1, 2, 0.5], np.float32), (m, n), p=(0.4, 0.3, 0.1, 0.1998, 0.0001, 0.0001))
    if dtype != "i32" and rng.random() < 0.3:
        x = np.where(rng.random((m, n)) < 0.001, rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32), (m, n)), x)
    torch_type = {
        "f32": torch.float32,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f64": torch.float64,
        "i32": torch.int32,
    }[dtype]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            got = mt.compile(q.text, x=f"{dtype}[M, N]")(torch.from_numpy(x).to(torch_type).cuda())
            found = [g.double().cpu().numpy() for g in (got if isinstance(got, tuple) else (got,))]
        except Exception as error:
            return f"{q.text} {dtype}[{m}, {n}]: {type(error).__name__}: {str(error)[:300]}"
        for g, w in zip(found, wanted(q, x)):
            if what := _differs(g, np.asarray(w), q, x, dtype):
                return f"{q.text} {dtype}[{m}, {n}], seed {seed}: {what}"
    return ""


def _differs(g: Any, w: Any, q: Question, x: Any, dtype: str) -> str:
    if g.shape != w.shape:
        return f"{g.shape} is not {w.shape}"
    w = w.astype(np.float64)
    if dtype in ("f16", "bf16"):  # a result past the dtype's range is inf
        info = np.finfo(np.float16) if dtype == "f16" else None
        w = np.where(np.abs(w) > 65520, np.sign(w) * np.inf, w) if info and q.reduction not in ("any", "all") else w
    off = {"f16": 2**-10, "bf16": 2**-7, "f64": 1e-12}.get(dtype, 3e-6)
    off = max(off, 1e-5) if q.reduction in ("softmax", "log_softmax", "logsumexp", "var") and dtype != "f64" else off
    with np.errstate(all="ignore"):
        room = off * np.maximum(np.abs(np.where(np.isfinite(w), w, 0)), 1e-2 if q.reduction != "var" else 1)
        same = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= room)
    if same.all():
        return ""
    where = tuple(int(k[0]) for k in np.nonzero(~same))
    return f"{g[where]} is not {w[where]} at {where}, {int((~same).sum())} of {g.size} wrong"


def batch(seeds: range) -> tuple[Counter[str], list[str]]:
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        q, _, dtype = question(seed)
        found.update(("cases", q.reduction, dtype))
        if what := failure(seed):
            wrong.append(what)
    return found, wrong


def grid(cases: int, jobs: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    found, wrong = Counter[str](), list[str]()
    batches = [range(k, min(k + 10, seed + cases)) for k in range(seed, seed + cases, 10)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for counts, failures in pool.map(batch, batches):
            found += counts
            wrong += failures
    return found, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    found, wrong = grid(options.cases, options.jobs, options.seed)
    seconds = time.perf_counter() - start
    print(*wrong[:30], sep="\n")
    print(f"{found['cases']:,} cases, {len(wrong)} wrong; {seconds:.0f} s")
    if options.json:
        import torch

        row = {
            "cases": found["cases"],
            "wrong": len(wrong),
            "seconds": round(seconds),
            "hardware": torch.cuda.get_device_name(),
        }
        options.json.write_text(json.dumps({**row, "counts": dict(found)}))


if __name__ == "__main__":
    main()
