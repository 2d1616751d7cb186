"""Rewrites code by rules such as `x and y` → `logical_and(x, y)`, with the program's own names.

    rule        name += y              program    total += a + b        total = total + (a + b)
    rule        x[mask] = y            program    x[x < 0] = 0          x = where(x < 0, 0, x)
    template    mean(x, axis=axis)     call       np.average(x + 1, 0)  mean(x + 1, axis=0)

In: a text, and rules from rewriting.toml; or a template and the arguments of a call. Out: the text to write, or None if
no rule fits. The one idea: both sides of a rule are code. Python's parser reads the left side and the program, because it
reads what the grammar of the language refuses. Nothing is executed. In the left side, a name of one letter stands for any
expression, `name` for a name, `mask` for a comparison, `place` for a number such as 3, and `index` for a single index.

A template's names are replaced by code. An operand of several parts gets parentheses if an operator would tear it apart.
"""

from __future__ import annotations

import ast as python
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, Edit
from minitri.base.spans import Span
from minitri.base.types import DTYPES
from minitri.language.foreign.names import Foreign

LONGEST = 400  # characters that are handed to Python's parser
Rules = Sequence[tuple[python.AST, str]]
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!=(?!=)|\s*\()")


# ---- rules ---------------------------------------------------------------------------------------


@cache
def rules(section: str) -> Rules:
    """The patterns and templates of a section of rewriting.toml."""
    table = dict(sections()[section])
    pairs = list(product(table.pop("signs", [""]), repeat=2))
    written = {left.format(*signs): right.format(*signs) for left, right in table.items() for signs in pairs}
    return [(parsed(left), right) for left, right in written.items()]


@cache
def sections() -> Mapping[str, Mapping[str, Any]]:
    """The sections of rewriting.toml, by title."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def corrected_expression(error: CompileError, place: Span) -> Edit | None:
    """The edit of an expression for which rewriting.toml has a section with the beginning of the error as its title."""
    text = f"({place.text})"
    node = parsed(text)
    for section in sections():
        if re.match(section, f"{error.code} {error.message}") and (made := rewritten(node, text, rules(section))):
            code = python.get_source_segment(text, node) or ""  # without the brackets around it
            start = place.start + text.index(code) - 1
            return Edit(Span(place.source, start, start + len(code)), made)
    return None


def rewritten(node: python.AST | None, text: str, by: Rules) -> str | None:
    """The code for a node of Python's tree of `text`, by the first rule that fits."""
    if isinstance(node, python.BoolOp) and len(node.values) > 2:
        node = python.BoolOp(node.op, [python.BoolOp(node.op, node.values[:-1]), node.values[-1]])
    for pattern, template in by:
        parts: dict[str, str] = {}
        if _fits(pattern, node, text, parts):
            return substituted(template, parts)
    return None


def _fits(pattern: Any, node: Any, text: str, parts: dict[str, str]) -> bool:
    """Whether a node has the form of a pattern. Adds the code for each placeholder to `parts`."""
    if isinstance(pattern, python.Name) and _is_placeholder(pattern.id, node):
        code = rewritten(node, text, rules("expressions")) or python.get_source_segment(text, node) or ""
        return parts.setdefault(pattern.id, code) == code
    if isinstance(pattern, list):
        return len(pattern) == len(node) and all(_fits(p, n, text, parts) for p, n in zip(pattern, node))
    if isinstance(pattern, python.AST):
        fields = pattern._fields if type(pattern) is type(node) else None
        return fields is not None and all(_fits(getattr(pattern, f), getattr(node, f), text, parts) for f in fields)
    return pattern == node


def _is_placeholder(name: str, node: Any) -> bool:
    """Whether a name in a pattern stands for this node."""
    match name, node:
        case "name", python.Name():
            return True
        case "mask", python.Compare() | python.BinOp(op=python.BitAnd() | python.BitOr()):
            return True
        case "place", python.Constant(value=int(place)):
            return place >= 0
        case "index", python.expr():
            return not isinstance(node, python.Tuple)
        case _:
            return len(name) == 1 and isinstance(node, python.expr)


def parsed(text: str) -> Any:
    """Python's tree of an expression or a statement; None if a text is no Python, or is too long."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = python.parse(text if len(text) <= LONGEST else "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) != 1:
        return None
    return body[0].value if isinstance(body[0], python.Expr) else body[0]


# ---- templates -----------------------------------------------------------------------------------


def rewritten_call(row: Foreign, args: Sequence[str], keywords: Mapping[str, str]) -> str:
    """What to write for a call of another library's function, or "" where the row asks for an argument that is missing."""
    given = ", ".join([*args, *(f"{name}={text}" for name, text in keywords.items())])
    if row.instead in DTYPES:
        return f"astype({given}, {row.instead})" if given else ""
    if not row.arguments:
        return f"{row.instead}({given})" if row.instead.isidentifier() else ""
    values = row.bound(args, keywords)
    return "" if values is None else substituted(row.instead, values)


def substituted(template: str, values: Mapping[str, str]) -> str:
    """The template with its names replaced. `*rest` stands for any number of arguments."""
    for name in re.findall(r", \*(\w+)", template):
        written = values.get(name, f"*{name}")
        template = template.replace(f", *{name}", f", {written}" if written else "")

    def argument(match: re.Match[str]) -> str:
        text = values.get(match[0])
        if text is None:
            return match[0]
        before, after = template[: match.start()].rstrip()[-1:], template[match.end() :].lstrip()[:1]
        alone = before in ("", "(", "[", ",", "=") and after in ("", ")", "]", ",")
        return text if alone or is_operand(text) else f"({text})"

    return _NAME.sub(argument, template)


def is_operand(text: str) -> bool:
    """Whether a text can be beside any operator: a name, a number, a call, a subscript or something in brackets."""
    return isinstance(parsed(f"{text}[0]"), python.Subscript)
