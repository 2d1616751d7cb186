"""Every integer parameter of every function, with values at the limits of i64 and u64 and beyond, and wrong arguments.

The parameters come from the signatures and from the library. So new functions are tested, too. At every stage a call
must give the reference's result or a diagnostic. A traceback or another number is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from short_profile import every_second, one_in
from stages import program

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.language.signatures import REQUIRED, SIGNATURES, library_function, library_spans
from minitri.program import Program

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
STAGES = ("ast", "graph.simplified", "kernels", "tile.target", "triton")
ENDS = (-(2**100), -(2**64), -(2**63) - 1, -(2**63), -(2**63) + 1, -(2**31) - 1, -2, 2, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**100)  # fmt: skip
NEAR = (-2, 0, 1, 2)

# The arguments of other parameters: x is 2 x 3, i holds indices.
GIVEN: dict[str, str] = {
    "x": "x", "x1": "x", "x2": "x", "a": "x", "b": "x.T", "arrays": "(x, x)", "obj": "x", "dtype": "f32", "axes": "(1, 0)",
    "subscripts": '"ij->ji"', "operands": "x", "shape": "(2, 3)", "shapes": "(2, 3)", "indices": "i", "fill_value": "1", "n": "2",
    "shift": "1", "pad_width": "1", "num_classes": "4", "start": "0", "stop": "1", "num": "3", "repetitions": "2", "repeats": "2",
    "source": "0", "destination": "1", "axis1": "0", "axis2": "1", "indices_or_sections": "1", "n_rows": "2", "kind": "f32",
    "type": "f32", "from_": "f32", "to": "f32", "arrays_and_dtypes": "x", "logits": "x", "target": "i[0, :2]", "q": "x", "k": "x", "v": "x",
}  # fmt: skip
# Functions that need other arguments.
OWN: dict[str, dict[str, str]] = {
    "matrix_power": {"x": "x @ x.T"}, "cross": {"x1": "x", "x2": "x"}, "tensordot": {"x2": "x.T", "axes": "1"}, "dot": {"x2": "x.T"},
    "quantile": {"q": "0.5"}, "searchsorted": {"x1": "x[0]"}, "one_hot": {"x": "i"}, "meshgrid": {"arrays": "x[0]"}, "squeeze": {"x": "x[:, None]"},
    "arange": {"start": "0", "stop": "7"}, "permute_dims": {}, "diag": {"x": "x[0]"}, "take_along_axis": {"indices": "i"},
}  # fmt: skip
# Values that are not integers: arrays, dtypes, words, bools, and numbers with fractions.
OTHERS = {
    "x", "x1", "x2", "a", "b", "arrays", "obj", "dtype", "subscripts", "operands", "keepdims", "precision", "side", "sorter", "indexing",
    "include_initial", "kind", "type", "from_", "to", "arrays_and_dtypes", "approximate", "weight", "bias", "logits", "target", "q of attention", "k of attention", "indices of take_along_axis",
    "v", "equal_nan", "endpoint", "descending", "stable", "invert", "rtol", "atol", "eps", "nan", "posinf", "neginf", "scale", "shapes",
}  # fmt: skip
SIZES = {
    "shape",
    "pad_width",
    "num_classes",
    "num",
    "repetitions",
    "repeats",
    "n_rows",
    "n_cols",
    "indices_or_sections",
}
# The text around the value. The other values of a range follow it, because a range of that length has too many
# elements.
FORMS = {"axes of permute_dims": "({0}, 0)", "shape of broadcast_to": "({0}, 2, 3)", "shape of reshape": "({0}, -1)"}
FOLLOWS = {"start of arange": {"stop": "{0} + 3"}, "stop of arange": {"start": "{0} - 3"}}


def parameters() -> Iterator[tuple[str, str]]:
    for name, signature in SIGNATURES.items():
        yield from ((name, p.lstrip("*")) for p in signature)
    for name, function in ((name, library_function(name)) for name in library_spans()):
        yield from ((name, p.name) for p in function.params)


def required(name: str) -> list[str]:
    if name in SIGNATURES:
        return [p.lstrip("*") for p, default in SIGNATURES[name].items() if default is REQUIRED]
    return [p.name for p in library_function(name).params if p.default is None]


def call(name: str, parameter: str, value: int) -> str:
    """The call of a function with a value for one parameter, and with all arguments that it requires, by name."""
    place = f"{parameter} of {name}"
    own = {**OWN.get(name, {}), **{k: v.format(f"({value})") for k, v in FOLLOWS.get(place, {}).items()}}
    given = {p: own.get(p) or GIVEN[p] for p in {*required(name), *(own if place in FOLLOWS else ())}}
    given[parameter] = FORMS.get(place, "{0}").format(f"({written(value)})")
    if name in ("unstack", "split"):  # one of its results
        return f"{name}(x, {', '.join(f'{p}={text}' for p, text in sorted(given.items()) if p != 'x')})[0]"
    return f"{name}({', '.join(f'{p}={text}' for p, text in sorted(given.items()))})"


def written(value: int) -> str:
    """The value as text. Numbers larger than u64 are not literals, so they are written as expressions."""
    sign, size = "-" if value < 0 else "", abs(value)
    return str(value) if size < 2**64 else f"{sign}2**{size.bit_length() - 1}"


INTEGERS = [(n, p) for n, p in parameters() if p not in OTHERS and f"{p} of {n}" not in OTHERS]
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
I = np.array([[0, 1, 1], [1, 0, -1]])
KNOWN, SYMBOLIC = {"x": "f32[2, 3]", "i": "i64[2, 3]"}, {"x": "f32[M, N]", "i": "i64[M, N]"}


def outcomes(text: str, types: Mapping[str, str], stages: Sequence[str]) -> dict[str, Any]:
    """For each stage the results, or the code of the diagnostic. A program that does not compile has no stages."""
    try:
        f = program(text, tuple(types.items()))
    except CompileError as error:
        return {"compile": error.code}
    return {stage: outcome(f, stage) for stage in stages}


def outcome(f: Program, stage: str) -> Any:
    try:
        got = f.run(stage, X, I)
    except CompileError as error:
        return error.code
    return [(a.dtype, a.shape, a.tobytes()) for a in got]


@pytest.mark.parametrize("of, types", one_in(4, INTEGERS, [KNOWN, SYMBOLIC]), ids=" ".join)
def test_integers_at_the_limits(of: tuple[str, str], types: dict[str, str]) -> None:
    name, parameter = of
    for value in ENDS:
        if parameter in SIZES and 2 < value < 2**62:
            continue  # it would use all memory
        text = f"({call(name, parameter, value)},) + (x, i)"
        found = outcomes(text, types, STAGES)
        assert len({str(v) for v in found.values()}) == 1, (text, found)


def test_small_values_are_accepted() -> None:
    """For each parameter, one of these values is valid. Otherwise the calls above would only test errors."""
    good = {
        (name, parameter)
        for name, parameter in INTEGERS
        for value in NEAR
        for found in outcomes(f"({call(name, parameter, value)},) + (x, i)", KNOWN, ["graph"]).values()
        if not isinstance(found, str)
    }
    refused = {f"{p} of {n}" for n, p in {*INTEGERS} - good}
    assert not refused, sorted(refused)


# ---- arguments of other kinds ----------------------------------------------------------------

ODD = (
    "None", "True", "'é'", "1.5", "nan", "-inf", "x", "()", "((1,),)", "(None,)", "f32", "2**64", "M", "x.shape", "x[0, 0]",
)  # fmt: skip


@pytest.mark.parametrize("name", every_second(list(dict.fromkeys(name for name, _ in parameters()))))
def test_wrong_arguments_are_refused_or_computed_as_by_the_reference(name: str) -> None:
    """For any argument, compiling gives a diagnostic, or the result equals the reference's."""
    for parameter in [p for n, p in parameters() if n == name]:
        for odd in ODD:
            given = {p: OWN.get(name, {}).get(p) or GIVEN[p] for p in required(name)} | {parameter: odd}
            text = f"{name}({', '.join(f'{p}={v}' for p, v in given.items())})"
            assert_same_or_refused(text)


