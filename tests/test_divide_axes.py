"""The pass divide-axes: kernels whose axes are divided in two, kernels whose axes are not, and results at every stage.

The kernels of the first tests are written by hand, so that each shows one thing.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.base.pass_logs import recorded
from minitri.kernels.ir import Load, Plan
from minitri.kernels.parse import parse_plan
from minitri.kernels.text import format_plan
from minitri.optimize.divide_axes import divide
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check


def divided(axes: str, body: str, x: str = "f32[8, 6]", out: str = "f32[48]") -> Plan:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    header = f"plan f(x: {x}) -> out: {out}\n\nkernel k0(input x: {x}, output out: {out})"
    return divide(parse_plan(f"{header} over {axes} {{\n{lines}\n}}\n", "<plan>"))


def axes_of(plan: Plan) -> str:
    (kernel,) = plan.kernels
    return ", ".join(f"{'reduce ' if a.role == 'reduced' else ''}{a.name}: {a.extent}" for a in kernel.axes)


COLUMNS = "%0: f32[i] = load x[i%8, i//8]\nstore out[i] %0"
SUM = "%0: f32[i, r] = load x[r%8, i + r//8]\n%1: f32[i] = reduce.sum %0 {over = [r]}\nstore out[i] %1"
ARGMAX = SUM.replace("%1: f32", "%1: i64").replace("sum", "argmax")
ROWS = "%0: f32[i, r] = load x[r%8, i + r//8]\n%1: f32[i] = reduce.sum %0 {over = [r]}\n%2: f32[i, r] = divide %0, %1\nstore out[i, r] %2"
CASES = {  # the axes, the body, the types, and the axes afterwards
    "the columns of a matrix": ("i: 48", COLUMNS, {}, "i: 6, j: 8"),
    "the rows of a matrix": ("i: 48", "%0: f32[i] = load x[i//6, i%6]\nstore out[i] %0", {}, "i: 48"),
    "columns of unknown length": ("i: M*N", COLUMNS.replace("8", "M"), {"x": "f32[M, N]", "out": "f32[M*N]"}, "i: M*N"),
    "an unknown number of columns": ("i: 8*N", COLUMNS, {"x": "f32[8, N]", "out": "f32[8*N]"}, "i: N, j: 8"),
    "columns in part": ("i: 44", COLUMNS, {"out": "f32[44]"}, "i: 44"),
    "rows that are contiguous after the division": ("i: 48", COLUMNS, {"x": "f32[8, 6] {strides = [1, 8]}"}, "i: 48"),
    "columns with gaps": ("i: 48", COLUMNS, {"x": "f32[8, 6] {strides = [20, 2]}"}, "i: 48"),
    "the last of three parts of an index": ("i: 48", "%0: f32[i] = load x[i%4, (i//4)%2, i//8]\nstore out[i] %0", {"x": "f32[4, 2, 6]"}, "i: 6, j: 8"),
    "two arrays": ("i: 48", COLUMNS.replace("store", "%1: f32[i] = load x[2, i%6]\n%2: f32[i] = add %0, %1\nstore").replace("out[i] %0", "out[i] %2"), {}, "i: 6, j: 8"),
    "a sum": ("i: 2, reduce r: 48", SUM, {"x": "f32[8, 7]", "out": "f32[2]"}, "i: 2, reduce r: 6, reduce s: 8"),
    "a position": ("i: 2, reduce r: 48", ARGMAX, {"x": "f32[8, 7]", "out": "i64[2]"}, "i: 2, reduce r: 48"),
    "rows that are stored": ("i: 2, reduce r: 48", ROWS, {"x": "f32[8, 7]", "out": "f32[2, 48]"}, "i: 2, reduce r: 48"),
    "a scan": ("i: 48", COLUMNS.replace("store out[i] %0", "%1: f32[i] = scan.sum %0 {along = i}\nstore out[i] %1"), {}, "i: 48"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_axes(name: str) -> None:
    axes, body, types, expected = CASES[name]
    assert axes_of(divided(axes, body, **types)) == expected


def test_the_divided_kernel() -> None:
    with recorded() as firings:
        (kernel,) = divided("i: 48", COLUMNS).kernels
    (load,) = (op for op in kernel.body if isinstance(op, Load))
    assert ([str(d) for d in load.index], load.axes) == (["j", "i"], ("i", "j"))
    assert [(f.rule, f.before.name, len(f.after)) for f in firings] == [(divide, "i", 2)]


def test_guards_positions_and_conditions_have_the_new_index() -> None:
    body = """%0: f32[i] = load x[i%8, i//8] {where = [i < 40]}
%1: i64[i] = position {expr = i + 1}
%2: f32[i] = cast %1
%3: bool[i] = inside {where = [i < 9]}
%4: f32[i] = where %3, %0, %2
store out[i] %4"""
    text = format_plan(divided("i: 48", body))
    for line in (
        "where = [39 - 8*i - j >= 0]",
        "expr = 8*i + j + 1",
        "inside {where = [8 - 8*i - j >= 0]}",
        "store out[8*i + j]",
    ):
        assert line in text, text


PROGRAMS = (
    "reshape(x.mT, (N // 2, 2 * M)) * 2", "sum(reshape(x.mT, (N // 2, 2 * M)), axis=1)", "flatten(x.mT) + 1",
    "max(reshape(x.mT, (N // 2, 2 * M)), axis=0)", "softmax(reshape(x.mT, (N // 2, 2 * M)), axis=1)",
    "argmax(flatten(x.mT)), sum(flatten(x.mT))", "cumulative_sum(flatten(x.mT))",
    "pad(flatten(x.mT), (1, 2)) * 2", "flatten(x.mT)[3:-2] * arange(M * N - 5)",
)  # fmt: skip


def checked(text: str, x: Any) -> None:
    known = re.sub(r"\b[MN]\b", lambda name: str(x.shape["MN".index(name[0])]), text)
    f = mt.compile(known, x=f"f32{[*x.shape]}")
    report = check(f, bind(f.function, [x], {}), ("interpreter", "cuda"))
    assert report.ok, report


@pytest.mark.parametrize("text", PROGRAMS)
@given(m=st.integers(1, 9), n=st.integers(1, 6), backwards=st.booleans())
def test_every_stage_is_right(text: str, m: int, n: int, backwards: bool) -> None:
    x = np.random.default_rng(m).normal(size=(m, 2 * n)).astype(np.float32)
    x[0, 0] = (np.nan, np.inf, -0.0, 1)[m % 4]
    checked(text, x[::-1] if backwards else x)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 2), (130, 66)], ids=str)
def test_empty_and_ragged_arrays(shape: tuple[int, int]) -> None:
    for text in PROGRAMS[:3]:
        checked(text, np.ones(shape, np.float32))


def test_a_total_is_split_into_parts_that_can_be_divided() -> None:
    """The lengths of the parts are multiples of a column's, so no program has a quotient for each element."""
    low = mt.compile("sum(reshape(x.mT, (2, M * N // 2)), axis=1)", x="f32[M, N]").lower(
        M=512, N=16384, target="cuda:90"
    )
    kernel = low["tile.target"].partition("program k1")[0]
    assert "reduce.sum" in kernel and not re.search(r"\b[rs](//|%)", kernel), kernel
