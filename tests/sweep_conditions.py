"""Tests conditions on indices below every reduction, at all small sizes: numpy against masked tile programs.

    python tests/sweep_conditions.py --configurations 200000 --jobs 2

Example: `sum(where(i < j, x, 0), axis=1)`. A configuration is a condition of up to three comparisons of indices, a
reduction along one of two axes, blocks of 1 to 8, and sizes of 0 to 17. Reductions are over
`where(condition, x, filler)`; a few elements of x are inf and nan. Numpy alone computes the expected result. Half of
the programs are lowered for known sizes, the others for any sizes.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import minitri as mt
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Loop
from minitri.tiles.schedule import Options
from minitri.trust.run_stage import results

REDUCTIONS = (
    "sum", "mean", "prod", "max", "min", "argmax", "argmin", "any", "all", "softmax", "logsumexp", "var", "sum of two",
    "scan", "sum and result", "log_softmax",
)  # fmt: skip
FILLERS = {
    "sum": (0, 0, 1), "mean": (0, 0, "nan"), "prod": (1, 0, 1), "max": ("-inf", "-inf", 0), "min": ("inf", "inf", "nan"),
    "argmax": ("-inf", 0), "argmin": ("inf", 0), "any": (0, 0, 2), "all": (1, 1, 0), "softmax": ("-inf", "-inf", 0),
    "logsumexp": ("-inf", "-inf", "inf"), "var": (0, 1), "sum of two": (0, 1), "scan": (0, 1), "sum and result": (0,),
    "log_softmax": ("-inf", 0),
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
NEED_ELEMENTS = (
    "max",
    "min",
    "argmax",
    "argmin",
    "softmax",
    "log_softmax",
    "logsumexp",
    "sum of two",
)  # not of empty axes
SIZES = 10  # pairs of sizes for each program


class Blocks(dict[str, int]):
    """One block size for every axis name. As a mapping it is empty, so no name counts as unknown."""

    def __init__(self, rows: int, rest: int) -> None:
        super().__init__()
        self.rows, self.rest = rows, rest

    def get(self, name: str, default: int | None = None) -> int:  # type: ignore[override]
        return self.rows if name == "i" else self.rest


@dataclass(frozen=True)
class Question:
    """A program and its blocks. `condition` is a text over i and j that both numpy and minitri understand."""

    condition: str
    reduction: str
    axis: int
    filler: str
    inverted: bool
    blocks: tuple[int, int]
    known: bool
    seed: int

    @property
    def text(self) -> str:
        condition = self.condition.replace("i", "arange(M)[:, None]").replace("j", "arange(N)")
        chosen = f"where({condition}, {self.filler}, x)" if self.inverted else f"where({condition}, x, {self.filler})"
        return _reduced(self.reduction, chosen, self.axis)


def _reduced(reduction: str, chosen: str, axis: int) -> str:
    match reduction:
        case "any" | "all":
            return f"{reduction}({chosen} > 0.5, axis={axis})"
        case "sum of two":
            return f"sum({chosen}, axis={axis}) + max(x, axis={axis})"
        case "scan":
            return f"cumulative_sum({chosen}, axis={axis})"
        case "sum and result":
            return f"sum({chosen}, axis={axis}), {chosen}"
        case _:
            return f"{reduction}({chosen}, axis={axis})"


# ---- drawing -----------------------------------------------------------------------------------


def question(seed: int) -> Question:
    rng = random.Random(seed)
    reduction = rng.choice(REDUCTIONS)
    return Question(
        _condition(rng, rng.choice((1, 1, 2, 2, 2, 3))), reduction, rng.randrange(2), str(rng.choice(FILLERS[reduction])),
        rng.random() < 0.2, (rng.randint(1, 8), rng.choice((1, 2, 4, 8))), rng.random() < 0.5, seed,
    )  # fmt: skip


def _condition(rng: random.Random, comparisons: int) -> str:
    if comparisons == 1:
        left, right = rng.choice(
            (("i", "j"), ("j", "i"), ("i", ""), ("j", ""), ("i + j", ""), ("i - j", ""), ("2 * j", "i"))
        )
        offset = rng.randint(-9, 9)
        right = f"{right} + {offset}" if right else str(offset)
        text = f"({left} {rng.choice(COMPARISONS)} {right.replace('+ -', '- ')})"
    else:
        first = rng.randint(1, comparisons - 1)
        text = f"({_condition(rng, first)} {rng.choice('&&|')} {_condition(rng, comparisons - first)})"
    return f"~{text}" if rng.random() < 0.15 else text


def array(rng: np.random.Generator, m: int, n: int) -> Any:
    x = rng.integers(-2, 3, (m, n)).astype(np.float32)
    if rng.random() < 0.4:
        special = rng.choice(np.array([np.inf, -np.inf, np.nan, -0.0], np.float32), (m, n))
        x = np.where(rng.random((m, n)) < 0.1, special, x)
    return x


# ---- the expected result -----------------------------------------------------------------------


def wanted(q: Question, x: Any) -> tuple[Any, ...]:
    i, j = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    condition = np.broadcast_to(eval(q.condition, {"i": i, "j": j}), x.shape)
    condition = ~condition if q.inverted else condition
    chosen = np.where(condition, x.astype(np.float64), float(q.filler))
    match q.reduction:
        case "any" | "all":
            return (getattr(np, q.reduction)(chosen > 0.5, axis=q.axis),)
        case "sum of two":
            return (chosen.sum(q.axis) + x.astype(np.float64).max(q.axis),)
        case "scan":
            return (chosen.cumsum(q.axis),)
        case "sum and result":
            return chosen.sum(q.axis), chosen
        case "softmax" | "log_softmax" | "logsumexp":
            return (_exponentials(q.reduction, chosen, q.axis),)
        case _:
            return (getattr(np, q.reduction)(chosen, axis=q.axis),)


def _exponentials(name: str, x: Any, axis: int) -> Any:
    m = x.max(axis, keepdims=True)
    e = np.exp(x - m)
    if name == "softmax":
        return e / e.sum(axis, keepdims=True)
    if name == "log_softmax":
        return x - m - np.log(e.sum(axis, keepdims=True))
    total = np.log(e.sum(axis, keepdims=True)) + m
    return np.where(np.isfinite(m), total, m).squeeze(axis)


# ---- running -----------------------------------------------------------------------------------


def results_of(q: Question) -> Iterator[tuple[int, int, str, bool]]:
    """(M, N, what is wrong, whether a loop left a block out) for some sizes."""
    rng = np.random.default_rng(q.seed)
    f = mt.compile(q.text, x="f32[M, N]").configured(options=Options(blocks=Blocks(*q.blocks)))
    general = f.lower(target="cuda:90").compilation
    least = [int(q.reduction in NEED_ELEMENTS and axis == q.axis) for axis in (0, 1)]
    for _ in range(SIZES):
        m, n = (int(rng.integers(k, 18)) for k in least)
        compiled = f.lower(target="cuda:90", M=m, N=n).compilation if q.known else general
        x = array(rng, m, n)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                skipped = any(isinstance(s, Loop) and s.because for p in compiled.value("tile") for s in p.body)
                what = _differs(results(compiled, "tile.masked", bind(f.function, (x,), {})), wanted(q, x))
            except Exception as error:
                skipped, what = False, f"{type(error).__name__}: {error}"
        yield m, n, what, skipped


def _differs(got: Any, want: Any) -> str:
    for g, w in zip(got, want):
        if g.shape != w.shape or not np.allclose(g, w, rtol=2e-5, atol=1e-5, equal_nan=True):
            return f"{g.tolist()} is not {w.tolist()}"
    return ""


def batch(seeds: range) -> tuple[Counter[str], list[str]]:
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        q = question(seed)
        for m, n, what, skipped in results_of(q):
            found["configurations"] += 1
            found["with a block left out"] += skipped
            if what:
                wrong.append(f"{q.text}  blocks {q.blocks}, known {q.known}, seed {seed}, {m}x{n}: {what[:300]}")
    return found, wrong


def sweep(configurations: int, jobs: int = 1, seed: int = 0) -> tuple[Counter[str], list[str]]:
    programs, step = -(-configurations // SIZES), 50
    batches = [range(k, min(k + step, seed + programs)) for k in range(seed, seed + programs, step)]
    found: Counter[str] = Counter()
    wrong: list[str] = []
    if jobs == 1:
        outcomes: Any = map(batch, batches)
    else:
        outcomes = ProcessPoolExecutor(jobs).map(batch, batches)
    for counts, failures in outcomes:
        found += counts
        wrong += failures
    return found, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=200_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    found, wrong = sweep(options.configurations, options.jobs, options.seed)
    print(*wrong[:20], sep="\n")
    counts = ", ".join(f"{n:,} {name}" for name, n in found.items())
    print(f"{counts}, {len(wrong)} wrong; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
