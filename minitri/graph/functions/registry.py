"""The table of the language's functions that are not elementwise.

Each is a Python function `(Typer, **bound arguments) -> Value`. The decorator `@function` adds it to the table under
its own name. minitri/language/signatures.py has the signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minitri.graph.typing_rules import Value

Function = Callable[..., Value]
F = TypeVar("F", bound=Function)
FUNCTIONS: dict[str, Function] = {}


def function(implementation: F) -> F:
    """Adds a function to `FUNCTIONS` under its own name, without a `_` at the end."""
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation
