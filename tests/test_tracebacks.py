"""The traceback that a Python user gets for an error: at most eight lines, and no frame of minitri."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import corrections
import numpy as np
import pytest
from click.testing import CliRunner

import minitri as mt
from minitri.base.diagnostics import CompileError, report
from minitri.base.tracebacks import LINES, PACKAGE, lines
from minitri.cli.main import main
from minitri.errors.pages import PAGES

ROOT = Path(__file__).parent.parent
SCRIPT = """\
import minitri as mt

def build():
    return mt.compile({text!r}, x="f32[M, N]")

build()
"""


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides frames, as for users. tests/conftest.py shows all frames to developers."""
    monkeypatch.delenv("MINITRI_TRACEBACK", raising=False)


def printed(*command: str, stdin: str = "", **environment: str) -> list[str]:
    """The lines that Python prints to stderr."""
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *command],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **path, **environment},
    )
    return done.stderr.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(text="softmax(x, axis=2)"), encoding="utf-8")
    return path


def test_a_script_prints_the_callers_line_and_the_error(script: Path) -> None:
    found = printed(str(script))
    assert found == [
        f'  File "{script}", line 4, in build',
        "CompileAxisError: error[MT0204]: axis 2 is out of range for an array of rank 2",
        "  --> <expression>:1:1",
        "  1 | softmax(x, axis=2)",
        "    | ^^^^^^^^^^^^^^^^^^",
        "  = help: it has 2 axes: -2 to 1; write `softmax(x, axis=-1)`",
        "  = note: in `max(x, axis=axis, keepdims=True)` at minitri/language/library/normalization.mt:3:23",
        "  = more: minitri explain MT0204",
    ]


def test_an_environment_variable_shows_every_frame(script: Path) -> None:
    assert sum(PACKAGE in line for line in printed(str(script), MINITRI_TRACEBACK="1")) > 10
    assert not any(PACKAGE in line for line in printed(str(script), MINITRI_TRACEBACK="0"))


@pytest.mark.parametrize("text", ["x +", "sum(x, axis=2)", "np.where(x > 0, x, 0)", "foo(x) + bar(x) + y"])
def test_the_prompt_prints_eight_lines(text: str) -> None:
    found = printed("-i", "-q", stdin=f"import minitri as mt\nmt.compile({text!r}, x='f32[M, N]')\n")
    error = [line.removeprefix(">>> ").removeprefix(">>> ") for line in found if line.strip("> ")]
    assert error[0].startswith(("Traceback", "  File")) and len(error) <= LINES and PACKAGE not in "".join(error)


@pytest.mark.parametrize("text", ["x +", "sum(x, axis=2)"])
def test_ipython_prints_eight_lines(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='nocolor')\n"
        "shell.run_cell('import minitri as mt')\n"
        f"""shell.run_cell('''mt.compile("{text}", x="f32[M, N]")''')\n"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    found = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(found) <= LINES and "error[MT" in found[0] and found[-1].startswith("  = more: minitri explain MT")


def caught(make: object) -> CompileError | None:
    try:
        make()  # type: ignore[operator]
    except CompileError as error:
        return error
    return None


def test_every_error_has_at_most_eight_lines() -> None:
    errors = [page.wrong.error() for page in PAGES.values() if page.wrong]
    errors += [mistake.error() for mistake in corrections.mistakes()]
    many = " + ".join(f"f{k}(x)" for k in range(30))
    errors += [
        error
        for text in (many, f"softmax(x, axis=2) + {many}")
        if (error := corrections.error_of(text, {"x": "f32[M, N]"}))
    ]
    for error in errors:
        frames = error.__traceback__
        assert len(lines(error, frames)) <= LINES and f"minitri explain {error.code}" in str(error)
        assert str(error).splitlines()[0].startswith(f"error[{error.code}]")


def test_no_frame_of_minitri_leaves_a_public_function() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    calls = [
        lambda: mt.compile("x +", x="f32[N]"), lambda: mt.compile("y", x="f32[N]"), lambda: mt.evaluate("foo(x)", x=np.ones(2)),
        lambda: mt.jit(len), lambda: mt.jit(effort="none")(len), lambda: f(np.ones(3)), lambda: f(y=1), lambda: f.numpy(np.ones(3)),
        lambda: f.run("nothing"), lambda: f.lower(K=3), lambda: f.lower()["nothing"], lambda: f.check(1), lambda: f.bind(1),
        lambda: f.configured(effort="much"), lambda: f.explain(K=3), lambda: mt.load("graph", "graph"), lambda: mt.Program(f.module, "g"),
    ]  # fmt: skip
    for call in calls:
        error = caught(call)
        assert error is not None and error.__cause__ is None and error.__suppress_context__
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        assert frames == [__file__, __file__], frames


def test_existing_exception_hooks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lambda *_: None  # noqa: E731
    monkeypatch.setattr(sys, "excepthook", mine)
    with contextlib.suppress(CompileError):
        mt.compile("x +", x="f32[N]")
    assert sys.excepthook is mine


def test_other_exceptions_are_printed_as_before(tmp_path: Path) -> None:
    text = 'import minitri as mt\ntry:\n    mt.compile("x +", x="f32[N]")\nexcept mt.CompileError:\n    pass\n1 / 0\n'
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert printed(str(tmp_path / "a.py"))[-1] == "ZeroDivisionError: division by zero"


def test_pythons_own_tools_show_the_complete_message() -> None:
    error = caught(lambda: mt.compile("def f(x):\n    y += 1\n    return y\n"))
    assert error is not None
    shown = "".join(traceback.format_exception_only(error))
    assert "help: write `y = y + 1`" in shown and "minitri explain MT0002" in shown


def test_the_command_line_has_all_errors_with_their_edits() -> None:
    call = ["compile", "-e", "foo(x) + np.exp(x)", "-t", "x=f32[N]"]
    plain = CliRunner().invoke(main, call)
    assert (
        plain.exit_code == 1 and plain.stderr.count("error[MT0101]") == 2 and "minitri explain MT0101" in plain.stderr
    )
    (other,) = json.loads(CliRunner().invoke(main, [*call, "--json"]).stdout)["error"]["others"]
    assert other["edits"] == [{"start": 9, "end": 12, "text": ""}] and other["column"] == 10


def test_the_command_line_lists_requirements() -> None:
    result = CliRunner().invoke(main, ["compile", "-e", "x + b", "-t", "x=f32[M, N]", "-t", "b=f32[K]", "--emit=ast"])
    assert result.exit_code == 0 and "note: `x + b` needs K == N at every call" in result.stderr


def test_a_report_has_all_errors_in_full() -> None:
    error = corrections.error_of("foo(x) + np.exp(x)", {"x": "f32[N]"})
    assert error is not None
    text = report(error)
    assert text.count("error[MT0101]") == 2 and text.count("  = more: minitri explain MT0101") == 1
