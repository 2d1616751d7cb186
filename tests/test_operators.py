"""Every elementwise operator, on every dtype, with difficult shapes, layouts and values, at every stage.

Each test draws cases (tests/strategies.py), computes numpy's results (tests/oracle.py) and runs all
stages (tests/stages.py). Here these are the numpy evaluators and Triton's interpreter; with the marker
`gpu` they are calls with CUDA tensors on a GPU. Both use the same test functions. Several operators
share a program, because most of the time goes into compiling.

    pytest tests/test_operators.py                              a few examples each
    pytest tests/test_operators.py --hypothesis-profile=full    200 examples each
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from oracle import accepts, elementwise, exact, meet, promote
from short_profile import slow_unless
from stages import check, refuses
from strategies import Case, annotation, cases, dtypes, operand, scalars

from minitri.base.operators import OPERATORS
from minitri.base.types import DTYPES, DType

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the oracles may warn, stages must not
LETTERS = "xyz"
CPU_GROUP, GPU_GROUP = 3, 12  # operators in one program
Rows = tuple[str, ...]


def rows(kinds: Iterable[tuple[str, DType]], alike: Callable[[str], Any] = str) -> list[Any]:
    """Parameters (names, dtype, "cpu" or "gpu"). On the CPU, names share a program if `alike` has equal values.

    There, only one program in three of a dtype is tested always, and other programs of the next dtype.
    """
    out, pairs = [], list(kinds)
    for k, d in enumerate(dict.fromkeys(d for _, d in pairs)):
        names = [name for name, other in pairs if other == d]
        groups = [list(group) for _, group in itertools.groupby(sorted(names, key=alike), alike)]
        for j, part in enumerate(part for group in groups for part in parts(group, CPU_GROUP)):
            marks = slow_unless((j + k) % 3 == 0)
            out.append(pytest.param(part, d, "cpu", id=f"{'-'.join(part)}-{d}", marks=marks))
        for part in parts(names, GPU_GROUP):
            out.append(pytest.param(part, d, "gpu", id=f"gpu-{d}-{part[0]}", marks=pytest.mark.gpu))
    return out


def parts(names: Iterable[str], size: int) -> list[Rows]:
    every = tuple(names)
    return [every[k : k + size] for k in range(0, len(every), size)]


def by_dtype(kinds: str = "fiub", step: int = 1) -> list[Any]:
    """Parameters (dtype, "cpu" or "gpu"). On the CPU, one dtype in `step` is tested always."""
    out = [pytest.param(d, "cpu", id=str(d), marks=slow_unless(k % step == 0)) for k, d in enumerate(dtypes(kinds))]
    return out + [pytest.param(d, "gpu", id=f"gpu-{d}", marks=pytest.mark.gpu) for d in dtypes(kinds)]


def types(case: Case, operands: Sequence[Any], kinds: Sequence[DType]) -> dict[str, str]:
    return {v: annotation(case, d, x.shape) for v, x, d in zip(LETTERS, operands, kinds)}


# ---- elementwise ---------------------------------------------------------------------------


def call_text(name: str, args: Sequence[str], symbol: bool) -> str:
    """`x + y` or `add(x, y)`."""
    row = OPERATORS[name]
    if not symbol or not row.symbol:
        return f"{name}({', '.join(args)})"
    return f"{row.symbol}{args[0]}" if len(args) == 1 else f"{args[0]} {row.symbol} {args[1]}"


EVERY_ROW = [(name, d) for name in OPERATORS for d in dtypes("fiub") if accepts(name, d)]


@pytest.mark.parametrize("names, d, on", rows(EVERY_ROW, lambda n: (OPERATORS[n].arity, OPERATORS[n].domain)))
@given(data=st.data())
def test_elementwise(names: Rows, d: DType, on: str, data: Any) -> None:
    """Arrays of one dtype that broadcast. The condition of `where` has the same dtype."""
    case = data.draw(cases(on))
    operands = [operand(case, k, d, OPERATORS[names[0]].domain) for k in range(max(OPERATORS[n].arity for n in names))]
    calls = [call_text(n, LETTERS[: OPERATORS[n].arity], case.choice % 2 == 0) for n in names]
    wants = [elementwise(n, operands[: OPERATORS[n].arity], on) for n in names]
    check(", ".join(calls), types(case, operands, [d] * 3), operands, wants, case, on)


BINARY = [name for name, row in OPERATORS.items() if row.arity == 2]


@pytest.mark.parametrize("d, on", by_dtype())
@given(data=st.data())
def test_python_scalars(d: DType, on: str, data: Any) -> None:
    """A number on either side takes the array's dtype, unless the number is a float and the array is not."""
    case = data.draw(cases(on))
    x = operand(case, 0, d)
    number = data.draw(st.sampled_from(scalars(d)))
    pair = (number, x) if case.seed % 2 else (x, number)
    args = [f"({v!r})" if v is number else "x" for v in pair]
    met = meet(pair)
    taken = [n for n in BINARY if accepts(n, met)]
    for name in {*BINARY} - {*taken}:
        refuses(call_text(name, args, True), types(case, [x], [d]), [x], "MT0202")
    names = taken if on == "gpu" else data.draw(st.lists(st.sampled_from(taken), min_size=1, max_size=4, unique=True))
    texts = [call_text(n, args, case.choice % 2 == 0) for n in names]
    check(", ".join(texts), types(case, [x], [d]), [x], [elementwise(n, pair, on) for n in names], case, on)


