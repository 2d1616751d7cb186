"""Abstract values (minitri/optimize/skip_blocks/abstract_values.py), and proofs that a loop iteration changes nothing
(minitri/optimize/skip_blocks/no_effect_proofs.py)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import minitri as mt
from minitri.base.operators import OPERATORS
from minitri.base.types import DType, bool_, f16, f32
from minitri.kernels.ir import Compute, Constant
from minitri.optimize.skip_blocks.abstract_values import (
    FLOATS,
    KNOWN,
    MONOTONE,
    TRUTHS,
    Terms,
    Value,
    anything,
    computed,
    constant,
)
from minitri.optimize.skip_blocks.skip import skip
from minitri.tiles.ir import Loop
from minitri.tiles.schedule import Options
from minitri.tiles.text import parse_programs

# ---- kinds -----------------------------------------------------------------------------------

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FEW = np.concatenate(
    [
        ALL[:4],
        ALL[0x8000:0x8004],
        ALL[0x0400:0x0402],
        ALL[0x7BFE:0x7C02],
        ALL[0xFBFE:0xFC02],
        np.float16([0.3, 0.5, 1, 2, -1, -0.7, 3]),
    ]
)  # around zero, the smallest normal number, the largest and inf, and some between them


def kind(x: Any) -> str:
    if isinstance(x, np.bool_):
        return "true" if x else "false"
    if np.isnan(x) or np.isinf(x):
        return "nan" if np.isnan(x) else "inf" if x > 0 else "-inf"
    return "zero" if x == 0 else "positive" if x > 0 else "negative"


def operand(dtype: DType) -> Constant:
    return Constant(dtype=dtype, axes=(), spans=(), value=0)


def op(name: str, *dtypes: DType) -> Compute:
    dtype = bool_ if OPERATORS[name].result == "bool" else dtypes[-1]
    return Compute(dtype=dtype, axes=(), spans=(), op=name, args=tuple(map(operand, dtypes)))


FLOAT_OPS = sorted(n for n in MONOTONE if not n.startswith(("logical", "bitwise")))


@pytest.mark.parametrize("name", FLOAT_OPS)
def test_results_have_the_predicted_kinds(name: str) -> None:
    """One operand: all 16-bit numbers. Two operands: pairs of extreme numbers."""
    row, some = OPERATORS[name], ALL if OPERATORS[name].arity == 1 else FEW
    node = op(name, *[f16] * row.arity)
    by_kind = {k: [x for x in some if kind(x) == k] for k in FLOATS}
    for kinds in product(sorted(FLOATS), repeat=row.arity):
        said = computed(node, [anything(f16, n, {k}) for n, k in enumerate(kinds)], Terms())
        with np.errstate(all="ignore"):
            columns = np.array(list(product(*(by_kind[k] for k in kinds))), np.float16).reshape(-1, row.arity).T
            found = {kind(x) for x in np.unique(row.numpy(*columns))}
        assert found <= said.kinds, (name, kinds, found, said.kinds)


@pytest.mark.parametrize("name", sorted(n for n in MONOTONE if n.startswith(("logical", "bitwise"))))
def test_logical_results_have_the_predicted_kinds(name: str) -> None:
    row = OPERATORS[name]
    for kinds in product(sorted(TRUTHS), repeat=row.arity):
        said = computed(op(name, *[bool_] * row.arity), [anything(bool_, n, {k}) for n, k in enumerate(kinds)], Terms())
        assert kind(row.numpy(*(np.bool_(k == "true") for k in kinds))) in said.kinds


@pytest.mark.parametrize(
    "name", [n for n, row in KNOWN.items() if "neutral" in row and "_" not in n] + ["maximum", "minimum"]
)
def test_operations_predicted_to_change_nothing_change_nothing(name: str) -> None:
    node, row = op(name, f16, f16), OPERATORS[name]
    kept = 0
    for number in (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan):
        for k in sorted(FLOATS):
            x = anything(f16, "x", {k})
            for first in (True, False):
                other = constant(number, f16)
                said = computed(node, [x, other] if first else [other, x], Terms())
                if x.number or said.term != x.term:
                    continue
                kept += 1
                members = np.array([v for v in ALL if kind(v) == k], np.float16)
                with np.errstate(all="ignore"):
                    found = row.numpy(members, np.float16(number)) if first else row.numpy(np.float16(number), members)
                np.testing.assert_array_equal(found, members)
    assert kept


def test_a_difference_of_equal_finite_values_is_zero() -> None:
    node = op("subtract", f32, f32)
    x = anything(f32, "x")
    assert computed(node, [x, x], Terms()).kinds == {"zero", "nan"}
    assert computed(node, [x, anything(f32, "y")], Terms()).kinds == FLOATS
    finite = Value(frozenset(("negative", "zero", "positive")), "x")
    assert computed(node, [finite, finite], Terms()).is_number(0)


# ---- loop iterations -------------------------------------------------------------------------

CAUSAL = "where(arange(N) <= arange(M)[:, None], x, -inf)"
FALSE = {  # program → changes of its text, each of which makes the proof wrong
    "sum(where(arange(N) <= arange(M)[:, None], x, 0), axis=1)": [
        ("%1: f32[] = const 0.0", "%1: f32[] = const 1.0"),
        ("add %3, %7", "multiply %3, %7"),
    ],
    f"max({CAUSAL}, axis=1)": [("%1: f32[] = const -inf", "%1: f32[] = const 0.0"), ("maximum %", "minimum %")],
    f"logsumexp({CAUSAL}, axis=1)": [
        ("%1: f32[] = const -inf", "%1: f32[] = const 0.0"),
        ("%2: f32[] = const -inf", "%2: f32[] = const -3.0"),  # the maximum may be no element
        ("%5: f32[] = const 0.0", "%5: f32[] = const 1.0"),  # an iteration sets the sum to 0 while the maximum is -inf
        ("multiply %6, %17", "add %6, %17"),
        ("reduce.max", "reduce.min"),
        ("subtract %3, %13", "subtract %13, %4"),
    ],
}


def skipped(text: str) -> list[Loop]:
    return [s for p in parse_programs(text, masked=False).map(skip).programs for s in p.body if isinstance(s, Loop)]


@pytest.mark.parametrize("program", FALSE)
def test_blocks_are_left_out_only_if_the_proof_holds(program: str) -> None:
    f = mt.compile(program, x="f32[M, N]").configured(options=Options(blocks={"i": 4, "r": 8}))
    text = f.lower(target="cuda:90", M=64, N=64).compilation.text("tile.lowered")
    assert all(s.last is not None and s.because for s in skipped(text))
    for old, new in FALSE[program]:
        assert old in text, (old, text)
        (loop,) = skipped(text.replace(old, new, 1))
        assert loop.first is None and loop.last is None, (new, loop.because)


@pytest.mark.parametrize("start", ["1.0", "-inf", "nan"])
def test_adding_zeros_changes_no_start_value(start: str) -> None:
    """x + 0 is x for every x."""
    f = mt.compile("sum(where(arange(N) <= arange(M)[:, None], x, 0), axis=1)", x="f32[M, N]")
    f = f.configured(options=Options(blocks={"i": 4, "r": 8}))
    text = f.lower(target="cuda:90", M=64, N=64).compilation.text("tile.lowered")
    assert all(s.last is not None for s in skipped(text.replace("%2: f32[] = const 0.0", f"%2: f32[] = const {start}")))
