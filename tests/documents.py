"""Keeps documents up to date: runs their code blocks and writes the present output below them.

    python tests/documents.py                    updates every block and every generated part
    python tests/documents.py docs/README.md     only those of the named documents

In: a Markdown file. Out: the same file with new outputs. tests/test_docs.py requires that an update
changes nothing. The info string of a fenced block gives its kind:

    python                   runs; later blocks see its names
    python module [FILE]     a program: it compiles, and is written to FILE for later commands
    python excerpt           is only shown
    pycon                    a session: statements after >>>, their output below
    console                  commands after $; those of `minitri` run, with their output below; others are only shown

The blocks of one document share names and a working directory. The generated parts come from
`python tests/reference.py`, tests/tracing.py, tests/opening.py and tests/serving.py. Nine pages are
generated as a whole: `renewed` lists them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import corrections
import opening
import reading_list
import reference
import reliability
import room_pages
import serving
import tracing

import minitri as mt
from minitri.base.operators import BY_SYMBOL, OPERATORS
from minitri.cli.main import main as minitri
from minitri.optimize import pass_table, simplify

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(path: Path) -> str:
    """The text of a document after the update. An exception of a block passes through."""
    if path.name == "operators.md":
        return reference.reference()
    if path.name == "reliability.md":
        return reliability.page(reliability.known())
    if path.name == "survivors.md":
        return reliability.survivors(reliability.known())
    if path.name == "reading.md":
        return reading_list.page_of_fresh_process()
    if path.name == "rooms.md":
        return room_pages.page()
    if path.name == "errors.md":
        return reference.errors()
    if path.name == "names.md":
        return reference.foreign()
    if path.name == "mistakes.md":
        return corrections.mistakes_page()
    if path.name == "idioms.md":
        return corrections.idioms_page()
    reference.PARTS |= {"tracing": tracing.known, "opening": opening.known, "serving": serving.known}
    session = Session(path.name)
    with workplace(), plain(), same_compiler():
        return BLOCK.sub(session.block, reference.filled(path.read_text(encoding="utf-8")))


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """A new working directory with the examples in it, so that blocks show the commands that a reader types."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        Path("examples").symlink_to(ROOT / "examples")
        yield


@contextlib.contextmanager
def same_compiler() -> Iterator[None]:
    """Removes the operators, rules and passes that a document adds."""
    operators, symbols, rules, passes = dict(OPERATORS), dict(BY_SYMBOL), simplify.RULES, pass_table.PASSES
    try:
        yield
    finally:
        for name in OPERATORS.keys() - operators.keys():
            del OPERATORS[name]
        for symbol in BY_SYMBOL.keys() - symbols.keys():
            del BY_SYMBOL[symbol]
        simplify.RULES, pass_table.PASSES = rules, passes


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Turns colours off for any terminal."""
    before = os.environ.get("NO_COLOR")
    os.environ["NO_COLOR"] = "1"
    try:
        yield
    finally:
        os.environ.pop("NO_COLOR")
        if before is not None:
            os.environ["NO_COLOR"] = before


@dataclass
class Session:
    """The names that the blocks of one document share. The blocks run one after another."""

    document: str
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    count: int = 0

    def block(self, match: re.Match[str]) -> str:
        """The block with its present output."""
        text = match["text"]
        match match["info"].split():
            case ["python"]:
                self.output(text, "exec")
            case ["python", "module", *files]:
                mt.compile(text)
                for file in files:
                    Path(file).write_text(text, encoding="utf-8")
            case ["pycon"]:
                text = "".join(self.examples(text))
            case ["console"]:
                text = "".join(commands(text))
        return f"```{match['info']}\n{text}```"

    def execute(self, source: str, mode: str) -> None:
        self.count += 1
        name = f"<{self.document} {self.count}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, mode, dont_inherit=True), self.names)

    def examples(self, text: str) -> Iterator[str]:
        """Each statement of a session with its output."""
        for example in doctest.DocTestParser().get_examples(text):
            lines = example.source.splitlines()
            yield "".join(f"{'...' if k else '>>>'} {line}".rstrip() + "\n" for k, line in enumerate(lines))
            try:
                yield self.output(example.source, "single")
            except Exception as error:
                if not type(error).__module__.startswith("minitri"):
                    raise  # the document is out of date
                last = "".join(traceback.format_exception_only(error))
                yield f"Traceback (most recent call last):\n    ...\n{last}"

    def output(self, source: str, mode: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.execute(source, mode)
        return trimmed(out.getvalue())


def commands(text: str) -> Iterator[str]:
    """Each command of a console block with its output: stderr if it fails, else stdout."""
    for part in filter(None, re.split(r"^(?=\$ )", text, flags=re.MULTILINE)):
        words = shlex.split(part.splitlines()[0], comments=True)[1:]
        if words[:1] != ["minitri"]:
            yield part
            continue
        blank = "\n" if part.endswith("\n\n") else ""
        yield part.splitlines()[0] + "\n" + run(words[1:]) + blank


def run(words: list[str]) -> str:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            minitri(words, prog_name="minitri")
        except SystemExit as end:
            code = end.code
        else:
            code = 0
    return trimmed(errors.getvalue() if code else out.getvalue())


def trimmed(text: str) -> str:
    """The text without blanks at the ends of lines, with exactly one newline at its end."""
    return "".join(line.rstrip() + "\n" for line in text.rstrip().splitlines())


def update(names: Sequence[str]) -> None:
    """Updates the named documents. Without names, all documents."""
    for path in [Path(name).resolve() for name in names] or documents():
        text = renewed(path)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"updated {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    update(sys.argv[1:])
