"""-O0: every optional pass left out. Such a program is complete: it compiles, runs and is right."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_proofs import LIBRARY

import minitri as mt
from minitri.cli.inputs import make_inputs
from minitri.cli.main import main as minitri
from minitri.optimize.rooms import OPTIONAL
from minitri.testing import random_program

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
FEW = 15  # random programs; the slow test has more


def checked(f: mt.Program, arrays: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy: 1 / 0
        report = f.check(*arrays)
    assert report.ok, report.first


def plain(f: mt.Program) -> mt.Program:
    return f.configured(without=["all"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    f = mt.compile(path, optimize=False)
    checked(f, make_inputs(f.function, {}, {}, 0).arrays)
    assert f.lower(target="cuda:90")["ptx"] and f.lower(target="hip:gfx942")["amdgcn"]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library(name: str) -> None:
    text, types = LIBRARY[name]
    f = mt.compile(text, optimize=False, **types)
    checked(f, make_inputs(f.function, {}, {}, 0).arrays)


def test_random_programs() -> None:
    for seed in range(FEW):
        example = random_program(seed)
        checked(plain(example.compile()), example.arguments(seed))


@pytest.mark.slow
def test_more_random_programs() -> None:
    for seed in range(FEW, 300):
        example = random_program(seed)
        checked(plain(example.compile()), example.arguments(seed))


def test_nothing_is_fused() -> None:
    low = mt.compile("softmax(x)", x="f32[M, N]", optimize=False).lower()
    assert low.compilation.context.without == {*OPTIONAL}
    assert len(low.compilation.value("kernels").kernels) >= 5
    assert len(mt.compile("softmax(x)", x="f32[M, N]").lower().compilation.value("kernels").kernels) == 1


def test_ways_to_ask() -> None:
    x = np.ones((2, 3), np.float32)
    wanted = mt.compile("softmax(x)", x="f32[M, N]", optimize=False).lower()["triton"]
    f = mt.compile("softmax(x)", x="f32[M, N]")
    assert f.lower(without="all")["triton"] == f.configured(without=["all", "fusion"]).lower()["triton"] == wanted
    runner = CliRunner()
    program = ["-e", "softmax(x)", "-t", "x=f32[M,N]"]
    for option in (["-O0"], ["--without", "all"]):
        assert runner.invoke(minitri, ["compile", *program, *option]).stdout.strip() == wanted.strip()
    assert runner.invoke(minitri, ["compile", *program, "-O1"]).stdout.strip() == f.lower()["triton"].strip()
    refused = runner.invoke(minitri, ["compile", *program, "-O2"])
    assert refused.exit_code == 2 and "'2' is not one of '0', '1'" in refused.output
    np.testing.assert_allclose(
        mt.compile("softmax(x)", x="f32[M, N]", optimize=False)(x), np.full((2, 3), 1 / 3), rtol=1e-6
    )
    assert mt.compile("2 * optimize", optimize="f32[N]")(x[0]).tolist() == [2, 2, 2]
