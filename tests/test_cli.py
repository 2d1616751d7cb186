"""The command line: output streams, exit codes, inputs, and the start-up time of help."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import minitri as mt
from minitri import doctor, program
from minitri.cli import inputs, terminal
from minitri.cli.main import RUNNABLE, STAGES, main
from minitri.language import ast
from minitri.language.program_forms import parse_program
from minitri.trust import check_passes as minitri_check
from minitri.trust.check_report import CheckReport, CheckRow

ROOT = Path(__file__).resolve().parents[1]
ADD = ("-e", "x + y", "-t", "x=f32[M, N]", "-t", "y=f32[N]")
MODULE = """\
def double(x: f32[N]) -> f32[N]:
    return x + x

def shift(x: f32[N], by: float = 0.5) -> f32[N]:
    return double(x) + by
"""


def minitri(*args: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, list(args), input, prog_name="minitri")


EXAMPLES = Path(__file__).parent.parent / "examples"


def child(*args: str, input: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minitri", *args]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, input=input, capture_output=True, text=True, timeout=120, env=variables)


def function(text: str, **types: str) -> ast.Function:
    return parse_program(text, "<test>", types).functions[-1]


# ---- start-up --------------------------------------------------------------------------------


def test_help_is_quick() -> None:
    child("--help")  # this call writes the .pyc files
    seconds = []
    for _ in range(3):
        before = os.times()  # CPU time: other processes use this machine, too
        assert child("--help").returncode == 0
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(seconds) < 0.3


def test_help_imports_no_slow_package() -> None:
    code = """
import sys
from minitri.cli.main import RUNNABLE, STAGES, main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
heavy = {"torch", "triton", "networkx", "lark", "numpy", "rich", "jinja2"} & set(sys.modules)
assert not heavy, heavy
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["compile", "run", "check", "explain", "bench", "doctor"])
def test_every_command_has_help(command: str) -> None:
    result = minitri(command, "--help")
    assert result.exit_code == 0
    assert "Usage: minitri " + command in result.stdout


def test_help_lists_all_commands() -> None:
    assert RUNNABLE == program.RUNNABLE
    both = {*mt.compile(*ADD[1:2], x="f32[M, N]", y="f32[N]").lower().stages, "amdgcn"}
    assert set(re.findall(r"[a-z.]+", STAGES)) == both


def test_version() -> None:
    assert minitri("--version").stdout.startswith("minitri ")


# ---- compile ---------------------------------------------------------------------------------


def test_one_stage_is_only_its_text() -> None:
    result = minitri("compile", *ADD, "--emit=graph")
    assert result.exit_code == 0, result.output
    assert "# ----" not in result.stdout
    assert result.stdout == mt.compile("x + y", x="f32[M, N]", y="f32[N]").lower()["graph"].rstrip("\n") + "\n"
    assert result.stderr == ""


def test_several_stages_have_headings() -> None:
    result = minitri("compile", *ADD, "--emit=graph,ast,graph")
    headings = [line for line in result.stdout.splitlines() if line.startswith("# ----")]
    assert headings == ["# ---- graph ----", "# ---- ast ----"]


def test_default_is_the_triton_source() -> None:
    assert minitri("compile", *ADD).stdout == minitri("compile", *ADD, "--emit", "triton").stdout
    assert "@triton.jit" in minitri("compile", *ADD).stdout


def test_sizes_reach_the_program() -> None:
    result = minitri("compile", *ADD, "-D", "M=12", "-D", "N=34", "--emit=kernels")
    assert result.exit_code == 0, result.output
    assert "12" in result.stdout and "34" in result.stdout


def test_sizes_of_several_axes() -> None:
    args = (
        "compile",
        "-e",
        "x + 1",
        "-t",
        "x=f32[*B, N]",
        "-D",
        "B=8,16",
        "-D",
        "N=5",
        "--emit=graph.simplified",
    )
    result = minitri(*args)
    assert result.exit_code == 0, result.output
    assert "f32[8, 16, 5]" in result.stdout


def test_unknown_size() -> None:
    result = minitri("compile", *ADD, "-D", "Q=3")
    assert result.exit_code in (1, 2)
    assert "Q" in result.stderr


def test_json() -> None:
    result = minitri("compile", *ADD, "--emit=ast,tile", "-D", "M=4", "--json")
    answer = json.loads(result.stdout)
    assert list(answer["stages"]) == ["ast", "tile"]
    assert answer["target"] == "cuda:90"
    assert answer["sizes"] == {"M": 4}


def test_json_error() -> None:
    result = minitri("compile", "-e", "x + z", "-t", "x=f32[N]", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["line"], error["column"]) == ("MT0101", 1, 5)
    assert error["message"] and error["help"]


def test_diagnostics_go_to_stderr() -> None:
    result = minitri("compile", "-e", "x +", "-t", "x=f32[N]")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error[MT00")
    assert "Traceback" not in result.stderr


def test_file_and_entry(tmp_path: Path) -> None:
    path = tmp_path / "two.mt"
    path.write_text(MODULE)
    assert "shift" in minitri("compile", str(path), "--emit=graph").stdout
    other = minitri("compile", str(path), "--entry=double", "--emit=graph").stdout
    assert "double" in other and "shift" not in other


def test_a_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "wrong.mt"
    path.write_text("def f(x: f32[N]):\n    return y\n")
    result = minitri("compile", str(path))
    assert result.exit_code == 1
    assert "wrong.mt:2:12" in result.stderr


def test_a_file_with_invalid_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.mt"
    path.write_bytes(b"\xff\xfe\x00def")
    result = minitri("compile", str(path))
    assert result.exit_code in (1, 2)
    assert "failed inside" not in result.stderr


def test_standard_input() -> None:
    result = minitri("compile", "-", "--emit=ast", input=MODULE)
    assert result.exit_code == 0, result.output
    assert "shift" in result.stdout


def test_standard_input_with_invalid_text() -> None:
    result = minitri("compile", "-", input=b"\xff\xfe")
    assert result.exit_code == 1
    assert "not text in UTF-8" in result.stderr


def test_print_after() -> None:
    result = minitri("compile", *ADD, "--print-after", "fusion")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# ---- after fusion ----\n")
    assert result.stdout.count("# ----") == 1
    assert minitri("compile", *ADD, "--print-after", "all").stdout.count("# ---- after ") >= 5


def test_print_after_unknown_pass() -> None:
    result = minitri("compile", *ADD, "--print-after", "fusio")
    assert result.exit_code == 2
    assert "did you mean `fusion`?" in result.stderr


def test_without_a_pass() -> None:
    args = ("compile", "-e", "exp(sum(x, axis=1)) + 1", "-t", "x=f32[M, N]", "--emit=kernels")
    assert minitri(*args).stdout != minitri(*args, "--without=fusion").stdout
    refused = minitri(*args, "--without=fuse")  # the former name of the pass
    assert refused.exit_code == 2 and "it is called `fusion` now" in refused.stderr
    assert minitri("check", *args[1:5], "--without=fusion", "-D", "N=7").exit_code == 0


def test_output_directory(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    result = minitri("compile", *ADD, "--emit=graph.simplified,triton", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in out.iterdir()) == ["graph.simplified.txt", "triton.py"]
    assert result.stdout == ""
    assert (out / "triton.py").read_text() == minitri("compile", *ADD).stdout


def test_output_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    out = tmp_path / "out"
    out.mkdir()
    (out / "graph.txt").symlink_to(precious)
    result = minitri("compile", *ADD, "--emit=graph", "-o", str(out))
    assert result.exit_code == 2
    assert precious.read_text() == "keep"


def test_output_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = minitri("compile", *ADD, "--emit=graph", "-o", str(tmp_path / "file"))
    assert result.exit_code == 2


def test_a_stage_of_another_target() -> None:
    result = minitri("compile", *ADD, "--emit=ast,amdgcn", "--target=cuda:90")
    assert result.exit_code == 3
    assert "--target=hip:gfx942" in result.stderr
    assert "def main" in result.stdout  # the message shows the stages that exist


# ---- usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("compile",),
        ("compile", "no-such-file.mt"),
        ("compile", "-e", "x", "somefile"),
        ("compile", "-", "-e", "x"),
        ("compile", *ADD, "--emit=nothing"),
        ("compile", *ADD, "--target=toaster"),
        ("compile", *ADD, "-D", "M"),
        ("compile", *ADD, "-D", "M=-3"),
        ("compile", *ADD, "-D", "M=3", "-D", "M=4"),
        ("compile", "-e", "x", "-t", "f32[N]"),
        ("compile", "-e", "x", "-t", "x=f32[N]", "-t", "x=f32[M]"),
        ("run", *ADD, "--input", "z=randn"),
        ("run", *ADD, "--input", "x=random.bin"),
        ("run", *ADD, "--stage", "ptx"),
        ("explain", "MT9999"),
        ("compile", "-e", "x", "-t", "x=f32[target]", "-D", "target=3"),
        ("explain",),
        ("frobnicate",),
    ],
)
def test_usage_errors(args: tuple[str, ...]) -> None:
    result = minitri(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr and "failed inside" not in result.stderr


# ---- run and check ---------------------------------------------------------------------------


def test_run() -> None:
    args = ("-D", "M=2", "-D", "N=3", "-i", "x=arange", "-i", "y=ones")
    result = minitri("run", *ADD, *args)
    assert result.exit_code == 0, result.output
    assert result.stdout == "float32[2, 3]\n[[1. 2. 3.]\n [4. 5. 6.]]\n"
    assert "time:" in result.stderr and "check: ok at " in result.stderr and "stages, no error" in result.stderr


@pytest.mark.parametrize("stage", ["ast", "graph", "tile", "triton"])
def test_run_at_a_stage(stage: str) -> None:
    result = minitri("run", *ADD, "-D", "M=2", "-D", "N=3", "--stage", stage, "--no-check", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["stage"] == stage
    assert answer["outputs"][0]["shape"] == [2, 3]
    assert answer["check"] is None


def test_run_reads_files(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    result = minitri("run", *ADD, "-i", f"x={tmp_path / 'x.npy'}", "-i", "y=2.5", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["outputs"][0]["values"] == (x + 2.5).tolist()
    assert answer["sizes"] == {"M": 2, "N": 3}
    assert answer["check"]["ok"] is True
    assert result.stderr == ""  # all sizes were given


def test_run_takes_types_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 2), np.float32))
    path = f"{tmp_path / 'x.npy'}"
    result = minitri("run", "-e", "a @ b", "-i", f"a={path}", "-i", f"b={path}", "--no-check")
    assert result.exit_code == 0, result.output
    assert result.stdout == "float32[2, 2]\n[[2. 2.]\n [2. 2.]]\n"


def test_run_says_which_sizes_it_assumed() -> None:
    result = minitri("run", *ADD, "--no-check")
    assert "sizes not given: M=7 N=33" in result.stderr


def test_run_with_numbers(tmp_path: Path) -> None:
    path = tmp_path / "two.mt"
    path.write_text(MODULE)
    result = minitri("run", str(path), "-i", "x=ones", "-i", "by=3.5", "-D", "N=2", "--no-check")
    assert result.exit_code == 0, result.output
    assert "[5.5 5.5]" in result.stdout
    assert "[2.5 2.5]" in minitri("run", str(path), "-i", "x=ones", "-D", "N=2", "--no-check").stdout


def test_run_several_outputs() -> None:
    result = minitri("run", "-e", "x + 1, x * 2", "-t", "x=f32[N]", "-D", "N=2", "-i", "x=ones", "--no-check")
    assert result.exit_code == 0, result.output
    assert "# ---- output 1 ----" in result.stdout


def test_run_writes_json_without_nan() -> None:
    result = minitri("run", "-e", "x / 0", "-t", "x=f32[N]", "-D", "N=3", "-i", "x=arange", "--no-check", "--json")
    assert json.loads(result.stdout)["outputs"][0]["values"] == ["nan", "inf", "inf"]


def test_the_seed_decides() -> None:
    args = ("run", *ADD, "--no-check", "--json")
    values = [json.loads(minitri(*args, "--seed", s).stdout)["outputs"] for s in ("1", "1", "2")]
    assert values[0] == values[1] != values[2]


def test_an_array_that_does_not_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(5, np.float64))
    result = minitri("run", *ADD, "-i", f"x={tmp_path / 'x.npy'}")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] and "error[MT03" in result.stderr


def test_check_as_json() -> None:
    result = minitri("check", *ADD, "-D", "M=2", "-D", "N=3", "--json")
    answer = json.loads(result.stdout)
    assert answer["ok"] is True
    assert [r["sizes"] for r in answer["rounds"]] == [{"M": 2, "N": 3}]
    assert {row["stage"] for row in answer["rounds"][0]["rows"]} >= {"graph", "tile"}


def test_a_failed_check_is_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [CheckRow("build", "graph", "", True), CheckRow("lower", "tile", "cuda", False, 1.0, 1e-6, "at [0]")]
    monkeypatch.setattr(mt.Program, "check", lambda self, *arrays: CheckReport(rows))
    monkeypatch.setattr(minitri_check, "check", lambda program, call, variants: CheckReport(rows))
    result = minitri("check", "-e", "x + 1", "-t", "x=f32[N]")
    assert result.exit_code == 1
    assert "N=7   WRONG    the pass `lower` is wrong (tile, cuda)\npass   stage" in result.stdout
    assert result.stdout.count("WRONG    the pass") > 1 == result.stdout.count("max error")
    assert result.stdout.endswith("failed: the pass `lower` is wrong (tile, cuda) at N=7\n") and not result.stderr
    result = minitri("run", "-e", "x + 1", "-t", "x=f32[N]")
    assert result.exit_code == 1
    assert "check: the pass `lower` is wrong (tile, cuda)" in result.stderr


