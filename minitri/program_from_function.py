"""A program made from a Python function, which is compiled again when a function or constant that it uses changes.

    EPS = 1e-5

    @mt.jit
    def unit(x):
        return x / sqrt(sum(x * x) + EPS)

    unit(x)
    EPS = 1e-3
    unit(x)                 compiles again: EPS has changed

In: the function. Out: a Program. language/linking.py makes one module of the function and the functions that it calls.
Every use of the program compares these functions and constants with their earlier values. A repeated call on a GPU has
no other cost.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitri.base.time_and_memory_limits import using
from minitri.base.tracebacks import hides_frames_of_methods
from minitri.base.types import DType
from minitri.language.front_end import from_function, plain_function
from minitri.language.linking import Definition, link, of_module, of_python
from minitri.program import Program
from minitri.runtime.binding import Call


def defined(function: Callable[..., Any]) -> Definition:
    """Returns the definition of a Python function.

    Raises ParseError if the function has no source text, or is not in the language.
    """
    return of_python(plain_function(function), from_function(function).functions[-1])


def definition(value: Any) -> Definition | None:
    """Returns the definition of a value that other functions can call.

    A program has a definition, unless it was read from the text of a stage.
    """
    if isinstance(value, FunctionProgram):
        return value.definition
    if isinstance(value, Program) and value.start is None:
        return of_module(value.module, value.name)
    return None


@hides_frames_of_methods
class FunctionProgram(Program):
    """A program made from a Python function, as the docstring of this module explains.

    The settings are those of the class `Program`.
    """

    def __init__(self, definition: Definition, **settings: Any) -> None:
        self.definition, self.settings = definition, settings
        self._link()

    def _link(self) -> None:
        linked = link(self.definition, definition)
        self.missing, self.watched = linked.missing, linked.reads
        super().__init__(linked.module, **self.settings)

    def _check_signature(self) -> None:
        """Does nothing, because the file may define functions further down.

        Errors in such functions are found at the first call.
        """
        text = self.definition.function.span.source.text
        if not any(re.search(rf"^\s*def\s+{name}\b", text, re.MULTILINE) for name in self.missing):
            super()._check_signature()

    def refresh(self) -> None:
        """Links the module again if a function or a constant has changed."""
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
    """Checks whether two values are the same constant: 1, 1.0 and True differ."""
    constant = isinstance(new, (int, float, tuple, DType)) and type(old) is type(new)
    return old is new or (constant and repr(old) == repr(new))
