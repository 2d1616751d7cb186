"""Workarounds for wrong code of `ptxas` (minitri/triton/workarounds/ptxas.py): they are needed, and results are
right.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from short_profile import every_second
from triton import knobs

import minitri as mt
from minitri.triton.compiled_stages import inspected
from minitri.triton.workarounds.ptxas import mended

VALUES = [  # LLVM turns these into a negation or abs
    "-x", "abs(x)", "0 - x", "x * -1", "~x + 1", "maximum(x, -x)", "where(x < 0, -x, x)", "y - (x + y)", "x // -1", "-x[0]",
    "(-x.astype(i32)).astype(i16)",
]  # fmt: skip
USES = ["({}).astype(i64) + z", "({}).astype(i32)", "({}) < 5", "({}) // 3", "({}) >> 1"]
KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {
    .reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    ld.global.b16 %rs1, [%rd1]; ld.global.b32 %r1, [%rd1 + 4];
    mov.b32 %r2, 1638407;
"""
END = " st.global.b32 [%rd2], %r4; ret; }"
HALF = " mov.b32 {%rs3, %rs2}, %r3; cvt.u32.u16 %r4, %rs2;" + END
WRONG = {  # instructions, and the wrong code: all bits of R are used instead of 16; 0 is added instead of 25
    "neg.s16 %rs2, %rs1; cvt.s32.s16 %r4, %rs2;" + END: r"(IADD3|IMAD\.MOV)(\.U32)? (R\d+), .*-R\d+.*;\s*STG\S* .*, \3 ;",
    "abs.s16 %rs2, %rs1; cvt.s32.s16 %r4, %rs2;" + END: r"IABS (R\d+), R\d+ ;\s*STG\S* .*, \1 ;",
    "add.s16x2 %r3, %r1, %r2;" + HALF: r"VIADD\.16x2 R\d+, R\d+, 0x0 ;",
}  # fmt: skip


def machine_code(ptx: str, folder: Path) -> str:
    (folder / "k.ptx").write_text(ptx)
    tool = knobs.nvidia.ptxas.path
    subprocess.run([tool, "-arch=sm_90a", "-o", folder / "k.cubin", folder / "k.ptx"], check=True)
    text = inspected((folder / "k.cubin").read_bytes(), "k", "nvdisasm", "--print-code")
    return "\n".join(re.findall(r"\*/\s+(\S.*;)", text))


@pytest.mark.parametrize("body", WRONG)
def test_ptxas_still_needs_the_workaround(body: str, tmp_path: Path) -> None:
    """If this fails, `ptxas` may have been corrected. Then a row of minitri/triton/workarounds/ptxas.py can be
    removed.
    """
    assert re.search(WRONG[body], machine_code(KERNEL + body, tmp_path))
    assert not re.search(WRONG[body], machine_code(mended(KERNEL + body), tmp_path))


def program(text: str) -> mt.Program:
    types = {"x": "i16[N]", "y": "i16[N]", "z": "i64[N]"}
    return mt.compile(text, **{name: t for name, t in types.items() if name in text})


@pytest.mark.parametrize("value, use", every_second(list(VALUES), list(USES)))
def test_kernels_have_no_16_bit_negation_or_abs(value: str, use: str) -> None:
    ptx = program(use.format(value)).lower(N=1000, target="cuda:90")["ptx"]
    assert not re.search(r"(neg|abs)\.s16\s", ptx)
    assert "not.b16" in ptx or use == "({}) < 5"  # LLVM compares x itself


ARGMAX = """def positions(x: f32[32, 16]):
    y = tile(x, 2)
    return argmax(where(arange(32)[:, None] <= arange(32) + 1, y, -inf), axis=-1), y
"""
SMALL = mt.Options(blocks={"i": 8, "r": 8}, warps=1)


def test_no_packed_16_bit_addition_is_left() -> None:
    ptx = mt.compile(ARGMAX, options=SMALL).lower(target="cuda:90")["ptx"]
    assert "add.s16" in ptx and "16x2" not in ptx


@pytest.mark.gpu
def test_positions_of_maxima_in_unrolled_loops_on_a_gpu() -> None:
    import torch

    f = mt.compile(ARGMAX, options=SMALL)
    x = torch.randn(32, 16, device="cuda")
    assert f.check(x).ok


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
