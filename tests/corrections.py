"""Writes two pages of docs/reference/: common mistakes, and idioms of other libraries, each with the compiler's error.

    python tests/documents.py      makes both pages again

In: mistakes.toml and idioms.toml. Out: Markdown tables with the present errors. The one idea: a correction is an edit
of the source (`error.edits`). So tests/test_corrections.py can apply each correction and compile the result.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markdown_tables import code, markdown_table

import minitri as mt
from minitri.base.diagnostics import CODES, CompileError, Edit, edited

HERE = Path(__file__).parent
LIBRARIES = ("numpy", "torch", "jax")
NOTE = "<!-- Made by tests/documents.py. Do not edit. -->"


@cache
def table(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


def corrected(error: CompileError) -> str:
    """Returns the source text after the edits of the error and of the other errors.

    An edit of another error is left out if it conflicts with an earlier edit.
    """
    made = list(error.edits)
    source = made[0].span.source
    for edit in (e for other in error.others for e in other.edits if e.span.source == source):
        touched = [k for k, e in enumerate(made) if e.span.start < edit.span.end and edit.span.start < e.span.end]
        if not touched:
            made.append(edit)
        elif made[touched[0]].text.count(edit.span.text) == 1:  # the other mistake is part of what was rewritten
            around = made[touched[0]]
            made[touched[0]] = Edit(around.span, around.text.replace(edit.span.text, edit.text))
    return edited(source.text, made)


@dataclass(frozen=True)
class Mistake:
    """A program with a mistake. The caret points at `under`; `becomes` is the corrected program, or "" if the error has
    a help but no correction.
    """

    program: str
    code: str
    under: str
    becomes: str

    def error(self) -> CompileError:
        found = error_of(self.program, table("mistakes")["types"])
        assert found is not None, self.program
        return found


def mistakes() -> list[Mistake]:
    return [Mistake(*row) for row in table("mistakes")["mistakes"]]


def idioms(library: str) -> dict[str, str]:
    """The idioms of a library, and how each is written in minitri."""
    return table("idioms")[library]


def error_of(program: str, types: dict[str, str]) -> CompileError | None:
    """The error of a module, or of an expression over names of these types. None if it compiles."""
    used = {} if "def " in program else {n: types[n] for n in types if n in names_in(program)}
    try:
        with warnings.catch_warnings(action="ignore"):
            mt.compile(program, types=used)
    except CompileError as error:
        return error
    return None


def names_in(program: str) -> set[str]:
    """The names in an expression, without the names of keywords."""
    return set(re.findall(r"\b[A-Za-z_]\w*\b(?!\s*=[^=])", program))


def rewritten(program: str, types: dict[str, str]) -> str:
    """The program after the corrections of its errors, applied one after another."""
    while (error := error_of(program, types)) is not None:
        assert error.edits, (program, error)
        program = corrected(error)
    return program


# ---- pages ---------------------------------------------------------------------------------------


def mistakes_page() -> str:
    """docs/reference/mistakes.md."""
    parts = []
    for group in dict.fromkeys(m.code for m in mistakes()):
        rows = [_row(m, m.error()) for m in mistakes() if m.code == group]
        head = ("written", "the caret is under", "message", "help", "becomes")
        parts.append(f"## {group}: {CODES[group]}\n\n{markdown_table(head, rows)}")
    return f"""{NOTE}

# Mistakes and their messages

{len(mistakes())} mistakes that students make, by error code. The help says what to write. An editor can apply it: the error
has it as `error.edits`, places in the source with their new text. The last column shows the program after that.
It is empty if the help only explains.
[errors.md](errors.md) has a page for each code; `minitri explain MT0101` prints it.

{chr(10).join(parts)}"""


def _row(mistake: Mistake, error: CompileError) -> list[str]:
    old, new = mistake.program.strip("\n").split("\n"), mistake.becomes.strip("\n").split("\n")
    changes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    before = [line for tag, a, b, _, _ in changes if tag != "equal" for line in old[a:b]] or old
    after = [line for tag, _, _, a, b in changes if tag != "equal" for line in new[a:b]]
    becomes = _lines(after) if mistake.becomes else ""
    return [_lines(before), code(mistake.under.strip() or "⏎"), error.message, error.help, becomes]


def _lines(lines: list[str]) -> str:
    return "<br>".join(code(line.strip()) for line in lines if line.strip())


def idioms_page() -> str:
    """docs/reference/idioms.md."""
    parts = [f"## {library}\n\n{markdown_table(('there', 'here'), _idioms(library))}" for library in LIBRARIES]
    count = sum(len(idioms(library)) for library in LIBRARIES)
    return f"""{NOTE}

# From numpy, torch and jax

{count} idioms. The language understands some of them as they are. For each other one, the error's help is the call in the
second column, with your own arguments. [names.md](names.md) has all names of the three libraries.

{chr(10).join(parts)}"""


def _idioms(library: str) -> list[list[str]]:
    return [[code(there), "the same" if there == here else code(here)] for there, here in idioms(library).items()]
