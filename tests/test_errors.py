"""Every diagnostic: its position, its message, and its page.

`CASES` has a few programs for each code. tests/goldens/errors/CODE.txt holds the output of
`minitri explain CODE` and the messages for these programs. The programs of the pages run, too: the wrong
program gives exactly its code, and the right one compiles.
"""

from __future__ import annotations

import ast
import pickle
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
from click.testing import CliRunner

import minitri as mt
from minitri.base.diagnostics import BUILTIN, CODES, CompileError, ParseError, render
from minitri.base.spans import Source, Span
from minitri.cli.main import main
from minitri.errors.pages import PAGES, Example, as_text
from minitri.language.program_forms import parse_program
from minitri.language.reference_evaluator import evaluate
from minitri.optimize import pass_table

ROOT = Path(__file__).parent.parent
M = {"x": "f32[M, N]"}
N = {"x": "f32[N]"}


def def_(body: str, params: str = "x: f32[M, N]") -> Example:
    return Example(f"def f({params}):\n    {body}\n")


TILE = PAGES["MT0503"].right.text  # a program whose accesses are right

# More mistakes, by code. The golden also has the page's own program.
CASES: dict[str, list[Example]] = {
    "MT0001": [Example("x +", N), Example("x + * 2", N), Example("f(x))", N), Example("x => 1", N), Example("x \u00d7 2", N),
               def_("return x\n  return y"), Example("def f(x: f32[N])\n    return x\n"), Example("2x", N), Example("x && y", N)],
    "MT0002": [Example("[v for v in x]", N), Example("lambda v: v", N), Example("0 < x < 1", N), def_("x += 1\n    return x"),
               def_("x[0] = 1\n    return x"), def_("for i in x:\n        x = x\n    return x"), Example("f'{x}'", N), Example("{x: 1}", N)],
    "MT0003": [Example("", {}), Example("missing.mt", {})],
    "MT0004": [def_("return x", "x: np.ndarray[float]"), def_("return x", "x: f32[...]"), def_("return x", "x: Tensor"), def_("return x", "x: f32[-1]")],
    "MT0101": [Example("x + y", N), Example("np.exp(x)", N), Example("eixp(x)", N), Example("exp", N), def_("return x + n", "x: f32[N]")],
    "MT0102": [Example("exp(x, x)", N), Example("sum(x, axsi=0)", M), Example("maximum(x)", N), Example("reshape(x)", N),
               Example("def f(x: f32[N], k: int = 2.5):\n    return x * k\n"), Example("concat(x)", N), Example("softmax(x, 1, 2)", M)],
    "MT0103": [Example("x.t", M), Example("x.exp", M)],
    "MT0104": [Example("def f(x: f32[N]):\n    return x\n\n\ndef f(x: f32[N]):\n    return -x\n"), def_("return x", "x: f32[*B], B0: f32[B0]")],
    "MT0105": [Example("def f(x: f32[N]):\n    return g(x)\n\n\ndef g(x: f32[N]):\n    return f(x)\n")],
    "MT0106": [Example("zeros((x,))", {"x": "i32[]"}), Example("sum(x, axis=k)", {"x": "f32[M]", "k": "i32[]"}), Example("x[:k]", {"x": "f32[M]", "k": "i32[]"})],
    "MT0201": [Example("x + y", {"x": "f32[M, 3]", "y": "f32[4]"}), Example("concat((x, y), axis=0)", {"x": "f32[2, 3]", "y": "f32[2, 4]"}),
               Example("x + y", {"x": "f32[M]", "y": "f32[N]"}, call=("f32[3]", "f32[1]"))],
    "MT0202": [Example("x", {"x": "float32[N]"}), Example("x", {"x": "f23[N]"}), Example("-x", {"x": "bool[N]"}), Example("x & 1", N), Example("astype(x, 32)", N)],
    "MT0203": [Example("x @ w", {"x": "f32[M, K]", "w": "f32[3, N]"}, call=("f32[2, 4]", "f32[3, 5]")), Example("x @ 2", M)],
    "MT0204": [Example("sum(x, axis=(0, 0))", M), Example("permute_dims(x, (0,))", M), Example("x.mT", N), Example("cumsum(x)", M)],
    "MT0205": [Example("reshape(x, (-1, -1))", M), Example("squeeze(x, axis=0)", {"x": "f32[3, N]"}), Example("broadcast_to(x, (4,))", {"x": "f32[3]"}),
               Example("reshape(x, (2, N // 2))", N, call=("f32[7]",)), Example("zeros((-3,))", {})],
    "MT0206": [Example("x[3]", {"x": "f32[3]"}), Example("x[0, 0, 0]", M), Example("x[1.5]", N), Example("x[::0]", N), Example("x[9]", N, call=("f32[3]",))],
    "MT0207": [Example("def f(x: f32[M, N]) -> f32[M, N, 1]:\n    return x\n"), Example("def f(x: f32[M]) -> (f32[M], f32[M]):\n    return x\n"),
               Example("def g(x: f32[2, N]):\n    return x\n\n\ndef f(x: f32[3, N]):\n    return g(x)\n")],
    "MT0208": [Example("x + -1", {"x": "u8[N]"}), Example("x * (1 // 0)", N), Example("x + 10**400", N), Example("full((2,), 300, dtype=i8)", {})],
    "MT0209": [Example("max(x)", {"x": "f32[0]"}), Example("argmin(x, axis=0)", M, call=("f32[0, 3]",))],
    "MT0301": [Example("x + 1", N, call=("f32[3]", "f32[3]"))],
    "MT0302": [Example("x + y", {"x": "f32[*B]", "y": "f32[*B]"}, call=("f32[3]", "f32[3, 3]"))],
    "MT0303": [Example("def f(x: f32[N], k: int):\n    return x * k\n", call=("f32[3]", "f32[2]"))],
    "MT0304": [Example("x[:K]", {"x": "f32[2 * K + 1]"}, call=("f32[4]",)), Example("x + 1", N, lower={"K": 3}), Example("x + 1", N, lower={"N": -1})],
    "MT0305": [Example("x + y", {"x": "f32[N]", "y": None}, call=("f32[2]", "list"))],
    "MT0401": [Example("a" * 201, {}), Example("((x))", N, limits={"nesting": 1}), Example("x + 12345", N, limits={"digits": 4}),
               Example("exp(x) + sin(x)", N, limits={"operations": 2}), Example("zeros((10**30,))", {}), Example("x[" + "None, " * 64 + "]", N),
               Example("zeros(((M + N) ** 9,))", M, limits={"terms": 8}), Example("exp(x)", N, lower={}, limits={"code": 50}),
               Example("exp(x)", N, lower={}, limits={"seconds": 1e-9}), Example("zeros((10**15, 10**3))", {}, call=()), Example("x", {"x": "f32[" + "(" * 60 + "N" + "//2+1)" * 60 + "]"})],
    "MT0402": [Example("x", N, lower={}, stage="tiles"), Example("x", N, lower={"without": ["fuse"]}), Example("x", N, lower={"target": "hip:gfx942"}, stage="ptx")],
    "MT0404": [Example("x", N, options={"warps": 3}), Example("x", N, options={"blocks": {"i": 0}}), Example("x", N, options={"blocks": {"i": 2**21}}),
               Example("x.T + y", {**M, "y": "f32[N, M]"}, options={"blocks": {"i": 2048, "j": 2048}}, lower={}), Example("x", N, limits={"sources": 3}),
               Example("x", N, options={"stages": 99})],
    "MT0501": [Example("graph main() {\n", reads="graph")],
    "MT0502": [Example("graph main(x: f32[N]) {\n  return %0\n}\n", reads="graph")],
    "MT0503": [Example(TILE.replace("store out[i]", "store out[i + 1]"), call=("f32[5]",), reads="tile.masked"),
               Example(TILE.replace("store out[i] %2 {mask = [i < 5]}", "store out[i] %2"),
                       call=("f32[5]",), reads="tile.masked")],
}  # fmt: skip


# ---- goldens ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [c for c in CODES if PAGES[c].wrong is not None])
def test_position_and_message(code: str, golden: Callable[[str, str], None]) -> None:
    parts = [as_text(code, PAGES[code])]
    for example in CASES.get(code, []):
        error = example.error()
        assert error.code == code, error
        parts.append(f"{example.shown()[:2000]}\n\n{render(error)}\n")
    golden(f"errors/{code}", f"\n{'=' * 60}\n\n".join(parts))


def test_every_code_has_cases() -> None:
    assert {c for c in CODES if PAGES[c].wrong is not None} == set(CASES)


def test_errors_point_into_the_program() -> None:
    """Every error of a text has a position, also an error in its types."""
    for code, examples in CASES.items():
        for example in [e for e in examples if code < "MT03" and code != "MT0003"]:
            span = example.error().span
            assert span is not None and 0 <= span.start <= span.end <= len(span.source.text), (code, example)


# ---- pages -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_the_page_is_true(code: str) -> None:
    page = PAGES[code]
    assert (page.wrong is None) == (page.right is None)
    if page.wrong is not None and page.right is not None:
        assert page.wrong.error().code == code
        page.right.run()
    assert set(page.related) <= set(CODES) - {code}
    text = as_text(code, page)
    assert text.isprintable() or all(c.isprintable() or c == "\n" for c in text)


