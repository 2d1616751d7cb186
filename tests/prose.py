"""Finds long sentences, and terms that the glossary says not to use, in docs and docstrings.

    python tests/prose.py                    counts for each file, and the worst sentences
    python tests/prose.py --list             every finding as file:line
    python tests/prose.py --longest 25 PATH  another limit, some files or folders only

In: README.md, the documents in docs/ and the docstrings of minitri/ and tests/. Out: findings. A sentence is too
long if it has more than 35 words. The terms not to use are a table of docs/reference/glossary.md.

Left out are code blocks, quotes, tables, generated pages and generated parts of pages. markdown-it
finds these blocks. A docstring is read as Markdown too; its indented examples are code blocks. Code
between backticks counts as one word.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from minitri.base.text_tables import table

ROOT = Path(__file__).parent.parent
ALL = (ROOT / "README.md", ROOT / "docs", ROOT / "minitri", ROOT / "tests")
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
LONGEST = 35
BLANK = "\N{NO-BREAK SPACE}"  # inside code, so that code is one word
GENERATED_PAGE = re.compile(r"<!-- (Made|Generated) by .* Do not edit\. -->")
GENERATED_PART = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
ROW = re.compile(r"(?P<name>\S+(?: \S+)*?) {2,}(?=\S)")  # `name    what it is`, in a docstring
END = re.compile(r"[.!?]+[\"')\]”’]*[ \n]+")
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|Fig|Sec|approx|[A-Z]))\.$")
UNFINISHED = re.compile(r"(?:\.\.\.|\betc\.)$")  # ends a sentence only if a capital letter follows


@dataclass(frozen=True)
class Sentence:
    """`line` is counted from 1 in the file. Code inside `text` has its backticks."""

    path: str
    line: int
    text: str

    @property
    def words(self) -> int:
        return sum(any(c.isalnum() or c == "`" for c in w) for w in re.split("[ \n]+", self.text))


@dataclass(frozen=True)
class Term:
    """A row of the glossary's table of terms not to use.

    Example: `lanes` may stand beside `warp`. The term is then no finding in a sentence with that word.
    """

    phrases: tuple[str, ...]
    instead: str
    beside: tuple[str, ...]

    def found(self, prose: str) -> str | None:
        """The phrase that a sentence without code uses, or None."""
        if any(has_phrase(prose, word) for word in self.beside):
            return None
        return next((p for p in self.phrases if has_phrase(prose, p)), None)


@dataclass(frozen=True)
class Finding:
    sentence: Sentence
    message: str

    def __str__(self) -> str:
        return f"{self.sentence.path}:{self.sentence.line}: {self.message}"


# ---- sentences ---------------------------------------------------------------------------


def split_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each sentence of a paragraph with its offset.

    Example: "One. See e.g. two." has two sentences. A period ends a sentence if white space follows,
    but not after an abbreviation. An ellipsis ends one only before a capital letter.
    """
    begin = 0
    for match in END.finditer(text):
        before, after = text[: match.end()].rstrip(), text[match.end() :]
        if ABBREVIATION.search(before) or (UNFINISHED.search(before) and not after[:1].isupper()):
            continue
        yield begin, before[begin:]
        begin = match.end()
    if text[begin:].strip():
        yield begin, text[begin:].rstrip()


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """The first line (from 0) and the text of each paragraph, list item and heading of Markdown."""
    hidden = 0  # how many tables and quotes the token is in
    for token in MarkdownIt().enable("table").parse(markdown):
        if token.type in ("table_open", "blockquote_open", "table_close", "blockquote_close"):
            hidden += token.nesting
        elif token.type == "inline" and token.map and not hidden:
            yield token.map[0], "".join(map(shown, token.children or ()))


def shown(token: Token) -> str:
    """The text of an inline token: code keeps its backticks and has no blanks."""
    match token.type:
        case "text":
            return token.content
        case "code_inline":
            return f"`{token.content.replace(' ', BLANK)}`"
        case "softbreak" | "hardbreak":
            return "\n"
        case _:
            return ""


def sentences_of_markdown(path: str, markdown: str, line: int = 1) -> Iterator[Sentence]:
    """The sentences of Markdown whose first line is `line` of a file."""
    for first, text in paragraphs(markdown):
        for offset, sentence in split_sentences(text):
            yield Sentence(path, line + first + text.count("\n", 0, offset), sentence)


