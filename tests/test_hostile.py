"""Hostile input (tests/hostile.py): a few hundred texts here; the full profile tries 100,000."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hostile import KINDS, Fault, Input, made, tried, verdict
from hypothesis import given, settings, strategies as st
from hypothesis.extra.lark import from_lark
from lark import Lark
from short_profile import examples

import minitri as mt
from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.resource_limits import Limits, check_time, timed
from minitri.cli.main import main
from minitri.language import parser

GRAMMAR = Path(parser.__file__).with_name("grammar.lark").read_text(encoding="utf-8")


@pytest.mark.parametrize("seed, count", [(1, 34), pytest.param(0, 102, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_gives_a_diagnostic_or_a_program(kind: str, seed: int, count: int) -> None:
    count //= {"nested": 8, "long": 17}.get(kind, 1)  # these texts take longer
    counts, _ = tried(count, seed, only=kind)
    assert counts.total() == count
    assert len(counts) > 1, "inputs of this kind are all alike"


def test_blank_lines_take_linear_time() -> None:
    """The search for a repair once took more than five seconds, quadratic in the number of blank lines."""
    start = time.process_time()
    with pytest.raises(ParseError):
        mt.compile("\n" * 19000)
    assert time.process_time() - start < 2


@pytest.mark.slow
def test_a_hundred_thousand_texts() -> None:
    counts, faults = tried(100_000, seed=1, keep_going=True)
    print(f"\n{counts.total():,} inputs, {len(faults)} faults")
    assert not faults, faults[:5]


@settings(max_examples=examples(8, 20), deadline=None)
@given(st.data())
def test_texts_made_from_the_grammar(data: st.DataObject) -> None:
    """The grammar accepts these texts. The language refuses many of them, which must be a diagnostic."""
    verdict(Input(data.draw(EXPRESSIONS), (("x", "f32[M, N]"),)))


EXPRESSIONS: Any = from_lark(
    Lark(GRAMMAR, start="expression", parser="lalr", lexer="basic"),
    explicit={
        "NAME": st.sampled_from(["x", "sum", "exp", "M", "axis", "f32"]),
        "NUMBER": st.sampled_from(["0", "1", "2.5"]),
        "STRING": st.sampled_from(["'tanh'", '"""a"""']),
        "_NEWLINE": st.just("\n"),
    },
)


def test_inputs_can_be_made_again() -> None:
    assert all(made(kind, 5) == made(kind, 5) for kind in KINDS)


@pytest.mark.parametrize("outcome", ["error", "warning", "hang", "escape"])
def test_planted_faults_are_found(outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: it finds planted faults of each kind."""

    def broken(*_: object) -> Any:
        if outcome == "error":
            raise RecursionError("deep")
        if outcome == "warning":
            import warnings

            warnings.warn("look", stacklevel=1)
        if outcome == "hang":
            while True:
                pass
        raise ParseError("MT0001", "x") if outcome == "hang" else _raw()

    def _raw() -> CompileError:
        error = CompileError("MT0001", "x")
        error.message = "\x1b[31m"
        return error

    monkeypatch.setattr("hostile.parse_program", broken)
    monkeypatch.setattr("hostile.SECONDS", 0.2)
    with pytest.raises(Fault):
        verdict(Input("x"))


# ---- limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("name, text", [
    ("source", "x + " * 30 + "x"), ("nesting", "(" * 30 + "x" + ")" * 30), ("name", "x + " + "y" * 30), ("digits", "x + " + "1" * 30),
    ("operations", "+".join(f"x * {k}" for k in range(30))), ("terms", "zeros(((M + N + 1) ** 6,))"), ("code", "exp(x)"),
])  # fmt: skip
def test_a_limit_can_be_raised(name: str, text: str) -> None:
    types = {"x": "f32[M, N]"}
    low = {"code": 60}.get(name, 20)
    with mt.limits(**{name: low}), pytest.raises(CompileError) as caught:
        mt.compile(text, **types).lower()["triton"]
    assert caught.value.code == "MT0401" and f"--limit {name}=" in caught.value.help
    with mt.limits(**{name: 10_000}):
        try:
            program = mt.compile(text, **types)
        except CompileError as error:  # an error of another kind: a name of 30 letters is still unknown
            assert error.code == {"name": "MT0101", "digits": "MT0401"}[name]
            return
    assert program.lower()["triton"], "a program keeps the limits it was made under"


