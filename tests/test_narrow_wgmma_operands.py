"""A workaround for wrong machine code of ptxas 12.8: kernels with narrow wgmma operands get fewer rows."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from undefined_registers import products, undefined

import minitri as mt
from minitri.base.types import DTYPES
from minitri.program import Lowered
from minitri.tiles.schedule import Options

ATTENTION = "softmax(q @ k.mT, axis=-1) @ v"
WRONG = """\
        /*0fe0*/                   HGMMA.64x16x16.F32 R24, R48, gdesc[UR4].tnspB, R24 ;
\t--:-:-:-:1\tUMOV UR10, 0x400;
\t--:-:-:Y:4\tUIADD3 UR4, UP0, UR11, 0x20, URZ;
"""


def attention(t: int, s: int, d: int, e: int, target: str = "cuda:90", **options: Any) -> Lowered:
    types = {"q": f"f16[{t}, {d}]", "k": f"f16[{s}, {d}]", "v": f"f16[{s}, {e}]"}
    return mt.compile(ATTENTION, **types).configured(options=Options(**options)).lower(target=target)


def rows(low: Lowered) -> int:
    (program,) = low.compilation.value("tile").programs
    return program.grid[0].block


@pytest.mark.parametrize("shape", [(48, 48, 32, 16), (49, 49, 32, 32), (48, 33, 17, 5), (200, 130, 17, 5)])
def test_narrow_factors_without_a_pipelined_loop_get_few_rows(shape: tuple[int, int, int, int]) -> None:
    assert rows(attention(*shape)) == 32
    assert rows(attention(*shape, blocks={"i": 128})) == 32
    assert rows(attention(*shape, target="cuda:80")) >= 64


@pytest.mark.parametrize("shape", [(48, 48, 64, 64), (64, 300, 32, 32), (64, 64, 32, 33), (128, 128, 16, 16)])
def test_other_kernels_keep_their_rows(shape: tuple[int, int, int, int]) -> None:
    assert rows(attention(*shape)) == 64


def test_with_one_stage_narrow_factors_get_few_rows() -> None:
    assert rows(attention(64, 300, 32, 32, stages=1)) == 32


def test_a_read_of_an_undefined_register_is_found() -> None:
    assert undefined(WRONG) == ["UIADD3 UR4, UP0, UR11, 0x20, URZ"]
    assert undefined(WRONG.replace("UR10", "UR11")) == []


@pytest.mark.gpu
def test_narrow_factors_on_a_gpu() -> None:
    import torch

    rng = np.random.default_rng(0)
    for t, s, d, e in itertools.product((48, 130), (17, 33, 48, 64, 65, 300), (16, 17, 32, 64), (5, 16, 24, 32, 33)):
        q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((t, d), (s, d), (s, e)))
        found = (
            mt.evaluate(ATTENTION, **{n: torch.asarray(x, device="cuda") for n, x in zip("qkv", (q, k, v))})
            .cpu()
            .numpy()
        )
        scores = q.astype(np.float64) @ k.T.astype(np.float64)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        wanted = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2, err_msg=f"{(t, s, d, e)}")


@pytest.mark.gpu
def test_random_products_on_a_gpu() -> None:
    rng = np.random.default_rng(1)
    for listed in products(150, 1):
        typed = re.findall(r"(\w+): (\w+)\[([\d, ]+)\]", listed.text)
        shapes = {name: (DTYPES[dtype].numpy, [int(n) for n in shape.split(",")]) for name, dtype, shape in typed}
        given = {name: rng.standard_normal(shape).astype(kind) for name, (kind, shape) in shapes.items()}
        report = mt.compile(listed.text).check(**given)
        assert report.ok, (listed.text, report.guilty)
