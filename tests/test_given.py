"""What `explain` says that kernels take as given of their arrays and sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import minitri as mt

ARRAYS = {  # type of x, sizes, and what is said of it
    "rows that 16 divides": ("f32[M, N]", {"M": 4096, "N": 1024}, "x, out: 16 bytes at a time"),
    "rows of odd steps": ("f16[M, N]", {"M": 4096, "N": 777}, "x, out: 2 bytes at a time, rows lie 1554 bytes apart"),
    "rows that 4 divides": (
        "bf16[M, N]",
        {"M": 4096, "N": 4090},
        "x, out: 4 bytes at a time, rows lie 8180 bytes apart",
    ),
    "rows that 8 divides": (
        "bf16[M, N]",
        {"M": 4096, "N": 4100},
        "x, out: 8 bytes at a time, rows lie 8200 bytes apart",
    ),
    "sizes that are arguments": ("f32[M, N]", {}, "x, out: 16 bytes at a time in calls where 16 divides N"),
    "a size of 1": ("f32[M, N]", {"M": 1, "N": 777}, "x, out: 16 bytes at a time"),
}


@pytest.mark.parametrize("name", list(ARRAYS))
def test_how_much_is_read_at_a_time(name: str) -> None:
    kind, sizes, wanted = ARRAYS[name]
    page = mt.compile("softmax(x * 2.0, axis=-1)", x=kind).explain(**sizes)
    (line,) = [line for line in page.splitlines() if line.startswith("  arrays: ")][:1]
    assert wanted in line


def test_columns_are_apart() -> None:
    f = mt.compile("sum(x, axis=1)", x="f32[M, N]")
    page = f.explain(torch.zeros(64, 32).T)
    assert "not row-major: x" in page and "x: 4 bytes at a time, elements lie 128 bytes apart" in page


@pytest.mark.parametrize(("sizes", "wanted"), [
    ({"M": 3, "N": 4}, "these sizes and strides are literals in the kernels; offsets of 32 bits"),
    ({"N": 4}, "M is an argument of the kernels, the rest literals; offsets of 32 bits"),
    ({}, "for any sizes: they are arguments of the kernels; offsets of 32 bits"),
    ({"M": 1 << 20, "N": 1 << 12}, "these sizes and strides are literals in the kernels; offsets of 64 bits"),
])  # fmt: skip
def test_which_sizes_are_literals(sizes: dict[str, int], wanted: str) -> None:
    page = mt.compile("softmax(x, axis=-1)", x="f32[M, N]").explain(**sizes)
    assert page.splitlines()[1] == wanted


def test_arrays_that_begin_anywhere_are_explained_as_they_run() -> None:
    """Without descriptors: what reads them has to begin at a multiple of 16 bytes."""
    f = mt.compile("x @ w", x="f16[M, K]", w="f16[K, N]")
    room = np.zeros(1024 * 1024 + 16, np.float16)
    first = next(k for k in range(16) if room[k:].ctypes.data % 16 == 0)
    for start, described in ((first, True), (first + 1, False)):
        x = room[start : start + 1024 * 1024].reshape(1024, 1024)
        (program,) = f.lower(x, np.zeros((1024, 1024), np.float16)).compilation.value("tile").programs
        assert program.descriptors is described
