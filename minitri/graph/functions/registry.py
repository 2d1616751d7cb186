"""The table of the language's structured functions, and what all of them use.

Each is a Python function `(Typer, **bound arguments) -> Value`, registered under its own name
by `@function`; minitri/language/signatures.py has the signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.types import DTYPES, DType, from_numpy
from minitri.graph.typer import Array, Typer, Value, describe

Function = Callable[..., Value]
F = TypeVar("F", bound=Function)
FUNCTIONS: dict[str, Function] = {}


def function(implementation: F) -> F:
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation


def view(t: Typer, x: Array, shape: Sequence[Dim], index: Sequence[Dim]) -> Array:
    """The view of an array, and of what it is in f64 if it is f32 by default."""
    node, *wide = (t.nodes.view(n, tuple(shape), tuple(index)) for n in (x.node, x.wide) if n is not None)
    return Array(node, x.dtype, x.weak, *wide)


def as_dtype(value: Value, default: DType) -> DType:
    """The dtype that an argument names; the default for None. CompileError MT0202 for anything else."""
    if value is None:
        return default
    if isinstance(value, DType):
        return value
    named = DTYPES.get(value) or from_numpy(value) if isinstance(value, str) else None
    help = f"write `{named}`, without quotes" if named else "write f32, i64, bool, …"
    raise CompileError("MT0202", f"a dtype is needed here, not {describe(value)}", help=help)
