"""The Python front end: from a decorated function to the tree of its source text.

In: a Python function. Out: the same `Module` as from its text in a `.mt` file, with spans that point into the Python
file. The one idea: the function never runs and its annotations are never evaluated. The one grammar parses the text
from its `def` to its end, in place:

    @mt.jit                                 (skipped)
    def f(x: "f32[M, N]"):             →    Module(Function("f", ...))
        return softmax(x, axis=-1)

Left out: the variables around the function. It sees its parameters and the library only.
"""

from __future__ import annotations

import inspect
import tokenize
from collections.abc import Callable
from types import FunctionType

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Source, Span
from minitri.language import ast
from minitri.language.parser import parse_module_at

_PLAIN = "decorate a plain function, written with `def`"


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