def sentences_of_document(path: Path) -> Iterator[Sentence]:
    text = path.read_text(encoding="utf-8")
    if not GENERATED_PAGE.search(text):
        text = GENERATED_PART.sub(lambda m: "\n" * m[0].count("\n"), text)
        yield from sentences_of_markdown(name_of(path), text)


def sentences_of_module(path: Path) -> Iterator[Sentence]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if text := ast.get_docstring(node, clean=False):
                line = node.body[0].lineno + len(text) - len(text.lstrip("\n"))
                yield from sentences_of_markdown(name_of(path), items(inspect.cleandoc(text)), line)


def items(docstring: str) -> str:
    """The docstring as Markdown: its rows are items of a list, its examples are blank lines.

    A row is `name    what it is`. An example is indented by four blanks below a paragraph.
    """
    lines: list[str] = []
    example_may_follow = True
    for line in docstring.splitlines(True):
        if ROW.match(line):
            line = ROW.sub("- ", line, count=1)
        if line.startswith("    ") and example_may_follow:
            line = "\n"
        elif not line.startswith(" ") and line.strip():
            example_may_follow = not line.startswith("- ")
        lines.append(line)
    return "".join(lines)


def name_of(path: Path) -> str:
    return str(path.resolve().relative_to(ROOT.resolve()))


# ---- words not to use --------------------------------------------------------------------


def terms(glossary: str) -> list[Term]:
    """The rows of the table below "Do not use". Phrases of one row are separated by commas."""
    section = glossary.partition("\n## Do not use\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in (*row, "", "")][:3] for row in rows[2:]]
    return [Term(listed(phrases), instead, listed(beside)) for phrases, instead, beside in cells]


def listed(cell: str) -> tuple[str, ...]:
    return tuple(p.strip() for p in cell.split(",") if p.strip())


@cache
def pattern(phrase: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, phrase.split()))
    return re.compile(rf"(?<![\w-]){words}(?![\w-])", re.IGNORECASE)


def has_phrase(text: str, phrase: str) -> bool:
    return pattern(phrase).search(text) is not None


def without_code(text: str) -> str:
    return re.sub("`[^`]*`", "``", text)


# ---- findings ----------------------------------------------------------------------------


def sources(paths: Iterable[Path]) -> Iterator[Path]:
    """The files, and the documents and modules in the folders."""
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.suffix in (".md", ".py") and "node_modules" not in p.parts)
        yield from files if path.is_dir() else [path]


def sentences(paths: Iterable[Path]) -> Iterator[Sentence]:
    for path in paths:
        yield from (sentences_of_module if path.suffix == ".py" else sentences_of_document)(path)


def long_sentences(found: Iterable[Sentence], longest: int = LONGEST) -> list[Finding]:
    """The findings for each sentence with more than `longest` words, the longest first."""
    long = sorted((s for s in found if s.words > longest), key=lambda s: -s.words)
    return [Finding(s, f"{s.words} words: {' '.join(s.text.split())}") for s in long]


def words_not_to_use(found: Iterable[Sentence], listed: Iterable[Term]) -> list[Finding]:
    rows = list(listed)
    return [
        Finding(s, f"`{phrase}`: write {row.instead}")
        for s in found
        for row in rows
        if (phrase := row.found(without_code(s.text)))
    ]


def counts(long: list[Finding], words: list[Finding]) -> str:
    """A table: findings of each file, the file with the most first."""
    both = {f.sentence.path: [0, 0] for f in (*long, *words)}
    for column, found in enumerate((long, words)):
        for finding in found:
            both[finding.sentence.path][column] += 1
    rows = sorted(((str(a), str(b), path) for path, (a, b) in both.items()), key=lambda r: (-int(r[0]) - int(r[1]), r))
    total = (str(len(long)), str(len(words)), "all")
    return table([("long", "words", "file"), *rows, total], left=(2,))


def main() -> None:
    parser = argparse.ArgumentParser(description="Long sentences, and words that the glossary says not to use.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: all)")
    parser.add_argument("--longest", type=int, default=LONGEST, metavar="WORDS", help="words that a sentence may have")
    parser.add_argument("--list", action="store_true", help="every finding with its file and line")
    given = parser.parse_args()
    found = list(sentences(sources(given.paths or ALL)))
    long = long_sentences(found, given.longest)
    words = words_not_to_use(found, terms(GLOSSARY.read_text(encoding="utf-8")))
    if given.list:
        print("\n".join(map(str, (*long, *words))))
    else:
        print(counts(long, words), *map(str, long[:10]), sep="\n")


if __name__ == "__main__":
    main()