def assert_same_or_refused(text: str) -> None:
    try:
        f = program(text, tuple(SYMBOLIC.items()))
    except CompileError:
        return
    arguments = [{"x": X, "i": I}[name] for name, _ in f.parameters]
    found: list[str] = []
    for stage in ("ast", "graph"):
        try:
            got = f.run(stage, *arguments)
            found.append(str([(a.dtype, a.shape, a.tolist()) for a in (got if isinstance(got, tuple) else (got,))]))
        except CompileError as error:
            found.append(error.code)
    assert found[0] == found[1] or found[0] == "MT0306", text  # a call that numpy refuses has no meaning


# ---- against Python's integers ---------------------------------------------------------------

RANGES = [
    (2**64 - 6, 2**64 - 1, 1), (-(2**63), -(2**63) + 8, 1), (0, 2**64 - 1, 2**63 - 1), (-(2**63), 2**63 - 1, 2**64 - 2), (2**63 - 1, -(2**63), -(2**63)),
    (2**64 - 1, 2**64 - 5, -1), (2**63 - 3, 2**63 + 3, 1), (5, 2**63, 2**62), (0, -(2**63), -(2**61)), (2**63, 0, 1), (0, 3, 2**64), (2**62, 2**62 + 2, 1),
]  # fmt: skip


