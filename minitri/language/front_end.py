"""Three ways to write a program: a module, an expression with the types of its parameters, a Python function.

    compile("x + y", x="f32[N]", y="f32[N]")              each type as a keyword
    compile("x + y", types={"x": "f32[N]", "y": "f32[N]"})     or all in one mapping

    @mt.jit                                 (skipped)
    def f(x: "f32[M, N]"):             →    Module(Function("f", ...))
        return softmax(x, axis=-1)

`compile` has keywords of its own, such as `entry`. A parameter may have the same name: in
`compile("2 * entry", entry="f32[N]")` the expression has the name and the value is a type.

An expression without any type gives a function whose parameters have none: `compile("x + y")` becomes
`main(x, y)`, and a call says the types.

A Python function gives the same `Module` as its text in a `.mt` file, with spans that point into the Python file. It
never runs, and its annotations are never evaluated. The one grammar parses the text from its `def` to its end, in place.
python_source.py finds that text. linking.py adds the functions and constants that the function uses.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.spans import Span
from minitri.language import ast, parser, parser_tables, python_source
from minitri.language.ast_interpreter import NAMED_VALUES
from minitri.language.foreign.names import PREFIXES
from minitri.language.parser import is_name, parse_expression, parse_module_at, parse_type, whole_text
from minitri.language.syntax_errors import mistake
from minitri.language.syntax_repairs import parsed

parser.make_parser = parser_tables.parser  # every front door is in this module
_PLAIN = "decorate a plain function, written with `def`"


def parse_program(text: str, name: str, params: Mapping[str, str | None]) -> ast.Module:
    """The module of a text. An expression over `params` (name → type text) becomes a function `main`."""
    if is_module(text):
        if params:
            raise mistake("typed_module")
        return read_module(text, name)
    place = whole_text(text, name)
    value = parsed(_expression, place)
    declared = tuple(_param(place, param, kind) for param, kind in params.items())
    body = (ast.Return(value.span, value),)
    return ast.Module(place, place.source, (ast.Function(value.span, "main", declared, None, body),))


def read_module(text: str, name: str) -> ast.Module:
    """The functions of a module."""
    return parsed(parse_module_at, whole_text(text, name))


def _expression(place: Span) -> Any:
    """The expression of a text. A correction of it may be a module: `deff f(x): …`."""
    text, name = place.source.text, place.source.name
    return parse_module_at(place) if is_module(text) else parse_expression(text, name)


def is_module(text: str) -> bool:
    """Whether a text is a module rather than an expression: some line begins with `def`."""
    return re.search(r"^[ \t\f]*def\b", text, re.MULTILINE) is not None


def _param(place: Span, name: str, kind: str | None) -> ast.Param:
    if not is_name(name):
        raise mistake("parameter_name", name=name[:40])
    if kind is None:
        used = re.compile(rf"\b{name}\b").search(place.source.text)
        return ast.Param(Span(place.source, *used.span()) if used else place, name, None, None)
    annotation = parse_type(kind, f"<type of {name}>")
    return ast.Param(annotation.span, name, annotation, None)


def shared_names(text: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The keywords of `compile` that give the type of a parameter: name → type text."""
    if is_module(text):
        return {}
    return {name: value for name, value in settings.items() if re.search(rf"\b{name}\b", text) and _is_type(value)}


def _is_type(value: Any) -> bool:
    """Whether a value looks like a type. `float32[N]` counts too: it is a misspelt type, not a name."""
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
    """The types of the keywords and of the mapping `types` together.

    CompileError MT0004 for a value that is not a text, MT0104 for a parameter that has two types."""
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


def untyped_parameters(text: str, name: str) -> dict[str, None]:
    """The parameters of an expression that is given no types, in the order in which they first occur.

    `x + pi * y` has x and y. Left out: names of the language, and names of other libraries (`np`), which are mistakes.
    """
    known = {*NAMED_VALUES, *PREFIXES}
    nodes = ast.postorder(parsed(_expression, whole_text(text, name)))
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id not in known]
    return dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.span.start))


# ---- Python functions ---------------------------------------------------------------------------


def from_function(function: Callable[..., object]) -> ast.Module:
    """The module that holds this one function.

    Raises ParseError if it is no plain function or its source text is not available.
    """
    plain = plain_function(function)
    if plain.__name__ == "<lambda>":
        raise ParseError("MT0002", "a lambda cannot be compiled", help=_PLAIN)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise ParseError("MT0002", f"`{plain.__name__}` is an async function", help=_PLAIN)
    if inspect.isgeneratorfunction(plain):
        help = "`return a, b` gives several outputs"
        raise ParseError("MT0002", f"`{plain.__name__}` is a generator", help=help)
    return parsed(parse_module_at, python_source.place(plain))


def plain_function(function: Callable[..., object]) -> FunctionType:
    """The function under its decorators."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        message = f"a {type(plain).__name__} has no text to compile"
        raise ParseError("MT0003", message, help=_PLAIN)
    return plain
