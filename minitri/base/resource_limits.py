"""Limits the time and memory that the compiler may use for one minitri program.

    with mt.limits(source=1_000_000, seconds=600):
        program = mt.compile(text)

If the compilation of a program needs more than a limit allows, the compiler raises CompileError MT0401. The error's
text names the limit and says how to raise the limit. The one idea: no program text can make the compiler use an
unlimited amount of time or memory. A user who trusts a program text can raise the limits.

A compiled program stores the limits that were set when the program was compiled. The limits do not apply to Triton's
own compiler, which cannot be interrupted. The limits do not apply to the run time of compiled programs.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import Any

from minitri.base.diagnostics import CompileError, ensure, misspelt
from minitri.base.nodes import Record
from minitri.base.spans import Span

# No option raises these limits. They are limits of numpy or Triton, or they limit how deep the compiler recurses.
MAX_RANK = 64  # axes of a value
MAX_DEGREE = 64  # factors of one term of a size
MAX_ELEMENTS = 1 << 59  # elements of a value: at 8 bytes an element, the size fits 64 bits
MAX_LANES = 1 << 20  # elements of a tile
MAX_CALLS = 100  # depth of nested function calls
MAX_BITS = 1023  # bits of an integer constant: a number with more bits is larger than every float


class Limits(Record):
    """The limits on the time and memory of compiling one program. A caller can set higher limits."""

    source: int = 64 * 1024  # characters of one text
    nesting: int = 5_000  # depth of nested brackets
    name: int = 200  # characters of a name
    digits: int = 400  # characters of a number
    operations: int = 100_000  # nodes of the graph
    terms: int = 1_000  # terms of the size of one axis: (M + N) * (K + L) has four
    code: int = 4 << 20  # characters of generated source
    seconds: float = 120  # processor time of the compiler's passes up to one stage


_DEFAULT = Limits()
_current: ContextVar[Limits] = ContextVar("limits", default=_DEFAULT)
# The times at which the limit `seconds` is reached: by the wall clock, and in processor time of this thread.
_deadlines: ContextVar[tuple[float, float] | None] = ContextVar("deadlines", default=None)


def current() -> Limits:
    return _current.get()


def limits(**changed: float) -> AbstractContextManager[Limits]:
    """Sets some limits inside the `with` block. All other limits stay the same.

    Raises CompileError MT0404 for the name of an unknown limit, or a value that is not a number above 0.
    """
    names = [f.name for f in fields(Limits)]
    for name, value in changed.items():
        if name not in names:
            raise misspelt("MT0404", "there is no limit", name, names, f"limits are {', '.join(names)}")
        is_positive = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        ensure(is_positive, "MT0404", f"the limit `{name}` must be a number above 0")
    return using(replace(_current.get(), **changed))


def using(wanted: Limits) -> AbstractContextManager[Limits]:
    """Inside the `with` block, the limits in the argument `wanted` hold for the time and memory of each compilation."""
    return assigned(_current, wanted)


def timed() -> AbstractContextManager[object]:
    """Applies the limit `seconds` to the code in the `with` block. A `with` block inside another one shares the limit
    of the outer block.

    The limit `seconds` is an amount of processor time of this thread. Because the limit is processor time, other
    processes that keep the machine busy do not make a compilation fail.
    """
    seconds = current().seconds
    return assigned(_deadlines, _deadlines.get() or (time.perf_counter() + seconds, time.thread_time() + seconds))


@contextmanager
def assigned(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    """Gives a context variable a value inside the `with` block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def check_time() -> None:
    """Raises CompileError MT0401 if the compilation has exceeded its time limit.

    The compiler's loops over the operations of a program call `check_time`. Reading the processor time is slow on some
    systems, so the function reads it only after the wall-clock time has reached the limit. The processor time of one
    thread never exceeds the wall-clock time that has passed.
    """
    ends = _deadlines.get()
    if ends is not None and time.perf_counter() > ends[0] and time.thread_time() > ends[1]:
        raise exceeded("seconds", f"compiling takes more than {current().seconds:g} seconds")


def exceeded(name: str, message: str, span: Span | None = None) -> CompileError:
    """Returns the CompileError for an exceeded limit. The help text of the error says how to raise the limit `name`."""
    doubled = 2 * getattr(current(), name)
    help = f"if you trust the program: `with mt.limits({name}={doubled:_})`, or `--limit {name}={doubled}`"
    return CompileError("MT0401", message, span, help=help)


def check_limit(name: str, count: int, message: str, span: Span | None = None) -> None:
    """Raises CompileError MT0401 if `count` exceeds the limit `name`.

    The argument `message` is a format string. It can contain `{count:,}` and `{limit:,}`.
    """
    limit = getattr(current(), name)
    if count > limit:
        raise exceeded(name, message.format(count=count, limit=limit), span)


def check_product(terms: int, factors: int) -> None:
    """Raises CompileError MT0401 if a size has too many terms, or if a term has too many factors.

    Without the function `check_product`, a high power of a sum such as (M + N + K) would fill the memory with terms.
    """
    if terms > 1 and terms > current().terms:
        raise exceeded("terms", f"a size becomes a sum of {terms:,} terms, the limit is {current().terms:,}")
    if factors > MAX_DEGREE:
        raise CompileError("MT0401", f"a size becomes a product of more than {MAX_DEGREE} dimensions")
