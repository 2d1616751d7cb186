"""Sizes given by name in place of arrays: the keywords of `Program.lower`.

    f.lower(M=4096, B=(8, 16), n=2)      a dimension, the axes of `*B`, a scalar parameter

In: a function and the keywords. Out: the `Instance` to compile and the known sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim
from minitri.graph.parameters import Instance, sizes_of
from minitri.language import ast
from minitri.runtime.binding import scalar


def given_sizes(function: ast.Function, given: Mapping[str, Any]) -> tuple[Instance, dict[str, int]]:
    """The instance and the sizes that keywords say. Raises CompileError MT0304 for an unknown name or a bad size."""
    names, packs = dimension_names(function)
    scalars = {p.name: p for p in function.params if not isinstance(p.annotation, ast.ArrayType)}
    sizes: dict[str, int] = {}
    ranks: dict[str, int] = {}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in packs:
            axes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
            ranks[name] = len(axes)
            sizes.update({f"{name}{k}": _size(name, n) for k, n in enumerate(axes)})
        elif name in names:
            sizes[name] = _size(name, value)
        elif name in scalars:
            values[name] = scalar(scalars[name], value)
        else:
            known = [*names, *packs]
            help = suggest(name, known) or f"its dimensions: {', '.join(known) or 'none'}"
            raise CompileError("MT0304", f"{function.name} has no dimension `{name[:40]}`", help=help)
    return Instance(ranks, {}, values), sizes


def dimension_names(function: ast.Function) -> tuple[list[str], list[str]]:
    """The names of dimensions, and of packs of dimensions, in the types of the parameters."""
    found = sizes_of(function, {})
    return [n for n, d in found.items() if isinstance(d, Dim)], [n for n, d in found.items() if isinstance(d, tuple)]


def _size(name: str, value: Any) -> int:
    try:
        size = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        size = -1
    if 0 <= size < 2**40:
        return size
    raise CompileError("MT0304", f"the size of `{name}` must be an integer from 0 to 2**40 - 1, not {repr(value)[:40]}")
