"""Error messages for texts that do not parse.

    y += 1          error[MT0002]: the language has no augmented assignment; help: write `y = y + 1`

In: the token (or character) where the parser stopped, the token before it, and the tokens that would have fitted.
Out: a ParseError that names the mistake and says what to write instead. The one idea: the grammar contains only what
the language has. The first token that does not fit tells which construct was meant. syntax_errors.toml has the messages.
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import Edit, ParseError
from minitri.base.resource_limits import exceeded
from minitri.base.spans import Source, Span
from minitri.base.spelling import nearest
from minitri.language import ast
from minitri.language.ast import Word
from minitri.language.python_rewriting import comprehension, expression, moved_up, statement

CLOSES = {"(": ")", "[": "]"}
_OPERAND_ENDS = {"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "NONE", "RPAR", "RSQB", "ELLIPSIS"}
_OPERAND_STARTS = _OPERAND_ENDS - {"RPAR", "RSQB", "ELLIPSIS"}
_OPERATORS = {
    "COMPARE", "SHIFT", "DIVIDE", "POWER", "STAR", "AT", "PLUS", "MINUS", "TILDE", "BAR", "CARET", "AMPERSAND",
}  # fmt: skip
_LINE_ENDS = {"_NEWLINE", "$END"}
_SHOWN = {
    "_NEWLINE": "the end of the line", "$END": "the end of the text", "_INDENT": "this indentation",
    "_DEDENT": "the end of the block",
}  # fmt: skip
_DOUBLED = (("&&", " and "), ("||", " or "))


@cache
def _tables() -> dict[str, dict[str, Any]]:
    """The tables of syntax_errors.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def mistake(name: str, span: Span | None = None, /, **words: object) -> ParseError:
    """The error of this name, with parts of the program in its message and its help."""
    code, message, help = _tables()["mistakes"][name]
    return ParseError(code, message.format(**words), span, help=help.format(**words))


def bad_character(span: Span) -> ParseError:
    """The error for a character that begins no word."""
    character, tables = span.text, _tables()
    if character in tables["characters"]:
        code, message, help = tables["characters"][character]
        return ParseError(code, message, span, help=help)
    shown = f"`{character}` (U+{ord(character):04X})" if character.isprintable() else f"U+{ord(character):04X}"
    return mistake("character", span, shown=shown)


def bad_word(word: Word, before: Word, expected: set[str]) -> ParseError:
    """The error for a word that does not fit after `before`."""
    found = (judge(word, before, expected) for judge in (_line, _keyword, _top_level, _adjacent, _missing))
    return next(filter(None, found), None) or mistake("misfit", word.span, word=_shown(word))


def bad_word_or_bracket(word: Any, before: Word, expected: set[str], rest: Iterator[Word]) -> ParseError:
    """The mistake at a word. If an open bracket never closes, that bracket is the mistake."""
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


def further_mistakes(place: Span, error: ParseError, parse: Callable[[Span], Any]) -> Iterator[ParseError]:
    """The mistakes on later lines of a module. Each line that is Python, but not of the language, counts as `_ = 0`."""
    source, text = place.source, place.source.text
    while error.code == "MT0002" and error.span is not None:
        start = text.rfind("\n", 0, error.span.start) + 1
        end = (text.find("\n", error.span.end) + 1 or len(text) + 1) - 1
        line = text[start:end]
        instead = "return 0" if line.lstrip().startswith("return") else "_=0"
        filled = line[: len(line) - len(line.lstrip())] + instead
        if len(filled) > len(line) or not line[:1].isspace():
            return
        text = text[:start] + filled.ljust(len(line)) + text[end:]
        try:
            parse(Span(Source(source.name, text), place.start, place.end))
            return
        except ParseError as later:
            if later.code != "MT0002" or later.span is None or later.span.start < end:
                return
            error = later
            error.span = replace(later.span, source=source)
            error.edits = tuple(Edit(replace(e.span, source=source), e.text) for e in later.edits)
            yield error


def too_much(limit: str, message: str, span: Span) -> ParseError:
    """The error of a limit, for a text that is refused before it is a tree."""
    error = exceeded(limit, message)
    return ParseError(error.code, message, span, help=error.help)


# ---- indentation and brackets ------------------------------------------------------------------


class UnclosedBracket(ParseError):
    """An open bracket at the end of the text. It may have caused a mistake that was found earlier."""


def uneven(indents: Sequence[str], indent: str, word: Word) -> ParseError:
    """The error for a line whose indentation matches no line above."""
    blanks = indent + indents[-1]
    return mistake("mixed_indentation" if "\t" in blanks and " " in blanks else "uneven_indentation", word.span)


def unmatched(opening: Word, word: Word) -> ParseError:
    """The error for a closing bracket of the wrong kind."""
    line, wanted = opening.span.line_column[0], CLOSES[opening.text]
    error = mistake("wrong_bracket", word.span, closing=word.text, opening=opening.text, line=line, wanted=wanted)
    return error.write(word.span, wanted)


def unclosed(opening: Word) -> ParseError:
    """The error for a bracket that is never closed."""
    source, wanted = opening.span.source, CLOSES[opening.text]
    end = source.text.find("\n", opening.span.end)
    line = source.text[opening.span.start : end if end >= 0 else len(source.text)].rstrip(" \t\r:")
    end = opening.span.start + len(line)
    error = mistake("never_closed", opening.span, bracket=opening.text, wanted=wanted)
    return UnclosedBracket(error.code, error.message, error.span).write(Span(source, end, end), wanted, error.help)


# ---- words ---------------------------------------------------------------------------------------


def _shown(word: Word) -> str:
    return _SHOWN.get(word.type) or f"`{word.text[:40]}`"


def _line(word: Word, before: Word, expected: set[str]) -> ParseError | None:
    """Indentation, and the `:` of a `def`."""
    if word.type == "_INDENT":
        return mistake("unopened_block", word.span)
    if "_INDENT" in expected:
        if word.type in ("$END", "DEF"):
            return mistake("no_body", before.span)
        return mistake("unindented_body", word.span)
    if "COLON" in expected and word.type in ("_NEWLINE", "RETURN"):
        return mistake("no_colon", word.span).write(replace(before.span, start=before.span.end), ":")
    return mistake("after_expression", word.span) if before.type == "_NEWLINE" and expected == {"$END"} else None


def _keyword(word: Word, before: Word, expected: set[str]) -> ParseError | None:
    """A keyword of Python: a construct that the language lacks, or a name that cannot be used."""
    keywords = _tables()["keywords"]
    if word.text not in keywords and word.type not in ("DEF", "RETURN"):
        return None
    if "NAME" in expected and "NUMBER" not in expected:
        return mistake("keyword_as_name", word.span, word=word.text)
    if word.type == "DEF" and "RETURN" in expected:
        error = mistake("nested_function", word.span)
        return error.correct(*moved_up(word.span), help=error.help)
    if word.type in ("DEF", "RETURN"):
        return mistake(f"misplaced_{word.text}", word.span)
    if word.type in ("IF", "ELSE") and before.type != "$BEGIN" and not expected & {"RETURN", "DEF"}:
        return None  # within an expression: something is missing
    what, help = keywords[word.text]
    if word.text == "lambda":
        return mistake("lacks", word.span, what=what, help=help).correct(*moved_up(word.span), help=help)
    in_expression = word.text == "for" and "RETURN" not in expected
    logic = word.text in ("and", "or", "not", "is", "in")
    rewrite = expression if logic else comprehension if in_expression else statement
    return mistake("lacks", word.span, what=what, help=help).correct(rewrite(word.span))


def _top_level(word: Word, before: Word, expected: set[str]) -> ParseError | None:
    if "DEF" not in expected:
        return None
    if word.type == "AT":
        whole = replace(word.span, end=word.span.start + len(word.span.first_line.strip()))
        return mistake("decorator", word.span).write(whole, "")
    return mistake("top_level", word.span)


def _before(word: Word) -> Span:
    return replace(word.span, end=word.span.start)


def _adjacent(word: Word, before: Word, expected: set[str]) -> ParseError | None:
    """Two tokens that mean something in Python only together."""
    both, touching = before.span.to(word.span), before.span.end == word.span.start
    match word.type:
        case "EQUAL":
            return _equal(word, before, expected)
        case "AMPERSAND" | "BAR" if touching and word.text == before.text:
            return mistake("no_operator", both, sign=word.text * 2, instead=word.text).correct(
                expression(both, _DOUBLED)
            )
        case "STAR" | "POWER" if before.type not in _OPERAND_ENDS | _OPERATORS:
            return mistake("starred", word.span)
        case "COLON" if word.span.source.text.startswith("=", word.span.end):
            return mistake("walrus", word.span)
        case "COLON" if {"_NEWLINE", "EQUAL"} <= expected:
            return mistake("annotated_assignment", word.span).correct(statement(word.span))
        case "STRING" if before.type == "STRING":
            return mistake("string_pieces", word.span)
    return None


def _equal(word: Word, before: Word, expected: set[str]) -> ParseError:
    both, touching = before.span.to(word.span), before.span.end == word.span.start
    if touching and before.type in _OPERATORS:
        return mistake("augmented_assignment", both, operator=before.text).correct(statement(both))
    if touching and before.type == "COLON":
        return mistake("walrus", both)
    if "_NEWLINE" in expected and "$END" not in expected:
        return mistake("chained_assignment", word.span).correct(statement(word.span))
    return mistake("equal_sign", word.span)


def _missing(word: Word, before: Word, expected: set[str]) -> ParseError | None:
    """Something was left out before the word."""
    shown = _shown(word)
    if before.type == "$BEGIN":
        is_type = word.span.source.name.startswith("<type of ")
        empty = "no_type" if is_type else "nothing"
        return mistake(empty if word.type in _LINE_ENDS else "cannot_begin", word.span, word=shown)
    if before.type in _OPERATORS and "NAME" in expected:
        return mistake("operand_after", before.span, word=before.text)
    if "ELSE" in expected and word.type not in _OPERAND_STARTS:
        return mistake("no_else", word.span)
    if before.type in _OPERAND_ENDS and word.type in _OPERAND_STARTS and "PLUS" in expected:
        if word.type == "NAME" and nearest(before.text, ["return"]):
            return mistake("misspelt_return", before.span, word=_shown(before)).write(before.span, "return")
        return mistake("operator_before", word.span, word=shown).write(_before(word), "* ")
    if word.type in _LINE_ENDS:
        return mistake("something_after", before.span, word=_shown(before))
    if word.type in _OPERATORS | {"COMMA", "RPAR", "RSQB", "COLON", "IF", "ELSE"} and "NUMBER" in expected:
        return mistake("operand_before", word.span, word=shown)
    return None


# ---- what the grammar lets through -----------------------------------------------------------


def bad_number(word: Word, is_float: bool) -> ParseError:
    """The error for a token that begins like a number. `is_float`: without its last letter it is a float."""
    text = word.text
    if text[-1] in "jJ" and (is_float or text[:-1].replace("_", "").isdigit()):
        return mistake("complex_number", word.span)
    return mistake("not_a_number", word.span, text=text[:40])


def bad_target(node: ast.Expr) -> ParseError:
    """The error for anything but a name on the left of `=`."""
    match node:
        case ast.Subscript() | ast.Attribute():
            return mistake("changed_array", node.span).correct(statement(node.span))
        case ast.Tuple():
            return mistake("nested_targets", node.span)
        case _:
            return mistake("not_a_target", node.span)


def chained_comparison(parts: Sequence[Word | ast.Node], span: Span) -> ParseError:
    """The error for `a < b < c`."""
    texts = [part.span.text for part in parts]
    match parts:
        case [_, _, ast.Binary(op="&" | "|" as op, left=left, right=right), _, _]:  # `&` binds more than `<`
            text = f"({' '.join(texts[:2])} {left.span.text}) {op} ({right.span.text} {' '.join(texts[3:])})"
            return mistake("strong_operator", span, operator=op, text=text).write(span, text, f"write `{text}`")
    pairs = [" ".join(texts[k : k + 3]) for k in range(0, len(texts) - 2, 2)]
    text = " & ".join(f"({pair})" for pair in pairs)
    error = mistake("chained_comparison", span, short=text if len(text) < 100 else "(a < b) & (b < c)")
    return error.write(span, f"({text})", error.help)
