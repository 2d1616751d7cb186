"""The operator table of the compiler. One row of the table adds one elementwise operator.

    [expm1]
    doc = "exp(x) - 1, exact near zero"
    triton = "libdevice.expm1({0})"
    …

The rows of the operator table are in the file operators.toml. The table `OPERATORS` maps names to `Operator`s.
`BY_SYMBOL` finds an operator by its infix or prefix symbol. `ALIASES` maps names of operators in other libraries to
names in the table. Several parts of the project read the operator table:

  - calls and symbols in the language, and typing
  - the evaluators, and the emitter of Triton source
  - the functions that Triton's interpreter calls (minitri/triton/rt_interpreter.py)
  - docs/reference/operators.md, which is generated, and the property tests

Operators compute in *compute* dtypes only: f32, f64, integers and bool. Before an operator is applied, values of f16
and bf16 are converted to f32 (docs/reference/semantics.md).

Operators have the same results as in numpy. If numpy raises an error, warns or does not define the result, the operator
has one of the following results:

    x // 0, x % 0                  0 for integers
    b ** -n                        for integers: 1 for b = 1, 1 or -1 for b = -1, and 0 for any other b
    x << n, x >> n                 0, or the sign, when n < 0 or n >= the number of bits
    maximum(0.0, -0.0)             either zero (also minimum and clip)

The column `ulp` of operators.toml is the error of an f32 result on a CUDA GPU, in units in the last place. The `ulp` of
an operator is 0.5 if its results are correctly rounded. For an operator without correct rounding, `ulp` is the largest
distance between a result and the correctly rounded result. The values of `ulp` come from the CUDA C++ Programming Guide
(appendix "Mathematical Functions"). If an operator calls several functions, its `ulp` is the sum of the errors of these
functions.

Kernels must be compiled with `enable_reflect_ftz=False`, so that the math library does not treat denormals as zero. By
default Triton lets the math library treat denormals as zero, so that sin, tanh or erf of a denormal is 0.

`REDUCTIONS`, the table of reductions and scans, is read from reductions.toml. One row of reductions.toml adds a
reduction to the language, the typing rules, all evaluators, all proofs about kernels, and docs/reference/operators.md.
For the reduction with the name NAME, kernels call the functions `reduce_NAME` and `scan_NAME` of minitri/triton/rt.py.
The functions `reduction` and `running` raise an error for an unknown name.

The operator table has no contractions such as `x @ y`, and no views such as `x[1:]`. Contractions and views have their
own node classes (minitri/graph/ir.py).
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from minitri.base import operators_unlike_numpy
from minitri.base.nodes import Record
from minitri.base.toml_tables import table_beside
from minitri.base.types import DType, bool_, f32


class Operator(Record):
    """One elementwise operator.

    `name`: the name of the operator's function in the language. If the array API standard has the function, `name` is
        the name in this standard.
    `arity`: the number of array operands.
    `numpy`: the numpy function that defines the operator. The function takes numpy arrays of compute dtypes, converted
        as the field `operands` says. The function returns an array of the result dtype. A row of operators.toml names a
        function of operators_unlike_numpy.py or of numpy. By default, the function has the operator's name. The caller
        silences numpy's warnings.
    `triton`: the operator's Triton expression, as a template. The operands replace {0}, {1} and {2}, and the operand
        dtype (`tl.float32`) replaces {t}. A dict has a template for each group of dtypes, for example for f64 and for
        integers: {"f64": ..., "iu": ...}. Templates can use `tl`, `libdevice` (the math library of CUDA and HIP) and
        `rt` (minitri/triton/rt.py). If the template is one call of `libdevice` or `rt`, Triton's interpreter calls the
        operator's numpy function.
    `doc`: a description of the operator in one line, for the reference pages.
    `accepts`: the kinds of dtypes that the operands can have. "iuf" stands for integers and floats.
    `operands`: the dtype to which operands are converted first. "same": the promoted dtype of all operands. "float":
        the promoted dtype, but integers and bools become f32. "bool": the dtype bool. "where": bool for the first
        operand, and the promoted dtype for the other two.
    `result`: the dtype of the result. "operand": the dtype of the operands. "bool": the dtype bool.
    `symbol`: the sign of an infix or prefix operator, such as `+`. "" for other operators.
    `aliases`: names of the same operator in other libraries.
    `domain`: the interval from which tests draw random f32 and f64 operands. Tests add special values such as inf.
    `ulp`: the largest error of an f32 result on a CUDA GPU, in units in the last place.
    `derivative`: the gradient of each operand, as an expression of the language. The operands are x, y and z, the
        result is `out`, and the gradient of the result is `g`. "" means that the derivative is zero or does not exist.
    `cost`: "cheap": the operator takes one or two instructions. "special": the operator is slow, or the
        special-function unit computes it.
    `instructions`: for an operator with far more instructions than others of its cost, their number for one f32 element,
        measured for cuda:90 with libdevice; otherwise 0.
    `relaxed`: a Triton template for f32 that is faster than `triton`, with a relative error of about 2**-18. Kernels
        that round their results to 16 bits may use the template `relaxed` (minitri/optimize/fast_math/relax.py).
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
    instructions: int = 0
    relaxed: str = ""

    def operand_dtype(self, promoted: DType) -> DType:
        """Returns the dtype to which the operator converts operands whose common dtype is `promoted`."""
        if self.operands == "bool":
            return bool_
        return f32 if self.operands == "float" and not promoted.is_float else promoted

    def result_dtype(self, operand: DType) -> DType:
        return bool_ if self.result == "bool" else operand

    @property
    def templates(self) -> dict[str, str]:
        """Returns a dictionary from dtypes to templates of Triton expressions. A key such as "f64" names one dtype. A
        key such as "iu" has a letter for each of several kinds of dtypes, here for all integers.
        """
        return {"biuf": self.triton} if isinstance(self.triton, str) else self.triton

    def spelling(self, operand: DType) -> str:
        """Returns the operator's Triton code, as a template, for operands of the dtype `operand`."""
        own = self.templates.get(operand.name)
        return own or next(t for kinds, t in self.templates.items() if kinds.isalpha() and operand.kind in kinds)

    def spell(self, operand: DType, *names: str, relaxed: bool = False) -> str:
        """Returns the Triton expression that applies the operator to operands with the given names. If the argument
        `relaxed` is true, f32 operands get the less exact template in the field `relaxed`, unless this field is empty.
        """
        short = self.relaxed if relaxed and operand == f32 else ""
        return (short or self.spelling(operand)).format(*names, t=f"tl.{operand.triton}")


# ---- the table ---------------------------------------------------------------------------

OPERATORS: dict[str, Operator] = {}
BY_SYMBOL: dict[tuple[str, int], Operator] = {}  # (symbol, arity): `-` is prefix and infix
ALIASES: dict[str, str] = {}


def register(op: Operator) -> Operator:
    """Adds an operator to the operator table, and returns the operator."""
    assert op.name not in OPERATORS, op.name
    OPERATORS[op.name] = op
    ALIASES.update(dict.fromkeys(op.aliases, op.name))
    if op.symbol:
        BY_SYMBOL[op.symbol, op.arity] = op
    return op


def _operator(name: str, row: dict[str, Any]) -> Operator:
    """Makes an operator from a row of the table operators.toml."""
    # the name of the function that computes the operator for numpy arrays: operators_unlike_numpy.py comes first
    function = row.pop("numpy", name)
    numpy = getattr(operators_unlike_numpy, function, None) or getattr(np, function)
    fields: dict[str, Any] = {f: tuple(value) if isinstance(value, list) else value for f, value in row.items()}
    return Operator(name, numpy=numpy, **fields)


for _name, _row in table_beside(__file__, "operators.toml").items():
    register(_operator(_name, _row))

# Operators with float results that are not continuous. Operators whose result is not a float are not continuous either.
JUMPS = ("floor", "ceil", "trunc", "round", "sign", "floor_divide", "remainder", "fmod", "power")


# ---- reductions and scans ---------------------------------------------------------------------------

# "sum", "product": integers become 64 bits wide, and floats are rounded at each step.
# "extreme", "logical": the result is one of the elements, which are numbers or bools.
# "bits": an operation on the bits of integers; the change of one element can change the result to any value.
# "position": the i64 index of the first largest or smallest element along one axis.
Kind = Literal["sum", "product", "extreme", "logical", "bits", "position"]


class Reduction(Record):
    """A reduction combines all elements along an axis into one element.

    `name`: the name of the function in the language, such as "sum". The name of the scan is "cumulative_" plus `name`,
        such as "cumulative_sum".
    `ufunc`: the numpy function that reduces two elements to one. The function is associative and commutative.
    `neutral`: a number that does not change the result, such as 0 for a sum. "lowest" and "highest" stand for the least
        and the greatest value of the dtype.
    `combine`: the operator that combines two partial results. For argmax and argmin, the operator compares an element
        with the best element so far.
    `kind`: the group of reductions that have the same typing, error bounds and proofs (see `Kind`).
    `accepts`: the kinds of dtypes that the elements can have. "iuf" stands for integers and floats.
    `doc`: a description of the reduction in one line, for the reference pages.
    `scan_doc`: a description of the scan in one line, or "" if the reduction has no scan.
    """

    name: str
    ufunc: np.ufunc
    neutral: int | bool | Literal["lowest", "highest"]
    combine: str
    kind: Kind
    accepts: str
    doc: str
    scan_doc: str = ""


_TABLE = table_beside(__file__, "reductions.toml")
REDUCTIONS = {name: Reduction(name, getattr(np, row.pop("ufunc")), **row) for name, row in _TABLE.items()}
POSITIONS = frozenset(name for name, row in REDUCTIONS.items() if row.kind == "position")
SCANS = tuple(name for name, row in REDUCTIONS.items() if row.scan_doc)
COMBINE = {name: row.combine for name, row in REDUCTIONS.items() if row.kind != "position"}


def reduction(op: str) -> Reduction:
    """Returns the row of the table `REDUCTIONS` with the name `op`. Raises ValueError for an unknown name."""
    if op not in REDUCTIONS:
        raise ValueError(f"there is no reduction {op}")
    return REDUCTIONS[op]


def running(op: str) -> Reduction:
    """Returns the row of the table `REDUCTIONS` for a scan (running reduction) such as "sum".

    Raises ValueError for an unknown name, and for a reduction that has no scan.
    """
    if op not in SCANS:
        raise ValueError(f"there is no scan {op}")
    return REDUCTIONS[op]


def neutral(op: str, dtype: DType) -> int | float | bool:
    """Returns the neutral element of a reduction for a dtype: 0 for a sum; -inf for a maximum of floats."""
    value = reduction(op).neutral
    if value == "lowest":
        return float("-inf") if dtype.is_float else dtype.limits[0]
    if value == "highest":
        return float("inf") if dtype.is_float else dtype.limits[1]
    return bool(value) if dtype.kind == "b" else float(value) if dtype.is_float else int(value)


def fill_value(dtype: DType) -> int | float | bool:
    """Returns the element that a gather gives for an index out of bounds: nan, false or 0."""
    return float("nan") if dtype.is_float else False if dtype.kind == "b" else 0
