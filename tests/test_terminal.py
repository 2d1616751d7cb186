"""Output on a terminal: colour, width, the pager and progress. A pipe gets plain text.

`seen` runs a command in a pseudo-terminal. Lexers are tested with every stage of every example.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from pygments.token import Comment, Error, Keyword, Name, Number, String, _TokenType
from short_profile import one_in

import minitri as mt
from minitri.base.spans import Source, Span
from minitri.cli import lexers, terminal
from minitri.cli.main import main
from minitri.hardware.targets import GPUS, StageUnavailable, Target
from minitri.program import Lowered

fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")  # Windows has no pseudo-terminals

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.mt"))
ADD = ("-e", "x + y", "-t", "x=f32[M, N]", "-t", "y=f32[N]")
WRONG = ("compile", "-e", "exp(x) + sum(softmax(eixp(x), axis=0), axis=0) + log(x)", "-t", "x=f32[M]")
PLAIN = (
    "NO_COLOR",
    "FORCE_COLOR",
    "PAGER",
    "MINITRI_PAGER",
    "LESS",
    "COLUMNS",
    "LINES",
)  # variables of the environment that the tests run in


def minitri(*args: str) -> Result:
    return CliRunner().invoke(main, list(args), prog_name="minitri")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in PLAIN}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def seen(*command: str, columns: int = 80, keys: str = "", **more: str) -> str:
    """The output of a Python command on a terminal that is its three streams. `keys` are pressed at the start."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words = [sys.executable, *command]
    process = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=environment(**more))
    os.close(follower)
    os.write(leader, keys.encode())
    received = b"".join(_received(leader))
    process.wait()
    os.close(leader)
    return received.decode().replace("\r\n", "\n")


def _received(leader: int) -> Iterator[bytes]:
    try:
        while data := os.read(leader, 1 << 16):
            yield data
    except OSError:  # Linux reports in this way that the last process has closed the terminal
        return


