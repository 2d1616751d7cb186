"""Generates the reference: three pages of docs/reference/, and parts of other documents.

    python tests/reference.py > docs/reference/operators.md     the language's functions
    python tests/reference.py names > docs/reference/names.md   names of numpy, torch and jax, and their minitri form
    python tests/reference.py errors > docs/reference/errors.md   a section for each error code

In: the operator table, the signatures, the library, the table of minitri/language/foreign/, the error pages. Out:
Markdown. The one idea: the reference is made from the tables that the compiler uses. So a new row of a table becomes
a new line of the reference. The prose of the three pages is in operators.md.jinja, names.md.jinja and errors.md.jinja.

Structured functions have no definition in the reference, only their line in minitri/explore/completions.toml. Their
exact definitions are in numpy: minitri/language/reference_functions.py.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_tables import code, markdown_table

from minitri.base.diagnostics import CODES, render
from minitri.base.operators import ALIASES, OPERATORS, Operator
from minitri.base.types import DTYPES, promote
from minitri.errors.pages import PAGES, Example, joined, python_names
from minitri.explore.completions import MEANINGS, written
from minitri.language.foreign.names import LIBRARIES, Foreign, table
from minitri.language.signatures import (
    FUNCTION_ALIASES,
    KEYWORD_ALIASES,
    SIGNATURES,
    described,
    library_function,
    library_spans,
)
from minitri.optimize import pass_table
from minitri.pipeline import CORE

KINDS = {"b": "bool", "i": "signed", "u": "unsigned", "f": "float"}
OPERANDS = {"same": "", "float": "as floats", "bool": "as bool", "where": "bool, then any"}

GROUPS = {
    "MT00": "Text", "MT01": "Names and calls", "MT02": "Types and shapes", "MT03": "Calling a program",
    "MT04": "Limits, targets and options", "MT05": "Stages read from text",
}  # fmt: skip
"""The sections of the page of errors, by the first characters of their codes."""
SHORT = {"array": "`numpy.ndarray`", "tensor": "`torch.Tensor`", "F": "`torch.nn.functional`", "nn": "`jax.nn`"}


def _page(template: str, **parts: Any) -> str:
    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True).get_template(template).render(parts)


def reference() -> str:
    """docs/reference/operators.md."""
    parts = (operators, computed, functions, definitions, others)
    return _page("operators.md.jinja", **{part.__name__: part() for part in parts})


def foreign() -> str:
    """docs/reference/names.md: names of other libraries."""
    return _page("names.md.jinja", count=f"{len({row.name for row in table()}):,}", instead=_instead(), here=_here(),
                 noted=[row for row in table() if row.here and row.note], missing=_missing())  # fmt: skip


def errors() -> str:
    """docs/reference/errors.md: a section for each error code."""
    codes = {title: [code for code in CODES if code.startswith(group)] for group, title in GROUPS.items()}
    return _page("errors.md.jinja", groups=[(title, map(_section, own)) for title, own in codes.items()])


# ---- operators ---------------------------------------------------------------------------


def operators() -> str:
    head = ("name", "written", "takes", "operands", "result", "meaning")
    return markdown_table(head, map(_operator, OPERATORS.values()))


def _operator(row: Operator) -> list[str]:
    takes = "anything" if row.accepts == "biuf" else ", ".join(KINDS[k] for k in row.accepts)
    result = "bool" if row.result == "bool" else ""
    return [code(row.name), code(written(row)), takes, OPERANDS[row.operands], result, row.doc]


def computed() -> str:
    return markdown_table(("name", "Triton", "ulp", "derivative"), map(_computed, OPERATORS.values()))


def _computed(row: Operator) -> list[str]:
    derivative = ", ".join(code(d) or "-" for d in row.derivative)
    return [code(row.name), _spellings(row), f"{row.ulp:g}", derivative]


def _spellings(row: Operator) -> str:
    if isinstance(row.triton, str):
        return code(row.triton)
    return "; ".join(f"{kinds}: {code(text)}" for kinds, text in row.triton.items())


# ---- functions ---------------------------------------------------------------------------


def functions() -> str:
    rows = ((described(name, signature), MEANINGS[name]) for name, signature in SIGNATURES.items())
    return markdown_table(("function", "meaning"), rows)


def definitions() -> str:
    """The source of the library, one block for each file."""
    blocks: list[str] = []
    for source, group in groupby(map(library_function, library_spans()), key=lambda f: f.span.source):
        names = ", ".join(code(f.name) for f in group)
        blocks.append(f"{names} (`{source.name}`)\n\n```python module\n{source.text.strip()}\n```\n")
    return "\n".join(blocks)


def others() -> str:
    pairs = sorted({**ALIASES, **FUNCTION_ALIASES}.items())
    names = markdown_table(("name", "means"), ((code(a), code(b)) for a, b in pairs))
    keywords = markdown_table(("keyword", "means"), ((code(a), code(b)) for a, b in sorted(KEYWORD_ALIASES.items())))
    return f"{names}\n{keywords}"


# ---- names of other libraries -----------------------------------------------------------


def _instead() -> str:
    rows = [row for row in table() if row.instead and not row.here]
    cells = ((code(row.spelling), _of(row), code(row.instead), row.note) for row in rows)
    return markdown_table(("name", "of", "write", "note"), cells)


def _of(row: Foreign) -> str:
    return ", ".join(SHORT.get(library, LIBRARIES[library]) for library in row.libraries)


def _here() -> Iterator[tuple[str, str]]:
    """Each library with the names that minitri has, too."""
    for key, title in LIBRARIES.items():
        if found := [row for row in table() if row.here and key in row.libraries]:
            yield title, _list(found)


def _missing() -> Iterator[tuple[str, str]]:
    """Each reason with the names that are missing for it."""
    for reason in sorted({row.reason for row in table() if row.reason}, key=str.lower):
        rows = [row for row in table() if row.reason == reason]
        whole = [f"all of {LIBRARIES[library]}; " for row in rows if row.name == "*" for library in row.libraries]
        yield reason, "".join(whole) + _list([row for row in rows if row.name != "*"])


def _list(rows: list[Foreign]) -> str:
    return ", ".join(dict.fromkeys(code(row.name) for row in rows))


# ---- errors ------------------------------------------------------------------------------


def _section(code: str) -> str:
    page = PAGES[code]
    wrong, right, related = page.wrong, page.right, ", ".join(f"[{c}](#{c.lower()})" for c in page.related)
    parts = [
        f"### {code}",
        f"*{CODES[code][0].upper()}{CODES[code][1:]}.* {joined(page.meaning)}",
        python_names(code, "`"),
        *((_block(wrong), f"```text\n{render(wrong.error())}\n```") if wrong else ()),
        joined(page.advice),
        _block(right) if right else "",
        f"See also {related}." if related else "",
    ]
    return "\n\n".join(filter(None, parts))


def _block(example: Example) -> str:
    return f"```python excerpt\n{example.shown()}\n```"


# ---- parts of other documents --------------------------------------------------------------


def promotion() -> str:
    """The promotion of each pair of dtypes."""
    rows = ([code(a.name), *(promote(a, b).name for b in DTYPES.values())] for a in DTYPES.values())
    return markdown_table(("", *map(code, DTYPES)), rows)


def codes() -> str:
    """Every error code."""
    return markdown_table(("code", "problem"), ((code(c), text) for c, text in CODES.items()))


def passes() -> str:
    """The passes of the pipeline in order, then the optimisations that happen inside other passes.

    A pass of `-O0` alone comes after the last pass that makes the same stage with optimisations.
    """
    plain = {p.name: p.stage for p in CORE}
    alone = {p.stage: p for p in CORE if p.name not in {q.name for q in pass_table.PASSES}}
    found: list[tuple[str, str, str, str]] = []
    for p in pass_table.PASSES:
        runs = "always" if p.name in plain else "by default"
        stages = dict.fromkeys((p.stage, plain.get(p.name, p.stage)))
        found.append((p.name, "; with `-O0` ".join(map(code, stages)), runs, p.function.__module__))
        if p.stage in alone:
            only = alone[p.stage]
            found.append((only.name, code(only.stage), "with `-O0` only", only.function.__module__))
    found += [(part.name, code(part.stage), "by default", part.module) for part in pass_table.PARTS]
    rows = ((code(name), stage, runs, code(module.removeprefix("minitri."))) for name, stage, runs, module in found)
    return markdown_table(("pass", "makes the stage", "runs", "file"), rows)


def grammar(of: str) -> str:
    """The grammar of an IR: the first indented block of its module's docstring."""
    docstring = inspect.getdoc(importlib.import_module(f"minitri.{of}")) or ""
    block = re.search(r"^(?:    .*\n|\n(?=    ))+", docstring, re.MULTILINE)
    assert block is not None, of
    return f"```text\n{textwrap.dedent(block[0]).strip()}\n```\n"


def definition(name: str) -> str:
    """The source of a library function."""
    return f"```python module\ndef {library_function(name).span.text}\n```\n"


PARTS: dict[str, Callable[..., str]] = {part.__name__: part for part in (promotion, codes, passes, grammar, definition)}
"""Generated parts of documents, each between `<!-- generated: NAME ... -->` and `<!-- end -->`."""


_PART = re.compile(r"^(<!-- generated: ([^\n]*) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def filled(text: str) -> str:
    """A document with its generated parts updated."""

    def part(found: re.Match[str]) -> str:
        name, *rest = found[2].split()
        return f"{found[1]}\n{PARTS[name](*rest)}\n{found[3]}"

    return _PART.sub(part, text)


def main(arguments: Sequence[str]) -> None:
    """Prints the reference or the page `errors` or `names`; or updates the generated parts of the given files."""
    pages = {(): reference, ("errors",): errors, ("names",): foreign}
    if page := pages.get(tuple(arguments)):
        sys.stdout.write(page())
        return
    for name in arguments:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
