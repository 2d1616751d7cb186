"""The table of the language's structured functions, and what all of them use.

Each is a Python function `(Typer, **bound arguments) -> Value`, registered under its own name
by `@function`; minitri/language/signatures.py has the signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minitri.graph.typer import Value

Function = Callable[..., Value]
F = TypeVar("F", bound=Function)
FUNCTIONS: dict[str, Function] = {}


def function(implementation: F) -> F:
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation
