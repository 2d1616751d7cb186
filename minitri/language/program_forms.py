"""Reads the three forms of a program: a module, an expression with the types of its parameters, a Python function.

    compile("x + y", x="f32[N]", y="f32[N]")              each type is a keyword
    compile("x + y", types={"x": "f32[N]", "y": "f32[N]"})     or all types are in one mapping

    @mt.jit                                 (skipped)
    def f(x: "f32[M, N]"):             →    Module(Function("f", ...))
        return softmax(x, axis=-1)

`compile` has keyword arguments of its own, such as `entry`. A parameter of the program is allowed to have the same name
as a keyword argument of `compile`. In `compile("2 * entry", entry="f32[N]")`, `entry` is a parameter of the program,
because the expression uses the name `entry` and `"f32[N]"` is a type.

An expression without types becomes a function whose parameters have no types: `compile("x + y")` compiles a function
`main(x, y)`. If the parameters have no types, the arguments of a call decide the types.

A Python function gives the same `Module` as a `.mt` file that contains the text of the function. The spans of the nodes
(their ranges of source text) point into the Python file. The user's Python function is never run, and its annotations
are never evaluated. The parser reads only the function's text in the Python file, from `def` to the end of the
function. The file linking.py adds to the module the functions and constants that the Python function uses.

Python's module `inspect` finds the text of functions in files and in cells of IPython. `inspect` also finds text that
was typed at the prompt of Python 3.13 or newer. Versions of Python before 3.13 do not store the text that was typed at
the prompt. For Python before 3.13, program_forms.py searches the history of the prompt. The text from the history of
the prompt must compile to the same bytecode as the function.
"""

import inspect
import re
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.spans import Source, Span
from minitri.language import ast, parser, parser_table_cache
from minitri.language.foreign.names import PREFIXES
from minitri.language.interpreter_base import NAMED_VALUES
from minitri.language.parser import is_name, parse_expression, parse_module_at, parse_type, whole_text
from minitri.language.syntax_errors import mistake
from minitri.language.syntax_repairs import parsed

parser.make_parser = parser_table_cache.parser  # all programs are read by this module
_PLAIN = "decorate a plain function, written with `def`"
PROMPT = "<stdin>"  # the file name of text that is typed at the prompt, before Python 3.13
_source = lru_cache(maxsize=16)(Source)  # all functions of a file have the same `Source`


def parse_program(text: str, name: str, params: Mapping[str, str | None]) -> ast.Module:
    """Parses the text of a program, and returns its syntax tree, an `ast.Module`. If the text is an expression, the
    module has one function: `main` with the parameters `params`.

    The argument `params` is a dictionary from the name of a parameter to the text of its type.
    """
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
    """Parses a text that contains functions, and returns the module of these functions."""
    return parsed(parse_module_at, whole_text(text, name))


def _expression(place: Span) -> Any:
    """Returns the syntax tree of a program's text: an expression, or a module with functions."""
    text, name = place.source.text, place.source.name
    # The misspelt `deff f(x): …` looks like an expression, but its spelling is corrected to `def f(x): …`, and the
    # corrected text is a module.
    return parse_module_at(place) if is_module(text) else parse_expression(text, name)


def is_module(text: str) -> bool:
    """Checks whether a text is a module, not an expression. A text with a line that begins with `def` is a module."""
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
    """Finds types of the program's parameters among the settings of `compile`, such as `entry="f32[N]"`.

    The result is a dictionary from the name of a parameter to the text of its type. The argument `settings` is a
    dictionary with the values of `entry` and the other keyword parameters of `compile`.
    """
    if is_module(text):
        return {}
    return {name: value for name, value in settings.items() if re.search(rf"\b{name}\b", text) and _is_type(value)}


def _is_type(value: Any) -> bool:
    """Checks whether a value looks like a type, such as "f32[N]"."""
    if isinstance(value, str):
        with suppress(CompileError):
            # `float32[N]` is accepted too, so that an error message can correct this misspelt type
            return bool(re.fullmatch(r"\w+\[.*\]", value.strip()) or parse_type(value))
    return False


def all_types(keywords: Mapping[str, Any], types: Any) -> dict[str, str | None]:
    """Returns the types of all parameters. The type of a parameter is given as a keyword argument or in the mapping
    `types`.

    Raises CompileError MT0004 for a value that is not a text. Raises MT0104 for a parameter that has two types.
    """
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
    """Returns the parameters of an expression without types, in the order in which they first occur.

    The parameters of `x + pi * y` are x and y. Names that the language defines, such as `pi`, are no parameters. Names
    of other libraries, such as `np`, are no parameters, because using another library in a program is a mistake.
    """
    known = {*NAMED_VALUES, *PREFIXES}
    nodes = ast.postorder(parsed(_expression, whole_text(text, name)))
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id not in known]
    return dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.span.start))


# ---- Python functions ---------------------------------------------------------------------------


def from_function(function: Callable[..., object]) -> ast.Module:
    """Returns a module that contains only the given Python function.

    Raises ParseError if `function` is not a Python function, or if it is a lambda, a generator or an async function.
    Raises ParseError if the source text of `function` is not available.
    """
    plain = plain_function(function)
    if plain.__name__ == "<lambda>":
        raise ParseError("MT0002", "a lambda cannot be compiled", help=_PLAIN)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise ParseError("MT0002", f"`{plain.__name__}` is an async function", help=_PLAIN)
    if inspect.isgeneratorfunction(plain):
        raise ParseError("MT0002", f"`{plain.__name__}` is a generator", help="`return a, b` gives several outputs")
    place = function_place(plain)
    return parsed(parse_module_at, place, known={*plain.__globals__, *plain.__code__.co_freevars})


def plain_function(function: Callable[..., object]) -> FunctionType:
    """Returns the plain Python function that the decorators of `function` wrap."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        raise ParseError("MT0003", f"a {type(plain).__name__} has no text to compile", help=_PLAIN)
    return plain


# ---- the text of a Python function ----------------------------------------------------------------


def function_place(function: FunctionType) -> Span:
    """Returns the source range (span) of a function in its file, without its decorators.

    Raises ParseError MT0003 if the text of the function is not available.
    """
    try:
        lines, first = _lines(function)
        block = inspect.getblock(lines[first:])
        tokens = tokenize.generate_tokens(iter(block).__next__)
        # Decorators before the `def` cannot contain the word `def`, because Python reserves this word.
        row, column = next(t.start for t in tokens if t.type == tokenize.NAME and t.string == "def")
    except (OSError, TypeError, IndexError, SyntaxError, StopIteration, tokenize.TokenError):
        raise _no_text(function) from None
    before = "".join(lines[:first])
    start = len(before) + len("".join(block[: row - 1])) + column
    source = _source(_shown(function.__code__.co_filename), "".join(lines))
    return Span(source, start, len(before) + len("".join(block)))


def _lines(function: FunctionType) -> tuple[list[str], int]:
    """Returns the lines of a function's file, and the index of the function's first line."""
    try:
        return inspect.findsource(function)
    except OSError:
        if function.__code__.co_filename != PROMPT:
            raise
        return _typed(function), 0


def _shown(file: str) -> str:
    """Returns the name that error messages show for a file."""
    # IPython stores a cell in a file with a generated name, but the user knows the cell as `Cell In[3]`.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)
    return " ".join(named(file) or [file])


def _no_text(function: FunctionType) -> ParseError:
    name = function.__name__
    help = f'give the text itself, `mt.compile("""def {name}(…): …""")`, or define it in a file or a notebook cell'
    if function.__code__.co_filename == PROMPT:
        help += "; Python 3.13 and newer keep the text of what is typed"
    return ParseError("MT0003", f"the source text of `{name}` cannot be found", help=help)


# ---- the prompt of Python before 3.13 -----------------------------------------------------------


def _typed(function: FunctionType) -> list[str]:
    """Returns the lines typed at Python's prompt, from the last `def` with the name of `function` to the last line."""
    lines = [line + "\n" for line in _history()]
    head = re.compile(rf"\s*def\s+{re.escape(function.__name__)}\b")
    found = lines[max((k for k, line in enumerate(lines) if head.match(line)), default=len(lines)) :]
    made = compile("".join(inspect.getblock(found)), PROMPT, "exec")
    if _bytecode(function.__code__) not in [_bytecode(c) for c in made.co_consts if isinstance(c, CodeType)]:
        raise OSError("the function is not in the history")
    return found


def _history() -> Sequence[str]:
    """Returns the lines that were typed at Python's prompt, from the history of readline."""
    readline = sys.modules.get("readline")
    if readline is None:
        return ()  # Python was started without readline
    return [readline.get_history_item(k + 1) or "" for k in range(readline.get_current_history_length())]


def _bytecode(code: CodeType) -> tuple[object, ...]:
    """Returns the bytecode of a code object, and the names and constants that the bytecode uses."""
    return code.co_code, code.co_names, code.co_varnames, repr(code.co_consts)