def test_time_is_limited() -> None:
    with mt.limits(seconds=1e-9), pytest.raises(CompileError, match="takes more than"):
        mt.compile("exp(x)", x="f32[N]")
    with mt.limits(seconds=1e-9), timed(), pytest.raises(CompileError):
        check_time()
    check_time()  # no time limit is active here


def test_limits_hold_within_their_block() -> None:
    with mt.limits(source=100):
        with mt.limits(digits=5):
            with pytest.raises(CompileError):
                mt.compile("x" * 101)
        mt.compile("x + 123456", x="f32[N]")
    assert mt.compile("x + 1" + " " * 100, x="f32[N]")


def test_limits_on_the_command_line() -> None:
    text = "x + 1" + " " * 70_000
    run = lambda *words: CliRunner().invoke(main, ["compile", "-e", text, "-t", "x=f32[N]", *words])  # noqa: E731
    refused = run("--emit=ast")
    assert refused.exit_code == 1 and "--limit source=" in refused.stderr
    assert run("--emit=ast", "--limit", "source=100000").exit_code == 0
    assert run("--limit", "source=abc").exit_code == 2
    assert run("--limit", "sourcse=3").exit_code == 2


def test_the_document_has_every_limit() -> None:
    text = (Path(__file__).parent.parent / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    for name in Limits.__slots__:
        assert f"| `{name}` |" in text and f"{getattr(Limits(), name):,} |" in text


# ---- files -----------------------------------------------------------------------------


def test_a_dump_stays_in_its_folder(tmp_path: Path) -> None:
    """File names come from a fixed list. A link in place of a file is refused, and its target does not change."""
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "graph.txt").symlink_to(outside)
    words = ["compile", "-e", "x + 1", "-t", "x=f32[N]", "-o", str(folder)]
    result = CliRunner().invoke(main, [*words, "--emit=graph"])
    assert result.exit_code == 2 and "not a plain file" in result.stderr and outside.read_text() == "mine"
    result = CliRunner().invoke(main, [*words, "--emit=../graph"])
    assert (
        result.exit_code == 2
        and list(tmp_path.iterdir()) == [tmp_path / "outside.txt", folder]
        or result.exit_code == 2
    )
    (folder / "tile.txt").mkdir()
    assert CliRunner().invoke(main, [*words, "--emit=tile"]).exit_code == 2
    (folder / "kernels.txt").write_text("x" * 100_000)
    assert CliRunner().invoke(main, [*words, "--emit=kernels"]).exit_code == 0
    assert "xxx" not in (folder / "kernels.txt").read_text()
    (folder / "ast.txt").symlink_to(folder / "nowhere")
    assert CliRunner().invoke(main, [*words, "--emit=ast"]).exit_code == 2
    assert not (folder / "nowhere").exists()


# ---- inputs found by hand --------------------------------------------------------------


