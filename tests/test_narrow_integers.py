"""The pass narrow-integers: which 64-bit integers kernels compute in 32 bits, and that results do not change."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minitri as mt
from minitri.kernels.text import describe
from minitri.optimize import narrow_integers
from minitri.tiles.text import parse_programs

X, XY = {"x": "f32[N]"}, {"x": "f32[M, N]"}
CASES = {  # (text, types, sizes, whether some integers are narrowed)
    "a comparison": ("where(arange(N) > 3, x, 0)", X, {}, True),
    "arithmetic": ("where(abs(arange(N) - 5) * 3 + 1 > 7, x, 0)", X, {"N": 37}, True),
    "minima and maxima": ("where(minimum(arange(N), 4) == maximum(arange(N) - 9, -arange(N)), x, 0)", X, {}, True),
    "a remainder": ("where(arange(N) % 3 == (arange(N) - 8) // 5, x, 0)", X, {}, True),
    "a choice": ("where(where(x > 0, arange(N), -1) < 7, x, 1)", X, {}, True),
    "a float": ("x + (arange(N) - 3)", X, {}, True),
    "a triangle": ("where(arange(M)[:, None] >= arange(N), x, 0)", XY, {}, True),
    "small integers": ("where(arange(N) < n[:, None], x, 0)", XY | {"n": "u8[M]"}, {}, True),
    "integers of 32 bits": ("where(arange(N) < n[:, None], x, 0)", XY | {"n": "i32[M]"}, {}, True),
    "unsigned integers": ("where(arange(N) < n[:, None], x, 0)", XY | {"n": "u32[M]"}, {}, False),
    "integers of 64 bits": ("where(arange(N) < n[:, None], x, 0)", XY | {"n": "i64[M]"}, {}, False),
    "sums of large integers": ("where(arange(N) + n > 3, x, 0)", X | {"n": "i32[N]"}, {}, False),
    "a result": ("arange(N) - 5, x", X, {}, False),
    "a result and a comparison": ("where(arange(N) - 5 > 3, x, 0), arange(N) - 5", X, {}, False),
    "a conversion to fewer bits": ("(arange(N) * 77).astype(i8)", X, {}, False),
    "a remainder by zero": ("where(arange(N) % (arange(N) - 3) == 0, x, 0)", X, {}, False),
    "a product of an unknown size": ("where(arange(N) * 2 > 5, x, 0)", X, {}, False),
    "a product that fits": ("where(arange(N) * 16909320 > 5, x, 0)", X, {"N": 100}, True),
    "a product that does not fit": ("where(arange(N) * 16909321 > 5, x, 0)", X, {"N": 100}, False),
    "a constant that does not fit": ("where(arange(N) - 2147483649 < -2147483640, x, 0)", X, {"N": 100}, False),
    "a gathered index": ("where(take(arange(N) * 2, n) > 5, 1.0, 0.0)", {"n": "i64[N]"}, {"N": 100}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_integers_whose_range_fits_are_narrowed(name: str) -> None:
    text, types, sizes, some = CASES[name]
    source = mt.compile(text, **types).lower(target="cuda:90", **sizes)["triton"]
    assert bool(re.search(r"= \(?[ij]\)?\.to\(tl\.int32\)", source)) == some, source


FLOATS = {  # (text, types, sizes, whether indices are computed as floats)
    "a distance": ("x - abs(arange(M)[:, None] - arange(N)).astype(f32)", XY, {"N": 64}, True),
    "a distance that is compared, too": (
        "where(arange(M)[:, None] >= arange(N), x - (arange(M)[:, None] - arange(N)).astype(f16), -1)",
        XY,
        {"N": 64},
        True,
    ),
    "a distance in f64": ("x * (maximum(arange(N), 4) - 9)", {"x": "f64[N]"}, {}, True),
    "a choice": ("x + where(x > 0, arange(N), arange(N) - 5).astype(f32)", X, {}, True),
    "small integers": ("x + (arange(N) - n).astype(f32)", X | {"n": "i16[N]"}, {}, True),
    "integers of 32 bits": ("x + (arange(N) - n).astype(f32)", X | {"n": "i32[N]"}, {}, False),
    "a comparison alone": ("where(arange(N) - 5 > 3, x, 0)", X, {}, False),
    "a comparison and a float apart": ("where(arange(N) + 1 > 3, x, 0)", X, {}, False),
    "a negated index": ("1 / (-arange(N)).astype(f32) + x", X, {}, False),
    "a product with 0": ("1 / (arange(N) * -3).astype(f32) + x", X, {}, False),
    "a remainder": ("x + (arange(N) % 7).astype(f32)", X, {}, False),
    "up to the largest exact f32": ("x + (arange(N) + 16777088).astype(f64)", {"x": "f64[N]"}, {}, True),
    "past the largest exact f32": ("x + (arange(N) + 16777217).astype(f64)", {"x": "f64[N]"}, {}, False),
    "an intermediate past the largest exact f32": (
        "x + (arange(N) + 16777217 - 16777217).astype(f64)",
        {"x": "f64[N]"},
        {},
        False,
    ),
    "an index that is also stored": ("x + arange(N).astype(f32), arange(N)", X, {}, False),
}


@pytest.mark.parametrize("name", list(FLOATS))
def test_indices_that_become_floats_are_computed_as_floats(name: str) -> None:
    text, types, sizes, floats = FLOATS[name]
    known = {"N": 37} | ({"M": 21} if any("M" in t for t in types.values()) else {}) | sizes
    source = mt.compile(text, **types).lower(target="cuda:90", **known)["triton"]
    assert bool(re.search(r"= \(?[ij]\)?\.to\(tl\.float32\)", source)) == floats, source


@pytest.mark.parametrize("text", ["1 / (5 - arange(N) - (5 - arange(N))).astype(f32)", "1 / abs(arange(N) - 3).astype(f32)",
                                  "1 / (minimum(arange(N), 3) - maximum(0, arange(N))).astype(f64)"])  # fmt: skip
def test_no_result_is_a_negative_zero(text: str) -> None:
    f, x = mt.compile(f"x * 0 + {text}", x="f32[N]"), np.zeros(9, np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(f(x), f.numpy(x))


@pytest.mark.parametrize("name", [*CASES, *FLOATS])
def test_every_stage(name: str) -> None:
    text, types, sizes, _ = (CASES | FLOATS)[name]
    rng, known = np.random.default_rng(0), {"M": 21, "N": 37} | sizes
    given = []
    for t in types.values():
        dtype, shape = t[:-1].split("[")
        random = rng.normal(scale=9, size=[known[d] for d in shape.split(", ")])
        largest = rng.random(random.shape) < 0.1
        if not dtype.startswith("f"):
            random = np.where(largest & (dtype != "i64"), mt.base.types.DTYPES[dtype].limits[1], np.abs(random))
        given.append(random.astype(mt.base.types.DTYPES[dtype].numpy))
    report = mt.compile(text, **types).check(*given)
    assert report.ok, report


def test_a_sum_that_does_not_fit_wraps_at_64_bits() -> None:
    """One sum is just too large for 32 bits; another one just fits."""
    for factor in (16909320, 16909321, 21691754, 21691755, 2**31 - 1, 2**31, 2**62):
        f = mt.compile(f"where(arange(N) * {factor} > arange(N), 1.0, 0.0) + x", x="f32[N]")
        x = np.zeros(100, np.float32)
        with np.errstate(over="ignore"):
            wanted = np.arange(100) * np.int64(factor) > np.arange(100)
        np.testing.assert_array_equal(f(x), wanted.astype(np.float32))


def test_an_accumulator_keeps_its_64_bits() -> None:
    """No pass writes such a loop, but a text may. The start value has 64 bits, and so has everything computed from
    it.
    """
    text = """plan f(x: f32[64]) -> out: bool[64]

