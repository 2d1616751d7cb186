"""Shortens the traceback of a CompileError: a Python user sees at most eight lines, and none of minitri's own frames.

    Traceback (most recent call last):
      File "train.py", line 3, in <module>
    CompileAxisError: error[MT0204]: axis 2 is out of range for an array of rank 2
      --> <expression>:1:1
      1 | sum(x, axis=2)
        | ^^^^^^^^^^^^^^
      = help: it has 2 axes: -2 to 1
      = more: minitri explain MT0204

The decorator `hides_frames` removes the frames of minitri's own functions from a CompileError that leaves a public
function. For a CompileError, loggers and debuggers show only the caller's frames. After a CompileError, scripts,
Python's prompt and IPython print only the caller's frames and the text of the error. With MINITRI_TRACEBACK=1 in the
environment, all frames are kept and printed.
"""

import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from minitri.base.diagnostics import CompileError

LINES = 8
PACKAGE = str(Path(__file__).parent.parent)
F = TypeVar("F", bound=Callable[..., Any])


def hides_frames(function: F) -> F:
    """Decorates a public function: if the function raises a CompileError, the traceback of the error has no frames of
    minitri.
    """

    @wraps(function)
    def entry(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except CompileError as error:
            forget_frames(error)
            raise  # a bare `raise` adds no frame

    return entry  # type: ignore[return-value]


def hides_frames_of_methods(kind: F) -> F:
    """Decorates a public class: applies the decorator `hides_frames` to the public methods of the class.

    The decorator treats properties, `__init__` and `__getitem__` as public methods too.
    """
    for name, value in list(vars(kind).items()):
        if callable(value) and (not name.startswith("_") or name in ("__init__", "__getitem__")):
            setattr(kind, name, hides_frames(value))
        elif isinstance(value, property) and value.fget is not None:
            setattr(kind, name, property(hides_frames(value.fget), doc=value.__doc__))
    return kind


def forget_frames(error: CompileError) -> None:
    """Removes all frames that the traceback of an error has so far, and makes Python print the error in a few lines.

    If the environment variable MINITRI_TRACEBACK has a value other than "0" and "", the function does nothing.
    """
    if os.environ.get("MINITRI_TRACEBACK", "0") in ("", "0"):
        error.__traceback__ = error.__cause__ = None
        _print_in_short()


def _print_in_short() -> None:
    """Installs functions that print errors in a few lines."""
    if sys.excepthook is sys.__excepthook__:  # no other package has installed a function
        sys.excepthook = _hook
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:  # IPython has its own table of functions
        shell.set_custom_exc((CompileError,), show_in_ipython)


def _hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    if isinstance(error, CompileError):
        print("\n".join(lines(error, frames)), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, frames)


def show_in_ipython(shell: Any, kind: type[CompileError], error: CompileError, *_: Any, **__: Any) -> list[str]:
    """Prints the lines of an error in IPython, and returns them for the notebook.

    The printed lines do not quote the caller's code, because the notebook already shows the cell with this code.
    """
    shown = lines(error, None)
    shell._showtraceback(kind, error, shown)
    return shown


def lines(error: CompileError, frames: TracebackType | None) -> list[str]:
    """Returns the lines to print for an error: the caller's innermost frame, and then the text of the error.

    If there would be more than `LINES` lines, some lines about the caller's frame are left out.
    """
    text = f"{type(error).__name__}: {error}".split("\n")
    called = [f for f in traceback.extract_tb(frames) if not f.filename.startswith(PACKAGE)][-1:]
    place = [f'  File "{f.filename}", line {f.lineno}, in {f.name}' for f in called]
    source = [f"    {f.line}" for f in called if f.line]
    room = LINES - len(text)
    head = ["Traceback (most recent call last):", *place] if called and room > 1 else place[:room]
    return [*head, *source[: room - len(head)], *text]
