"""THE operator table: one row adds an elementwise operator. A second table has the reductions and scans.

    [expm1]
    doc = "exp(x) - 1, exact near zero"
    triton = "libdevice.expm1({0})"
    …

In: operators.toml, which has the rows. Out: `OPERATORS`, name → `Operator`, with `BY_SYMBOL` (infix and prefix
symbols) and `ALIASES` (other libraries' spellings). Everything that knows operators iterates over this table:

  - calls and symbols in the language, and typing
  - the reference evaluators and the Triton emitter
  - the functions that Triton's interpreter sees (minitri/triton/rt_interpreter.py)
  - docs/reference/operators.md, which is generated, and the property tests

A row speaks about arithmetic in *compute* dtypes only: f32, f64, integers and bool. f16 and bf16
values are widened to f32 before any operator sees them (docs/reference/semantics.md).

The meaning is numpy's. If numpy raises, warns or leaves the result open, the meaning is:

    x // 0, x % 0                  0 for integers
    b ** -n                        1 / b**n truncated: 1, ±1 for b = ±1, else 0 (also for b = 0)
    x << n, x >> n                 0, or the sign, when n < 0 or n >= the number of bits
    maximum(0.0, -0.0)             either zero (also minimum and clip)

`ulp` is the error for f32 on a CUDA GPU. It is 0.5 if the result is correctly rounded. Otherwise it is
the distance from the correctly rounded result. The figures are from the CUDA C++ Programming Guide
(appendix "Mathematical Functions"); composed operators add them up.

Kernels must be compiled with `enable_reflect_ftz=False`. With Triton's default, the math library
treats denormals as zero, so that sin, tanh or erf of a denormal is 0.

`REDUCTIONS` is the table of reductions and scans, read from reductions.toml: one row adds one to the language, its
reference, the typing rules, every evaluator, the proofs and docs/reference/operators.md. A kernel calls `reduce_NAME`
and `scan_NAME` of minitri/triton/rt.py. An unknown name is an error everywhere (`reduction`, `running`).

Left out: contractions and views. They are node classes of the graph.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minitri.base import numpy_operators
from minitri.base.types import DType, bool_, f32


@dataclass(frozen=True, slots=True)
class Operator:
    """One elementwise operator.

    name       function name in the language (the array API standard's where it has one)
    arity      number of array operands
    numpy      reference: called with numpy arrays of one compute dtype (see `operands`),
               returns an array of the result dtype; errors are silenced by the caller.
               A row names the function: one of numpy_operators.py, or else one of numpy;
               by default the one that is called as the operator is
    triton     expression template over {0} {1} {2} (operand names) and {t} (`tl.float32`, the
               operand dtype); or one template for each kind or dtype: {"f64": ..., "iu": ...}.
               May use `tl`, `libdevice` (CUDA/HIP math library) and `rt`
               (minitri/triton/rt.py). Must also run in Triton's interpreter, where a
               template that is one call of `libdevice` or `rt` is the row's own `numpy`
    doc        one line
    accepts    dtype kinds it takes, of "b" "i" "u" "f"
    operands   what operands are converted to first: "same" the promoted dtype; "float" the
               same, but integers and bools become f32; "bool"; "where" (bool, then "same")
    result     "operand" the operand dtype; "bool"
    symbol     infix or prefix spelling, if it has one
    aliases    its names in other libraries
    domain     interval random f32/f64 test values are drawn from (special values are added)
    ulp        error bound in units in the last place of f32: 0.5 is correctly rounded; a larger
               bound counts from the correctly rounded result
    derivative  one language expression for each operand, over x, y, z, `out` and `g` (gradient of the
               result); "" if there is none or it is zero
    cost       "cheap": one or two instructions; "special": a slow or special-function one
    relaxed    a shorter f32 spelling, good to about 2**-18, for kernels whose results are rounded
               to 16 bits (minitri/optimize/fast_math/relax.py)
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    triton: str | dict[str, str]
    doc: str
    accepts: str = "biuf"
    operands: Literal["same", "float", "bool", "where"] = "same"
    result: Literal["operand", "bool"] = "operand"
    symbol: str = ""
    aliases: tuple[str, ...] = ()
    domain: tuple[float, float] = (-1e3, 1e3)
    ulp: float = 0.5
    derivative: tuple[str, ...] = ()
    cost: Literal["cheap", "special"] = "cheap"
    relaxed: str = ""

    def operand_dtype(self, promoted: DType) -> DType:
        """The dtype operands are converted to, given their promoted dtype."""
        if self.operands == "bool":
            return bool_
        if self.operands == "float" and not promoted.is_float:
            return f32
        return promoted

    def result_dtype(self, operand: DType) -> DType:
        return bool_ if self.result == "bool" else operand

    @property
    def templates(self) -> dict[str, str]:
        """The Triton templates by the kinds ("iu") or the dtype name ("f64") they are for."""
        return {"biuf": self.triton} if isinstance(self.triton, str) else self.triton

    def spelling(self, operand: DType) -> str:
        """The Triton template for operands of this dtype."""
        own = self.templates.get(operand.name)
        return own or next(t for kinds, t in self.templates.items() if kinds.isalpha() and operand.kind in kinds)

    def spell(self, operand: DType, *names: str, relaxed: bool = False) -> str:
        """The Triton expression over operands with these names."""
        short = self.relaxed if relaxed and operand == f32 else ""
        return (short or self.spelling(operand)).format(*names, t=f"tl.{operand.triton}")


# ---- the table ---------------------------------------------------------------------------

OPERATORS: dict[str, Operator] = {}
BY_SYMBOL: dict[tuple[str, int], Operator] = {}  # (symbol, arity): `-` is prefix and infix
ALIASES: dict[str, str] = {}


def register(op: Operator) -> Operator:
    """Adds a row to the table."""
    assert op.name not in OPERATORS, op.name
    OPERATORS[op.name] = op
    ALIASES.update(dict.fromkeys(op.aliases, op.name))
    if op.symbol:
        BY_SYMBOL[op.symbol, op.arity] = op
    return op


def _operator(name: str, row: dict[str, Any]) -> Operator:
    """A row as it is written. `numpy` names a function of numpy_operators.py, or else of numpy."""
    function = row.pop("numpy", name)
    numpy = getattr(numpy_operators, function, None) or getattr(np, function)
    fields: dict[str, Any] = {f: tuple(value) if isinstance(value, list) else value for f, value in row.items()}
    return Operator(name, numpy=numpy, **fields)


for _name, _row in tomllib.loads(Path(__file__).with_name("operators.toml").read_text(encoding="utf-8")).items():
    register(_operator(_name, _row))

# Floats whose result jumps where an operand passes some value; so does every operator that makes no float of one.
JUMPS = ("floor", "ceil", "trunc", "round", "sign", "floor_divide", "remainder", "fmod", "power")


# ---- reductions and scans ---------------------------------------------------------------------------

# "sum", "product": integers become 64 bits wide, and floats are rounded at each step.
# "extreme", "logical": the result is one of the elements, of numbers or of truth values.
# "bits": exact, of integers; one changed element may change the result to any other.
# "position": the index of the first best element along one axis, as i64.
Kind = Literal["sum", "product", "extreme", "logical", "bits", "position"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to make one element of all elements along an axis.

    name       its function in the language; its scan is called `cumulative_NAME`
    ufunc      numpy's function of two elements, which is associative and commutative
    neutral    the element that changes nothing: a number, or the "lowest" or "highest" of the dtype
    combine    the operator that combines two partial results; of a position, the test for a better element
    kind       what the types, the error bounds and the proofs have to know; see `Kind`
    accepts    the kinds of dtypes of the elements, of "b" "i" "u" "f"
    doc        one line about the reduction
    scan_doc   one line about its scan; empty if it has none
    """

    name: str
    ufunc: np.ufunc
    neutral: int | bool | Literal["lowest", "highest"]
    combine: str
    kind: Kind
    accepts: str
    doc: str
    scan_doc: str = ""


_TABLE = tomllib.loads(Path(__file__).with_name("reductions.toml").read_text(encoding="utf-8"))
REDUCTIONS = {name: Reduction(name, getattr(np, row.pop("ufunc")), **row) for name, row in _TABLE.items()}
POSITIONS = frozenset(name for name, row in REDUCTIONS.items() if row.kind == "position")
SCANS = tuple(name for name, row in REDUCTIONS.items() if row.scan_doc)
COMBINE = {name: row.combine for name, row in REDUCTIONS.items() if row.kind != "position"}


def reduction(op: str) -> Reduction:
    """The row of a reduction. Raises ValueError for an unknown name."""
    if op not in REDUCTIONS:
        raise ValueError(f"there is no reduction {op}")
    return REDUCTIONS[op]


def running(op: str) -> Reduction:
    """The row of a scan. Raises ValueError for an unknown name, and for a reduction that has no scan."""
    if op not in SCANS:
        raise ValueError(f"there is no scan {op}")
    return REDUCTIONS[op]


def neutral(op: str, dtype: DType) -> int | float | bool:
    """The element that a reduction ignores: -inf for max, not the smallest finite value."""
    value = reduction(op).neutral
    if value == "lowest":
        return float("-inf") if dtype.is_float else dtype.limits[0]
    if value == "highest":
        return float("inf") if dtype.is_float else dtype.limits[1]
    return bool(value) if dtype.kind == "b" else float(value) if dtype.is_float else int(value)


def fill_value(dtype: DType) -> int | float | bool:
    """The value that a gather returns for an index outside its array."""
    return float("nan") if dtype.is_float else False if dtype.kind == "b" else 0
