"""Three ways to write a program: a module, an expression with the types of its parameters, a Python function.

    compile("x + y", x="f32[N]", y="f32[N]")              each type as a keyword
    compile("x + y", types={"x": "f32[N]", "y": "f32[N]"})     or all in one mapping

    @mt.jit                                 (skipped)
    def f(x: "f32[M, N]"):             →    Module(Function("f", ...))
        return softmax(x, axis=-1)

`compile` has keywords of its own, such as `entry`. A parameter may have the same name: in
`compile("2 * entry", entry="f32[N]")` the expression has the name and the value is a type.

A Python function gives the same `Module` as its text in a `.mt` file, with spans that point into the Python file. It
never runs, and its annotations are never evaluated. The one grammar parses the text from its `def` to its end, in place.
Left out: the variables around the function. It sees its parameters and the library only.
"""

from __future__ import annotations

import inspect
import re
import tokenize
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.spans import Source, Span
from minitri.language import ast, parser, parser_tables
from minitri.language.parser import is_name, parse_expression, parse_module, parse_module_at, parse_type, whole_text

parser.make_parser = parser_tables.parser  # every front door is in this module
_PLAIN = "decorate a plain function, written with `def`"


def parse_program(text: str, name: str, params: Mapping[str, str | None]) -> ast.Module:
    """A module as it is, or an expression over `params` (name → type text) as a function `main`."""
    if is_module(text):
        if params:
            help = "write them in the `def`: `def f(x: f32[N]):`"
            raise ParseError("MT0102", "a module says the types of its parameters itself", help=help)
        return parse_module(text, name)
    place = whole_text(text, name)
    value: ast.Expr = parse_expression(text, name)
    declared = tuple(_param(place, param, kind) for param, kind in params.items())
    body = (ast.Return(value.span, value),)
    return ast.Module(place, place.source, (ast.Function(value.span, "main", declared, None, body),))


def is_module(text: str) -> bool:
    """Whether a text is a module rather than an expression: some line begins with `def`."""
    return re.search(r"^[ \t\f]*def\b", text, re.MULTILINE) is not None


def _param(place: Span, name: str, kind: str | None) -> ast.Param:
    if not is_name(name):
        message = f"`{name[:40]}` cannot name a parameter"
        raise ParseError("MT0001", message, help="names are made of ASCII letters, digits and `_`")
    if kind is None:
        used = re.compile(rf"\b{name}\b").search(place.source.text)
        return ast.Param(Span(place.source, *used.span()) if used else place, name, None, None)
    annotation = parse_type(kind, f"<type of {name}>")
    return ast.Param(annotation.span, name, annotation, None)


def shared_names(text: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The keywords of `compile` that give the type of a parameter: name → type text."""
    if is_module(text):
        return {}
    return {name: value for name, value in settings.items() if _has_name(text, name) and _is_type(value)}


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _is_type(value: Any) -> bool:
    """Whether a value is a type, or is written like one: `float32[N]` is a mistake in a type, no name."""
    if not isinstance(value, str):
        return False
    if re.fullmatch(r"\w+\[.*\]", value.strip()):
        return True
    try:
        parse_type(value)
    except CompileError:
        return False
    return True


def all_types(keywords: Mapping[str, Any], types: Any) -> dict[str, str | None]:
    """The types of keywords and of the mapping `types` together.

    CompileError MT0004 for a value that is no text, MT0104 for a parameter that both name."""
    if not isinstance(types, Mapping):
        message = f"`types` is a mapping from names to types, not {type(types).__name__}"
        raise CompileError("MT0004", message, help='as in types={"x": "f32[M, N]"}')
    for name, kind in {**types, **keywords}.items():
        shown = str(name)[:40]
        if not isinstance(kind, (str, type(None))):
            message = f"the type of `{shown}` is a text, not {type(kind).__name__}"
            raise CompileError("MT0004", message, help=f'as in {shown}="f32[M, N]"')
        if name in types and name in keywords:
            raise CompileError("MT0104", f"the type of `{shown}` is given twice", help="leave one of the two out")
    return {**{str(name): kind for name, kind in types.items()}, **keywords}


# ---- Python functions ---------------------------------------------------------------------------


def from_function(function: Callable[..., object]) -> ast.Module:
    """The module that holds this one function."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        message = f"a {type(plain).__name__} has no text to compile"
        raise ParseError("MT0003", message, help=_PLAIN)
    if plain.__name__ == "<lambda>":
        raise ParseError("MT0002", "a lambda cannot be compiled", help=_PLAIN)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise ParseError("MT0002", f"`{plain.__name__}` is an async function", help=_PLAIN)
    if inspect.isgeneratorfunction(plain):
        help = "`return a, b` gives several outputs"
        raise ParseError("MT0002", f"`{plain.__name__}` is a generator", help=help)
    return parse_module_at(_place(plain))


def _place(function: FunctionType) -> Span:
    """Where the function is in its file: from its `def`, past the decorators, to its end."""
    try:
        lines, first = inspect.findsource(function)
        block = inspect.getblock(lines[first:])
        row, column = _find_def(block)
    except (OSError, TypeError, IndexError, SyntaxError, tokenize.TokenError):
        help = "define it in a file or a notebook cell, or give its text to `mt.compile`"
        message = f"the source text of `{function.__name__}` cannot be found"
        raise ParseError("MT0003", message, help=help) from None
    before = "".join(lines[:first])
    start = len(before) + len("".join(block[: row - 1])) + column
    source = Source(inspect.getsourcefile(function) or "<python>", "".join(lines))
    return Span(source, start, len(before) + len("".join(block)))


def _find_def(block: list[str]) -> tuple[int, int]:
    """Row and column of the first `def`. It is reserved, so no decorator can hold one."""
    for token in tokenize.generate_tokens(iter(block).__next__):
        if token.type == tokenize.NAME and token.string == "def":
            return token.start
    raise OSError("no def")