def test_every_code_has_a_page_in_order() -> None:
    assert list(PAGES) == list(CODES)


def test_explain_prints_the_page() -> None:
    for code, page in PAGES.items():
        result = CliRunner().invoke(main, ["explain", code.lower()])
        assert result.exit_code == 0 and result.stdout == as_text(code, page)
    assert "did you mean `MT0203`" in CliRunner().invoke(main, ["explain", "MT023"]).stderr


def test_the_document_has_every_page() -> None:
    text = reference.errors()
    assert re.findall(r"^### (MT\d+)$", text, re.MULTILINE) == list(CODES)
    assert text == (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8"), (
        "python tests/reference.py errors"
    )


def test_a_mistake_in_the_call_of_a_library_function_is_reported_at_the_call() -> None:
    for text, arrays in (("1 + softmax(x, axis=5)", ()), ("1 + logsumexp(x, axis=1)", (np.zeros((2, 0), np.float32),))):
        with pytest.raises(CompileError) as caught:
            mt.compile(text, x="f32[M, N]")(*arrays)
        assert caught.value.span is not None and caught.value.span.text == text.removeprefix("1 + ")


def test_only_the_chosen_branch_of_a_conditional_is_checked() -> None:
    text = "x[0, 0] if x.ndim == 2 else x[0]"
    assert mt.compile(text, x="f32[2]")(np.ones(2, np.float32)) == 1
    assert mt.compile(text, x="f32[2, 3]")(np.ones((2, 3), np.float32)) == 1
    with pytest.raises(CompileError, match="must be known now"):
        mt.compile("zebra(x) if x.shape[0] else zebra(x)", x="f32[N]")


# ---- codes -----------------------------------------------------------------------------