# ---- inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("M=4096", ("M", 4096)), ("B=8,16", ("B", (8, 16))), ("B=8,", ("B", (8,))), ("B=", ("B", ()))],
)
def test_sizes(text: str, expected: tuple[str, object]) -> None:
    assert inputs.parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "M", "=3", "M=x", "M=1.5", "M=-1", "1M=2", "M=" + "9" * 40, "M=٣", "M=1,,2"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(click.BadParameter):
        inputs.parse_size(text)


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        ("f32[4]", "arange", [0, 1, 2, 3]),
        ("i8[3]", "7", [7, 7, 7]),
        ("bool[2]", "true", [True, True]),
        ("f16[2]", "-inf", [-np.inf, -np.inf]),
        ("f64[0]", "zeros", []),
        ("u8[3]", "randint:1", [0, 0, 0]),
        ("i64[2]", "randint:-5:-4", [-5, -5]),
    ],
)
def test_values_of_arguments_as_words(type: str, text: str, expected: list[object]) -> None:
    made = inputs.make_inputs(function("x", x=type), {"x": text}, {})
    assert made.arrays[0].tolist() == expected
    assert made.arrays[0].dtype.name.startswith({"f": "float", "i": "int", "u": "uint", "b": "bool"}[type[0]])


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("i32[4]", "randn"), ("f32[4]", "rand"), ("u8[4]", "256"), ("i8[4]", "1.5"), ("f32[4]", "zeros:3"),
        ("f32[4]", "randint"), ("i32[4]", "randint:0"), ("i32[4]", "randint:a"), ("i32[4]", "9" * 6000),
        ("f32[99999999999, 99999999999]", "zeros"), ("f32[4]", "x.npz"), ("f32[4]", "/no/such.npy"),
        ("float", "a.npy"),
    ],
)  # fmt: skip
def test_wrong_values_of_arguments(type: str, text: str) -> None:
    with pytest.raises(inputs.InputError) as caught:
        inputs.make_inputs(function("x", x=type), {"x": text}, {})
    assert "\n" not in str(caught.value)


def test_random_values_are_typed_and_varied() -> None:
    f = function("a, b, c, d", a="f32[V, D]", b="i64[*B]", c="bool[64]", d="bf16[D]")
    a, b, c, d = inputs.make_inputs(f, {}, {"B": (50,)}).arrays
    assert (a.shape, b.shape, d.dtype.name) == ((7, 33), (50,), "bfloat16")
    assert b.min() >= -7 and b.max() <= 6 and b.min() < 0  # an index into `a`, from the start or from the end
    assert c.any() and not c.all()


def test_assumed_sizes_differ() -> None:
    made = inputs.make_inputs(function("x", x="f32[*B, M, N + 1]"), {}, {"M": 4})
    assert made.arrays[0].shape == (2, 3, 4, 8)
    assert made.assumed == {"B": (2, 3), "N": 7}


def test_sizes_without_a_solution_are_errors() -> None:
    with pytest.raises(inputs.InputError):
        inputs.make_inputs(function("x", x="f32[N - 5]"), {}, {"N": 3})


def test_defaults_stay_unless_given() -> None:
    f = function("def f(x: f32[N], a: float = 1.0, b: float = 2.0):\n    return x * a + b\n")
    assert len(inputs.make_inputs(f, {}, {}).arrays) == 1
    assert inputs.make_inputs(f, {"a": "3"}, {}).arrays[1:] == (3.0,)
    with pytest.raises(inputs.InputError, match="a=..."):
        inputs.make_inputs(f, {"b": "3"}, {})


def test_files_fix_sizes_and_contradictions_are_errors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3, 4), np.float32))
    path = str(tmp_path / "x.npy")
    f = function("x + y", x="f32[*B, N]", y="f32[N]")
    made = inputs.make_inputs(f, {"x": path}, {})
    assert made.sizes == {"B": (2, 3), "N": 4} and made.assumed == {}
    with pytest.raises(inputs.InputError, match="N = 5"):
        inputs.make_inputs(f, {"x": path}, {"N": 5})


def test_bf16_files(tmp_path: Path) -> None:
    import ml_dtypes

    x = np.arange(4).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    made = inputs.make_inputs(function("x", x="bf16[N]"), {"x": str(tmp_path / "x.npy")}, {})
    assert made.arrays[0].dtype == x.dtype and (made.arrays[0] == x).all()


def test_files_that_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], object))
    np.save(tmp_path / "complex.npy", np.zeros(3, np.complex64))
    np.save(tmp_path / "good.npy", np.zeros(1000))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:500])
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "folder.npy").mkdir()
    huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999999,), }".ljust(117) + "\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + bytes([118, 0]) + huge.encode())
    for path in sorted(tmp_path.glob("*.npy")):
        if path.name != "good.npy":
            with pytest.raises(inputs.InputError):
                inputs.read_array(str(path))


# ---- explain, doctor -------------------------------------------------------------------------


def test_explain_a_code() -> None:
    result = minitri("explain", "mt0203")
    assert result.exit_code == 0
    assert result.stdout.startswith("MT0203: a matrix product")
    for unknown in ("MT9999", "mt"):
        result = minitri("explain", unknown)
        assert result.exit_code == 2 and "no error code" in result.stderr


def test_explain_a_program(tmp_path: Path) -> None:
    path = tmp_path / "two.mt"
    path.write_text(MODULE)
    result = minitri("explain", str(path))
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()
    assert minitri("explain", *ADD).exit_code == 0
    assert minitri("explain", *ADD, "--target", "cuda:80").stdout.partition(" for ")[2].startswith("cuda:80")
    assert minitri("explain", *ADD, "--target", "abacus").exit_code == 2


def test_explain_measures() -> None:
    words = ("explain", "-e", "x + 1", "-t", "x=f32[N]", "--measure")
    shown = minitri(*words, "-D", "N=100", "--target=interpreter").stdout
    assert (
        "  measured  reached\n" in shown and "kernel  launches  programs" in shown and "interpreter on the CPU" in shown
    )
    assert minitri(*words, "--target=interpreter").exit_code == 2  # an interpreter needs sizes
    import torch

    if not torch.cuda.is_available():
        result = minitri(*words, "-D", "N=100")
        assert result.exit_code == 3 and "there is no GPU here" in result.stderr