def piped(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minitri", *args]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more))


# ---- lexers ----------------------------------------------------------------------------------


def tokens(stage: str, text: str) -> list[tuple[_TokenType, str]]:
    return [(kind, value) for _, kind, value in lexers.lexer(terminal.lexer_name(stage)).get_tokens_unprocessed(text)]


def strange(stage: str, text: str) -> list[str]:
    """The pieces of a text that its lexer does not know."""
    return [value for kind, value in tokens(stage, text) if kind is Error]


@cache
def lowered(path: Path, target: str) -> Lowered:
    return mt.compile(path).lower(target=target)


@pytest.mark.parametrize(
    "path, target", one_in(4, EXAMPLES, ["h200", "a100", "mi300x", "b200"]), ids=lambda v: getattr(v, "stem", v)
)
def test_every_stage_of_every_example_is_known_to_its_lexer(path: Path, target: str) -> None:
    low = lowered(path, target)
    for stage in low.stages:
        try:
            text = low[stage]
        except StageUnavailable:
            pytest.skip(f"{stage} is not available here")
        found = tokens(stage, text)
        assert not any(kind is Error for kind, _ in found), stage
        assert "".join(value for _, value in found) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_text_after_every_pass_is_known_to_its_lexer(path: Path) -> None:
    low = lowered(path, "h200")
    assert low["triton"]
    for record in low.passes:
        assert not strange(record.stage, record.after), record.stage


def test_every_stage_names_its_lexer() -> None:
    for stage, row in terminal.STAGES.items():
        assert "lexer" not in row or ":" in row["lexer"] or row["lexer"] in lexers.RULES, stage


@pytest.mark.parametrize(
    ("stage", "line", "kinds"),
    [
        ("ast", "    axis=unary -    3:22", {"axis=": Name.Attribute, "unary": Keyword, "3:22": Comment}),
        ("graph", "  %6: f32[B, D] = view %5 {index = [d0, 0]}",
         {"%6": Name.Variable, "f32": Keyword.Type, "view": Name.Function, "index": Name.Attribute, "0": Number}),
        ("tile.masked", '  %5: f16[i] = load x[i] {because = ["i: no test"]}',
         {"load": Name.Function, "because": Name.Attribute, '"i: no test"': String}),
        ("tile", "  for j {\n    next %1 = %7\n  }", {"for": Keyword, "next": Keyword}),
        ("kernels", "ledger {\n  fused  sum: f32[B0]  k0: it's so", {"ledger": Keyword, "fused": Keyword}),
        ("ttgir", "    %v7 = tt.splat %v6 : f32 -> tensor<4096xf32, #blocked> loc(#loc55)",
         {"%v7": Name.Variable, "tt.splat": Name.Function, "f32": Keyword.Type, "#blocked": Keyword.Type, "loc(#loc55)": Comment}),
        ("llir", "  %17 = tail call i32 @llvm.nvvm.f(i32 %9), !dbg !14",
         {"tail call": Name.Builtin, "i32": Keyword.Type, "@llvm.nvvm.f": Name.Function, "!dbg": Comment}),
        ("ptx", "\t@%p1 fence.proxy.async.shared::cta;\n\tmov.b32 \t%r1, 0f7F800000;",
         {"@%p1": Name.Decorator, "fence.proxy.async.shared::cta": Name.Builtin, "%r1": Name.Variable, "0f7F800000": Number}),
        ("sass", "--:-:-:-:8\t@!P0 BRA LBB0;", {"--:-:-:-:8": Comment, "@!P0 ": Name.Decorator, "BRA": Name.Builtin}),
        ("amdgcn", "\tv_mov_b32_e32 v3, 0 ; zero\n    .args:",
         {"v_mov_b32_e32": Name.Builtin, "v3": Name.Variable, "; zero": Comment, ".args:": Name.Attribute}),
    ],
)  # fmt: skip
def test_lexers_distinguish_kinds_of_words(stage: str, line: str, kinds: dict[str, _TokenType]) -> None:
    found = {value: kind for kind, value in tokens(stage, line)}
    assert {value: found.get(value) for value in kinds} == kinds


def test_text_unknown_to_a_lexer_is_plain() -> None:
    with click.Context(main) as context:
        context.color = True
        assert terminal.highlighted("tile", "§") == "§"
        assert terminal.highlighted("tile", "") == ""


# ---- colour ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
    ],
)
def test_variables_and_options_decide_about_colour(
    variables: dict[str, str], on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*PLAIN, "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for stream, err in (("stdout", False), ("stderr", True)):
        for terminal_there, expected in ((True, on_terminal), (False, in_pipe)):
            monkeypatch.setattr(getattr(sys, stream), "isatty", lambda there=terminal_there: there)
            assert terminal.coloured(err) is expected
            for choice, forced in (("always", True), ("never", False), ("auto", expected)):
                context = main.make_context("minitri", ["--color", choice, "doctor"])
                with context:
                    assert terminal.coloured(err) is forced


def test_colour_is_an_option_of_every_command() -> None:
    for where in (("--color=always", "compile", *ADD), ("compile", *ADD, "--color=always")):
        assert "\x1b[" in minitri(*where, "--emit=tile").stdout
    assert minitri("compile", *ADD, "--color=sometimes").exit_code == 2
    assert "\x1b[" not in minitri("compile", *ADD, "--json", "--color=always").stdout


def test_a_terminal_gets_colour_and_a_pipe_does_not() -> None:
    shown = seen("-m", "minitri", "compile", *ADD, "--emit=ast,tile,triton", PAGER="cat")
    assert "\x1b[94madd\x1b[39;49;00m" in shown
    done = piped("compile", *ADD, "--emit=ast,tile,triton")
    assert re.sub(r"\x1b\[[\d;]*m", "", shown).rstrip("\n") == done.stdout.rstrip("\n")
    assert "\x1b" not in seen("-m", "minitri", "compile", *ADD, "--emit=ast", NO_COLOR="1", PAGER="cat")
    assert "\x1b[" in piped("compile", *ADD, "--emit=ast", FORCE_COLOR="1").stdout


# ---- diagnostics -----------------------------------------------------------------------------

LINE = Source("f.mt", "def f(x: f32[M]):\n    return exp(x) + sum(softmax(eixp(x), axis=0), axis=0) + log(x)\n")
NAME = Span(LINE, LINE.text.index("eixp"), LINE.text.index("eixp") + 7)
DIAGNOSTICS = {
    "all parts": mt.CompileError("MT0101", "there is no `eixp`", NAME, label="unknown", help="did you mean `exp`?"),
    "two errors": mt.CompileError("MT0101", "there is no `eixp`", NAME),
    "no help": mt.CompileError("MT0101", "there is no `eixp`", NAME),
    "no place": mt.CompileError("MT0402", "there is no target `a10`", help="did you mean `a100`?"),
    "a stage": StageUnavailable("MT0402", "the target cuda:90 has no stage amdgcn", help="take another target"),
}


DIAGNOSTICS["two errors"].others = (mt.CompileError("MT0204", "axis 2 is out of range", NAME, help="it has 1 axis"),)


@pytest.mark.parametrize("columns", [40, 80])
def test_diagnostics_in_colour(
    columns: int, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red `error`, a bold message, a blue gutter and carets, a green help. The source line fits the terminal."""
    monkeypatch.setattr(terminal, "width", lambda err=False: columns)
    with click.Context(main) as context:
        context.color = True
        shown = {title: terminal.rendered(error) for title, error in DIAGNOSTICS.items()}
    for line in re.sub(r"\x1b\[[\d;]*m", "", "\n".join(shown.values())).splitlines():
        assert len(line) <= columns or not re.match(r" +\d+ \|", line)
    text = "\n".join(f"{title}\n\n{text}" for title, text in shown.items())
    golden(f"terminal/diagnostics_{columns}", text.replace("\x1b[39;49;00m", "</>").replace("\x1b", "ESC"))


def test_every_error_of_a_command_is_coloured() -> None:
    for words in (WRONG, ("compile", *ADD, "--target=a10"), ("compile", *ADD, "--emit=amdgcn")):
        assert minitri("--color=always", *words).stderr.startswith("\x1b[01m\x1b[91merror")


def test_a_terminal_gets_diagnostics_in_colour() -> None:
    shown = seen("-m", "minitri", *WRONG, columns=50)
    assert "\x1b[01m\x1b[91merror" in shown and "help:" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    source = next(line for line in plain if line.startswith("  1 | "))
    assert len(source) <= 50 and "eixp" in source and "…" in source


def test_arrays_fit_the_terminal() -> None:
    shown = seen("-m", "minitri", "run", "-e", "x + 1", "-t", "x=f32[N]", "-D", "N=40", "--no-check", columns=40)
    first, *lines, time = shown.splitlines()
    assert (first, time[:6]) == ("float32[40]", "time: ") and 5 < len(lines) and max(map(len, lines)) <= 40


# ---- the pager -------------------------------------------------------------------------------


def test_a_terminal_gets_a_pager() -> None:
    command = ("-m", "minitri", "compile", *ADD, "--emit=tile")
    assert "§plan" in seen(*command, MINITRI_PAGER="sed s/^/§/", PAGER="false", NO_COLOR="1")
    assert piped("compile", *ADD, "--emit=tile", PAGER="sed s/^/§/").stdout.startswith("plan ")


@pytest.mark.parametrize(
    ("variables", "pager"),
    [
        ({}, "less"),
        ({"PAGER": "most"}, "most"),
        ({"PAGER": "most", "MINITRI_PAGER": "less -S"}, "less -S"),
        ({"PAGER": "cat"}, None),
        ({"PAGER": ""}, None),
        ({"PAGER": "most", "MINITRI_PAGER": "cat"}, None),
        ({"PAGER": "most", "TERM": "dumb"}, None),
    ],
)
def test_variables_decide_the_pager(
    variables: dict[str, str], pager: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", lambda text, color: paged.append(os.environ["PAGER"]))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name in (*PLAIN, "TERM"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal.page("text")
    assert paged == [pager] * (pager is not None)
    assert pager is None or os.environ["LESS"] == "FRX"


@pytest.mark.skipif(shutil.which("less") is None, reason="needs less")
def test_less_shows_a_screen_and_keeps_colour() -> None:
    long = seen("-m", "minitri", "compile", *ADD, "--emit=ast,graph,kernels,tile,triton", keys="q")
    assert "\x1b[94m" in long and "# ---- ast" in long and "ESC[" not in long
    assert "# ---- triton" not in long  # it is on a later screen
    short = seen("-m", "minitri", "explain", "-e", "x + 1", "-t", "x=f32[N]", columns=200)
    assert "kernel k0" in short  # it fits, so less ends by itself


# ---- progress --------------------------------------------------------------------------------

SLOW = """
import sys, time
from minitri.cli import terminal
terminal.PATIENCE = {patience}
with terminal.progress("compile [x]", 4) as tell:
    tell(1, "ptx [y]")
    time.sleep(1.0)
    tell(3, "sass")
    time.sleep(0.3)
print("data")
"""


def test_progress_appears_after_a_while_and_disappears() -> None:
    shown = seen("-c", SLOW.format(patience=0.05))
    assert all(part in shown for part in ("compile [x]", "ptx [y]", "sass", "━"))
    assert shown.endswith("\x1b[2Kdata\n") or "\x1b[2K" in shown.rpartition("data")[0][-40:]
    assert seen("-c", SLOW.format(patience=60)) == "data\n"
    assert "\x1b[3" not in seen("-c", SLOW.format(patience=0.05), NO_COLOR="1")
    assert seen("-c", SLOW.format(patience=0.05), TERM="dumb") == "data\n"


def test_pipes_get_no_progress() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW.format(patience=0)], capture_output=True, text=True, env=environment()
    )
    assert (done.stdout, done.stderr) == ("data\n", "")


def test_progress_without_a_terminal_is_an_occasional_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_EVERY", 0.0)
    with terminal.progress("fuzz", 8) as tell:
        tell(2, "2 programs")
    with terminal.progress("check") as tell:
        tell(1, "nobody knows of how many")
    assert capsys.readouterr().err == "fuzz: 25%, 2 programs\n"


SLOW_COMMANDS: dict[str, tuple[str, ...]] = {  # each may take more than two seconds, on a large program
    "check": (*ADD,),
    "compile": (*ADD, "--emit=ast"),
    "demo": (str(ROOT / "examples" / "softmax.mt"),),
    "doctor": (),
    "explain": (*ADD,),
    "explore": (*ADD, "-o", "page.html"),
    "fuzz": ("--programs=1", "--jobs=1", "--budget=20s"),
    "run": (*ADD, "-D", "M=2", "-D", "N=3", "-i", "x=randn", "-i", "y=randn"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SLOW_COMMANDS))
def test_every_command_has_a_progress_bar(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    titles: list[str] = []
    plain = terminal._plain_progress
    monkeypatch.setattr(terminal, "_plain_progress", lambda title, total: titles.append(title) or plain(title, total))
    done = CliRunner().invoke(main, [name, *SLOW_COMMANDS[name]])
    assert done.exit_code == 0 and titles, (done.output, done.exception)


def test_the_only_other_command_needs_a_gpu() -> None:
    """tests/test_gpu.py runs it."""
    assert main.commands.keys() - SLOW_COMMANDS.keys() == {"bench"}


# ---- check -----------------------------------------------------------------------------------


def test_check_prints_a_line_for_each_choice_of_sizes() -> None:
    result = minitri("check", "-e", "max(x, axis=1)", "-t", "x=f32[M, N]")
    *lines, verdict, scope = result.stdout.splitlines()
    assert result.exit_code == 0 and result.stderr == "", result.output
    assert [line.split()[:3] for line in lines[:2]] == [["M=7", "N=33", "ok"], ["M=33", "N=7", "ok"]]
    assert "M=0 N=0    skipped  max over an axis of size 0 has no value" in lines
    assert verdict == f"ok: every pass is within its bound at {sum(' ok ' in line for line in lines)} choices of sizes"
    assert scope.startswith("ran: interpreter, cuda:90 on CPU, any sizes on CPU")


def test_check_shows_its_table_on_demand() -> None:
    words = ("check", "-e", "x + 1", "-t", "x=f32[N]", "-D", "N=7")
    table = minitri(*words, "--verbose").stdout
    assert "interpreter  cuda:90 on CPU  any sizes on CPU  max error" in table
    assert table.count("\n") > 20 > minitri(*words).stdout.count("\n")
    assert "\x1b[32mok\x1b[0m" in minitri("--color=always", *words).stdout


def test_check_names_the_device_of_each_run() -> None:
    """Kernels for cuda:90 that ran on the CPU are not called `cuda`. A missing GPU is mentioned."""
    words = ("check", "-e", "x + 1", "-t", "x=f32[N]", "-D", "N=7", "-v")
    shown = minitri(*words).stdout
    assert "cuda ok" not in shown and not re.search(r"\bcuda(?!:90 on CPU)", shown)
    import torch

    if not torch.cuda.is_available():
        assert "not run: gpu (there is no GPU here)" in shown


# ---- targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*GPUS, "A100", "H200", "RTX4090", "MI300X", "CUDA:90", "hip:GFX942"])
def test_targets_by_name(name: str) -> None:
    target = Target.parse(name)
    assert str(target) == name.lower()
    assert mt.compile("x + 1", x="f32[N]").lower(target=name).target == name.lower()
    assert minitri("compile", "-e", "x + 1", "-t", "x=f32[N]", "--target", name).exit_code == 0


def test_the_names_of_gpus() -> None:
    assert set(GPUS) == {"a100", "h100", "h200", "b200", "mi300x", "rtx4090"}
    assert all(name in minitri("compile", "--help").stdout for name in GPUS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("a10", "`a100`?"), ("A100-80GB", "`a100`?"), ("4090", "`rtx4090`?"), ("RTX 4090", "`rtx4090`?"), ("mi300", "`mi300x`?"),
        ("sm_90", "`cuda:90`?"), ("sm90", "`cuda:90`?"), ("gfx942", "`hip:gfx942`?"), ("h10", "`h100`?"),
        ("cuda:9.0", "`cuda:90`?"), ("cuda:91", "`cuda:90`?"),
    ],
)  # fmt: skip
def test_an_unknown_target_is_answered_with_near_ones(name: str, meant: str) -> None:
    result = minitri("compile", *ADD, "--target", name)
    assert result.exit_code == 2 and f"did you mean {meant}" in result.stderr
    assert "hip:gfx908" not in result.stderr  # a good guess needs no list of all targets


@pytest.mark.parametrize("name", ["toaster", "cuda", "", "cud", "x" * 5000])
def test_an_unknown_target_without_similar_ones_gets_the_list(name: str) -> None:
    result = minitri("compile", *ADD, "--target", name)
    assert result.exit_code == 2 and "did you mean" not in result.stderr and "h200" in result.stderr


# ---- bench -----------------------------------------------------------------------------------


def test_figures_are_drawn_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = minitri("bench", "--from", str(ROOT / "docs/log/benchmarks.json"), "--plot", str(tmp_path / "a.svg"))
    assert result.exit_code == 0, result.output
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not JSON", "does not hold figures of the benchmark"),
        ("[1]", "does not hold figures of the benchmark"),
        ('{"cases": 3, "copy_bytes_per_second": 1}', "does not hold figures of the benchmark"),
        (json.dumps({"device": "interpreter", "cases": []}), "was measured without a GPU"),
    ],
)
def test_files_without_figures(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    result = minitri("bench", "--from", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg"))
    assert result.exit_code == 1 and said in result.stderr and "bench --json FILE" in result.stderr


def test_a_plot_says_what_is_missing() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("nothing is missing here")
    result = minitri("bench", "add f32", "--plot", "a.svg")
    assert result.exit_code == 3 and "there is no GPU here" in result.stderr
    assert "minitri bench --from FILE --plot out.svg" in result.stderr
    assert minitri("bench", "--from", str(ROOT / "docs/log/benchmarks.json")).exit_code == 2
