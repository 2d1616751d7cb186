"""The part of `explain` that says what kernels assume about their arrays and sizes, such as the width of accesses."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from short_profile import every_second

import minitri as mt
from minitri.hardware.predicted_access_width import widths
from minitri.kernels.ir import Load, Store

ARRAYS = {  # type of x, sizes, and what is said of it
    "rows of 16 bytes": ("f32[M, N]", {"M": 4096, "N": 1024}, "x, out: 16 bytes at a time"),
    "rows with an odd stride": (
        "f16[M, N]",
        {"M": 4096, "N": 777},
        "x, out: 2 bytes at a time, rows lie 1554 bytes apart",
    ),
    "rows of 4 bytes": (
        "bf16[M, N]",
        {"M": 4096, "N": 4090},
        "x, out: 4 bytes at a time, rows lie 8180 bytes apart",
    ),
    "rows of 8 bytes": (
        "bf16[M, N]",
        {"M": 4096, "N": 4100},
        "x, out: 8 bytes at a time, rows lie 8200 bytes apart",
    ),
    "symbolic sizes": ("f32[M, N]", {}, "x, out: 16 bytes at a time in calls where 16 divides N"),
    "a size of 1": ("f32[M, N]", {"M": 1, "N": 777}, "x, out: 4 bytes at a time, i < 777 is tested"),
    "no rows": ("f32[M, N]", {"M": 0, "N": 777}, "none is read or written, no program runs"),
}


@pytest.mark.parametrize("name", list(ARRAYS))
def test_explain_says_how_many_bytes_an_access_has(name: str) -> None:
    kind, sizes, wanted = ARRAYS[name]
    page = mt.compile("softmax(x * 2.0, axis=-1)", x=kind).explain(**sizes)
    (line,) = [line for line in page.splitlines() if line.startswith("  arrays: ")][:1]
    assert wanted in line


def test_strided_arrays_are_explained() -> None:
    f = mt.compile("sum(x, axis=1)", x="f32[M, N]")
    page = f.explain(torch.zeros(64, 32).T)
    assert "not row-major: x" in page and "x: 16 bytes at a time; out: 4 bytes" in page  # 16 bytes of neighbouring rows
    page = mt.compile("x + 1", x="f32[M, N]").explain(torch.zeros(64, 1024)[:, ::2])
    assert "not row-major: x" in page and "x: 4 bytes at a time, elements lie 8 bytes apart; out: 16 bytes" in page


def test_arrays_that_begin_at_odd_elements() -> None:
    f, x = mt.compile("x + y", x="f32[N]", y="f32[N]"), torch.zeros(4100)
    page = f.explain(x[1:4097], x[4:])
    assert "x: 4 bytes at a time, it begins at no multiple of 16; y, out: 16 bytes at a time" in page


WIDTHS = {  # text, types, and a part of the line about the first kernel
    "from the second element on": ("x[1:] * 2", {"x": "f32[4096]"}, "x: 4 bytes at a time, it begins 4 bytes past a multiple of 16"),
    "reversed": ("x[::-1] * 2", {"x": "f32[4096]"}, "x: 4 bytes at a time, elements lie -4 bytes apart; out: 16"),
    "every second element": ("x[::2] * 2", {"x": "f32[4096]"}, "x: 4 bytes at a time, elements lie 8 bytes apart; out: 16"),
    "a roll": ("roll(x, 1)", {"x": "f32[4096]"}, "x: 4 bytes at a time, neighbours need not lie side by side in ["),
    "padding by 1": ("pad(x, 1)", {"x": "f32[4096]"}, "out: 8 bytes at a time, i < 4098 is tested"),
    "padding by 4": ("pad(x, 4)", {"x": "f32[4096]"}, "x, out: 16 bytes at a time"),
    "a concat": ("concat([x, y])", {"x": "f32[4099]", "y": "f32[4096]"}, "y: 4 bytes at a time, it begins"),
    "gathered elements": ("x[i] * 2", {"x": "f32[4096]", "i": "i64[4096]"}, "x: 4 bytes at a time, elements are picked one"),
    "gathered rows": ("x[i] * 2", {"x": "f32[4096, 1024]", "i": "i64[4096]"}, "i: one element at a time; x, out: 16 bytes"),
    "gathered odd rows": ("x[i] * 2", {"x": "f32[4096, 1023]", "i": "i64[4096]"}, "x, out: 4 bytes at a time, rows lie 4092"),
    "parts of odd length": ("cumulative_sum(x)", {"x": "f32[20001]"}, "x, t0: 4 bytes at a time, rows lie 5004 bytes"),
    "a sum in parts": ("sum(x)", {"x": "f32[1000003]"}, "x: 4 bytes at a time"),
    "a sum of odd rows": ("sum(x)", {"x": "bf16[172738, 777]"}, "x: 4 bytes at a time, "),
    "a sum of an aligned length in parts": ("sum(x)", {"x": "f32[1000016]"}, "x: 16 bytes at a time"),
    "an odd length": ("x * 2", {"x": "bf16[30001]"}, "x, out: 2 bytes at a time, i < 30001 is tested"),
    "a long odd length": ("x * 2", {"x": "bf16[1000001]"}, "x, out: 16 bytes at a time"),  # except in the last tile
    "a short array": ("x * 2", {"x": "f32[64]"}, "x, out: 8 bytes at a time, 32 threads share 64 elements"),
    "odd rows": ("sum(x, axis=1)", {"x": "f32[4096, 777]"}, "x: 4 bytes at a time, rows lie 3108 bytes apart"),
    "plain": ("x * 2", {"x": "bf16[4096]"}, "x, out: 16 bytes at a time"),
    "a transpose": ("x.T + 1", {"x": "f32[128, 256]"}, "x, out: 16 bytes at a time"),
    "rows repeated": ("x + y", {"x": "f32[1024, 4096]", "y": "f32[4096]"}, "x, y, out: 16 bytes at a time"),
    "columns repeated": ("y[:, None] + x", {"x": "f32[128, 256]", "y": "f32[128]"}, "y: 4 bytes at a time, 128 threads"),
    "two dtypes": ("astype(x, f16)", {"x": "f32[100000]"}, "x, out: 16 bytes at a time"),
    "a reshape": ("reshape(x.T, (60000,)) + 0", {"x": "f32[200, 300]"}, "x, out: 16 bytes at a time"),  # two axes
    "part of a reshape": ("reshape(x.T, (60000,))[8:] + 0", {"x": "f32[200, 300]"}, "x: 4 bytes"),
    "descriptors": ("x @ y", {"x": "f16[4096, 4096]", "y": "f16[4096, 4096]"}, "x, y, out: blocks through a tensor descriptor"),
    "odd products": ("x @ y", {"x": "f32[512, 511]", "y": "f32[511, 513]"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", every_second(list(WIDTHS)))
def test_explained_widths_are_those_of_tritons_instructions(name: str) -> None:
    text, types, said = WIDTHS[name]
    f = mt.compile(text, **types)
    assert said in next(line for line in f.explain().splitlines() if line.startswith("  arrays: "))
    low = f.lower()
    for program, built in zip(low.compilation.value("tile.target"), low.compilation.compiled):
        apart = widths(program), widths(replace(program, peeled=False))  # the complete tiles, and the last one
        for kind, word in ((Load, "ld"), (Store, "st")):
            wanted = {
                w.bytes for found in apart for op, w in found.items() if isinstance(op, kind) and w.bytes is not None
            }
            assert wanted == accessed(built.asm["ptx"], word), f"{program.name}\n{low['triton']}"


def accessed(ptx: str, word: str) -> set[int]:
    """The numbers of bytes that single instructions of a kernel access."""
    plain = re.findall(rf"\b{word}\.global\S*?(?:\.v(\d))?\.[bfsu](\d+)\b", ptx)
    copied = re.findall(r"cp\.async\.c[ag]\.shared\.global.*, 0x(\w+),", ptx) if word == "ld" else []
    return {int(n or 1) * int(bits) // 8 for n, bits in plain} | {int(n, 16) for n in copied}


def test_widths_may_depend_on_the_call() -> None:
    """Symbolic sizes may or may not be multiples of 16."""
    page = mt.compile("x[:, 1:] + y", x="f32[M, N]", y="f32[N - 1]").explain()
    assert (
        "y, out: 16 bytes at a time in calls where 16 divides" in page and "x: 4 bytes at a time, it begins 4" in page
    )
    assert "x, out: 16 bytes at a time\n" in mt.compile("x * 2", x="f32[16*N]").explain()


def test_the_interpreter_accesses_complete_tiles() -> None:
    assert "arrays:" not in mt.compile("x * 2", x="f32[N]").explain(N=100, target="interpreter")


@pytest.mark.parametrize(("sizes", "wanted"), [
    ({"M": 3, "N": 4}, "these sizes and strides are literals in the kernels; offsets of 32 bits"),
    ({"N": 4}, "M is an argument of the kernels, the rest literals; offsets of 32 bits"),
    ({}, "for any sizes: they are arguments of the kernels; offsets of 32 bits"),
    ({"M": 1 << 20, "N": 1 << 12}, "these sizes and strides are literals in the kernels; offsets of 64 bits"),
])  # fmt: skip
def test_which_sizes_are_literals(sizes: dict[str, int], wanted: str) -> None:
    page = mt.compile("softmax(x, axis=-1)", x="f32[M, N]").explain(**sizes)
    assert page.splitlines()[1] == wanted


def test_arrays_that_begin_at_any_address_are_lowered_without_descriptors() -> None:
    """Tensor descriptors need arrays that begin at a multiple of 16 bytes."""
    f = mt.compile("x @ w", x="f16[M, K]", w="f16[K, N]")
    room = np.zeros(1024 * 1024 + 16, np.float16)
    first = next(k for k in range(16) if room[k:].ctypes.data % 16 == 0)
    for start, described in ((first, True), (first + 1, False)):
        x = room[start : start + 1024 * 1024].reshape(1024, 1024)
        (program,) = f.lower(x, np.zeros((1024, 1024), np.float16)).compilation.value("tile").programs
        assert program.descriptors is described
