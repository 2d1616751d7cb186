"""Collects the errors of a program, so that one compilation reports several mistakes.

    def f(x: f32[N]):
        y = x + 1 / z           error: there is no `z`; the value of y is BROKEN
        return log(x, 2) * y    error: log takes one argument; the product with y is no further error

A wrong expression has the value `BROKEN`. An expression that uses a `BROKEN` value is `BROKEN` too. After an error, the
graph builder goes on with the next expression. At the end of the program, the builder raises the error that comes first
in the text. The attribute `others` of this error has all later errors.
"""

from collections.abc import Container, Mapping
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.spans import Span
from minitri.graph.corrections import correct
from minitri.graph.names import is_method, unknown_function
from minitri.language import ast
from minitri.language.ast_interpreter import Interpreter
from minitri.language.signatures import function_names

BROKEN: Any = object()
MOST_ERRORS = 20


class ErrorCollection(Interpreter):
    """An interpreter that goes on after an error.

    errors  the errors found so far in the program
    calls   the functions whose bodies surround the current expression, each with the span of its call
    site    the span of the user's call while the body of a library function is built, else None
    """

    def __init__(self, functions: Mapping[str, ast.Function]) -> None:
        super().__init__(functions)
        self.errors: list[CompileError] = []
        self.calls: list[tuple[ast.Function, Span]] = []
        self.site: Span | None = None

    def refuse(self, error: CompileError, node: ast.Node, values: dict[int, Any]) -> Any:
        """Stores an error and returns `BROKEN`, the value of the wrong expression.

        If the wrong expression is in a library function, the method raises the error, and the caller of the library
        function stores it.
        """
        if self.site is not None:
            error.notes = error.notes or (f"in `{_short(node.span)}` at {node.span}",)
            raise error.at(self.site)
        correct(error.at(node.span), node, values)
        if self.calls and error.code != "MT0105":
            call = self.calls[-1][1]
            error.notes = (f"called at {call}: `{_short(call)}`",)
        if error.code == "MT0401":
            raise error
        if (error.span, error.message) not in [(e.span, e.message) for e in self.errors]:
            self.errors.append(error)
        if len(self.errors) == MOST_ERRORS:
            raise self.all_errors()
        return BROKEN

    def broken(self, node: ast.Node, values: dict[int, Any], scope: Container[str], root: Any) -> Any:
        """Returns `BROKEN` as the value of an expression with a wrong operand.

        If the expression is a call of an unknown function, stores an error for this function too.
        """
        if not isinstance(node, ast.Call) or node.function in scope or node.function in self.functions:
            return BROKEN
        of_broken = is_method(node) and values[id(node.args[0])] is BROKEN
        of_function = any(isinstance(a, ast.Name) and a.id in function_names() for a in node.args)
        if of_broken or of_function or node.function in function_names():
            return BROKEN
        return self.refuse(unknown_function(node, self.functions, function_names(), root), node, values)

    def all_errors(self) -> CompileError:
        """Returns the error that comes first in the text. The attribute `others` of this error has all other errors."""
        first, *others = sorted(self.errors, key=lambda e: e.span.start if e.span else 0)
        first.others = tuple(others)
        return first


def _short(span: Span) -> str:
    """Returns the text of a span on one line, for a note in an error message."""
    text = " ".join(span.text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"
