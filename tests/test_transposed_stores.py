"""Which transposed results have a kernel of their own: by the number of rows, beside other results, after scans.

The results are row-major, because the pass output-layouts is left out.
"""

from __future__ import annotations

import numpy as np
import pytest
from lowered_thresholds import lowered

import minitri as mt

ROWS = {"x": "f32[M, N]"}
FEW, MANY = {"M": 500, "N": 700}, {"M": 4000, "N": 700}  # a program with the rows of a sector has 8 rows of f32
SHORT = {"M": 50, "N": 70}  # less than a kernel could begin in
ONE_KERNEL, TWO_KERNELS = 1, 2
LAID = ("output-layouts",)

# text, sizes, kernels on an H100
CASES: dict[str, tuple[str, dict[str, int], int]] = {
    "few rows": ("softmax(x).mT * 2", FEW, TWO_KERNELS),
    "many rows": ("softmax(x).mT * 2", MANY, ONE_KERNEL),
    "a small result": ("softmax(x).mT * 2", SHORT, ONE_KERNEL),
    "rows that are stored along rows": ("softmax(x) * 2", FEW, ONE_KERNEL),
    "a transpose beside rows": ("softmax(x), x.mT * 2", MANY, TWO_KERNELS),
    "rows and their transpose": ("softmax(x), softmax(x).mT * 2", MANY, TWO_KERNELS),
    "a small transpose beside rows": ("softmax(x), x.mT * 2", SHORT, ONE_KERNEL),
    "a scan": ("cumulative_sum(x, axis=1).mT", MANY, TWO_KERNELS),
    "columns that are stored along rows": ("softmax(x, axis=0)", FEW, ONE_KERNEL),
    "one number for each row beside a transpose": ("sum(x, axis=1), x.mT * 2", MANY, ONE_KERNEL),
    "elements without a reduction": ("exp(x), x.mT * 2", MANY, ONE_KERNEL),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_kernels_of_transposed_results(name: str) -> None:
    text, sizes, kernels = CASES[name]
    assert len(mt.compile(text, **ROWS).lower(**sizes, target="h100", without=LAID).kernels) == kernels
    assert len(mt.compile(text, **ROWS).lower(**sizes, target="h100").kernels) == ONE_KERNEL


@pytest.mark.parametrize("target, kernels", [("h100", TWO_KERNELS), ("a100", ONE_KERNEL)])
def test_few_is_measured_by_the_chip(target: str, kernels: int) -> None:
    """900 rows are few for 132 multiprocessors, but not for 108."""
    assert len(mt.compile("softmax(x).mT", **ROWS).lower(M=900, N=700, target=target, without=LAID).kernels) == kernels


def test_symbolic_sizes_count_as_many_rows() -> None:
    assert len(mt.compile("softmax(x).mT", **ROWS).lower(target="h100").kernels) == ONE_KERNEL


def test_the_ledger_says_why() -> None:
    low = mt.compile("softmax(x).mT", **ROWS).lower(**FEW, target="h100", without=LAID)
    rules = {d.rule for d in low.compilation.value("kernels.fused").ledger if not d.fused}
    assert "the result is transposed, and there are few rows" in rules


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("shape", [(7, 33), (5, 1), (0, 3), (33, 64)])
def test_results_are_right_at_every_stage(name: str, shape: tuple[int, int]) -> None:
    f = mt.compile(CASES[name][0], **ROWS)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if 0 in shape and "softmax" in CASES[name][0]:
        return
    with lowered({"optimize.fusion.separate_transposes.SMALL": 0}):
        report = f.check(x)
    assert report.ok, report
