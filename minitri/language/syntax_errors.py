"""Error messages for texts that do not parse.

    y += 1          error[MT0002]: the language has no augmented assignment; help: write `y = y + 1`

In: the token (or character) where the parser stopped, the token before it, and the tokens that would have fitted.
Out: a ParseError that names the mistake and says what to write instead. The one idea: the grammar contains only what
the language has. The first token that does not fit tells which construct was meant. MT0002 is for valid Python
that the language does not have, MT0001 for everything else.
"""

from __future__ import annotations

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
_ONLY_DEFS = "a module holds `def`s only"
_OPERAND_ENDS = {"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "NONE", "RPAR", "RSQB", "ELLIPSIS"}
_OPERAND_STARTS = _OPERAND_ENDS - {"RPAR", "RSQB", "ELLIPSIS"}
_OPERATORS = {
    "COMPARE", "SHIFT", "DIVIDE", "POWER", "STAR", "AT", "PLUS", "MINUS", "TILDE", "BAR", "CARET", "AMPERSAND",
}  # fmt: skip
_LINE_ENDS = {"_NEWLINE", "$END"}
_LOGIC = {"and", "or", "not", "is", "in"}
_DOUBLED = (("&&", " and "), ("||", " or "))


@cache
def _tables() -> dict[str, dict[str, Any]]:
    """What syntax_errors.toml says: `keywords` and `characters`."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def bad_character(span: Span) -> ParseError:
    """The error for a character that begins no word."""
    character = span.text
    tables = _tables()
    if character in tables["characters"]:
        code, message, help = tables["characters"][character]
        return ParseError(code, message, span, help=help)
    help = "names are made of the letters A-Z and a-z, digits and `_`"
    shown = f"`{character}` (U+{ord(character):04X})" if character.isprintable() else f"U+{ord(character):04X}"
    return ParseError("MT0001", f"the character {shown} has no meaning here", span, help=help)


def bad_word(word: Word, before: Word | None, expected: set[str]) -> ParseError:
    """The error for a word that does not fit after `before`."""
    for judge in (_line, _keyword, _top_level, _adjacent, _missing):
        if error := judge(word, before, expected):
            return error
    return ParseError("MT0001", f"{_shown(word)} does not fit here", word.span)


def bad_word_or_bracket(word: Any, before: Word | None, expected: set[str], rest: Iterator[Word]) -> ParseError:
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
    if "\t" in indent + indents[-1] and " " in indent + indents[-1]:
        message, help = "tabs and spaces are mixed in the indentation", "indent with four spaces"
    else:
        message = "this line is indented less than its block, but matches no line above"
        help = "line it up with the block it belongs to"
    return ParseError("MT0001", message, word.span, help=help)


def unmatched(opening: Word, word: Word) -> ParseError:
    """The error for a closing bracket of the wrong kind."""
    line = opening.span.source.line_column(opening.span.start)[0]
    message = f"`{word.text}` cannot close the `{opening.text}` of line {line}"
    help = f"write `{CLOSES[opening.text]}`, or remove one of the two"
    return ParseError("MT0001", message, word.span).write(word.span, CLOSES[opening.text], help)


def closes_nothing(word: Word) -> ParseError:
    """The error for a closing bracket without an opening one."""
    return ParseError("MT0001", f"this `{word.text}` closes nothing", word.span).write(word.span, "")


def unclosed(opening: Word) -> UnclosedBracket:
    """The error for a bracket that is never closed."""
    source, close = opening.span.source, CLOSES[opening.text]
    end = source.text.find("\n", opening.span.end)
    line = source.text[opening.span.start : end if end >= 0 else len(source.text)].rstrip(" \t\r:")
    end = opening.span.start + len(line)
    error = UnclosedBracket("MT0001", f"this `{opening.text}` is never closed", opening.span)
    return error.write(Span(source, end, end), close, f"add the missing `{close}`")


# ---- words ---------------------------------------------------------------------------------------


def _shown(word: Word) -> str:
    names = {"_NEWLINE": "the end of the line", "$END": "the end of the text"}
    names |= {"_INDENT": "this indentation", "_DEDENT": "the end of the block"}
    return names.get(word.type) or f"`{word.text[:40]}`"


def _lacks(what: str, span: Span, help: str) -> ParseError:
    return ParseError("MT0002", f"the language has no {what}", span, help=help)


def _line(word: Word, before: Word | None, expected: set[str]) -> ParseError | None:
    """Indentation, and the `:` of a `def`."""
    if word.type == "_INDENT":
        return ParseError("MT0001", "this line is indented, but no block was opened", word.span)
    if "_INDENT" in expected:
        if word.type in ("$END", "DEF"):
            return ParseError("MT0001", "this function has no body", before.span if before else word.span)
        return ParseError("MT0001", "the body of a function is indented", word.span, help="indent by four spaces")
    if "COLON" in expected and word.type in ("_NEWLINE", "RETURN"):
        error = ParseError("MT0001", "a `:` is missing here", word.span, help="write `def f(x):`")
        return error.write(_after(before), ":", "write `:` at the end of the `def`") if before else error
    if before is not None and before.type == "_NEWLINE" and expected == {"$END"}:
        help = "put an expression of several lines in parentheses"
        return ParseError("MT0001", "the expression has ended on the line before", word.span, help=help)
    return None


def _keyword(word: Word, before: Word | None, expected: set[str]) -> ParseError | None:
    """A keyword of Python: a construct that the language lacks, or a name that cannot be used."""
    keywords = _tables()["keywords"]
    if word.text not in keywords and word.type not in ("DEF", "RETURN"):
        return None
    if "NAME" in expected and "NUMBER" not in expected:
        help = "choose another name"
        return ParseError("MT0001", f"`{word.text}` is a keyword of Python, not a name", word.span, help=help)
    if word.type == "DEF" and "RETURN" in expected:
        help = "write it beside the other one, on the top level"
        return _lacks("functions inside functions", word.span, help).correct(*moved_up(word.span), help=help)
    if word.type in ("DEF", "RETURN"):
        where = "on a line of its own" if word.type == "DEF" else "at the end of a function"
        return ParseError("MT0001", f"a `{word.text}` stands {where}", word.span)
    if word.type in ("IF", "ELSE") and before is not None and not expected & {"RETURN", "DEF"}:
        return None  # within an expression: something is missing
    what, help = keywords[word.text]
    if word.text == "lambda":
        return _lacks(what, word.span, help).correct(*moved_up(word.span), help=help)
    rewrite = expression if word.text in _LOGIC else comprehension if _in_brackets(word, expected) else statement
    return _lacks(what, word.span, help).correct(rewrite(word.span))


def _in_brackets(word: Word, expected: set[str]) -> bool:
    """Whether a `for` stands in an expression."""
    return word.text == "for" and "RETURN" not in expected


def _top_level(word: Word, before: Word | None, expected: set[str]) -> ParseError | None:
    if "DEF" not in expected:
        return None
    if word.type == "AT":
        line = word.span.source.line(word.span.source.line_column(word.span.start)[0])
        whole = Span(word.span.source, word.span.start, word.span.start + len(line.strip()))
        return _lacks("decorators", word.span, "").write(whole, "", "leave the decorator out")
    return ParseError("MT0002", "only functions stand on the top level", word.span, help=_ONLY_DEFS)


def _before(word: Word) -> Span:
    return Span(word.span.source, word.span.start, word.span.start)


def _after(word: Word) -> Span:
    return Span(word.span.source, word.span.end, word.span.end)


def _adjacent(word: Word, before: Word | None, expected: set[str]) -> ParseError | None:
    """Two tokens that mean something in Python only together."""
    if word.type == "EQUAL":
        return _equal(word, before, expected)
    touching = before is not None and before.span.end == word.span.start
    if before is not None and touching and word.text == before.text and word.text in ("&", "|"):
        span, help = before.span.to(word.span), f"write `a {word.text} b`"
        error = ParseError("MT0001", f"`{word.text * 2}` is not an operator", span, help=help)
        return error.correct(expression(span, _DOUBLED))
    if word.type in ("STAR", "POWER") and (before is None or before.type not in _OPERAND_ENDS | _OPERATORS):
        return _lacks("starred parameters and arguments", word.span, "write each one out")
    if word.type == "COLON" and word.span.source.text.startswith("=", word.span.end):
        return _lacks("`:=`", word.span, "assign on a line of its own")
    if word.type == "COLON" and "_NEWLINE" in expected and "EQUAL" in expected:
        error = _lacks("annotations on assignments", word.span, "annotate the parameters and the result")
        return error.correct(statement(word.span))
    if word.type == "STRING" and before is not None and before.type == "STRING":
        return _lacks("strings of several pieces", word.span, "write one string")
    return None


def _equal(word: Word, before: Word | None, expected: set[str]) -> ParseError:
    touching = before is not None and before.span.end == word.span.start
    if before is not None and touching and before.type in _OPERATORS:
        span, help = before.span.to(word.span), f"write `x = x {before.text} y`"
        return _lacks("augmented assignment", span, help).correct(statement(span))
    if before is not None and touching and before.type == "COLON":
        return _lacks("`:=`", before.span.to(word.span), "assign on a line of its own")
    if "_NEWLINE" in expected and "$END" not in expected:
        return _lacks("chained assignment", word.span, "assign one name a line").correct(statement(word.span))
    help = "`==` compares; assignments are lines of a `def`"
    return ParseError("MT0001", "`=` has no meaning here", word.span, help=help)


def _missing(word: Word, before: Word | None, expected: set[str]) -> ParseError | None:
    """Something was left out before the word."""
    if before is None:
        return _nothing(word)
    if before.type in _OPERATORS and "NAME" in expected:
        return ParseError("MT0001", f"an operand is missing after `{before.text}`", before.span)
    if "ELSE" in expected and word.type not in _OPERAND_STARTS:
        help = "write `a if c else b`"
        return ParseError("MT0001", "this conditional has no `else`", word.span, help=help)
    if before.type in _OPERAND_ENDS and word.type in _OPERAND_STARTS and "PLUS" in expected:
        if word.type == "NAME" and nearest(before.text, ["return"]):
            error = ParseError("MT0001", f"{_shown(before)} does not fit here", before.span)
            return error.write(before.span, "return", "did you mean `return`?")
        help = "`*` multiplies; `,` separates arguments"
        error = ParseError("MT0001", f"an operator is missing before {_shown(word)}", word.span)
        return error.write(_before(word), "* ", help)
    if word.type in _LINE_ENDS:
        return ParseError("MT0001", f"something is missing after {_shown(before)}", before.span)
    if word.type in _OPERATORS | {"COMMA", "RPAR", "RSQB", "COLON", "IF", "ELSE"} and "NUMBER" in expected:
        return ParseError("MT0001", f"an operand is missing before {_shown(word)}", word.span)
    return None


def _nothing(word: Word) -> ParseError:
    if word.type in _LINE_ENDS:
        in_type = word.span.source.name.startswith("<type of ")
        example = "a type, such as `f32[M, N]`" if in_type else "an expression, such as `a * b + c`"
        return ParseError("MT0003", "there is nothing here", word.span, help=f"write {example}")
    return ParseError("MT0001", f"{_shown(word)} cannot begin an expression", word.span)


# ---- what the grammar lets through -----------------------------------------------------------


def bad_number(word: Word, is_float: bool) -> ParseError:
    """The error for a token that begins like a number. `is_float`: without its last letter it is a float."""
    text = word.text
    if text[-1] in "jJ" and (is_float or text[:-1].replace("_", "").isdigit()):
        return ParseError("MT0002", "there are no complex numbers", word.span, help="use two real arrays")
    help = "an operator may be missing, or a digit"
    return ParseError("MT0001", f"`{text[:40]}` is not a number", word.span, help=help)


def bad_target(node: ast.Expr) -> ParseError:
    """The error for anything but a name on the left of `=`."""
    match node:
        case ast.Subscript() | ast.Attribute():
            message, help = "arrays are never changed", "build a new one, for example `y = where(mask, a, x)`"
            return ParseError("MT0002", message, node.span, help=help).correct(statement(node.span))
        case ast.Tuple():
            help = "unpack in two steps"
            return ParseError("MT0002", "targets cannot be nested or empty", node.span, help=help)
        case _:
            help = "a name is on the left of `=`; `==` compares"
            return ParseError("MT0001", "this cannot be assigned to", node.span, help=help)


def chained_comparison(parts: Sequence[Word | ast.Node], span: Span) -> ParseError:
    """The error for `a < b < c`."""
    texts = [part.span.text for part in parts]
    match parts:
        case [_, _, ast.Binary(op="&" | "|" as op, left=left, right=right), _, _]:  # `&` binds more than `<`
            text = f"({' '.join(texts[:2])} {left.span.text}) {op} ({right.span.text} {' '.join(texts[3:])})"
            error = ParseError("MT0002", f"`{op}` binds its operands before a comparison does", span)
            return error.write(span, text, f"write `{text}`")
    pairs = [" ".join(texts[k : k + 3]) for k in range(0, len(texts) - 2, 2)]
    text = " & ".join(f"({pair})" for pair in pairs)
    short = text if len(text) < 100 else "(a < b) & (b < c)"
    return ParseError("MT0002", "comparisons cannot be chained", span).write(span, f"({text})", f"write `{short}`")
