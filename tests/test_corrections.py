"""The corrections in error messages: after the edits of `error.edits` a program compiles and computes what numpy or
torch do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import corrections
import numpy as np
import pytest
import torch
from corrections import LIBRARIES, Mistake, corrected, error_of, idioms, rewritten, table

import minitri as mt
from minitri.base.diagnostics import CompileError, Edit
from minitri.language import syntax_repairs
from minitri.language.parser import whole_text
from minitri.language.python_corrections import comprehension, expression, statement, update

MISTAKES = corrections.mistakes()
IDIOMS = [(library, there, here) for library in LIBRARIES for there, here in idioms(library).items()]
DOCS = Path(__file__).parent.parent / "docs" / "reference"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.program[:60])
def test_a_mistake_has_a_code_a_caret_and_a_help_that_compiles(mistake: Mistake) -> None:
    error = mistake.error()
    assert error.span is not None and error.help
    assert (error.code, error.span.text) == (mistake.code, mistake.under)
    assert (corrected(error) if error.edits else "") == mistake.becomes
    assert not mistake.becomes or error_of(mistake.becomes, table("mistakes")["types"]) is None


def test_every_row_of_the_repairs_corrects_a_mistake() -> None:
    def repaired(program: str, k: int, pattern: re.Pattern[str], row: dict[str, str]) -> str:
        """The program with line k changed as the row says."""
        lines = program.split("\n")
        for match in reversed(list(pattern.finditer(lines[k]))):
            texts = {name: "0" if text is None else text for name, text in match.groupdict().items()}
            texts |= {f"{name}_lower": text.lower() for name, text in texts.items()}
            lines[k] = lines[k][: match.start("at")] + row["write"].format(**texts) + lines[k][match.end("at") :]
        return "\n".join(lines)

    for pattern, row in syntax_repairs._rows():
        assert any(
            repaired(m.program, k, pattern, row) == m.becomes
            for m in MISTAKES
            for k in range(m.program.count("\n") + 1)
        ), row


def test_there_are_enough_mistakes_and_idioms() -> None:
    assert len({m.program for m in MISTAKES}) >= 250 and len({m.code for m in MISTAKES}) >= 12
    assert all(len(idioms(library)) >= 14 for library in LIBRARIES) and len(IDIOMS) >= 60


@pytest.mark.parametrize("library, there, here", IDIOMS, ids=[there for _, there, _ in IDIOMS])
def test_an_idiom_compiles_or_is_corrected(library: str, there: str, here: str) -> None:
    assert rewritten(there, table("idioms")["types"]) == here


def test_the_help_of_an_idiom_shows_the_whole_call() -> None:
    error = error_of("2 * np.where(x > 0, x, -x)", {"x": "f32[N]"})
    assert error is not None and "`where(x > 0, x, -x)`" in error.help
    error = error_of("2 * F.mse_loss(x + 1, x)", {"x": "f32[N]"})
    assert error is not None and "`mean(((x + 1) - x) ** 2)`" in error.help


def test_a_missing_axis_is_added_to_a_method() -> None:
    error = error_of("x.cumsum() + 1", {"x": "f32[M, N]"})
    assert error is not None and corrected(error) == "x.cumsum(axis=-1) + 1"


# ---- the same values -------------------------------------------------------------------------------

SIZES = {"M": 3, "N": 4, "K": 5, "C": 6, "V": 7, "D": 4, "T": 5, "B": 2, "H": 3}
OWN_DTYPE = {"x.astype(f16)"}


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """An array for each name in idioms.toml."""
    rng, found = np.random.default_rng(3), {}
    for name, type in table("idioms")["types"].items():
        dtype, _, sizes = type.rstrip("]").partition("[")
        shape = [SIZES.get(size) or int(size) for size in sizes.split(", ")]
        values = rng.integers(0, 3, shape) if dtype[0] in "ib" else rng.normal(size=shape)
        found[name] = values.astype({"f32": np.float32, "i64": np.int64, "i8": np.int8, "bool": bool}[dtype])
    return found


@pytest.mark.parametrize("library, there, here", [i for i in IDIOMS if i[0] != "jax" and i[1] not in OWN_DTYPE])
def test_an_idiom_computes_the_same(library: str, there: str, here: str) -> None:
    given = arrays()
    theirs = given if library == "numpy" else {name: torch.tensor(a) for name, a in given.items()}
    names = {"np": np, "torch": torch, "F": torch.nn.functional}
    wanted = eval(there, names, dict(theirs))
    types = {n: t for n, t in table("idioms")["types"].items() if n in corrections.names_in(here)}
    results = mt.compile(here, types=types).run("ast", **{name: given[name] for name in types})
    wanted, results = ([v] if not isinstance(v, (tuple, list)) else list(v) for v in (wanted, results))
    for a, b in zip(results, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-3, atol=1e-3)


ASSIGNMENTS = [
    "x[0] = 1", "x[0, :] = 1", "x[:, 0] = 0", "x[-1] += 2", "x[:, -2] *= 3", "x[1:] = 0", "x[:, 1:3] = 5", "x[:-1, 2:] -= 1",
    "x[..., 0] = 7", "x[..., -1] *= 2", "x[1, ..., 2:] = 0", "x[::2] = 0", "x[:, ::3] = 1", "x[:] = 4", "x[x < 0] = 0",
    "x[~(x < 0)] = 1", "x[0, 0] = 9", "x[x > 1] -= 1",
]  # fmt: skip


@pytest.mark.parametrize("line", ASSIGNMENTS)
def test_an_assignment_to_elements_computes_what_numpy_does(line: str) -> None:
    program = f"def f(x: f32[M, N]):\n    {line}\n    return x\n"
    given = arrays()["x"]
    names = {"x": given.copy(), "np": np}
    exec(line, names)
    np.testing.assert_array_equal(mt.compile(rewritten(program, {})).run("ast", given), names["x"])


@pytest.mark.parametrize("lines", ["x[m] = 7", "x[m] = -x[m]", "x[m] *= 2", "x[q] = 0", "x += 1; x *= 2"])
def test_masks_and_lines_with_several_statements_compute_what_numpy_does(lines: str) -> None:
    program = f"def f(x: f32[M, N], m: bool[M, N]):\n    q = x > 0.5\n    {lines}\n    return x\n"
    given, mask = arrays()["x"], arrays()["x"] < 0
    names = {"x": given.copy(), "m": mask, "q": given > 0.5}
    exec(lines, names)
    np.testing.assert_array_equal(mt.compile(rewritten(program, {})).run("ast", given, mask), names["x"])


@pytest.mark.parametrize(
    "mistaken, meant",
    [
        ("max(x, 0.0)", "np.maximum(x, 0)"),
        ("x.min(.5)", "np.minimum(x, .5)"),
        ("max(x, -x, 0.5, 2 * x)", "np.maximum(np.maximum(x, -x), np.maximum(0.5, 2 * x))"),
        ("concat(x, x, axis=1)", "np.concatenate((x, x), axis=1)"),
        ("where(x > 0, x, -float('inf'))", "np.where(x > 0, x, -np.inf)"),
        ('x + float("-inf")', "x - np.inf"),
        ("torch.nn.relu(x)", "np.maximum(x, 0)"),
        ("zeros(M, N) + x", "x"),
        ("np.log(x * x, 2)", "np.log2(x * x)"),
        ("x[0:3:0]", "x[0:3]"),
    ],
)
def test_a_correction_computes_what_was_meant(mistaken: str, meant: str) -> None:
    given = arrays()["x"]
    program = mt.compile(rewritten(mistaken, {"x": "f32[M, N]"}), x="f32[M, N]")
    np.testing.assert_allclose(program.run("ast", given), eval(meant, {"np": np, "x": given}), rtol=1e-6)


@pytest.mark.parametrize("lines", ["x = x * x;" * 40 + "x", "x = -----------------x;" * 14 + "x", "x = 1; x[0] = 2; x"])
def test_statements_that_would_make_a_long_expression_stay(lines: str) -> None:
    error = error_of(lines, {"x": "f32[N]"})
    assert error is not None and not error.edits


def test_an_index_in_two_brackets_is_no_crash() -> None:
    error = error_of("def f(x: f32[M, N], m: bool[M, N]):\n    x[m] = 2 * x[[m]]\n    return x\n", {})
    assert error is not None and error.code == "MT0002"


@pytest.mark.parametrize("declared", ["m: i64[N]", "m: bool[M]", "m"])
def test_an_index_that_is_no_mask_of_the_same_shape_stays(declared: str) -> None:
    error = error_of(f"def f(x: f32[M, N], {declared}):\n    x[m] = 0\n    return x\n", {})
    assert error is not None and not error.edits


@pytest.mark.parametrize("index", ["0", "1:", ":, -1", "..., ::2", "-1, 1:3"])
def test_an_update_of_jax_computes_what_an_assignment_does(index: str) -> None:
    given = arrays()["x"]
    changed = given.copy()
    exec(f"x[{index}] += 2", {"x": changed})
    text = rewritten(f"x.at[{index}].add(2)", {"x": "f32[M, N]"})
    np.testing.assert_array_equal(mt.compile(text, x="f32[M, N]").run("ast", given), changed)


# ---- single corrections ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, at, edit",
    [
        ("def f(x):\n    y += a + b\n    return y", "+=", "y = y + (a + b)"),
        ("def f(x):\n    x[x < 0] -= 1\n    return x", "x[x", "x = where(x < 0, x - 1, x)"),
        ("def f(x):\n    x[i] = 1\n    return x", "x[i", None),
        ("def f(x):\n    x[0] = 1\n    return x", "x[0", None),
        ("def f(x: f32[N]):\n    x[0] = 1\n    return x", "x[0", "x = where(arange(x.shape[0]) == 0, 1, x)"),
        ("def f(x):\n    x[0, :] = 1\n    return x", "x[0", "x = where((arange(x.shape[0]) == 0)[:, None], 1, x)"),
        ("def f(x):\n    x[0, :] = y\n    return x", "x[0", None),
        (
            "def f(x):\n    for i in range(3):\n        x += i\n    return x",
            "for",
            "x = x + 0\n    x = x + 1\n    x = x + 2",
        ),
        ("def f(x):\n    for i in range(9):\n        x += i\n    return x", "for", None),
        ("def f(x):\n    for i in range(2):\n        x[i] = 0\n    return x", "for", None),
        ("def f(x):\n    with a:\n        x = y\n        z = x\n    return z", "with", "x = y\n    z = x"),
        ("def f(x):\n    if p or q:\n        return x\n    return -x", "if", "return where(logical_or(p, q), x, -x)"),
        ("def f(x):\n    for i in x: pass", "for", None),
        (
            "def f(x):\n    if p and q:\n        y = x\n    else:\n        y = -x\n    return y",
            "if",
            "y = where(logical_and(p, q), x, -x)",
        ),
        ("def f(x):\n    if p:\n        return x\n    else:\n        return -x", "if", "return where(p, x, -x)"),
        ("def f(x):\n    if p:\n        y = x\n    return y", "if", "y = where(p, x, y)"),
        ("def f(x):\n    if p:\n        y = x\n    else:\n        z = x\n    return y", "if", None),
        ("def f(x):\n    y = (\n", "y", None),
    ],
)
def test_a_statement_of_python_is_rewritten(text: str, at: str, edit: str | None) -> None:
    assert _text(statement(_place(text, at))) == edit


@pytest.mark.parametrize(
    "text, at, edit",
    [
        ("a and b or not c", "or", "logical_or(logical_and(a, b), logical_not(c))"),
        ("where(a and b, x, 0)", "and", "logical_and(a, b)"),
        ("y = a is not b", "is", "a != b"),
        ("a and", "and", None),
        ("(" * 300 + "a and b" + ")" * 300, "and", "logical_and(a, b)"),
        ("a" * 500 + " and b", "and", None),
    ],
)
def test_logic_of_python_is_rewritten(text: str, at: str, edit: str | None) -> None:
    assert _text(expression(_place(text, at))) == edit


@pytest.mark.parametrize(
    "text, edit",
    [
        ("[a + 1 for a in x]", "x + 1"),
        ("2 * [a + 1 for a in x]", "(x + 1)"),
        ("sum(a * a for a in x + 1)", "(x + 1) * (x + 1)"),
        ("[a for a in x if a > 0]", "where(x > 0, x, 0)"),
        ("[a for a in x if a > 0 if a < 1]", None),
        ("[a - b for a, b in zip(x, y * 2)]", "x - y * 2"),
        ("[a + k for k, a in enumerate(x)]", "x + arange(x.shape[0])"),
        ("2 * [v[k] for k in range(3)]", "v[arange(3)]"),
        ("[a + b for a, b in x]", None),
    ],
)
def test_a_comprehension_is_rewritten(text: str, edit: str | None) -> None:
    assert _text(comprehension(_place(text, "for"))) == edit


@pytest.mark.parametrize(
    "text, becomes",
    [
        ("x.at[x < 0].set(0) + 1", "where(x < 0, 0, x) + 1"),
        ("x.at[0].add(y * 2)", "where(arange(x.shape[0]) == 0, x + y * 2, x)"),
        ("exp(x).at[x > f(0)].multiply(2)", "where(x > f(0), exp(x) * 2, exp(x))"),
        ("x.at[i].set(0)", None),
        ("x.at[0].get()", None),
        ("x.at", None),
    ],
)
def test_an_update_of_jax_is_rewritten(text: str, becomes: str | None) -> None:
    place = _place(text, text[: text.index("at") + 2])
    edit = update(place, rank=1)
    assert (text.replace(text[edit.span.start : edit.span.end], edit.text) if edit else None) == becomes


def _place(text: str, at: str) -> Any:
    whole = whole_text(text, "<test>")
    start = text.index(at)
    return type(whole)(whole.source, start, start + len(at))


def _text(edit: Edit | None) -> str | None:
    return None if edit is None else edit.text


# ---- several mistakes ---------------------------------------------------------------------------------


def refusal(program: str, **types: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        mt.compile(program, types=types)
    return caught.value


def test_independent_mistakes_are_reported_at_once() -> None:
    error = refusal("def f(x: f32[N]):\n    a = foo(x)\n    b = np.exp(x)\n    return a * 2 + b + (x ^ 2)\n")
    assert [e.span and e.span.text for e in (error, *error.others)] == ["foo", "np.exp", "(x ^ 2)"]
    assert "= also: 3:9: there is no `np` here" in str(error) or "2 more errors" in str(error)


SEVERAL = {  # a program, and the texts above the carets of its errors
    "y = x +* 2\nz = softmx(x)\nreturn y + w": ["+", "softmx", "w"],
    "y = x\ny += 1\nz = not y\nreturn z": ["+=", "not"],
    "y = (x + 1\nz = softmx(x)\nretrun y + z": ["(", "softmx", "retrun"],
    "let y = x\nz = x[:, None]\nif y is None:\n    return z\nreturn foo(y) + x[0, 0]": [
        "let y",
        "if",
        "foo",
        "x[0, 0]",
    ],
    "for k in range(3):\n    x = x + k\n    y = x\nreturn softmx(x) + y + k": ["for", "softmx", "k"],
    "x[0] = 3\na = t = x +* 2\nreturn a + t + q": ["x[0]", "=", "q"],
    "def g(a):\n    return a * 2\nh = lambda a: a\nreturn g(x) + h(x) + q": ["def", "lambda", "q"],
    "y = where(x > 0,\n    x +* 1, 0)\nreturn y + w": ["+"],  # the rest of the call does not parse
    "y = x +* 2\nz = (x @\n    * 2)\nreturn y + w": ["+", "@", "w"],
}


@pytest.mark.parametrize("body", SEVERAL)
def test_a_syntax_error_hides_no_errors_of_other_lines(body: str) -> None:
    text = "def f(x: f32[N]):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    error = refusal(text)
    assert [e.span and e.span.text for e in (error, *error.others)] == SEVERAL[body]
    spans = [e.span for e in error.others] + [edit.span for e in error.others for edit in e.edits]
    assert all(span is not None and span.source.text == text for span in spans)


def test_the_text_of_an_error_names_the_next_error_and_counts_the_others() -> None:
    text = "def f(x: f32[N]):\n    y = x +* 2\n    z = softmx(x)\n    return y + w\n"
    lines = str(refusal(text)).split("\n")
    assert lines[-2:] == [
        "  = also: 3:9: there is no function `softmx`", "  = more: 1 more error; minitri explain MT0001",
    ]  # fmt: skip
    lines = str(refusal(text.replace("return y + w", "return y + w + v + u"))).split("\n")
    assert lines[-1].startswith("  = more: 3 more errors; ") and len(lines) == 7


def test_an_error_before_a_syntax_error_is_told_after_it() -> None:
    error = refusal("def f(x: f32[N]):\n    y = softmx(x)\n    return x +* 2\n")
    assert [e.span and e.span.text for e in (error, *error.others)] == ["+", "softmx"]
    assert isinstance(error, SyntaxError)


def test_names_around_a_python_function_are_known_beside_a_syntax_error() -> None:
    with pytest.raises(SyntaxError) as caught:

        @mt.jit
        def wrong(x: "f32[N]"):  # type: ignore[no-untyped-def, name-defined]
            x += 1
            return refusal(x) + softmx(x)  # type: ignore[name-defined]

    assert isinstance(caught.value, CompileError)
    assert [e.span and e.span.text for e in (caught.value, *caught.value.others)] == ["+=", "softmx"]


def test_a_mistake_is_reported_once() -> None:
    text = "def g(x):\n    return foo(x)\n\n\ndef f(x: f32[N], y: f32[M]):\n    a = foo(x)\n    return g(x), g(y), a + 1, a * 2\n"
    error = refusal(text)
    assert [e.span and e.span.start for e in (error, *error.others)] == [
        text.index("foo"),
        text.index("foo(x)\n    return"),
    ]


def test_a_mistake_in_the_library_is_reported_at_the_callers_line() -> None:
    error = refusal("def f(x: f32[M, N]):\n    return 2 * softmax(x, axis=2)\n")
    assert error.span is not None and error.span.text == "softmax(x, axis=2)"
    assert error.notes == ("in `max(x, axis=axis, keepdims=True)` at minitri/language/library/normalization.mt:3:23",)


def test_a_mistake_in_a_function_names_its_call() -> None:
    error = refusal("def g(x):\n    return sum(x, axis=2)\n\n\ndef f(x: f32[M, N]):\n    return g(x + 1)\n")
    assert error.span is not None and error.span.text == "sum(x, axis=2)"
    assert error.notes == ("called at <module>:6:12: `g(x + 1)`",)


# ---- dtypes and sizes ----------------------------------------------------------------------------------


def test_arguments_of_another_dtype_show_the_conversion() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    for value, conversion in ((np.zeros(3), "x.astype(np.float32)"), (torch.zeros(3).double(), "x.to(torch.float32)")):
        with pytest.raises(CompileError) as caught:
            f(value)
        assert conversion in caught.value.help
        f(eval(conversion, {"x": value, "np": np, "torch": torch}))


def test_the_dtype_of_an_array_is_a_value() -> None:
    assert mt.compile("zeros(M, dtype=x.dtype)", x="f16[M]").numpy(np.zeros(3, np.float16)).dtype == np.float16
    assert (
        mt.compile("astype(y, x.dtype)", x="i32[N]", y="f32[N]")
        .numpy(np.zeros(2, np.int32), np.ones(2, np.float32))
        .dtype
        == np.int32
    )
    assert mt.evaluate("1 if x.dtype == f64 else 0", x=np.zeros(3)) == 1


@pytest.mark.parametrize("text", ["1e400 * x", "1e300 * 1e300 * x", "1e39 * x", "where(x > 0, x, -1e39)"])
def test_a_literal_that_overflows_is_an_error(text: str) -> None:
    assert refusal(text, x="f32[N]").code == "MT0208"


def test_large_literals_that_fit_compile() -> None:
    assert error_of("3.4e38 * x", {"x": "f32[N]"}) is None and error_of("1e300 * x", {"x": "f64[N]"}) is None


def test_a_condition_that_shapes_do_not_decide_is_in_the_message() -> None:
    with pytest.warns(mt.ShapeWarning, match="`x \\+ b` needs K == N at every call"):
        f = mt.compile("x + b", x="f32[M, N]", b="f32[K]")
    assert f(np.ones((2, 3), np.float32), np.ones(3, np.float32)).shape == (2, 3)


# ---- pages ---------------------------------------------------------------------------------------------


def test_the_pages_are_up_to_date() -> None:
    assert (DOCS / "mistakes.md").read_text(encoding="utf-8") == corrections.mistakes_page(), (
        "python tests/documents.py"
    )
    assert (DOCS / "idioms.md").read_text(encoding="utf-8") == corrections.idioms_page(), "python tests/documents.py"