@pytest.mark.parametrize("text, types, code", [
    ("x + (1 << 4000)", {"x": "f32[N]"}, "MT0208"), ("x + 9**9**9**9", {"x": "f32[N]"}, "MT0208"), ("x + 2**-99999", {"x": "f32[N]"}, "MT0208"),
    ("zeros((10**30,))", {}, "MT0401"), ("arange(10**20)", {}, "MT0208"), ("x.reshape(" + "1," * 1000 + ")", {"x": "f32[1]"}, "MT0401"),
    ("zeros(((((A**16)**16)**16)**16,))", {"x": "f32[A]"}, "MT0401"), ("zeros((" + "(" * 200 + "A" + "//3+1)" * 200 + ",))", {"x": "f32[A]"}, "MT0401"),
    ("gelu(x, approximate=True)", {"x": "f32[N]"}, "MT0102"), ("def f(x: f32[N], k: bool = 1):\n    return x * k\n", {}, "MT0102"),
])  # fmt: skip
def test_refused(text: str, types: dict[str, str], code: str) -> None:
    with pytest.raises(CompileError) as caught:
        mt.compile(text, **types)
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize("run", ["call", "numpy", "check", "tile"])
def test_no_memory(run: str) -> None:
    program = mt.compile("zeros((10**6, 10**7))")
    attempt = {"call": program, "numpy": program.numpy, "check": program.check, "tile": lambda: program.run("tile")}[
        run
    ]
    with pytest.raises(CompileError, match="not enough memory"):
        attempt()


def test_products_of_sizes_are_solved() -> None:
    import numpy as np

    text = "def g(q: f32[B, G * H, T], k: f32[B, H, T]):\n    return reshape(q, (B, G, H, T)) * k[:, None]\n"
    q, k = np.ones((2, 6, 4), np.float32), np.ones((2, 3, 4), np.float32)
    assert mt.compile(text)(q, k).shape == (2, 2, 3, 4)
    called = mt.compile(text + "def f(q: f32[B, N, T], k: f32[B, H, T]):\n    return g(q, k)\n")
    assert called(q, k).shape == (2, 2, 3, 4)
    for wrong in (np.ones((2, 7, 4), np.float32), np.ones((2, 0, 4), np.float32)[:, :0]):
        if wrong.shape[1]:
            with pytest.raises(CompileError):
                called(wrong, k)
            with pytest.raises(CompileError):
                mt.compile(text)(wrong, k)
    with pytest.raises(CompileError):
        called(q, k[:, :0])


def test_an_unknown_size_is_an_error_in_every_command() -> None:
    for command in ("compile", "run", "check", "explain"):
        result = CliRunner().invoke(main, [command, "-e", "x", "-t", "x=f32[N]", "-D", "K=3"])
        assert result.exit_code == 2 and "no dimension `K`" in result.stderr, command


def test_an_expression_in_place_of_a_file() -> None:
    result = CliRunner().invoke(main, ["compile", "x+1"])
    assert result.exit_code == 2 and "write -e 'x+1'" in result.stderr


@pytest.mark.parametrize("attempt, code", [
    (lambda f: f.lower(options={"i": 3}), "MT0404"), (lambda f: f.configured(options={"warps": 4}), "MT0404"),
    (lambda f: f.lower()[3], "MT0402"), (lambda f: f.run(None), "MT0402"), (lambda f: f.lower(target=90), "MT0402"),
    (lambda f: mt.Program(f.module, 3), "MT0101"), (lambda f: mt.compile(b"x"), "MT0003"), (lambda f: mt.compile("x", x=3), "MT0004"),
    (lambda f: f.lower(N="3"), "MT0304"), (lambda f: f("abc"), "MT0305"), (lambda f: mt.compile("a\0.mt"), "MT0003"),
])  # fmt: skip
def test_clumsy_calls(attempt: Any, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        attempt(mt.compile("x", x="f32[N]"))
    assert caught.value.code == code


def test_without_accepts_a_single_name() -> None:
    f = mt.compile("exp(x) + sum(x)", x="f32[N]")
    assert f.lower(without="fusion").kernels == f.lower(without=["fusion"]).kernels != f.lower().kernels


@pytest.mark.parametrize(
    "type",
    ["f32[" + "N+" * 20_000 + "N]", "f32[" + "(" * 4_000 + "N" + "+1)" * 4_000 + "]", "f32[" + "N//2+" * 9_000 + "N]"],
)
def test_dimensions_may_be_deep(type: str) -> None:
    """A regression with long types: the value of a dimension was computed by recursion."""
    assert mt.compile("x", x=type).lower()["graph"]
