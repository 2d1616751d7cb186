"""`mt.load`: programs that start from the text of a stage. They run, follow edits of the text, or are refused."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from short_profile import examples, numbers

import minitri as mt
from minitri.cli.main import READABLE, main
from minitri.hardware.targets import INTERPRETER
from minitri.kernels.ir import Compute
from minitri.optimize.mask_elision import mask
from minitri.optimize.pass_table import PASSES
from minitri.profile import profile
from minitri.program_from_stage import READERS
from minitri.runtime.call_binding import bind
from minitri.testing import random_program
from minitri.tiles.rewrite import exchange
from minitri.triton.source import functions

X = np.random.default_rng(0).standard_normal((10, 30)).astype(np.float32)
B = np.linspace(-1, 1, 30, dtype=np.float32)
SOFTMAX = mt.compile("softmax(x + b, axis=-1)", x="f32[M, N]", b="f32[N]")
CROSS = "mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])"


def refused(text: str, stage: str) -> mt.CompileError:
    with pytest.raises(mt.CompileError) as raised:
        mt.load(text, stage)
    return raised.value


# ---- texts that run ------------------------------------------------------------------------


def test_the_command_line_lists_the_stages_that_can_be_read() -> None:
    assert tuple(READERS) == READABLE


@pytest.mark.parametrize("sizes", [{}, {"M": 10, "N": 30}])
@pytest.mark.parametrize("stage", READABLE)
def test_a_loaded_stage_compiles_to_the_same_later_stages(stage: str, sizes: dict[str, int]) -> None:
    low = SOFTMAX.lower(**sizes)
    f = mt.load(low[stage], stage)
    again = f.lower(**sizes if stage == "graph" else {})
    assert again.stages == low.stages[low.stages.index(stage) :]
    assert all(again[s] == low[s] for s in again.stages[: again.stages.index("triton") + 1])
    np.testing.assert_allclose(f(X, B), SOFTMAX.numpy(X, B), rtol=1e-6)
    np.testing.assert_allclose(f.numpy(X, B), SOFTMAX.numpy(X, B), rtol=1e-6)


@pytest.mark.parametrize("seed", numbers(16, 40))
def test_random_programs_can_be_loaded_from_each_stage(seed: int) -> None:
    example = random_program(60_000 + seed, max_ops=5)
    f, arguments = example.compile(), example.arguments(seed)
    wanted = f(*arguments)
    for stage in READABLE:
        got = mt.load(f.lower(*arguments)[stage], stage)(*arguments)
        for a, b in zip(got, wanted) if isinstance(wanted, tuple) else [(got, wanted)]:
            a, b = (np.asarray(v).astype(np.float64) for v in (a, b))
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("known", [True, False])
def test_arrays_have_the_strides_of_the_text(known: bool) -> None:
    """The text has the strides as numbers or as names. An array with other strides is copied."""
    f = mt.compile("x * 2 + y", x="f32[M, N]", y="f32[N]")
    strided = np.asfortranarray(X)
    context = f.context(bind(f.function, (strided, B), {}), INTERPRETER, known)
    text = f.compilation(context)["tile"]
    assert ("x.stride1" in text) == (not known) and "strides" in text
    for x in (strided, X, X[::-1]):
        np.testing.assert_array_equal(mt.load(text, "tile")(x, B), f.numpy(x, B))


@pytest.mark.parametrize("stage", READABLE)
def test_every_way_to_call_takes_any_strides(stage: str) -> None:
    f = mt.compile("x * 2 + 1", x="f32[M, N]")
    x = np.arange(60, dtype=np.float32).reshape(10, 6)
    g = mt.load(f.lower(M=6, N=10)[stage], stage)
    for y in (x.T, np.tile(x.T, (2, 2))[::2, ::2], x.T[::-1], np.broadcast_to(x[:1, :1], (6, 10))):
        for found in (g(y), g.bind(y)(), g(x=y)):
            np.testing.assert_array_equal(found, y * 2 + 1)
    assert str(profile(g, x.T, repeats=1)).count("k0") == 1


def test_a_handle_of_a_text_that_reads_out_of_bounds_is_refused() -> None:
    text = mt.compile("x * 2", x="f32[M, N]").lower(M=6, N=10)["tile"].replace("load x[", "load x[1000 + ")
    g, x = mt.load(text, "tile"), np.ones((6, 10), np.float32)
    for call in (g, g.bind, g.prepare):
        with pytest.raises(mt.CompileError, match="MT0503"):
            call(x)


def test_several_kernels_scalars_and_conditions() -> None:
    f = mt.compile(CROSS + " * scale", z="f32[N, C]", y="i64[N]", scale="float")
    z, y = X, np.arange(10)
    for stage in READABLE:
        g = mt.load(f.lower(N=10, C=30)[stage] if stage != "graph" else f.lower()[stage], stage)
        np.testing.assert_allclose(g(z, y, 0.5), f(z, y, 0.5), rtol=1e-6)
    g = mt.load(f.lower()["tile"], "tile")
    with pytest.raises(mt.CompileError) as raised:
        g(np.ones((2, 0), np.float32), np.zeros(2, np.int64), 1.0)
    assert raised.value.code == "MT0209"


def test_a_graph_is_checked_against_itself() -> None:
    f = mt.load(SOFTMAX.lower()["graph"], "graph")
    assert f.check(X, B).ok
    with pytest.raises(mt.CompileError, match="nothing to be checked against"):
        mt.load(SOFTMAX.lower()["tile"], "tile").check(X, B)


@pytest.mark.parametrize("stage", READABLE)
def test_a_text_is_checked_against_its_original_program(stage: str) -> None:
    """The unchanged text is right. With another function in it the text itself is reported as wrong, not a later
    pass.
    """
    text = SOFTMAX.lower(M=10, N=30, target="interpreter")[stage]
    good, bad = (mt.load(t, stage, against=SOFTMAX) for t in (text, text.replace("= exp ", "= exp2 ")))
    report = good.configured(without=()).check(X, B)
    assert report.ok and report.rows[0].by == "text" and report.rows[0].stage == stage
    assert [r.by for r in report.rows if r.variant == "interpreter"] == [
        p.name for p in PASSES[1 + [p.stage for p in PASSES].index(stage) :]
    ]
    report = bad.check(X, B)
    assert (report.guilty, report.first_bad, len(report.rows)) == ("text", stage, 1)
    assert report.smallest is not None and "= exp2 " in report.smallest.after and report.smallest.got is not None
    assert str(report).count("the text is wrong") == 1 and "softmax(x + b" in str(report.smallest)


def test_a_pass_after_the_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def subtracted(programs: Any, context: Any) -> Any:
        for p in programs:
            for op in [op for op in p.ops() if isinstance(op, Compute) and op.op == "add"]:
                p = exchange(p, op, replace(op, op="subtract"))
        return replace(programs, programs=(mask(p),))

    f = mt.compile("x + b", x="f32[M, N]", b="f32[N]")
    loaded = mt.load(f.lower(M=10, N=30, target="interpreter")["tile"], "tile", against=f)
    changed = tuple(replace(p, run=subtracted) if p.name == "mask" else p for p in PASSES)
    monkeypatch.setattr("minitri.optimize.pass_table.PASSES", changed)
    assert loaded.check(X, B).guilty == "mask"


def test_the_original_program_must_have_the_same_parameters() -> None:
    text = SOFTMAX.lower(M=10, N=30)["tile"]
    for other in (mt.compile("x + c", x="f32[M, N]", c="f32[N]"), mt.compile("x + b", x="f16[M, N]", b="f32[N]")):
        with pytest.raises(mt.CompileError) as raised:
            mt.load(text, "tile", against=other).check(X, B)
        assert raised.value.code in ("MT0301", "MT0303")


def test_against_on_the_command_line(tmp_path: Path) -> None:
    program, tile = tmp_path / "p.mt", tmp_path / "tile.txt"
    program.write_text("def f(x: f32[M]) -> f32[M]:\n    return exp(x)\n")
    low = mt.compile(program).lower(M=5)
    tile.write_text(low["tile"])
    (tmp_path / "graph.txt").write_text(low["graph"])
    for source in (program, tmp_path / "graph.txt"):
        for command in ("check", "run"):
            done = CliRunner().invoke(main, [command, str(tile), "--from", "tile", "--against", str(source)])
            assert done.exit_code == 0 and ("ok: every pass" in done.stdout or "check: ok" in done.stderr)
    tile.write_text(low["tile"].replace("exp", "exp2"))
    for command in ("check", "run"):
        done = CliRunner().invoke(main, [command, str(tile), "--from", "tile", "--against", str(program)])
        assert done.exit_code == 1 and "the text is wrong (tile)" in done.output
    done = CliRunner().invoke(main, ["check", str(program), "--against", str(program)])
    assert done.exit_code == 2 and "--from" in done.stderr


def test_earlier_stages_do_not_exist() -> None:
    f = mt.load(SOFTMAX.lower()["tile"], "tile")
    for stage in ("ast", "graph", "kernels"):
        with pytest.raises(mt.StageUnavailable, match=f"begins at `tile`: it has no stage `{stage}`"):
            f.lower()[stage]
        with pytest.raises(mt.CompileError):
            f.run(stage, X, B)
    with pytest.raises(mt.CompileError, match="are in its text"):
        f.lower(M=3)


def test_the_file_name_gives_the_stage(tmp_path: Path) -> None:
    path = tmp_path / "tile.masked.txt"
    path.write_text(SOFTMAX.lower()["tile.masked"])
    assert "from tile.masked" in repr(mt.load(path)) and "from tile.masked" in repr(mt.load(str(path)))
    with pytest.raises(mt.CompileError, match="no stage that can be read"):
        mt.load(SOFTMAX.lower()["triton"], "triton")
    with pytest.raises(mt.CompileError, match="cannot read"):
        mt.load(tmp_path / "graph.txt")


# ---- edits ---------------------------------------------------------------------------------


def edited(stage: str, old: str, new: str, **sizes: int) -> mt.Program:
    text = SOFTMAX.lower(**sizes)[stage]
    assert old in text, text
    return mt.load(text.replace(old, new), stage)


@pytest.mark.parametrize("stage", READABLE)
def test_an_edit_changes_the_result(stage: str) -> None:
    """The edit replaces exp by exp2, in whichever form the stage has it."""
    x = X - X.max(axis=1, keepdims=True)
    wanted = np.exp2(x) / np.exp2(x).sum(axis=1, keepdims=True)
    f = edited(stage, "= exp ", "= exp2 ", M=10, N=30)
    np.testing.assert_allclose(f(X, 0 * B), wanted, rtol=1e-5)


def test_another_block_size_changes_no_result() -> None:
    f = edited("tile", "grid i: 10 by 8", "grid i: 10 by 3", M=10, N=30)
    assert "BLOCK_I: tl.constexpr = 3" in f.lower()["triton"]
    np.testing.assert_allclose(f(X, B), SOFTMAX.numpy(X, B), rtol=1e-6)


def test_a_load_without_its_mask_is_out_of_bounds() -> None:
    text = SOFTMAX.lower(M=10, N=30)["tile.masked"]
    f = mt.load(re.sub(r"mask = \[j < 30\], ", "", text, count=1), "tile.masked")
    with pytest.raises(mt.CompileError) as raised:
        f(X, B)
    error = raised.value
    assert error.code == "MT0503" and error.span is not None and error.span.text.startswith("%1: f32[j] = load b")
    assert "out of bounds" in str(error) and "b[30]" in error.message


def test_a_condition_can_be_added() -> None:
    text = SOFTMAX.lower()["tile"].replace("require N >= 1", "require M == 10\n  require N >= 1")
    f = mt.load(text, "tile")
    f(X, B)
    with pytest.raises(mt.CompileError, match="break a condition of the program") as raised:
        f(X[:3], B)
    assert raised.value.code == "MT0304"


# ---- refused texts -------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str, str, str, str]] = {
    # name: (stage, old, new, part of the message, the text above the caret)
    "an extra token": ("tile", "grid i", "grid grid i", "`i` cannot stand here", "i"),
    "no bracket": ("graph", "f32[N]) {", "f32[N] {", "cannot stand here", ""),
    "an operator": ("graph", "= exp ", "= exq ", "no operator `exq`", "exq"),
    "a dtype": ("graph", "%0: f32[", "%0: f23[", "there is no dtype `f23`", "f23[]"),
    "a value": ("kernels", "add %0, %1", "add %0, %7", "no value `%7` above", "%7"),
    "a value of an input": ("graph", "return %", "return %9", "there is no value", ""),
    "a dimension": ("tile", "grid i: M by", "grid i: Q by", "there is no dimension `Q` here", "Q"),
    "an axis": ("tile", "load x[i, j]", "load x[i, k]", "no axis or dimension `k`", "k"),
    "an axis name": ("tile", "grid i", "grid tl", "an axis cannot be called `tl`", "tl"),
    "a kernel name": ("kernels", "kernel k0(", "kernel os(", "kernels are called k0", "os"),
    "an array": ("kernels", "load b[j]", "load bb[j]", "no input or output or temporary `bb`", "bb"),
    "the rank": ("tile", "load b[j]", "load b[j, j]", "with 2 axes here", "b"),
    "a write to an input": ("kernels", "store out[i, j]", "store x[i, j]", "there is no output or temporary `x`", "x"),
    "another layout": ("kernels", "input b: f32[N]", "input b: f32[M]", "not how `b` lies in memory", ""),
    "another order": ("tile", "load x[i, j]", "load x[i]", "with 1 axes here", "x"),
    "a type": ("tile", "%2: f32[i, j]", "%2: f64[i, j]", "is said to be f64", ""),
    "an attribute": ("tile", "reduce.max %2 {over", "reduce.max %2 {along", "`along` is no attribute", ""),
    "a mask too early": ("tile", "= load b[j]", "= load b[j] {mask = [j < N]}", "`mask` is no attribute", ""),
    "a hint": ("tile", "warps ", "warp ", "`warp` cannot stand here", "warp"),
    "warps": ("tile", "warps 8", "warps 3", "one of 1, 2, 4", "3"),
    "an error code": ("graph", "else MT0209", "else MT9999", "no error code MT9999", "MT9999"),
    "an unknown precision": ("graph", 'else MT0209 "', "else MT0209 ", "cannot stand here", ""),
    "division by zero": ("tile", "load x[i, j]", "load x[i//0, j]", "divides by zero", "0"),
    "the loop's index": ("tile", "whole j", "loop j", "outside of its loop", ""),
    "nothing stored": ("kernels", "store out[i, j]", "# store out[i, j]", "nothing writes out", ""),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_errors_have_a_caret_at_the_mistake(what: str) -> None:
    stage, old, new, message, under = REFUSED[what]
    text = SOFTMAX.lower(**({} if "M" in old + new or stage == "graph" or what == "a hint" else {"N": 30, "M": 10}))[
        stage
    ]
    text = text if old in text else SOFTMAX.lower()[stage]
    assert old in text, text
    error = refused(text.replace(old, new, 1), stage)
    assert error.code in ("MT0501", "MT0502", "MT0202") and message in error.message, str(error)
    assert isinstance(error, SyntaxError) == (error.code == "MT0501")
    if under:
        assert error.span is not None and error.span.text == under


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "MT0501"),
        ("\n", "MT0501"),
        ("\0\n", "MT0501"),
        ("graph f() {\n", "MT0501"),
        ("graph f(x: f32[N]) {\n  return x\n} }\n", "MT0501"),
        ("graph lambda(x: f32[N]) {\n  return x\n}\n", "MT0502"),
        ("graph f(x: f32[__import__.os]) {\n  return x\n}\n", "MT0502"),
        (f"graph f(x: f32[{'(' * 9999}N{')' * 9999}]) {{\n  return x\n}}\n", "MT0401"),
        (f"graph f(x: f32[{'//'.join(['N'] * 9999)}]) {{\n  return x\n}}\n", "MT0401"),
        (f"graph f(x: f32[{'*'.join(['(N + M)'] * 999)}]) {{\n  return x\n}}\n", "MT0401"),
        (f"graph f(x: f32[{'9' * 999}]) {{\n  return x\n}}\n", "MT0501"),
        ("graph f(x: f32[N]) {\n  %0: f32[] = const 1e999999\n  return %0\n}\n", ""),
        ("graph f(x: f32[N]) {\n  %0: i8[] = const 128\n  return %0\n}\n", "MT0502"),
        ('graph f(x: f32[N]) {\n  require N >= 1 else MT0209 "\\u001b[31m\\ud800"\n  return x\n}\n', ""),
    ],
)
def test_hostile_texts(text: str, code: str) -> None:
    if code:
        error = refused(text + "\n", "graph")
        assert error.code == code and str(error).isprintable() == ("\n" not in str(error))
    else:
        mt.load(text, "graph").lower()["triton"]


TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|%\d+|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|[^\s\w]')
MORE = ["nan", "-", "$i", "@0", "%99", "f64", "bf16", "i8", "min", "//", "%", "{", "]", "reduce.sum", "dot", "carry"]
MORE += ["0", "1", "2", "3", "16", "64", "1048576", "scan.prod", "reduce.argmax", "position", "spread", "for", "next"]


def mutated(text: str, rng: random.Random) -> str:
    """Deletes, inserts or replaces one to three tokens (by tokens of the same kind), or swaps lines."""
    words = TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = [m.span() for m in TOKEN.finditer(text)]
        start, end = rng.choice(places or [(0, 0)])
        alike = [w for w in [*words, *MORE] if kind(w) == kind(text[start:end])] or [""]
        word = rng.choice(["", rng.choice(MORE) + " " + text[start:end], *[rng.choice(alike) for _ in range(6)]])
        text = text[:start] + word + text[end:]
        if rng.random() < 0.15:
            lines = text.split("\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            text = "\n".join(lines)
    return text


def kind(word: str) -> str:
    return (
        "value" if re.match(r"%\d", word) else "number" if word[:1].isdigit() else "word" if word[:1].isalpha() else ""
    )


def survives(text: str, stage: str, arguments: Any = None) -> bool:
    """Whether a text is a program. If so, its source passes the allowlist, and it runs or raises a diagnostic."""
    try:
        f = mt.load(text + "\n", stage)
        functions(f.lower()["triton"], {})
        if arguments is not None:
            f(*arguments)
    except mt.CompileError as error:
        assert str(error) and error.code != "MT0403", (text, error)
        return False
    return True


@settings(max_examples=examples(50, 150))
@given(st.randoms(use_true_random=False), st.integers(0, 400), st.sampled_from(READABLE))
def test_mutated_texts_are_programs_or_errors(rng: random.Random, seed: int, stage: str) -> None:
    example = random_program(70_000 + seed, max_ops=4)
    arguments = example.arguments(seed)
    text = mutated(example.compile().lower(*arguments)[stage], rng)
    small = max((np.size(a) for a in arguments), default=0) < 200
    numbers = [int(n) for n in re.findall(r"\b\d{1,15}\b", text)]
    survives(text, stage, arguments if small and max(numbers, default=0) < 100 else None)


def test_many_mutations_of_one_program() -> None:
    rng, alive = random.Random(1), 0
    for stage in READABLE:
        text = SOFTMAX.lower(M=10, N=30)[stage]
        alive += sum(survives(mutated(text, rng), stage) for _ in range(100))
    assert alive > 10


# ---- the command line ----------------------------------------------------------------------


def cli(*words: str, text: str | None = None) -> Any:
    return CliRunner().invoke(main, words, input=text)


def test_a_stage_is_saved_edited_and_compiled(tmp_path: Path) -> None:
    program = ["-e", "softmax(x)", "-t", "x=f32[M,N]", "-D", "M=8", "-D", "N=30"]
    assert cli("compile", *program, "--emit=tile", "-o", str(tmp_path)).exit_code == 0
    path = tmp_path / "tile.txt"
    path.write_text(re.sub(r"warps \d+", "warps 2 stages 5", path.read_text()))
    shown = cli("compile", str(path), "--from", "tile")
    assert shown.exit_code == 0 and "num_warps=2, num_stages=5" in shown.output
    ran = cli("run", str(path), "--from", "tile", "-i", "x=randn", "--json")
    assert ran.exit_code == 0 and '"float32"' in ran.stdout
    assert cli("compile", str(path), "--from", "tile", "--emit=graph").exit_code == 3
    assert cli("check", str(path), "--from", "tile").exit_code == 2
    assert cli("compile", str(path), "--from", "graph").exit_code == 1
    assert cli("compile", *program, "--from", "tile").exit_code == 2


def test_a_stage_from_standard_input() -> None:
    text = SOFTMAX.lower()["graph"]
    assert "tl.store" in cli("compile", "-", "--from", "graph", "-D", "M=4", text=text).output
    assert cli("check", "-", "--from", "graph", "-D", "M=4", "-D", "N=3", text=text).exit_code == 0
