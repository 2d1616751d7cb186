"""The library: functions written in the language itself and inlined where they are called."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from minitri.language import ast
from minitri.language.parser import parse_module


@cache
def functions() -> dict[str, ast.Function]:
    """Every library function by name."""
    found: dict[str, ast.Function] = {}
    for path in sorted(Path(__file__).parent.glob("*.mt")):
        for function in parse_module(path.read_text(), f"minitri/language/library/{path.name}").functions:
            found[function.name] = function
    return found
