"""The array API standard, 2024.12: minitri has every name of it, or docs/reference/language.md says why not.

Special cases are the ones that the standard lists for real numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from stages import CPU_STAGES, program

from minitri.base.operators import ALIASES, OPERATORS
from minitri.language.ast import CONSTANTS
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, library_function, library_spans

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

STANDARD = {
    "constants": "e inf nan newaxis pi",
    "creation functions": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like "
    "tril triu zeros zeros_like",
    "data type functions": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise functions": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or "
    "bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater "
    "greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not "
    "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder "
    "round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "indexing functions": "take take_along_axis",
    "inspection": "__array_namespace_info__",
    "linear algebra functions": "matmul matrix_transpose tensordot vecdot",
    "manipulation functions": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze "
    "stack tile unstack",
    "searching functions": "argmax argmin count_nonzero nonzero searchsorted where",
    "set functions": "unique_all unique_counts unique_inverse unique_values",
    "sorting functions": "argsort sort",
    "statistical functions": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility functions": "all any diff",
    "the extension linalg": "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose "
    "outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm",
    "the extension fft": "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift",
}
MISSING = {
    "complex numbers": "conj imag real",
    "a shape that depends on data": "nonzero unique_all unique_counts unique_inverse unique_values",
    "factorisations": "cholesky det eigh eigvalsh inv matrix_rank pinv qr slogdet solve svd svdvals",
    "Fourier transforms": STANDARD["the extension fft"],
    "Python's side": "from_dlpack __array_namespace_info__",
}


def names(of: dict[str, str]) -> list[str]:
    return [name for listed in of.values() for name in listed.split()]


def test_every_name_is_here_or_has_a_reason() -> None:
    here = {*OPERATORS, *SIGNATURES, *library_spans(), *ALIASES, *FUNCTION_ALIASES, *CONSTANTS, "newaxis"}
    assert len({*names(STANDARD)}) == 172
    assert sorted({*names(STANDARD)} - here) == sorted(names(MISSING))


def test_the_documents_list_what_is_missing() -> None:
    text = (Path(__file__).parent.parent / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    section = text.split("### The array API standard\n")[1].split("\n## ")[0]
    listed = {*re.findall(r"`(\w+)`", section)}
    assert {*names(MISSING)} <= listed, {*names(MISSING)} - listed


# ---- special cases -----------------------------------------------------------------------------

nan, inf, pi = math.nan, math.inf, math.pi

UNARY: dict[str, list[tuple[float, float]]] = {
    "abs": [(-0.0, 0.0), (-inf, inf)],
    "acos": [(1.5, nan), (-1.5, nan), (inf, nan), (1, 0.0)],
    "acosh": [(0.5, nan), (-inf, nan), (1, 0.0), (inf, inf)],
    "asin": [(1.5, nan), (-1.5, nan), (0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (inf, pi / 2), (-inf, -pi / 2)],
    "atanh": [(-1.5, nan), (1.5, nan), (-1, -inf), (1, inf), (0.0, 0.0), (-0.0, -0.0)],
    "ceil": [(3, 3), (inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (-0.5, -0.0)],
    "cos": [(0.0, 1), (-0.0, 1), (inf, nan), (-inf, nan)],
    "cosh": [(0.0, 1), (-0.0, 1), (inf, inf), (-inf, inf)],
    "exp": [(0.0, 1), (-0.0, 1), (inf, inf), (-inf, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1)],
    "floor": [(3, 3), (inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0)],
    "log": [(-1, nan), (-inf, nan), (0.0, -inf), (-0.0, -inf), (1, 0.0), (inf, inf)],
    "log1p": [(-2, nan), (-inf, nan), (-1, -inf), (0.0, 0.0), (-0.0, -0.0), (inf, inf)],
    "log2": [(-1, nan), (-inf, nan), (0.0, -inf), (-0.0, -inf), (1, 0.0), (inf, inf)],
    "log10": [(-1, nan), (-inf, nan), (0.0, -inf), (-0.0, -inf), (1, 0.0), (inf, inf)],
    "negative": [(0.0, -0.0), (-0.0, 0.0), (inf, -inf)],
    "positive": [(0.0, 0.0), (-0.0, -0.0), (-inf, -inf)],
    "reciprocal": [(0.0, inf), (-0.0, -inf), (inf, 0.0), (-inf, -0.0)],
    "round": [(3, 3), (inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (0.5, 0.0), (1.5, 2), (-0.5, -0.0), (2.5, 2)],
    "sign": [(-3, -1), (0.0, 0), (-0.0, 0), (3, 1), (inf, 1), (-inf, -1)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf)],
    "square": [(-inf, inf), (-0.0, 0.0)],
    "sqrt": [(-1, nan), (-inf, nan), (0.0, 0.0), (-0.0, -0.0), (inf, inf)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1), (-inf, -1)],
    "trunc": [(3, 3), (inf, inf), (-inf, -inf), (0.0, 0.0), (-0.0, -0.0), (-0.5, -0.0)],
}
FALSE_OR_TRUE: dict[str, list[tuple[float, float]]] = {
    "isfinite": [(nan, False), (inf, False), (-inf, False), (-0.0, True), (3, True)],
    "isinf": [(nan, False), (inf, True), (-inf, True), (3, False)],
    "isnan": [(nan, True), (inf, False), (3, False)],
    "signbit": [(0.0, False), (-0.0, True), (inf, False), (-inf, True), (3, False), (-3, True)],
    "logical_not": [(nan, False), (0.0, True), (-0.0, True), (inf, False)],
}
Rows = list[tuple[float, float, float]]
BINARY: dict[str, Rows] = {
    "add": [
        (inf, -inf, nan), (-inf, inf, nan), (inf, inf, inf), (-inf, -inf, -inf), (inf, 2, inf), (2, -inf, -inf), (-0.0, -0.0, -0.0),
        (-0.0, 0.0, 0.0), (0.0, -0.0, 0.0), (-0.0, 2, 2), (2, -0.0, 2), (2, -2, 0.0),
    ],
    "subtract": [(inf, inf, nan), (-inf, -inf, nan), (-0.0, 0.0, -0.0), (0.0, 0.0, 0.0), (0.0, -0.0, 0.0), (2, 2, 0.0), (2, inf, -inf)],
    "multiply": [(inf, 0.0, nan), (-0.0, -inf, nan), (inf, -inf, -inf), (inf, -2, -inf), (-2, -inf, inf), (-0.0, 2, -0.0), (-0.0, -2, 0.0)],
    "divide": [
        (inf, -inf, nan), (inf, inf, nan), (0.0, -0.0, nan), (0.0, 2, 0.0), (-0.0, 2, -0.0), (0.0, -2, -0.0), (-0.0, -2, 0.0), (2, 0.0, inf),
        (2, -0.0, -inf), (-2, 0.0, -inf), (-2, -0.0, inf), (inf, 2, inf), (inf, -2, -inf), (-inf, 2, -inf), (2, inf, 0.0), (2, -inf, -0.0), (-2, inf, -0.0),
    ],
    "floor_divide": [  # an infinity as in Python, which the standard allows
        (inf, inf, nan), (-inf, inf, nan), (0.0, -0.0, nan), (0.0, 2, 0.0), (-0.0, 2, -0.0), (0.0, -2, -0.0), (-0.0, -2, 0.0), (2, 0.0, inf), (2, -0.0, -inf),
        (-2, 0.0, -inf), (-2, -0.0, inf), (inf, 2, nan), (-inf, 2, nan), (inf, -2, nan), (2, inf, 0.0), (2, -inf, -1), (-2, inf, -1), (-2, -inf, 0.0), (-5, 2, -3),
    ],
    "remainder": [
        (inf, inf, nan), (-inf, 2, nan), (inf, -2, nan), (0.0, 0.0, nan), (-0.0, 0.0, nan), (2, 0.0, nan), (-2, -0.0, nan), (0.0, 2, 0.0), (-0.0, 2, 0.0),
        (0.0, -2, -0.0), (-0.0, -2, -0.0), (2, inf, 2), (2, -inf, -inf), (-2, inf, inf), (-2, -inf, -2), (-5, 2, 1), (5, -2, -1),
    ],
    "pow": [
        (2, nan, nan), (1, nan, 1), (nan, 0.0, 1), (nan, -0.0, 1), (nan, 2, nan), (3, inf, inf), (-3, inf, inf), (3, -inf, 0.0), (1, inf, 1), (-1, inf, 1),
        (-1, -inf, 1), (0.5, inf, 0.0), (0.5, -inf, inf), (-0.5, inf, 0.0), (inf, 2, inf), (inf, -2, 0.0), (-inf, 3, -inf), (-inf, 2, inf), (-inf, 2.5, inf),
        (-inf, -3, -0.0), (-inf, -2, 0.0), (0.0, 2, 0.0), (0.0, -2, inf), (-0.0, 3, -0.0), (-0.0, 2, 0.0), (-0.0, -3, -inf), (-0.0, -2, inf), (-2, 0.5, nan),
        (-inf, inf, inf), (0.0, -inf, inf),
    ],
    "atan2": [
        (2, 0.0, pi / 2), (2, -0.0, pi / 2), (0.0, 2, 0.0), (0.0, 0.0, 0.0), (0.0, -0.0, pi), (0.0, -2, pi), (-0.0, 2, -0.0), (-0.0, 0.0, -0.0), (-0.0, -0.0, -pi),
        (-0.0, -2, -pi), (-2, 0.0, -pi / 2), (-2, -0.0, -pi / 2), (2, inf, 0.0), (2, -inf, pi), (-2, inf, -0.0), (-2, -inf, -pi), (inf, 2, pi / 2), (-inf, 2, -pi / 2),
        (inf, inf, pi / 4), (inf, -inf, 3 * pi / 4), (-inf, inf, -pi / 4), (-inf, -inf, -3 * pi / 4),
    ],
    "copysign": [(2, -0.0, -2), (-2, 0.0, 2), (inf, -2, -inf), (0.0, -2, -0.0), (-0.0, inf, 0.0), (nan, 2, nan), (2, -inf, -2)],
    "hypot": [(inf, nan, inf), (nan, -inf, inf), (-inf, 2, inf), (2, inf, inf), (2, nan, nan), (nan, 2, nan), (-0.0, -2, 2), (-2, 0.0, 2)],
    "logaddexp": [(nan, 2, nan), (2, nan, nan), (inf, 2, inf), (2, inf, inf), (inf, inf, inf), (-inf, -inf, -inf), (-inf, 2, 2), (inf, nan, nan)],
    "maximum": [(nan, 2, nan), (2, nan, nan), (inf, nan, nan), (inf, 2, inf), (-inf, -2, -2)],
    "minimum": [(nan, 2, nan), (2, nan, nan), (-inf, nan, nan), (inf, 2, 2), (-inf, -2, -inf)],
    "nextafter": [(nan, 2, nan), (2, nan, nan), (0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (inf, inf, inf)],
    "equal": [(nan, nan, 0), (inf, inf, 1), (-inf, -inf, 1), (inf, -inf, 0), (0.0, -0.0, 1)],
    "not_equal": [(nan, nan, 1), (inf, inf, 0), (inf, -inf, 1), (0.0, -0.0, 0)],
    "less": [(nan, 2, 0), (2, nan, 0), (-inf, inf, 1), (-0.0, 0.0, 0)],
    "greater_equal": [(nan, nan, 0), (0.0, -0.0, 1), (inf, inf, 1)],
}  # fmt: skip
NO_NAN = (
    "pow",
    "copysign",
    "hypot",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "greater_equal",
)  # their text names its dtypes


def same(got: np.ndarray, want: list[float], what: str) -> None:
    """Asserts equal results: NaN is NaN, a zero has its sign, other numbers are close."""
    expected = np.array(want, np.float64)
    tolerance = 1e-6 if got.dtype == np.float32 else 1e-15
    np.testing.assert_allclose(got, expected, tolerance, 0, err_msg=what)
    zeros = expected == 0
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]), err_msg=what)


def arguments(tables: Iterable[Iterable[tuple[float, ...]]], d: str, operand: int) -> np.ndarray:
    return np.array([row[operand] for table in tables for row in table], {"f32": np.float32, "f64": np.float64}[d])


@pytest.mark.parametrize("stage", CPU_STAGES)
@pytest.mark.parametrize("d", ["f32", "f64"])
def test_special_cases_of_one_operand(d: str, stage: str) -> None:
    tables = {**{k: [(nan, nan), *v] for k, v in UNARY.items()}, **FALSE_OR_TRUE}
    texts = ", ".join(f"{name}(x)" for name in tables)
    found = program(texts, (("x", f"{d}[N]"),)).run(stage, arguments(tables.values(), d, 0))
    compared(tables, found)


def compared(tables: Mapping[str, Sequence[tuple[float, ...]]], found: Iterable[np.ndarray]) -> None:
    """Each function has received the arguments of all tables, one table after another."""
    start = 0
    for (name, table), got in zip(tables.items(), found):
        same(got[start : start + len(table)], [row[-1] for row in table], f"{name} {table}")
        start += len(table)


@pytest.mark.parametrize("stage", CPU_STAGES)
@pytest.mark.parametrize("d", ["f32", "f64"])
def test_special_cases_of_two_operands(d: str, stage: str) -> None:
    rows = {n: r if n in NO_NAN else [*r, (nan, 2.0, nan), (2.0, nan, nan), (nan, nan, nan)] for n, r in BINARY.items()}
    texts = ", ".join(f"{name}(x, y)" for name in rows)
    operands = [arguments(rows.values(), d, k) for k in (0, 1)]
    compared(rows, program(texts, (("x", f"{d}[N]"), ("y", f"{d}[N]"))).run(stage, *operands))


REDUCED = {
    "sum(x[:0])": 0, "prod(x[:0])": 1, "mean(x[:0])": nan, "var(x[:0])": nan, "std(x[:1], correction=1.0)": nan, "any(x[:0])": 0, "all(x[:0])": 1,
    "max(x)": nan, "min(x)": nan, "sum(x)": nan, "argmax(x)": 2, "argmin(x)": 2, "any(x[2:])": 1, "all(x)": 0, "var(x[:2], correction=0.0)": 0.25,
    "count_nonzero(x)": 2, "max(x[1:2])": 1, "mean(x[:2])": 0.5, "prod(x[1:2])": 1,
}  # fmt: skip


@pytest.mark.parametrize("stage", CPU_STAGES)
def test_special_cases_of_reductions(stage: str) -> None:
    """A reduction with a NaN is NaN; `any` counts NaN as true; an empty axis gives the neutral element, or NaN."""
    found = program(", ".join(REDUCED), (("x", "f64[3]"),)).run(stage, np.array([0.0, 1.0, nan]))
    for (text, want), got in zip(REDUCED.items(), found):
        np.testing.assert_array_equal(np.float64(got), want, err_msg=text)


# ---- parameters --------------------------------------------------------------------------------

PARAMETERS = {  # the standard's keyword parameters, except `device` and `copy`
    "arange": "stop step dtype", "asarray": "dtype", "empty": "dtype", "empty_like": "dtype", "eye": "k dtype", "full": "dtype", "full_like": "dtype",
    "linspace": "dtype endpoint", "meshgrid": "indexing", "ones": "dtype", "ones_like": "dtype", "tril": "k", "triu": "k", "zeros": "dtype",
    "zeros_like": "dtype", "take": "axis", "take_along_axis": "axis", "tensordot": "axes", "vecdot": "axis", "concat": "axis", "expand_dims": "axis",
    "flip": "axis", "permute_dims": "axes", "repeat": "axis", "reshape": "shape", "roll": "axis", "squeeze": "axis", "stack": "axis", "unstack": "axis",
    "broadcast_to": "shape", "argmax": "axis keepdims", "argmin": "axis keepdims", "count_nonzero": "axis keepdims", "searchsorted": "side sorter",
    "argsort": "axis descending stable", "sort": "axis descending stable", "cumulative_sum": "axis dtype include_initial", "max": "axis keepdims",
    "cumulative_prod": "axis dtype include_initial", "mean": "axis keepdims", "min": "axis keepdims", "prod": "axis dtype keepdims", "all": "axis keepdims",
    "std": "axis correction keepdims", "sum": "axis dtype keepdims", "var": "axis correction keepdims", "any": "axis keepdims",
    "diff": "axis n prepend append", "cross": "axis", "diagonal": "offset", "matrix_norm": "keepdims ord", "trace": "offset dtype",
    "vector_norm": "axis keepdims ord",
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_have_the_names_of_the_standard(name: str) -> None:
    plain = FUNCTION_ALIASES.get(name, name)
    parameters = library_function(plain).params if plain in library_spans() else None
    own = [p.name for p in parameters] if parameters else [p.lstrip("*") for p in SIGNATURES[plain]]
    assert {*PARAMETERS[name].split()} <= {*own}
