"""The rewrite of accumulators whose start value Triton cannot analyse: which ones it changes, and that kernels
compile.
"""

from __future__ import annotations

import pytest

import minitri as mt
from minitri.cli.inputs import make_inputs

SMALL = mt.Options(blocks={"i": 8, "r": 8})
DIAGONAL = "~(arange(66) == arange(33)[:, None] + 33)"
TYPES = {"w": "f32[66, 33]", "z": "f16[33]"}
CASES = {  # the number of accumulators
    "read by three loops": (f"max(where({DIAGONAL}, -inf, maximum(z, log_softmax(w, axis=0)).mT), axis=-1)", TYPES, 1),
    "read by one loop": ("max(log_softmax(w, axis=0).mT, axis=-1)", {"w": "f32[66, 33]"}, 0),
    "read by three loops, converted": (f"max(where({DIAGONAL}, -inf, log_softmax(w.astype(f32), axis=0).mT), axis=-1)", {"w": "f16[66, 33]"}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_accumulators_that_need_a_known_start_are_found(name: str) -> None:
    text, types, count = CASES[name]
    low = mt.compile(text, options=SMALL, **types).lower(target="cuda:90")
    assert low["triton"].count("rt.unknown(") == count
    assert ".visible .entry" in low["ptx"]  # without the rewrite, Triton 3.6 refuses the first case


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name: str) -> None:
    import torch

    text, types, _ = CASES[name]
    f = mt.compile(text, options=SMALL, **types)
    assert f.check(*(torch.asarray(a, device="cuda") for a in make_inputs(f.function, {}, {}).arrays)).ok


def test_in_the_interpreter() -> None:
    text, types, _ = CASES["read by three loops"]
    f = mt.compile(text, options=SMALL, **types)
    assert f.check(*make_inputs(f.function, {}, {}).arrays).ok


def test_machine_code_has_no_comparison() -> None:
    text, types, _ = CASES["read by three loops"]
    ptx = mt.compile(text, options=SMALL, **types).lower(target="cuda:90")["ptx"]
    tile = next(line.split()[1].rstrip(",") for line in ptx.splitlines() if "%ctaid.x" in line)
    assert not [line for line in ptx.splitlines() if "setp.lt.s32" in line and f"{tile}, 0" in line]
