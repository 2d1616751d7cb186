"""The generated reference of the language's functions, docs/reference/operators.md.

Make the page with `python -m minitri.reference.operators > docs/reference/operators.md`.

In: the operator table, the signatures, the library. Out: Markdown. The one idea: what a reader
looks up is what the compiler looks up; a new row of the table is a new line of the reference.

Left out: a definition of each structured function. `MEANING` has one line for each; what is
exact is minitri/language/reference_functions.py, which is numpy.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from minitri.base.diagnostics import CODES
from minitri.base.numpy_semantics import REDUCTIONS, SCANS
from minitri.base.operators import ALIASES, OPERATORS, Operator
from minitri.base.tables import code, markdown_table
from minitri.base.types import DTYPES, DType, promote
from minitri.language import library
from minitri.language.signatures import FUNCTION_ALIASES, KEYWORD_ALIASES, SIGNATURES, describe

KINDS = {"b": "bool", "i": "signed", "u": "unsigned", "f": "float"}
OPERANDS = {"same": "", "float": "as floats", "bool": "as bool", "where": "bool, then any"}

MEANING = {
    **{name: row.doc for name, row in REDUCTIONS.items()},
    **{f"cumulative_{name}": REDUCTIONS[name].scan_doc for name in SCANS},
    "mean": "the sum divided by the number of elements",
    "var": "the mean squared distance from the mean, in two passes; divides by n - correction, and is NaN where that is not positive",
    "std": "the square root of var",
    "matmul": "`a @ b`: numpy's rules for 1-D operands and batches; `precision` of factors of f32",
    "einsum": "products summed over named axes, from left to right: `einsum(\"bik,bkj->bij\", a, b)`",
    "tensordot": "products summed over pairs of axes: the last and first `axes` ones, or two tuples of axes",
    "dot": "numpy's: the last axis of x1 with the last but one of x2; elementwise if one is a scalar",
    "inner": "the last axis of x1 with the last axis of x2",
    "kron": "every element of x1 times all of x2, as one larger array",
    "cross": "the cross product along an axis of size 3",
    "matrix_power": "a square matrix times itself, n times; the unit matrix for n = 0",
    "matrix_norm": "of the last two axes: `\"fro\"`, 1, -1, inf or -inf",
    "reshape": "the same elements in row-major order; one size may be -1",
    "expand_dims": "new axes of size 1 at these places of the result",
    "squeeze": "without these axes of size 1 (all of them if none is named)",
    "moveaxis": "axes moved to other places; the others keep their order",
    "flatten": "the axes from start_dim to end_dim joined, in row-major order",
    "unstack": "a tuple: x without an axis, at each place of it; the size is known when compiled",
    "split": "a tuple: a number of equal parts, or the parts between places where to cut",
    "permute_dims": "axes in another order (reversed if none is given); also `x.T`",
    "swapaxes": "two axes swapped, torch's `x.transpose(0, 1)`",
    "matrix_transpose": "the last two axes swapped; also `x.mT`",
    "broadcast_to": "repeated to a shape",
    "broadcast_arrays": "a tuple: each array repeated to the shape in which all meet",
    "broadcast_shapes": "the shape in which arrays of these shapes meet",
    "meshgrid": "a tuple: for each 1-D array its elements over a grid of all; \"xy\" swaps the first two axes, \"ij\" does not",
    "tile": "x repeated as a whole, so many times along each axis",
    "repeat": "each element repeated; `repeats` is one number, or a tuple with one for each element",
    "flip": "backwards along axes (all if none is named)",
    "roll": "shifted along axes, what leaves one end enters the other",
    "pad": "a constant around: n, (before, after), or one pair for each axis",
    "concat": "arrays of one rank, one after another along an axis; each flattened first if the axis is None",
    "stack": "arrays of one shape, along a new axis",
    "hstack": "one after another along the second axis; along the first for 1-D arrays",
    "vstack": "one after another along the first axis; 1-D arrays are rows",
    "dstack": "one after another along the third axis",
    "column_stack": "one after another along the second axis; 1-D arrays are columns",
    "diff": "`x[1:] - x[:-1]` along an axis, n times; `prepend` and `append` stand before and after x",
    "diagonal": "the elements (i, i + offset) of two axes, as a new last axis",
    "diag": "of a vector the matrix with it on the k-th diagonal; of a matrix its k-th diagonal",
    "tril": "zero above the k-th diagonal of the last two axes",
    "triu": "zero below the k-th diagonal of the last two axes",
    "take": "`x[..., indices, ...]` at an axis; of the flattened array if none is named",
    "take_along_axis": "one index for each element of the result",
    "searchsorted": "where each of x2 belongs in x1, which is sorted: before its equals, or after them for \"right\"; i64",
    "one_hot": "1 at the index, 0 elsewhere, along a new last axis; f32 unless told",
    "arange": "start, start + step, … below stop; i64, or f32 if a number has a point",
    "zeros": "f32 unless told", "ones": "f32 unless told",
    "full": "a scalar, repeated to a shape",
    "zeros_like": "zeros of the shape and dtype of x", "ones_like": "ones of the shape and dtype of x",
    "full_like": "a scalar, with the shape and dtype of x",
    "eye": "1 on the k-th diagonal, 0 elsewhere; f32 unless told",
    "asarray": "numbers and lists of them as an array, `asarray([[1, 2], [3, 4]])`; f32 or i64 unless told",
    "astype": "converted to a dtype; also `x.astype(dtype)`",
    "nextafter": "the next number of the dtype in which both meet, from x1 towards x2",
    "result_type": "the dtype in which arrays, dtypes and numbers meet",
    "can_cast": "does one dtype go into the other without loss? known when compiled",
    "isdtype": "is a dtype another one, or of a kind such as \"integral\"? known when compiled",
    "finfo": "the limits of a float dtype: `bits eps max min smallest_normal dtype`",
    "iinfo": "the limits of an integer dtype: `bits max min dtype`",
}  # fmt: skip


def reference() -> str:
    """docs/reference/operators.md."""
    parts = [HEAD, "## Elementwise operators\n", OPERATORS_HEAD, operators(), "## How they are computed\n",
             COMPUTED_HEAD, computed(), "## Functions with structure\n", FUNCTIONS_HEAD, functions(),
             "## The library\n", LIBRARY_HEAD, definitions(), "## Other names\n", OTHERS_HEAD, others()]  # fmt: skip
    return "\n".join(parts)


HEAD = """\
# Operators and functions

<!-- Generated by `python -m minitri.reference.operators > docs/reference/operators.md`. Do not edit. -->

Every function that a program can call. The compiler itself reads the same tables: `minitri/base/operators.py`,
`minitri/language/signatures.py` and `minitri/language/library/`. [semantics.md](semantics.md) has the dtypes in which
operands meet, and the differences from numpy.
"""
OPERATORS_HEAD = """\
Operands are first broadcast and converted to one dtype. *Operands* says what else happens to them: *as floats* converts
integers and bools to f32, *as bool* compares with zero. The result has the dtype of the operands unless *result* says
bool.
"""
COMPUTED_HEAD = """\
*Triton* is the Triton expression for the operands `{0}`, `{1}`, `{2}`, with `{t}` for their dtype. If it depends on the
dtype, there is one for each kind (b i u f) or name. `libdevice` is the CUDA or HIP math library, `rt` is
`minitri/triton/rt.py`.

*ulp* bounds the error of an f32 result on a CUDA GPU, in units in the last place. 0.5 means correctly rounded; more is
counted from the correctly rounded result.

*Derivative* has one expression for each operand. It uses the operands x, y, z, the result `out` and its gradient `g`. `-`
means that it is zero or does not exist.
"""
FUNCTIONS_HEAD = """\
`axis` counts from 0, or from the end if negative. A tuple names several axes, and `None` means all of them. A shape is a
tuple of integers and dimensions. Every function and operator can be written as a method: `x.sum(axis=0)` is
`sum(x, axis=0)`.
"""
LIBRARY_HEAD = """\
These functions are written in the language itself, and each call is inlined. The text is the definition.
"""
OTHERS_HEAD = """\
Other libraries use these names. The table says what they mean here.
"""


# ---- operators ---------------------------------------------------------------------------


def operators() -> str:
    head = ("name", "written", "takes", "operands", "result", "meaning")
    return markdown_table(head, (_operator(row) for row in OPERATORS.values()))


def _operator(row: Operator) -> list[str]:
    takes = "anything" if row.accepts == "biuf" else ", ".join(KINDS[k] for k in row.accepts)
    result = "bool" if row.result == "bool" else ""
    return [code(row.name), code(_written(row)), takes, OPERANDS[row.operands], result, row.doc]


def _written(row: Operator) -> str:
    if not row.symbol:
        return f"{row.name}({', '.join('xyz'[: row.arity])})"
    return f"{row.symbol}x" if row.arity == 1 else f"x {row.symbol} y"


def computed() -> str:
    head = ("name", "Triton", "ulp", "derivative")
    return markdown_table(head, (_computed(row) for row in OPERATORS.values()))


def _computed(row: Operator) -> list[str]:
    derivative = ", ".join(code(d) or "-" for d in row.derivative)
    return [code(row.name), _spellings(row), f"{row.ulp:g}", derivative]


def _spellings(row: Operator) -> str:
    if isinstance(row.triton, str):
        return code(row.triton)
    return "; ".join(f"{kinds}: {code(text)}" for kinds, text in row.triton.items())


# ---- functions ---------------------------------------------------------------------------


def functions() -> str:
    return markdown_table(("function", "meaning"), ((describe(name), MEANING[name]) for name in SIGNATURES))


def definitions() -> str:
    """The source of the library, a block for each file."""
    blocks: list[str] = []
    for source, group in groupby(library.functions().values(), key=lambda f: f.span.source):
        names = ", ".join(code(f.name) for f in group)
        blocks.append(f"{names} (`{source.name}`)\n\n```python module\n{source.text.strip()}\n```\n")
    return "\n".join(blocks)


def others() -> str:
    pairs = sorted({**ALIASES, **FUNCTION_ALIASES}.items())
    names = markdown_table(("name", "means"), ((code(a), code(b)) for a, b in pairs))
    keywords = markdown_table(("keyword", "means"), ((code(a), code(b)) for a, b in sorted(KEYWORD_ALIASES.items())))
    return f"{names}\n{keywords}"


# ---- parts of other documents --------------------------------------------------------------


def promotion() -> str:
    """What two dtypes meet in."""
    names = list(DTYPES)
    return markdown_table(
        ("", *map(code, names)), ([code(a), *(_met(DTYPES[a], DTYPES[b]) for b in names)] for a in names)
    )


def _met(a: DType, b: DType) -> str:
    return promote(a, b).name


def codes() -> str:
    """Every error code."""
    return markdown_table(("code", "problem"), ((code(c), text) for c, text in CODES.items()))


def errors() -> str:
    """docs/reference/errors.md: a page about each code."""
    from minitri.errors.pages import document

    return document()


def foreign() -> str:
    """docs/reference/names.md: the names of other libraries."""
    from minitri.reference.names import names

    return names()


def passes() -> str:
    """The passes of the pipeline, in order, and then the optimisations that happen within other passes."""
    from minitri.optimize.rooms import OPTIONAL, PARTS, PASSES

    found = [(p.name, p.stage, p.function.__module__) for p in PASSES if p.function is not None]
    found += [(part.name, part.stage, part.module) for part in PARTS]
    rows = (
        (code(name), code(stage), "yes" if name in OPTIONAL else "", code(module.removeprefix("minitri.")))
        for name, stage, module in found
    )
    return markdown_table(("pass", "makes the stage", "optional", "in"), rows)


def grammar(of: str) -> str:
    """The grammar of an IR: the first indented block of its module's docstring."""
    docstring = inspect.getdoc(importlib.import_module(f"minitri.{of}")) or ""
    block = re.search(r"^(?:    .*\n|\n(?=    ))+", docstring, re.MULTILINE)
    assert block is not None, of
    return f"```text\n{textwrap.dedent(block[0]).strip()}\n```\n"


def definition(name: str) -> str:
    """A function of the library as it is written."""
    return f"```python module\ndef {library.functions()[name].span.text}\n```\n"


PARTS: dict[str, Callable[..., str]] = {
    "promotion": promotion, "codes": codes, "passes": passes, "grammar": grammar, "definition": definition,
}  # fmt: skip
"""Generated parts of documents, each between `<!-- generated: NAME ... -->` and `<!-- end -->`."""


def filled(text: str) -> str:
    """A document with its generated parts brought up to date."""
    return "".join(_filled(text.splitlines(keepends=True)))


def _filled(lines: Sequence[str]) -> Iterator[str]:
    skipping = False
    for line in lines:
        skipping = skipping and line.strip() != "<!-- end -->"
        if not skipping:
            yield line
        if line.startswith("<!-- generated: "):
            name, *rest = line.removeprefix("<!-- generated: ").split()[:-1]
            yield f"\n{PARTS[name](*rest)}\n"
            skipping = True


def main(arguments: Sequence[str]) -> None:
    """Prints the reference, or the page `errors` or `names`; or fills in the generated parts of the files that are named."""
    pages = {(): reference, ("errors",): errors, ("names",): foreign}
    if page := pages.get(tuple(arguments)):
        sys.stdout.write(page())
        return
    for name in arguments:
        path = Path(name)
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
