"""i16 wraps around at -32768 before it is widened, in machine code too."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minitri as mt

VALUES = [  # that LLVM makes a negation or abs of
    "-x", "abs(x)", "0 - x", "x * -1", "~x + 1", "maximum(x, -x)", "where(x < 0, -x, x)", "y - (x + y)", "x // -1", "-x[0]",
    "(-x.astype(i32)).astype(i16)",
]  # fmt: skip
USES = ["({}).astype(i64) + z", "({}).astype(i32)", "({}) < 5", "({}) // 3", "({}) >> 1"]
MADE = re.compile(r"(?:neg|abs)\.s16\s+(%rs\d+),")
RIGHT = re.compile(r"cvt\.u32\.u16|st\.global|st\.shared|mov\.b32|neg\.s16|max\.s16")  # of which 16 bits are right


def program(text: str) -> mt.Program:
    types = {"x": "i16[N]", "y": "i16[N]", "z": "i64[N]"}
    return mt.compile(text, **{name: t for name, t in types.items() if name in text})


def kept_in_32_bits(ptx: str) -> list[str]:
    """Instructions that take a negation of 16 bits as it is, and may get 17. (A maximum is wrapped again.)"""
    made = set(MADE.findall(ptx))
    uses = [line.strip() for line in ptx.splitlines() if made & set(re.findall(r"%rs\d+", line.partition(",")[2]))]
    return [line for line in uses if not RIGHT.search(line)]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", VALUES)
def test_a_negation_has_16_bits(value: str, use: str) -> None:
    low = program(use.format(value)).lower(N=1000, target="cuda:90")
    assert "rt.wrapped(" in low["triton"]
    assert not kept_in_32_bits(low["ptx"])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", VALUES)
def test_the_smallest_i16_wraps(value: str, use: str, device: str) -> None:
    f = program(use.format(value))
    x = np.array([-32768, -32767, -1, 0, 1, 32767] * 9, np.int16)
    arrays = [{"x": x, "y": x[::-1].copy(), "z": x.astype(np.int64) * 7}[p.name] for p in f.function.params]
    if device == "cuda":
        import torch

        assert f.check(*(torch.asarray(a, device="cuda") for a in arrays)).ok
    else:
        np.testing.assert_array_equal(f(*arrays), f.numpy(*arrays))