PAIRS = list(itertools.combinations(DTYPES.values(), 2))
SOME_PAIRS = [pytest.param(*pair, marks=slow_unless(k % 2 == 0)) for k, pair in enumerate(PAIRS)]


@pytest.mark.parametrize("a, b", SOME_PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
@given(data=st.data())
def test_mixed_dtypes(a: DType, b: DType, data: Any) -> None:
    """Two dtypes: `where`, and every binary operator that accepts their promoted dtype."""
    mixed(a, b, data, "cpu")


@pytest.mark.gpu
@given(data=st.data())
def test_mixed_dtypes_gpu(data: Any) -> None:
    a, b = data.draw(st.sampled_from(PAIRS))
    mixed(a, b, data, "gpu")


def mixed(a: DType, b: DType, data: Any, on: str) -> None:
    case = data.draw(cases(on))
    names = [n for n in [*BINARY, "where", "clip"] if accepts(n, promote(a, b))]
    name = names[case.choice % len(names)]
    kinds = [[a, b, a], [b, a, b]][case.seed % 2][: OPERATORS[name].arity]
    operands = [operand(case, k, d) for k, d in enumerate(kinds)]
    text = call_text(name, LETTERS[: len(kinds)], True)
    check(text, types(case, operands, kinds), operands, [elementwise(name, operands, on)], case, on)


@pytest.mark.parametrize("d, on", by_dtype())
@given(data=st.data())
def test_conversions(d: DType, on: str, data: Any) -> None:
    """From one dtype to all others at once. Float to integer saturates, and NaN gives 0."""
    case = data.draw(cases(on))
    x = operand(case, 0, d, (-300.0, 300.0))
    calls = [f"astype(x, {to})" if k % 2 else f"x.astype({to})" for k, to in enumerate(DTYPES)]
    wants = [exact(x, to) for to in DTYPES.values()]
    check(", ".join(calls), types(case, [x], [d]), [x], wants, case, on)


@pytest.mark.parametrize("name", BINARY)
def test_numbers_that_do_not_fit_are_refused(name: str) -> None:
    """i8 + 200: numpy raises an exception. minitri refuses it when the program is compiled."""
    for d in dtypes("iu"):
        for number in (d.limits[0] - 1, d.limits[1] + 1):
            if accepts(name, d) and OPERATORS[name].operands == "same" and d.bits < 64:
                x = operand(Case((3,)), 0, d)
                refuses(f"{name}(x, {number})", {"x": f"{d}[3]"}, [x], "MT0208")