def test_doctor() -> None:
    result = child("doctor", "--json")
    assert result.returncode == 0, result.stderr
    rows = {row["name"]: row for row in json.loads(result.stdout)["rows"]}
    assert rows["numpy"]["state"] == "ok"
    assert rows["interpreter"]["state"] == "ok", rows["interpreter"]
    assert all(row["fix"] for row in rows.values() if row["state"] != "ok")


def test_doctor_on_missing_and_old_packages() -> None:
    missing = doctor.package("no-such-package-here", "nothing", "1.2", essential=True)
    assert (missing.state, missing.fix) == ("missing", 'pip install "no-such-package-here>=1.2"')
    assert doctor.package("numpy", "tests", "99.0").state == "old"


def test_doctor_without_something_essential(monkeypatch: pytest.MonkeyPatch) -> None:
    row = doctor.Row("numpy", "missing", "", "pip install numpy", essential=True)
    monkeypatch.setattr(doctor, "examine", lambda: [row])
    result = minitri("doctor")
    assert result.exit_code == 1
    assert "fix: pip install numpy" in result.stdout


def test_a_probe_that_fails_is_a_row() -> None:
    assert "no_such_module" in doctor.probe("import no_such_module")["problem"]
    assert list(doctor.probe("import os; os.abort()")) == ["problem"]
    assert doctor.gpu({"problem": "no torch"}).name == "GPU"


def test_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path / "not" / "yet"))
    assert doctor.cache().state == "ok"
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert doctor.cache().state == "broken"


# ---- streams and exit codes --------------------------------------------------------------------


def test_a_closed_pipe_is_quiet() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "minitri", "compile", *ADD, "--emit=ast,graph"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert complaint == b""


def test_interrupt_is_130() -> None:
    with pytest.raises(SystemExit) as ended, terminal.reported():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_a_bug_shows_no_data_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, terminal.reported():
        raise RuntimeError("a secret of the user")
    assert ended.value.code == 1
    written = capsys.readouterr().err
    assert "RuntimeError" in written and "secret" not in written and "Traceback" not in written


def test_exit_codes_of_diagnostics() -> None:
    assert terminal.exit_code(mt.CompileError("MT0203", "")) == 1
    assert terminal.exit_code(mt.StageUnavailable("MT0402", "")) == 3
    assert terminal.exit_code(mt.CompileError("MT0402", "")) == 2


def test_real_exit_codes() -> None:
    assert child("compile", "-", "--emit=ast", input=MODULE).returncode == 0
    assert child("compile", "-", input="def f(x: f32[N]):\n    return y\n").returncode == 1
    assert child("compile").returncode == 2


# ---- demo ------------------------------------------------------------------------------------


def test_the_demo_is_short_and_shows_every_stage() -> None:
    """`make demo` prints at most 120 lines, with the rows of `doctor`."""
    result = child("demo", str(EXAMPLES / "linear.mt"), "-D", "M=1000", "-D", "K=512", "-D", "N=1024")
    lines = result.stdout.splitlines()
    rows = len(doctor.LOOKED_FOR["packages"]) + len(
        ("python", "minitri", "torch build", "GPU", "interpreter", "compiler", "cache")
    )
    assert result.returncode == 0 and len(lines) + 2 * rows <= 120, result.stderr
    titles = [line.split()[0] for line in lines if " lines, " in line]
    assert titles == list(mt.compile("x", x="f32[N]").lower().stages)
    assert " = rt.dot(" in result.stdout and "wgmma.mma_async" in result.stdout and "HGMMA" in result.stdout
    assert any(line.endswith("checked against numpy: ok") for line in lines)


@pytest.mark.parametrize("name", ["softmax", "vector_add", "layer_norm", "cross_entropy"])
def test_the_demo_of_any_module(name: str) -> None:
    result = minitri("demo", str(EXAMPLES / f"{name}.mt"))
    assert result.exit_code == 0 and "checked against numpy: ok" in result.stdout, result.output