@pytest.mark.parametrize("start, stop, step", RANGES)
def test_ranges_are_exact(start: int, stop: int, step: int) -> None:
    numbers = [*range(start, stop, step)]
    dtype = "u64" if max(numbers, default=0) >= 2**63 else "i64"
    last = f"{written(stop)}, {written(step)}"
    f = mt.compile(f"arange({start}, {last}, dtype={dtype}), arange({start}, {last}, dtype=f64)")
    for stage in STAGES:
        whole, floats = f.run(stage)
        assert whole.tolist() == numbers and floats.tolist() == [float(n) for n in numbers], stage


@pytest.mark.parametrize(
    "k", [-(2**64), -(2**63), -(2**63) + 1, -(2**62), -3, 0, 3, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
)
def test_diagonals_beyond_the_corner_are_empty_or_all(k: int) -> None:
    near = max(-5, min(k, 5))
    f = mt.compile(
        f"tril(x, k={written(k)}), triu(x, k={written(k)}), x + eye(2, 3, k={written(k)}), diagonal(x, {written(k)})",
        x="f32[M, N]",
    )
    for stage in STAGES:
        lower, upper, ones, diagonal = f.run(stage, X)
        assert np.array_equal(lower, np.tril(X, near)) and np.array_equal(upper, np.triu(X, near)), stage
        assert np.array_equal(ones, X + np.eye(2, 3, near)) and np.array_equal(diagonal, np.diagonal(X, near)), stage


@pytest.mark.parametrize("shift", [-(2**64), -(2**63), -(2**63) + 1, 2**59, 2**63 - 1, 2**63, 2**64 - 1])
def test_shifts_are_exact(shift: int) -> None:
    want = np.roll(X, shift % 3, 1)
    f = mt.compile(f"roll(x, {written(shift)}, axis=1)", x="f32[2, 3]")
    assert all(np.array_equal(f.run(stage, X), want) for stage in STAGES)


@pytest.mark.parametrize(
    "text", ["x[{0}:]", "x[:{0}]", "x[-{0}:]", "x[:-{0}]", "x[::{0}]", "x[::-{0}]", "x[{0}::-1]", "x[:, -{0}:{0}:{0}]"]
)
def test_bounds_of_slices_are_pythons(text: str) -> None:
    for end in (2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1):
        want = eval(text.format(end), {"x": X})
        for types in ("f32[M, N]", "f32[2, 3]"):
            f = mt.compile(text.format(end), x=types)
            assert all(np.array_equal(f.run(stage, X), want) for stage in STAGES), (end, types)


@pytest.mark.parametrize("text", ["x[{0}]", "x[0, {0}]", "x[-{0}]"])
def test_indices_past_every_size_are_refused_when_compiled(text: str) -> None:
    for end in (2**60, 2**63, 2**64 - 1):
        with pytest.raises(IndexError):
            mt.compile(text.format(end), x="f32[M, N]")


@pytest.mark.parametrize("text", ["x * (M + 2**63)", "x * (M - 2**64)", "x * (M * 2**62)", "x * (M * -2**64)"])
def test_sizes_larger_than_64_bits_are_refused(text: str) -> None:
    f = mt.compile(text, x="f32[M, N]")
    for stage in STAGES[1:]:
        with pytest.raises(CompileError, match="does not fit i64"):
            f.run(stage, X)