program k0(input x: f32[64], output out: bool[64]) warps 4 {
  grid i: 64 by 64
  loop r: 64 by 16
  %0: i64[] = const 0
  %1: i64[i] = carry %0
  %2: i64[i] = position {expr = i}
  for r {
    %3: i64[i] = add %2, %2
    next %1 = %3
  }
  %4: i64[] = const 7
  %5: bool[i] = greater %1, %4
  store out[i] %5
}
"""
    (program,) = parse_programs(text, masked=False).programs
    assert not {describe(op, {}) for op in narrow_integers._narrowed(program)}


def test_with_64_bit_offsets_indices_are_not_narrowed() -> None:
    text = "where(arange(M)[:, None] >= arange(N), x, 0)"
    source = mt.compile(text, x="f32[M, N]").lower(target="cuda:90", M=1 << 16, N=1 << 16)["triton"]
    assert "tl.int64" in source and ").to(tl.int32)" not in source


@pytest.mark.parametrize("name, args, wanted", [
    ("subtract", [(0, 5), (-2, 3)], (-3, 7)), ("negative", [(-4, 9)], (-9, 4)), ("abs", [(-4, 9)], (0, 9)),
    ("abs", [(3, 9)], (3, 9)), ("abs", [(-9, -3)], (3, 9)), ("multiply", [(-2, 3), (-5, 4)], (-15, 12)),
    ("floor_divide", [(-7, 7), (2, 2)], (-4, 3)), ("floor_divide", [(-7, 7), (0, 0)], None),
    ("floor_divide", [(-7, 7), (-2, -2)], None), ("remainder", [(-7, 7), (4, 4)], (0, 3)), ("power", [(0, 3), (2, 2)], None),
    ("minimum", [(0, 9), (-3, 4)], (-3, 4)), ("maximum", [(0, 9), (-3, 40)], (0, 40)), ("where", [(0, 9), (-3, 40)], (-3, 40)),
])  # fmt: skip
def test_intervals(name: str, args: list[narrow_integers.Interval], wanted: narrow_integers.Interval | None) -> None:
    assert narrow_integers._computed(name, args) == wanted
