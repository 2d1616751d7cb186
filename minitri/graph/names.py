"""The names of the language, and what a name in an expression stands for.

    x → the value bound above     pi → 3.14…     f32 → the dtype     exp → an error: it is a function

In: a name, the names bound so far and the functions of the module. Out: its value, or a CompileError
MT0101. The one idea: the program's own names come before those of the language.
"""

from __future__ import annotations

from collections.abc import Collection

from minitri.base.diagnostics import CompileError
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.types import DTYPES
from minitri.graph.typer import Scope, Value
from minitri.graph.unknown_names import unknown_name
from minitri.language import ast, library
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES

CONSTANTS: dict[str, float] = {
    "inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "e": 2.718281828459045,
}  # fmt: skip


def value_of_name(node: ast.Name, functions: Collection[str], scope: Scope, root: ast.Expr) -> Value:
    """What a name stands for that the program has not bound. `root` is the whole expression, for a better message about an unknown name."""
    name = node.id
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name == "newaxis":
        return None
    if name in DTYPES:
        return DTYPES[name]
    if name in functions or is_function(name):
        raise CompileError("MT0101", f"`{name}` is a function: call it", help=f"`{name}(…)`")
    raise unknown_name(node, root, [*scope, *functions], [*CONSTANTS, *DTYPES, *function_names()])


def function_names() -> list[str]:
    """Every function of the language: operators, structured functions, the library, aliases."""
    return [*OPERATORS, *ALIASES, *SIGNATURES, *FUNCTION_ALIASES, *library.functions()]


def is_function(name: str) -> bool:
    return name in function_names()
