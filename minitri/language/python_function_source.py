"""Finds the text of a Python function in its file.

    @mt.jit                       ← not part of the span
    def f(x: "f32[M, N]"):        ← the span begins here
        return 2 * x              ← the span ends here

In: a function. Out: a `Span` that points into the whole file, so that errors name the lines of the file. Python's
module `inspect` finds the text of functions in files and in cells of IPython. `inspect` also finds text that was typed
at the prompt of Python 3.13 or newer. Older versions of Python do not store the text that was typed. For older
versions, python_function_source.py searches the history of the prompt. Lines of the history are used only if they
compile to the same bytecode as the function.
"""

import inspect
import re
import sys
import tokenize
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FunctionType

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Source, Span

PROMPT = "<stdin>"  # the file of what is typed, before Python 3.13
_source = lru_cache(maxsize=16)(Source)  # all functions of a file have the same `Source`


def place(function: FunctionType) -> Span:
    """Returns the span of a function in its file: from its `def`, after the decorators, to its end.

    Raises ParseError MT0003 if the text of the function is not available.
    """
    try:
        lines, first = _lines(function)
        block = inspect.getblock(lines[first:])
        row, column = _find_def(block)
    except (OSError, TypeError, IndexError, SyntaxError, tokenize.TokenError):
        raise _no_text(function) from None
    before = "".join(lines[:first])
    start = len(before) + len("".join(block[: row - 1])) + column
    source = _source(_shown(function.__code__.co_filename), "".join(lines))
    return Span(source, start, len(before) + len("".join(block)))


def _lines(function: FunctionType) -> tuple[list[str], int]:
    """Returns the lines of the function's file, and the index of the function's first line.

    Raises OSError if the lines are not available.
    """
    try:
        return inspect.findsource(function)
    except OSError:
        if function.__code__.co_filename != PROMPT:
            raise
        return _typed(function), 0


def _shown(file: str) -> str:
    """Returns the name that error messages show for a file.

    IPython stores the text of a cell in a file with a generated name, but the user knows the cell as `Cell In[3]`.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)
    return " ".join(named(file) or [file])


def _find_def(block: list[str]) -> tuple[int, int]:
    """Returns the row and column of the first `def`.

    Decorators before the `def` cannot contain the word `def`, because Python reserves this word.
    """
    for token in tokenize.generate_tokens(iter(block).__next__):
        if token.type == tokenize.NAME and token.string == "def":
            return token.start
    raise OSError("no def")


def _no_text(function: FunctionType) -> ParseError:
    name = function.__name__
    help = f'give the text itself, `mt.compile("""def {name}(…): …""")`, or define it in a file or a notebook cell'
    if function.__code__.co_filename == PROMPT:
        help += "; Python 3.13 and newer keep the text of what is typed"
    return ParseError("MT0003", f"the source text of `{name}` cannot be found", help=help)


# ---- the prompt of Python before 3.13 -----------------------------------------------------------


def _typed(function: FunctionType) -> list[str]:
    """Returns the lines that were typed at the prompt, from the first line of the function on.

    Raises OSError if the history does not have the lines of the function.
    """
    lines = _history()
    head = re.compile(rf"\s*def\s+{re.escape(function.__name__)}\b")
    first = max((k for k, line in enumerate(lines) if head.match(line)), default=None)
    if first is None:
        raise OSError("it was not typed")
    found = [line + "\n" for line in lines[first:]]
    if not _same_code(compile("".join(inspect.getblock(found)), PROMPT, "exec"), function.__code__):
        raise OSError("the history has another function")
    return found


def _history() -> Sequence[str]:
    """Returns the lines in the history of readline. Returns no lines if Python was started without readline."""
    readline = sys.modules.get("readline")
    if readline is None:
        return ()
    return [readline.get_history_item(k + 1) or "" for k in range(readline.get_current_history_length())]


def _same_code(module: CodeType, code: CodeType) -> bool:
    """Checks whether the function that a module defines has the same bytecode as `code`."""
    made = next((c for c in module.co_consts if isinstance(c, CodeType)), None)
    return made is not None and _content(made) == _content(code)


def _content(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_names, code.co_varnames, repr(code.co_consts)
