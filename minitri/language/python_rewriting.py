"""Python that the language does not have, rewritten in the language with the program's own names.

    y += a + b                 y = y + (a + b)
    x[x < 0] = 0               x = where(x < 0, 0, x)
    0 < x and not done         logical_and(0 < x, logical_not(done))
    [2 * a for a in x]         2 * x

In: a place in a source that the parser refused. Out: the place to replace and its new text, or None. The one idea: the
parser stops at the first wrong token, so there is no tree of the language yet. These functions find the line, or the
expression around the token; rewriting.py reads and rewrites it. Left out: loops, and other statements of several lines
than `if`.
"""

from __future__ import annotations

import ast as python
import re
from collections.abc import Iterator
from textwrap import dedent, indent

from minitri.base.diagnostics import Edit
from minitri.base.spans import Source, Span
from minitri.language.rewriting import LONGEST, is_operand, parsed, rewritten, rules, substituted

_STOP = re.compile(r"\breturn\b|(?<![=<>!])=(?!=)|[,\n#]")


def statement(place: Span) -> Edit | None:
    """The line of the place, rewritten; of an `if`, all its lines. A line without effect becomes an empty one."""
    source = place.source
    start = source.text.rfind("\n", 0, place.start) + 1
    lines = source.text[start : place.end + LONGEST].split("\n")
    block = "\n".join([lines[0], *_branches(lines)])
    margin = block[: len(block) - len(block.lstrip())]
    text = dedent(block).strip()
    match parsed(text):
        case None:
            return None
        case python.Import() | python.ImportFrom() | python.Global() | python.Nonlocal() | python.Assert():
            made = ""
        case python.Delete() | python.Call(func=python.Name(id="print")):
            made = ""
        case node:
            made = rewritten(node, text, rules("statements"))
    if made and re.search(r"^[ \t]*def\b", source.text, re.MULTILINE) is None:
        made = made.partition(" = ")[2]  # an expression has no assignments
    here = _stripped(source, start, start + len(block))
    return None if made is None else Edit(here, indent(made, margin).lstrip())


def _branches(lines: list[str]) -> Iterator[str]:
    """The further lines of an `if`: what is indented more, and its `else`."""
    first = lines[0].lstrip()
    indent = len(lines[0]) - len(first)
    for line in lines[1:] if first.startswith("if ") else ():
        here = len(line) - len(line.lstrip())
        if not (here > indent or (here == indent and line.lstrip().startswith("else"))):
            return
        yield line


def expression(place: Span, python_words: tuple[tuple[str, str], ...] = ()) -> Edit | None:
    """The expression around the place, without `and`, `or`, `not`, `is` and `in`.

    `python_words` are what other languages write for them, and these: ("&&", " and ").
    """
    here = _stripped(
        place.source, _around(place.source.text, place.start, -1), _around(place.source.text, place.end, +1)
    )
    text = here.text
    for other, word in python_words:
        text = text.replace(other, word)
    text = text.strip()
    made = rewritten(parsed(text), text, rules("expressions"))
    return Edit(here, made) if made else None


def comprehension(place: Span) -> Edit | None:
    """`[2 * a for a in x]` → `2 * x`. `place` is the word `for`."""
    source = place.source
    here = _stripped(source, _around(source.text, place.start, -1), _around(source.text, place.end, +1))
    text = f"({here.text})"
    match parsed(text):
        case python.GeneratorExp(
            elt=each, generators=[python.comprehension(target=python.Name(id=name), iter=over, ifs=[])]
        ):
            each, over = (python.get_source_segment(text, part) or "" for part in (each, over))
            made = substituted(each, {name: over})
        case _:
            return None
    start, end = here.start - 1, here.end + 1
    if source.text[start:end] != f"[{here.text}]":
        return Edit(here, made)
    before = re.search(r"(^|[(,=]|\breturn)\s*$", source.text[:start])
    alone = before is not None and source.text[end:].lstrip(" ")[:1] in ("", "\n", ")", ",")
    return Edit(Span(source, start, end), made if alone or is_operand(made) else f"({made})")


def update(place: Span) -> Edit | None:
    """jax's `x.at[x < 0].set(0)` → `where(x < 0, 0, x)`. `place` is `x.at`."""
    text = place.source.text[place.start : place.start + LONGEST]
    ends = (match.end() for match in re.compile(r"\)").finditer(text, len(place.text)))
    tree, end = next(((t, e) for e in ends if (t := parsed(text[:e])) is not None), (None, 0))
    made = rewritten(tree, text, rules("updates"))
    return Edit(Span(place.source, place.start, place.start + end), made) if made else None


def _around(text: str, at: int, step: int) -> int:
    """Where the expression around a place begins (step -1) or ends (+1): at a bracket, a comma, a `=` or a line end."""
    opening, closing = ("([{", ")]}") if step > 0 else (")]}", "([{")
    depth = 0
    stops = {k for m in _STOP.finditer(text, max(at - LONGEST, 0), at + LONGEST) for k in range(m.start(), m.end())}
    k = at if step > 0 else at - 1
    while 0 <= k < len(text) and abs(k - at) < LONGEST:
        if depth == 0 and (text[k] in closing or k in stops):
            break
        depth += (text[k] in opening) - (text[k] in closing)
        k += step
    return k if step > 0 else k + 1


def _stripped(source: Source, start: int, end: int) -> Span:
    text = source.text[start:end]
    return Span(source, start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip()))
