"""`-O0`, which leaves out every optimisation: the resulting programs compile, run and are right.

The programs run in another process, tests/plain_path.py, which cannot import optimisations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import plain_path
import pytest
from click.testing import CliRunner
from library_calls import LIBRARY

import minitri as mt
from minitri.cli.main import main as minitri

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.mt"))
FEW, MANY = 12, 300  # random programs


def plain(*arguments: str) -> str:
    """The output of tests/plain_path.py."""
    command = [sys.executable, str(ROOT / "tests" / "plain_path.py"), *arguments]
    places = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, capture_output=True, text=True, env=places)
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout.strip()


def test_examples() -> None:
    assert plain("examples") == f"{len(EXAMPLES)} programs"


def test_the_library() -> None:
    assert plain("library") == f"{len(LIBRARY)} programs"


def test_random_programs() -> None:
    assert plain("random", "0", str(FEW)) == f"{FEW} programs"


@pytest.mark.slow
def test_more_random_programs() -> None:
    assert plain("random", str(FEW), str(MANY)) == f"{MANY - FEW} programs"


def test_optimisations_are_refused() -> None:
    with pytest.raises(ImportError, match=r"minitri\.optimize\.pass_table"):
        plain_path.NoRooms().find_spec("minitri.optimize.pass_table")
    for name in ("minitri.tiles.lower", "numpy"):
        assert plain_path.NoRooms().find_spec(name) is None


def test_the_core_and_check_import_no_optimisation() -> None:
    code = "import sys, minitri.pipeline, minitri.trust.check_passes; print(*[m for m in sys.modules if 'minitri.opt' in m])"
    places = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=places)
    assert (found.returncode, found.stdout.split()) == (0, [])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_triton_compiles_the_source(path: Path) -> None:
    f = mt.compile(path, optimize=False)
    assert f.lower(target="cuda:90")["ptx"] and f.lower(target="hip:gfx942")["amdgcn"]


def test_nothing_is_fused() -> None:
    low = mt.compile("softmax(x)", x="f32[M, N]", optimize=False).lower()
    assert low.compilation.context.without == {"all"}
    assert len(low.compilation.value("kernels").kernels) >= 5
    assert len(mt.compile("softmax(x)", x="f32[M, N]").lower().compilation.value("kernels").kernels) == 1


def test_all_ways_to_choose_o0() -> None:
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


@pytest.mark.parametrize(
    ("old", "new"), [("fuse", "fusion"), ("narrow", "narrow-integers"), ("join", "collapse-reduced-axes")]
)
def test_the_error_for_an_old_pass_name_has_the_new_one(old: str, new: str) -> None:
    with pytest.raises(mt.CompileError) as raised:
        mt.compile("x + 1", x="f32[N]").lower(without=[old])
    assert raised.value.help == f"it is called `{new}` now"


@pytest.mark.parametrize("text", ["softmax(x, axis=1)", "var(x, axis=1)"])
def test_a_text_with_reductions_in_one_loop_is_complete(text: str) -> None:
    """Each reduction has its own loop then."""
    f = mt.compile(text, x="f32[M, 40000]")
    kernels = f.lower()["kernels"]
    assert "old %" in kernels
    x = np.random.default_rng(0).standard_normal((2, 40000)).astype(np.float32)
    for without in (["all"], []):
        report = mt.load(kernels, "kernels", against=f, without=without).check(x)
        assert report.ok, report.first
