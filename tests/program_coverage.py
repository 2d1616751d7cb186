"""Counts how many random programs use each construct of the language.

In: random programs, with or without their arguments. Out: a count for each construct. Constructs are operators and
functions by name, dtypes, and traits (`TRAITS`) such as arrays of size zero or with negative strides. A program is
valid Python, except for the `[]` of arrays without axes. So Python's own parser reads it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from minitri.base.operators import ALIASES, BY_SYMBOL, OPERATORS
from minitri.base.text_tables import table
from minitri.base.types import DTYPES
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, library_spans
from minitri.testing.small_random_programs import HELPERS, RandomProgram

SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.USub: "-", ast.UAdd: "+",
    ast.Invert: "~", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
OF_PROGRAMS = (
    "several outputs", "an argument that is a number", "a call within the module", "a slice", "an index array",
    "a condition on positions",
)  # fmt: skip
OF_ARGUMENTS = (
    "a size of 0", "a size of 1", "no axes", "axes in another order", "backwards in memory", "elements apart",
    "repeated elements", "NaN", "an infinity", "a denormal", "a negative zero",
)  # fmt: skip
CONSTRUCTS: dict[str, tuple[str, ...]] = {
    "operators": tuple(OPERATORS), "functions": (*SIGNATURES, *library_spans()), "dtypes": tuple(DTYPES),
    "programs": OF_PROGRAMS, "arguments": OF_ARGUMENTS,
}  # fmt: skip


def coverage(examples: Iterable[RandomProgram], seed: int = 0) -> Counter[str]:
    """For each of `CONSTRUCTS`: the number of programs in which it occurs."""
    found: Counter[str] = Counter()
    for k, example in enumerate(examples):
        found.update(set(_written(example)))
        found.update({trait for a in example.arguments(seed + k) for trait in _traits(a)})
    return found


def shown(found: Counter[str]) -> str:
    """A table of the constructs with the number of programs that have them."""
    rows = [(group, name, str(found[name])) for group, names in CONSTRUCTS.items() for name in names]
    return table([("", "construct", "programs"), *rows], (0, 1))


def _written(example: RandomProgram) -> Iterator[str]:
    for p in example.parameters:
        yield "an argument that is a number" if p.type == "float" else p.type.partition("[")[0]
    if re.search(r"where\([^\n]*arange\(", example.text):
        yield "a condition on positions"
    functions = ast.parse(example.text.replace("[]", "[()]")).body
    statements = [s for f in functions if isinstance(f, ast.FunctionDef) for s in f.body]
    for node in (n for s in statements for n in ast.walk(s)):
        match node:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield ALIASES.get(name, FUNCTION_ALIASES.get(name, name))
                if name in HELPERS:
                    yield "a call within the module"
            case ast.BinOp(op=ast.MatMult()):
                yield "matmul"
            case ast.BinOp(op=op) | ast.Compare(ops=[op]):
                yield BY_SYMBOL[SYMBOLS[type(op)], 2].name
            case ast.UnaryOp(op=op):
                yield BY_SYMBOL[SYMBOLS[type(op)], 1].name
            case ast.Attribute(attr="mT"):
                yield "matrix_transpose"
            case ast.Attribute(attr="T"):
                yield "permute_dims"
            case ast.Slice():
                yield "a slice"
            case ast.Subscript(slice=ast.Name()) | ast.Subscript(slice=ast.Tuple(elts=[*_, ast.Name()])):
                yield "an index array"
            case ast.Return(value=ast.Tuple()):
                yield "several outputs"


def _traits(array: Any) -> Iterator[str]:
    if not isinstance(array, np.ndarray):
        return
    if not array.ndim:
        yield "no axes"
    yield from (f"a size of {n}" for n in (0, 1) if n in array.shape)
    steps = [s // array.itemsize for n, s in zip(array.shape, array.strides) if n > 1]
    traits = {
        "backwards in memory": any(s < 0 for s in steps), "repeated elements": any(s == 0 for s in steps),
        "axes in another order": steps != sorted(steps, key=abs, reverse=True),
        "elements apart": bool(steps) and min(map(abs, steps)) > 1,
    }  # fmt: skip
    if array.dtype.kind in "fV" and array.size:
        x = array.astype(np.float64)
        smallest = 2.0**-126 if array.dtype.name != "float16" else 2.0**-14
        traits |= {
            "NaN": bool(np.isnan(x).any()), "an infinity": bool(np.isinf(x).any()),
            "a denormal": bool(((x != 0) & (np.abs(x) < smallest)).any()),
            "a negative zero": bool(((x == 0) & np.signbit(x)).any()),
        }  # fmt: skip
    yield from (name for name, there in traits.items() if there)
