"""Makes the error messages for texts that do not parse.

    y += 1          error[MT0002]: the language has no augmented assignment; help: write `y = y + 1`

The function `bad_word` takes the token at which the parser stopped, the previous token, and the tokens that the parser
expected. The function `bad_word` returns a ParseError that names the mistake and says what to write instead. The
function `bad_character` returns the error for a character that cannot begin a token. The one idea: the grammar has only
rules for correct programs, and no rules for typical mistakes. The first token that does not fit the grammar shows what
the author of the program wanted to write. The file syntax_errors.toml has the error messages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Span
from minitri.base.spelling import nearest
from minitri.base.toml_tables import table_beside
from minitri.language import ast, python_corrections
from minitri.language.foreign import names as foreign

CLOSES = {"(": ")", "[": "]"}


@cache
def tables() -> dict[str, Any]:
    """Returns the tables of syntax_errors.toml."""
    return table_beside(__file__, "syntax_errors.toml")


def mistake(name: str, span: Span | None = None, /, **words: object) -> ParseError:
    """Returns the error that has the name `name` in syntax_errors.toml.

    The arguments `words` are texts that are inserted into the error's message and help.
    """
    code, message, help = tables()["mistakes"][name]
    return ParseError(code, message.format(**words), span, help=help.format(**words))


def bad_character(span: Span) -> ParseError:
    """Returns the error for a character that cannot begin a token."""
    character, rows = span.text, tables()["characters"]
    if character in rows:
        code, message, help = rows[character]
        return ParseError(code, message, span, help=help).correct(python_corrections.statement(span))
    shown = f"`{character}` (U+{ord(character):04X})" if character.isprintable() else f"U+{ord(character):04X}"
    return mistake("character", span, shown=shown)


def bad_word(word: ast.Word, before: ast.Word, expected: set[str]) -> ParseError:
    """Returns the error for a token `word` that cannot follow the token `before`.

    The table `words` of syntax_errors.toml has a row for each known mistake. The first row that fits the situation of
    the token determines the error.
    """
    there = _situation(word, before, expected)
    possible = (row for row in tables()["words"] if there.isdisjoint(row.get("unless", ())))
    row = next(row for row in possible if all(there & {*either.split("|")} for either in row["when"]))
    places = {
        "before": before.span, "after before": replace(before.span, start=before.span.end),
        "word": word.span, "before word": replace(word.span, end=word.span.start), "both": before.span.to(word.span),
        "line": replace(word.span, end=word.span.start + len(word.span.first_line.strip())),
    }  # fmt: skip
    at = places[row.get("at", "word")]
    what, help = tables()["keywords"].get(word.text, ("", ""))
    error = mistake(
        row["mistake"], at, word=_shown(word), before=_shown(before), text=word.text, text_before=before.text,
        what=what, help=help,
    )  # fmt: skip
    if "write" in row:
        place, text = row["write"]
        return error.write(places[place], text)
    made = getattr(python_corrections, row["correct"])(at) if "correct" in row else ()
    return error.correct(*(made if isinstance(made, tuple) else [made]))


def _situation(word: ast.Word, before: ast.Word, expected: set[str]) -> set[str]:
    """Returns facts about an unexpected token, such as "keyword" or "in a type"."""

    def kinds(of: ast.Word) -> set[str]:
        return {of.type, of.text, *(kind for kind, types in tables()["kinds"].items() if of.type in types)}

    facts = {  # the conditions `when` and `unless` in syntax_errors.toml name such facts
        "keyword": word.text in tables()["keywords"],
        "touching": before.span.end == word.span.start,
        "before =": word.span.source.text.startswith("=", word.span.end),
        "in a type": word.span.source.name.startswith("<type of "),
        "after misspelt return": bool(nearest(before.text, ["return"])),
    }
    true = {fact for fact, holds in facts.items() if holds}
    return kinds(word) | {f"after {kind}" for kind in kinds(before)} | {f"expects {type}" for type in expected} | true


def _shown(word: ast.Word) -> str:
    return tables()["shown"].get(word.type) or f"`{word.text[:40]}`"


def bad_word_or_bracket(word: Any, before: ast.Word, expected: set[str], rest: Iterator[ast.Word]) -> ParseError:
    """Returns the error at an unexpected token.

    If an earlier bracket is never closed, returns the error for the bracket.
    """
    error = bad_word(word, before, expected)
    if error.code == "MT0001" or word.type in ("DEF", "RETURN"):
        try:
            for _ in rest:
                pass
        except UnclosedBracket as later:
            if later.span is not None and later.span.start < word.span.start:
                return later
        except ParseError:
            pass  # one mistake at a time
    return error


# ---- indentation and brackets ------------------------------------------------------------------


class UnclosedBracket(ParseError):
    """The error for a bracket that is still open at the end of the text.

    An open bracket often makes the parser stop at a later token that is not wrong itself.
    """


def unmatched(opening: ast.Word, word: ast.Word) -> ParseError:
    """Returns the error for a closing bracket that does not match the opening bracket."""
    line, wanted = opening.span.line_column[0], CLOSES[opening.text]
    error = mistake("wrong_bracket", word.span, closing=word.text, opening=opening.text, line=line, wanted=wanted)
    return error.write(word.span, wanted)


def unclosed(opening: ast.Word) -> ParseError:
    """Returns the error for a bracket that is never closed."""
    source, wanted = opening.span.source, CLOSES[opening.text]
    end = source.text.find("\n", opening.span.end)
    line = source.text[opening.span.start : end if end >= 0 else len(source.text)].rstrip(" \t\r:")
    end = opening.span.start + len(line)
    error = mistake("never_closed", opening.span, bracket=opening.text, wanted=wanted)
    return UnclosedBracket(error.code, error.message, error.span).write(Span(source, end, end), wanted, error.help)


# ---- what the grammar lets through -----------------------------------------------------------


def not_callable(function: ast.Expr) -> ParseError:
    """Returns the error for the call of an expression, such as `(x + 1)(y)` or `jax.grad(exp)(x)`.

    For `jax.grad(exp)(x)`, the help says why the language has no counterpart of jax.grad.
    """
    error = mistake("not_callable", function.span)
    *path, name = function.span.text.partition("(")[0].split(".")
    answer = foreign.prefixed(path, name) if {*path[:1]} & {*foreign.PREFIXES} else foreign.called(name, ())
    return error.correct(help=answer.sentence(called=True)) if answer and answer.row.reason else error


def bad_target(node: ast.Expr) -> ParseError:
    """Returns the error for a wrong expression on the left of `=`, such as `x[0]` in `x[0] = 1`. On the left of `=`,
    only names are allowed.
    """
    match node:
        case ast.Subscript() | ast.Attribute():
            return mistake("changed_array", node.span).correct(python_corrections.statement(node.span))
        case ast.Tuple():
            return mistake("nested_targets", node.span)
    return mistake("not_a_target", node.span)


def chained_comparison(parts: Sequence[ast.Word | ast.Node], span: Span) -> ParseError:
    """Returns the error for a comparison such as `a < b < c`."""
    texts = [part.span.text for part in parts]
    match parts:
        case [_, _, ast.Binary(op="&" | "|" as op, left=left, right=right), _, _]:  # `&` binds more than `<`
            text = f"({' '.join(texts[:2])} {left.span.text}) {op} ({right.span.text} {' '.join(texts[3:])})"
            return mistake("strong_operator", span, operator=op, text=text).write(span, text, f"write `{text}`")
    pairs = [" ".join(texts[k : k + 3]) for k in range(0, len(texts) - 2, 2)]
    text = " & ".join(f"({pair})" for pair in pairs)
    error = mistake("chained_comparison", span, short=text if len(text) < 100 else "(a < b) & (b < c)")
    return error.write(span, f"({text})", error.help)
