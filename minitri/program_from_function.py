"""A program that is a function of Python, and follows the functions and constants that it uses.

    EPS = 1e-5

    @mt.jit
    def unit(x):
        return x / sqrt(sum(x * x) + EPS)

    unit(x)
    EPS = 1e-3
    unit(x)                 compiles again: EPS has changed

In: the function. Out: a Program. language/linking.py makes one module of the function and of what it calls. Every use of
the program compares the values that the module was made with. A call that can be replayed pays for nothing else.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitri.base.resource_limits import using
from minitri.base.tracebacks import hides_frames_of_methods
from minitri.base.types import DType
from minitri.language.front_end import from_function, plain_function
from minitri.language.linking import Definition, link, of_module, of_python
from minitri.program import Program
from minitri.runtime.binding import Call


def defined(function: Callable[..., Any]) -> Definition:
    """The definition of a function of Python. Raises ParseError if it has no text, or is not in the language."""
    return of_python(plain_function(function), from_function(function).functions[-1])


def definition(value: Any) -> Definition | None:
    """The definition of a value that other functions can call: of a program, unless it begins at a later stage."""
    if isinstance(value, FunctionProgram):
        return value.definition
    if isinstance(value, Program) and value.start is None:
        return of_module(value.module, value.name)
    return None


@hides_frames_of_methods
class FunctionProgram(Program):
    """See the module. Settings are those of `Program`."""

    def __init__(self, definition: Definition, **settings: Any) -> None:
        self.definition, self.settings = definition, settings
        self._link()

    def _link(self) -> None:
        linked = link(self.definition, definition)
        self.missing, self.watched = linked.missing, linked.reads
        super().__init__(linked.module, **self.settings)

    def _check_signature(self) -> None:
        """Functions that the file defines further down are found at the first call."""
        text = self.definition.function.span.source.text
        if not any(re.search(rf"^\s*def\s+{name}\b", text, re.MULTILINE) for name in self.missing):
            super()._check_signature()

    def refresh(self) -> None:
        """Links again if a function or a constant has changed."""
        now = [(read, read()) for read, _ in self.watched]
        if all(_same(old, new) for (_, old), (_, new) in zip(self.watched, now)):
            self.watched = now
        else:
            with using(self.limits):
                self._link()

    @property
    def _source(self) -> str:
        return "\n\n".join(f.span.text.rstrip() for f in self.module.functions)

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
        self.refresh()
        return super()._bound(args, keywords)

    def _described(self, args: Sequence[Any], given: Mapping[str, Any]) -> Call:
        self.refresh()
        return super()._described(args, given)

    def _made(self, **settings: Any) -> Program:
        return FunctionProgram(self.definition, **settings)


def _same(old: Any, new: Any) -> bool:
    """Whether two values are the same constant: 1, 1.0 and True differ."""
    constant = isinstance(new, (int, float, tuple, DType)) and type(old) is type(new)
    return old is new or (constant and repr(old) == repr(new))
