"""The documents are up to date: blocks run, outputs are the present ones, links have a target, examples work.

tests/documents.py describes blocks and runs them. If a document is out of date:

    python tests/documents.py
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pictures
import pytest
import reference
from browser import Browser

pytest.importorskip("triton")
from documents import BLOCK, ROOT, Session, documents, renewed, same_compiler
from short_profile import slow_except

import minitri as mt
from minitri.base.diagnostics import CODES
from minitri.base.operators import OPERATORS
from minitri.base.types import DTYPES
from minitri.explore.completions import MEANINGS, TABLE, completions
from minitri.graph.unknown_names import ATTRIBUTES, function_names
from minitri.language.ast import CONSTANTS
from minitri.language.signatures import SIGNATURES, library_spans
from minitri.tiles.text import program_lines

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return FENCED.sub("", read(path))


@pytest.mark.parametrize("path", documents(), ids=named)
def test_every_block_runs_and_shows_its_output(path: Path) -> None:
    now, then = renewed(path).splitlines(), read(path).splitlines()
    changes = "\n".join(difflib.unified_diff(then, now, "as written", "as it is", lineterm="", n=1))
    assert not changes, f"{named(path)} is out of date; run `python tests/documents.py`\n{changes}"


# ---- links and names ---------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links() -> Iterator[tuple[Path, str]]:
    for path in documents():
        for target in LINK.findall(prose(path)):
            if "://" not in target:
                yield path, target


@pytest.mark.parametrize(("path", "target"), list(links()), ids=lambda value: str(getattr(value, "name", value)))
def test_links_have_a_target(path: Path, target: str) -> None:
    file, _, anchor = target.partition("#")
    place = (path.parent / file).resolve() if file else path
    assert place.exists(), f"{named(path)} links to {target}"
    assert not anchor or anchor in anchors(place), f"{named(path)} links to {target}; there is {sorted(anchors(place))}"


@pytest.mark.parametrize("path", documents(), ids=named)
def test_files_that_are_named_exist(path: Path) -> None:
    names = re.findall(r"`((?:minitri|examples|tests|docs)/[\w./]*)`", prose(path))
    missing = [name for name in names if not (ROOT / name).exists()]
    assert not missing, f"{named(path)} names {missing}"


def test_documents_that_code_names_exist() -> None:
    files = [path for folder in ("minitri", "tests", "examples") for path in (ROOT / folder).rglob("*.py")]
    names = {(named(path), name) for path in files for name in re.findall(r"\bdocs/[\w/]+\.\w+", read(path))}
    assert sorted((path, name) for path, name in names if not (ROOT / name).exists()) == []


def test_the_index_lists_every_document() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target in LINK.findall(read(index))}
    assert [named(path) for path in (ROOT / "docs").rglob("*.md") if path not in {*listed, index}] == []


@pytest.mark.parametrize("document, sections", pictures.SHOWN.items(), ids=list(pictures.SHOWN))
def test_sections_about_the_screen_have_a_picture(document: str, sections: list[str]) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)}
    assert [s for s in sections if not re.search(r"!\[[^\]]+\]\([\w/]*\.png\)", parts[s])] == []


def test_a_script_makes_every_picture() -> None:
    assert {p.stem for p in (ROOT / "docs" / "learn").glob("*.png")} == set(pictures.PICTURES)


QUICK = ("walk", "passes", "player", "notebook")


@pytest.mark.parametrize("name", slow_except(QUICK, pictures.STABLE))
def test_a_picture_shows_the_text_that_its_page_has_now(tab: Browser, name: str) -> None:
    hashes = pictures.known()
    if hashes["triton"] != version("triton"):
        pytest.skip("another version of Triton makes other machine code")
    with pictures.SERVERS:
        pictures.PICTURES[name](tab)
        assert pictures.text_hash(tab) == hashes[name], f"python tests/pictures.py {name}"


def test_the_readme_shows_every_part_of_the_package() -> None:
    (tree,) = re.findall(r"^```text\n(minitri/\n.*?)^```$", read(ROOT / "README.md"), re.MULTILINE | re.DOTALL)
    shown = set(re.findall(r"\b[a-z_]+(?:\.py|/)", tree.removeprefix("minitri/")))
    there = {p.name + "/" * p.is_dir() for p in (ROOT / "minitri").iterdir() if not p.name.startswith(("_", "."))}
    assert shown <= there
    assert {name for name in there - shown if name.endswith("/")} == set()


def test_every_name_has_a_meaning() -> None:
    names = {"function": {*SIGNATURES, *library_spans()}, "type": {*DTYPES}, "constant": {*CONSTANTS, "newaxis"}}
    names |= {"attribute": {*ATTRIBUTES}, "keyword": {*TABLE["keyword"]}}
    assert {kind: {*rows, *(MEANINGS if kind == "function" else ())} for kind, rows in TABLE.items()} == names
    assert {row["name"] for row in completions() if row["kind"] == "function"} == set(function_names())


def test_every_operator_and_code_is_listed() -> None:
    operators, codes = (
        read(ROOT / "docs" / "reference" / "operators.md"),
        read(ROOT / "docs" / "reference" / "language.md"),
    )
    assert all(f"| `{name}` |" in operators for name in OPERATORS)
    assert all(f"| `{code}` |" in codes for code in CODES)


# ---- the readme's operator ---------------------------------------------------------------


@pytest.fixture
def cbrt() -> Iterator[str]:
    """The operator of the README, registered as the README does it, and removed afterwards."""
    blocks = [m["text"] for m in BLOCK.finditer(read(ROOT / "README.md")) if "register(Operator(" in m["text"]]
    assert len(blocks) == 1
    with same_compiler():
        Session("README.md", {"np": np}).execute(blocks[0], "exec")
        yield "cbrt"
    assert "cbrt" not in OPERATORS


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i32"])
def test_the_operator_of_the_readme_works_at_every_stage(cbrt: str, dtype: str) -> None:
    program = mt.compile("sum(cbrt(x * 2), axis=1)", x=f"{dtype}[M, N]")
    x = np.random.default_rng(0).integers(-50, 50, (5, 13)).astype(DTYPES[dtype].numpy)
    report = program.check(x)
    assert report.ok, str(report)
    expected = np.cbrt(x.astype(np.float64) * 2).sum(axis=1)
    found = np.asarray(program(x), np.float64)
    assert np.allclose(found, expected, rtol={"bf16": 1e-2, "f16": 2e-3}.get(dtype, 1e-5), atol=1e-3)
    assert "libdevice.cbrt" in program.lower()["triton"]


def test_the_operator_of_the_readme_compiles_and_is_documented(cbrt: str) -> None:
    low = mt.compile("cbrt(x)", x="f32[N]").lower(target="cuda:90")
    assert "st.global" in low["ptx"]
    assert "| `cbrt` |" in reference.reference()
    with pytest.raises(mt.CompileError, match="did you mean `cbrt`"):
        mt.compile("cbtr(x)", x="f32[N]")


def test_a_removed_operator_is_unknown() -> None:
    with pytest.raises(mt.CompileError, match="there is no function `cbrt`"):
        mt.compile("cbrt(x)", x="f32[N]")


# ---- constructs that the language lacks --------------------------------------------------


def refused() -> list[tuple[str, str]]:
    """The rows of the table in docs/reference/language.md: each Python text, and what to write instead."""
    text = read(ROOT / "docs" / "reference" / "language.md")
    section = text[text.index("## What Python has") :]
    rows = re.findall(r"^\| (`.*`) \| (`.*`) \|$", section[: section.index("Also without")], re.MULTILINE)
    cells = [(_codes(left), _codes(right)) for left, right in rows]
    return [(python, right[k if len(right) > 1 else 0]) for left, right in cells for k, python in enumerate(left)]


def _codes(cell: str) -> list[str]:
    return [text.replace("\\|", "|") for text in re.findall(r"`([^`]+)`", cell)]


def _compiled(text: str) -> mt.Program:
    head = "def f(x: f32[N], y: f32[N], p: bool[N], q: bool[N]):\n"
    statement = re.match(r"(if|for)\b|\S+ (\+=|=) ", text)
    body = f"    {text}\n    return x\n" if statement else f"    return {text}\n"
    return mt.compile(head + body)


def test_the_table_of_missing_constructs_is_read() -> None:
    assert len(refused()) >= 18


@pytest.mark.parametrize(("python", "instead"), refused())
def test_missing_constructs_are_refused_and_their_replacements_work(python: str, instead: str) -> None:
    with pytest.raises(mt.CompileError) as caught:
        _compiled(python)
    assert caught.value.span is not None
    _compiled(instead)


# ---- errors that the documents have shown ------------------------------------------------


def test_calls_of_functions_have_a_limit() -> None:
    """docs/reference/language.md: calls nest up to 100 deep. More is a diagnostic, not Python's RecursionError."""

    def chain(n: int) -> str:
        steps = "".join(f"def f{k}(x):\n    return f{k - 1}(x)\n" for k in range(1, n))
        return f"def f0(x: f32[N]):\n    return x + 1\n{steps}def g(x: f32[N]):\n    return f{n - 1}(x)\n"

    assert mt.compile(chain(99))(np.ones(2, np.float32)).tolist() == [2, 2]
    with pytest.raises(mt.CompileError) as caught:
        mt.compile(chain(400))
    assert caught.value.code == "MT0401"


def test_every_op_of_a_tile_program_occurs_once() -> None:
    """A regression: a load in two loops was one op in two places, and the text had two values of one name."""
    low = mt.compile("x / sum(x * x, axis=1, keepdims=True)", x="f32[M, N]").lower()
    for program in low.compilation.value("tile"):
        made = [m[1] for text, _ in program_lines(program) if (m := re.match(r" *(%\d+):", text))]
        assert len(made) == len(set(made))
        ops = list(program.ops())
        assert len(ops) == len(set(ops))


def test_messages_name_only_sizes_that_are_plain_symbols() -> None:
    """A regression: a message said `2*(N = 7//2)`."""
    with pytest.raises(mt.CompileError) as caught:
        mt.compile("reshape(x, (2, N // 2))", x="f32[N]")(np.zeros(7, np.float32))
    assert caught.value.message == "cannot reshape f32[N = 7] to [2, N//2]: N = 7 elements are not 2*(N//2)"