def mentioned() -> Iterator[tuple[str, str]]:
    """(file, code) for each code that the compiler's source names, without the table and the pages."""
    for path in sorted((ROOT / "minitri").rglob("*.py")):
        name = path.relative_to(ROOT / "minitri").as_posix()
        if name == "diagnostics.py" or name.startswith("errors/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"MT\d{4}", node.value):
                yield name, node.value
    messages = (ROOT / "minitri" / "language" / "syntax_errors.toml").read_text(encoding="utf-8")
    yield from (("language/syntax_errors.toml", code) for code in re.findall(r'\["(MT\d{4})"', messages))


def test_every_code_that_is_raised_exists() -> None:
    unknown = [(name, code) for name, code in mentioned() if code not in CODES]
    assert not unknown


def test_every_code_is_raised() -> None:
    assert {code for _, code in mentioned()} == set(CODES)


def test_every_message_of_the_front_end_is_raised_somewhere() -> None:
    files = (ROOT / "minitri" / "language").glob("*.py")
    table = tomllib.loads((ROOT / "minitri" / "language" / "syntax_errors.toml").read_text(encoding="utf-8"))
    mistakes = table.pop("mistakes")
    rules = repr(table)  # the other tables name the mistake for a wrong character or word
    raised = set(re.findall(r"[\"'](\w+)[\"']", rules + "".join(file.read_text(encoding="utf-8") for file in files)))
    assert mistakes.keys() - {"misplaced_def", "misplaced_return"} <= raised


KINDS = {
    "x + y": ({"x": "f32[3]", "y": "f32[4]"}, ValueError), "x @ x": ({"x": "f32[2, 3]"}, ValueError),
    "reshape(x, (2, -1))": ({"x": "f32[3]"}, ValueError), "x + 300": ({"x": "i8[3]"}, ValueError),
    "max(x)": ({"x": "f32[0]"}, ValueError), "x & 1": ({"x": "f32[3]"}, TypeError), "exp(x, x)": ({"x": "f32[3]"}, TypeError),
    "sum(x, axis=y)": ({"x": "f32[3]", "y": "i32[]"}, TypeError), "x[3]": ({"x": "f32[3]"}, IndexError),
    "sum(x, axis=1)": ({"x": "f32[3]"}, (ValueError, IndexError)), "x +": ({"x": "f32[3]"}, SyntaxError),
}  # fmt: skip


@pytest.mark.parametrize("text", KINDS)
def test_an_error_is_the_exception_that_python_would_raise(text: str) -> None:
    types, kinds = KINDS[text]
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        with pytest.raises(kind) as caught:
            mt.compile(text, **types)
        assert isinstance(caught.value, CompileError) and str(caught.value).startswith("error[MT")


def test_an_error_of_a_call_is_the_exception_that_python_would_raise() -> None:
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    x = np.zeros(3, np.float32)
    for arguments, kind in (((x, x[:2]), ValueError), ((x, x.astype(float)), TypeError), ((x,), TypeError)):
        with pytest.raises(kind) as caught:
            f(*arguments)
        assert isinstance(caught.value, CompileError)


def test_the_code_alone_decides_the_class_of_an_error() -> None:
    for code in CODES:
        error = CompileError(code, "what")
        names = tuple(e.__name__ for e in (ValueError, TypeError, IndexError) if isinstance(error, e))
        assert names == BUILTIN.get(code, ()) and error.code == code
        assert type(ParseError(code, "what")) is ParseError
    assert not BUILTIN.keys() - CODES.keys()


def test_a_wrong_bound_of_a_tuple_keeps_its_code() -> None:
    """The error is also a TypeError. `except` clauses for Python's own TypeErrors must not catch it."""
    with pytest.raises(CompileError) as caught:
        mt.compile("reshape(x, x.shape[1.5:])", x="f32[M, N]")
    assert caught.value.code == "MT0106"


def test_an_error_needs_a_known_code() -> None:
    with pytest.raises(AssertionError):
        CompileError("MT9999", "what")


def test_a_broken_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program causes MT0403. So the test plants a pass that breaks a rule."""

    def broken(graph: object) -> None:
        raise ValueError("a rule")

    passes = tuple(replace(p, verify=broken) if p.name == "simplify" else p for p in pass_table.PASSES)
    monkeypatch.setattr(pass_table, "PASSES", passes)
    with pytest.raises(CompileError) as caught:
        mt.compile("x + 1", x="f32[N]").lower()["triton"]
    assert caught.value.code == "MT0403"
    assert caught.value.message.startswith(
        "the pass `simplify` broke a rule of its IR: a rule\nbefore:\ngraph main(x: f32[N])"
    )


def test_an_error_of_numpy_has_a_position() -> None:
    """MT0306: the reference runs alone, without the types that would have found the mistake."""
    module = parse_program("x[7] + y", "<expression>", {"x": "f32[N]", "y": "f32[N]"})
    with pytest.raises(CompileError) as caught:
        evaluate(module, "main", {"x": np.zeros(3, np.float32), "y": np.zeros(3, np.float32)}, {"N": 3})
    assert caught.value.code == "MT0306" and "--> <expression>:1:1" in str(caught.value)


# ---- terminal output -------------------------------------------------------------------

ESCAPES = ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202e", "\u2066", "\r", "\x08", "\x00", "\u2028", "\ud800"]


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda e: f"U+{ord(e[0]):04X}")
def test_no_escape_of_a_program_reaches_the_terminal(escape: str) -> None:
    x = np.zeros(3, np.float32)
    attempts: list[Callable[[], object]] = [
        lambda: mt.compile(f"x + {escape}y", x="f32[N]"),
        lambda: mt.compile(f"gelu(x, approximate='{escape}')", x="f32[N]"),
        lambda: mt.compile("x + z", name=f"a{escape}b", x="f32[N]"),
        lambda: mt.compile("x + 1", x=f"f32[N{escape}]"),
        lambda: mt.compile("x + 1", **{f"x{escape}": "f32[N]"}),
        lambda: mt.compile(f"no{escape}where.mt"),
        lambda: mt.compile("def f(x: f32[N]):\n    return x\n", entry=f"g{escape}"),
        lambda: mt.compile("x", x="f32[N]").lower(target=f"cuda:{escape}"),
        lambda: mt.compile("x", x="f32[N]").lower()[f"tile{escape}"],
        lambda: mt.compile("x", x="f32[N]").run(f"tile{escape}", x),
        lambda: mt.compile("x", x="f32[N]").lower(without=[f"fusion{escape}"]),
        lambda: mt.compile("x", x="f32[N]")(**{f"y{escape}": x}),
        lambda: mt.compile("x", x="f32[N]").lower(**{f"K{escape}": 3}),
        lambda: mt.compile("x", x="f32[N]").lower(options=mt.Options(blocks={f"i{escape}": 4}))["tile"],
        lambda: mt.compile("x", x="f32[N]").lower(options=mt.Options(warps=escape))["tile"],  # type: ignore[arg-type]
        lambda: mt.limits(**{f"source{escape}": 3}).__enter__(),
    ]
    for attempt in attempts:
        try:
            attempt()
        except CompileError as error:
            shown = f"{error}{error.args}{error.help}{error.label}"
        else:
            assert escape == "\r", "a line end may stand within brackets"
            continue
        assert all(c.isprintable() or c == "\n" for c in shown), shown
        assert escape not in shown


@pytest.mark.parametrize("escape", ESCAPES[:-1], ids=lambda e: f"U+{ord(e[0]):04X}")
def test_no_escape_of_an_argument_reaches_the_terminal(escape: str, tmp_path: Path) -> None:
    if escape == "\x00":
        pytest.skip("no argument of a process holds it")
    runner = CliRunner()
    for words in (
        ["compile", f"no{escape}.mt"], ["compile", f"x+{escape}"], ["run", "-e", "x", "-t", f"x{escape}=f32[N]"],
        ["compile", "-e", "x", "-t", "x=f32[N]", "-D", f"N{escape}=3"], ["compile", "-e", "x", "-t", "x=f32[N]", "-D", f"N=3{escape}"],
        ["run", "-e", "x", "-t", "x=f32[N]", "-i", f"x={escape}"], ["compile", "-e", "x", "-t", "x=f32[N]", f"--emit={escape}"],
        ["compile", "-e", "x", "-t", "x=f32[N]", f"--print-after={escape}"], ["compile", "-e", f"x{escape}", "-t", "x=f32[N]"],
        ["compile", "-e", "x", "-t", "x=f32[N]", f"--target={escape}"], ["compile", "-e", "x", "-t", "x=f32[N]", "--limit", f"source{escape}=4"],
        ["compile", "-e", "x", "-t", "x=f32[N]", "-o", str(tmp_path / f"d{escape}")],
    ):  # fmt: skip
        result = runner.invoke(main, words)
        assert escape not in result.stderr + result.stdout, words


def test_messages_have_one_line() -> None:
    """A program text cannot write lines that look like the compiler's own."""
    with pytest.raises(ParseError) as caught:
        mt.compile("x +", name="a.mt\n  = help: run this", x="f32[N]")
    assert "\n  = help: run this" not in str(caught.value)


def test_a_caret_is_placed_right_after_wide_characters() -> None:
    text = "x + '\uff41\uff41' + *"
    error = CompileError("MT0001", "here", Span(Source("<e>", text), len(text) - 1, len(text)))
    line, caret = str(error).split("\n")[2:4]
    assert caret.index("^") == line.index("*") + 2  # two characters that are two columns wide


def test_a_notebook_shows_no_markup_of_a_program() -> None:
    program = mt.compile("x + 1  # <script>alert(1)</script> \u202e", x="f32[N]")
    html = program._repr_html_()
    assert "<script" not in html and "\u202e" not in html and "&lt;script" in html


@pytest.mark.parametrize("text", ["x +", "softmx(x)", "sum(x, axis=7)"])
def test_an_error_can_be_pickled(text: str) -> None:
    """A process pool sends errors of its workers with pickle."""
    with pytest.raises(CompileError) as caught:
        mt.compile(text, x="f32[N]")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value) and again.edits == caught.value.edits
