"""Triton's traps: one regression test for each point in which straightforward Triton code differs from numpy.

A row of `TRAPS` is a program with its arrays and expected results, which must be equal bit for bit. It runs at every
stage, with the interpreter's schedule, with a GPU's, and on a GPU. Traps that show in the generated code, not only in
results, have their own tests below the table. The numbers are those of the trap table in docs/reference/semantics.md.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from oracle import Want, exact, named, near
from oracle_arrays import matmul
from short_profile import every_second
from stages import CPU_STAGES, check, refuses
from strategies import SCHEDULES, Case

import minitri as mt
from minitri.base.types import f32

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
TINY = float(np.finfo(F32).smallest_subnormal)


def a(dtype: Any, *values: Any) -> Any:
    return np.array(values, dtype)


def rng(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(0).normal(0, 3, shape).astype(dtype)


x1000, y1000 = rng(1000), np.flip(rng(1000))
sevens = a(np.int32, -7, 7, -7, 7, -6, 0), a(np.int32, 2, -2, -2, 2, 3, -5)
lone = np.full((3, 5), -1e30, F32)
lone[1] = -INF

# (trap, program, arrays, results)
TRAPS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("1 floor division", "x // y, x % y", [*sevens], [a(np.int32, -4, -4, 3, 3, -2, 0), a(np.int32, 1, -1, -1, 1, 0, 0)]),
    ("2 integer division by zero", "x // y, x % y", [a(np.int8, 5, -128, 0, -128), a(np.int8, 0, 0, 0, -1)],
     [a(np.int8, 0, 0, 0, -128), a(np.int8, 0, 0, 0, 0)]),
    ("2 unsigned", "x // y, x % y", [a(np.uint64, 5, 2**64 - 1), a(np.uint64, 0, 10)], [a(np.uint64, 0, 2**64 // 10), a(np.uint64, 0, 5)]),
    ("3 float modulo", "x % y, x // y", [a(F32, -7, 7, -1, -0.0, 5.5, INF), a(F32, 3, -3, INF, 2, 0, 2)],
     [a(F32, 2, -2, INF, 0.0, NAN, NAN), a(F32, -3, -3, -1, -0.0, INF, NAN)]),
    ("3 float power", "x ** y", [a(F32, 2, -2, 0, -0.0, -INF, 1), a(F32, 3, 3, -1, -1, 0.5, NAN)], [a(F32, 8, -8, INF, -INF, INF, 1)]),
    ("4 int / int is f32", "x / 1, x / y", [a(np.int32, 16777217, 7), a(np.int32, 1, 2)],
     [a(F32, 16777216, 7), a(F32, 16777216, 3.5)]),
    ("5 division and sqrt are exact", "x / y, sqrt(abs(x)), 1 / x", [x1000, y1000], [x1000 / y1000, np.sqrt(np.abs(x1000)), F32(1) / x1000]),
    ("7 denormals", "x * y, sqrt(x), x + x", [a(F32, TINY, 3 * TINY), a(F32, 1, 1)],
     [a(F32, TINY, 3 * TINY), np.sqrt(a(F32, TINY, 3 * TINY)), a(F32, 2 * TINY, 6 * TINY)]),
    ("7 denormal results", "x * 0.5, exp2(y)", [a(F32, 2.0**-126, -(2.0**-140)), a(F32, -140, -149)],
     [a(F32, 2.0**-127, -(2.0**-141)), a(F32, 2.0**-140, 2.0**-149)]),
    ("8 two roundings", "x * y + x, x * y - y", [x1000, y1000], [x1000 * y1000 + x1000, x1000 * y1000 - y1000]),
    ("23 indices past 32 bits", "arange(0, 2**33, 2**30) + x, arange(2**30, -2**33, -2**30)[1:9] * x", [np.ones(8, np.int64)],
     [np.arange(8) * 2**30 + 1, np.arange(8) * -(2**30)]),
    ("9 integer products", "x @ y", [a(np.int8, 100, 100), a(np.int8, 2, 3)], [np.array(-12, np.int8)]),
    ("10 NaN in maxima", "maximum(x, y), minimum(x, y), clip(x, y, y), max(x), min(x)", [a(F32, NAN, 1, 2), a(F32, 1, NAN, 1)],
     [a(F32, NAN, NAN, 2), a(F32, NAN, NAN, 1), a(F32, NAN, NAN, 1), np.array(NAN, F32), np.array(NAN, F32)]),
    ("11 argmax", "argmax(x, axis=1), argmin(x, axis=1)", [np.array([[1, 3, 3, 1], [2, NAN, 5, NAN], [NAN] * 4, [0.0, -0.0, 0, 0]], F32)],
     [a(np.int64, 1, 1, 0, 0), a(np.int64, 0, 1, 0, 0)]),
    ("13 neutral elements", "max(x, axis=1), min(-x, axis=1), prod(x * 0 + 2, axis=1), sum(where(x < -1, 1, 0))", [lone],
     [a(F32, -1e30, -INF, -1e30), a(F32, 1e30, INF, 1e30), a(F32, 32, NAN, 32), np.array(15)]),
    ("13 softmax of lone rows", "softmax(x), logsumexp(x, axis=1)", [np.array([[-INF, 0, -INF], [-1e4, -INF, -1e4]], F32)],
     [np.array([[0, 1, 0], [0.5, 0, 0.5]], F32), a(F32, 0, -1e4 + np.log(2))]),
    ("14 bools", "x + y, x * y, x ^ y, ~x, sum(x)", [a(bool, 1, 1, 0), a(bool, 1, 0, 0)],
     [a(bool, 1, 1, 0), a(bool, 1, 0, 0), a(bool, 0, 1, 0), a(bool, 0, 0, 1), np.array(2)]),
    ("15 mixed signs", "x < y, x + y, x // y, x % y", [a(np.uint32, 1, 2**32 - 1), a(np.int32, -1, 2)],
     [a(bool, 0, 0), a(np.int64, 0, 2**32 + 1), a(np.int64, -1, 2**31 - 1), a(np.int64, 0, 1)]),
    ("16 an integer takes the float's dtype", "x + y", [a(np.int32, 70000, 1), a(F16, 0, 0.5)], [a(F16, INF, 1.5)]),
    ("18 float to int", "astype(x, i8), astype(x, u8), astype(x, i64)", [a(F32, NAN, INF, -INF, 300, -1.9, 127.9)],
     [a(np.int8, 0, 127, -128, 127, -1, 127), a(np.uint8, 0, 255, 0, 255, 0, 127), a(np.int64, 0, 2**63 - 1, -(2**63), 300, -1, 127)]),
    ("19 bf16", "x + y, x * y, x < y, astype(x, f32), -x", [a(BF16, 1.5, -2, 256), a(BF16, 0.25, 3, 1)],
     [a(BF16, 1.75, 1, 256), a(BF16, 0.375, -6, 256), a(bool, 0, 1, 0), a(F32, 1.5, -2, 256), a(BF16, -1.5, 2, -256)]),
    ("19 bf16 rounds to nearest", "astype(x, bf16)", [a(F32, 1 + 2**-8, 1 + 3 * 2**-8, NAN, 3.4e38)], [a(BF16, 1, 1 + 2**-6, NAN, INF)]),
    ("20 functions of f16", "exp(x), tanh(x), trunc(x)", [a(F16, 0, 1, -INF, 20)],
     [a(F16, 1, np.e, 0, INF), np.tanh(a(F32, 0, 1, -INF, 20)).astype(F16), a(F16, 0, 1, -INF, 20)]),
    ("21 shifts past the width", "x << y, x >> y", [a(np.int8, 1, -1, -128, 127, 1), a(np.int8, 8, 9, 7, -1, 100)],
     [a(np.int8, 0, 0, 0, 0, 0), a(np.int8, 0, -1, -1, 0, 0)]),
    ("21 unsigned", "x << y, x >> y", [a(np.uint32, 1, 2**32 - 1), a(np.uint32, 32, 31)], [a(np.uint32, 0, 2**31), a(np.uint32, 0, 1)]),
    ("22 sums are i64", "sum(x), sum(y), sum(x < 0), prod(y)", [np.full(300, 127, np.int8), a(np.int32, 2**31 - 1, 2**31 - 1)],
     [np.array(38100), np.array(2**32 - 2), np.array(0), np.array((2**31 - 1) ** 2)]),
    ("26 out of range", "x[y]", [a(F32, 1, 2, 3), a(np.int64, -4, -3, 2, 3, 2**62, -(2**63))], [a(F32, NAN, 1, 3, NAN, NAN, NAN)]),
    ("26 of integers and bools", "x[y], (x > 1)[y]", [a(np.int8, 1, 2, 3), a(np.uint8, 0, 2, 200)], [a(np.int8, 1, 3, 0), a(bool, 0, 1, 0)]),
    ("24 a grid of many axes", "x + 1, sum(x, axis=2)", [rng(2, 3, 1, 5, 2)], [rng(2, 3, 1, 5, 2) + 1, rng(2, 3, 1, 5, 2)[:, :, 0]]),
    ("25 sizes that are no powers of two", "x * 2, max(x, axis=0), max(x, axis=1)", [rng(7, 33)],
     [rng(7, 33) * 2, rng(7, 33).max(axis=0), rng(7, 33).max(axis=1)]),
    ("27 inputs that are outputs", "x, x, x + x", [rng(9)], [rng(9), rng(9), rng(9) * 2]),
    ("29 negative strides", "x + y", [x1000[::-1], x1000[::1]], [x1000[::-1] + x1000]),
    ("29 repeated and transposed", "x + y", [np.broadcast_to(F32(2), (3, 5)), rng(5, 3).T], [2 + rng(5, 3).T]),
    ("30 nothing", "sum(x), prod(x), any(x), all(x), mean(x), sum(x, axis=0), x + 1", [np.zeros((0, 3), F32)],
     [np.array(0, F32), np.array(1, F32), np.array(False), np.array(True), np.array(NAN, F32), np.zeros(3, F32), np.zeros((0, 3), F32)]),
    ("30 one", "x + y, sum(x), max(x), argmax(x)", [np.array(2, F32), np.array(3, F32)],
     [np.array(5, F32), np.array(2, F32), np.array(2, F32), np.array(0)]),
    ("31 integer powers", "x ** y", [a(np.int32, 2, -1, -1, 0, 0, 3, 2, 1), a(np.int32, -1, -3, -4, -1, 0, 21, 32, -9)],
     [a(np.int32, 0, -1, 1, 0, 1, (3**21 + 2**31) % 2**32 - 2**31, 0, 1)]),
]  # fmt: skip

HERE = [pytest.param(s, id=s) for s in SCHEDULES]
EVERYWHERE = [*HERE, pytest.param("gpu", id="gpu", marks=pytest.mark.gpu)]


def declared(arrays: list[Any], symbolic: bool) -> dict[str, str]:
    """Types for x, y, …. If sizes are symbolic, equal sizes have the same name."""
    return {
        v: f"{named(x.dtype)}[{', '.join(f'N{n}' if symbolic and n != 1 else str(n) for n in x.shape)}]"
        for v, x in zip("xyz", arrays)
    }


def run(text: str, arrays: list[Any], wants: list[Want], schedule: str) -> None:
    on, own = ("gpu", "own") if schedule == "gpu" else ("cpu", schedule)
    for symbolic in (True, False):
        check(text, declared(arrays, symbolic), arrays, wants, Case((), schedule=own), on)


def everywhere(values: list[Any]) -> list[Any]:
    """Parameters (value, schedule). On the CPU, every second combination is a slow test."""
    return [*every_second(values, SCHEDULES), *(pytest.param(v, "gpu", marks=pytest.mark.gpu) for v in values)]


@pytest.mark.parametrize("trap, schedule", everywhere(TRAPS), ids=lambda v: v if isinstance(v, str) else v[0])
def test_trap(trap: tuple[str, str, list[Any], list[Any]], schedule: str) -> None:
    _, text, arrays, results = trap
    run(text, arrays, [exact(r, named(r.dtype)) for r in results], schedule)


# ---- traps that show in the generated code ---------------------------------------------------


@pytest.mark.parametrize("schedule", EVERYWHERE)
def test_6_exp_is_accurate_near_its_limits(schedule: str) -> None:
    x = np.concatenate([np.linspace(80, 88.7, 500), np.linspace(-103, -80, 500)]).astype(F32)
    run("exp(x)", [x], [near(np.exp(x.astype(F64)), f32, 2 if schedule == "gpu" else 4)], schedule)


@pytest.mark.parametrize("k, schedule", everywhere([1, 3, 15, 16, 17, 64]))
def test_9_products_are_not_tf32(k: int, schedule: str) -> None:
    """For any K, errors are within the bound of f32. The 10 bits of TF32 exceed it."""
    x, y = rng(5, k), rng(k, 9)
    run("x @ y", [x, y], [matmul(x, y)], schedule)


@pytest.mark.parametrize("schedule", EVERYWHERE)
def test_12_maxima_of_zeros_are_zero(schedule: str) -> None:
    x, y = a(F32, 0.0, -0.0), a(F32, -0.0, 0.0)
    zero = exact(np.zeros(2, F32), f32, zeros=False)
    run("maximum(x, y), minimum(x, y)", [x, y], [zero, zero], schedule)


def test_generated_code_keeps_its_promises() -> None:
    """5, 8, 9: no approximate division or root, no contraction, no TF32. Every K compiles."""
    pytest.importorskip("triton")
    ptx = mt.compile("x / y + sqrt(x) * y - 1 / x", x="f32[N]", y="f32[N]").lower(N=1000)["ptx"]
    assert "div.rn.f32" in ptx and "sqrt.rn.f32" in ptx
    assert "div.full" not in ptx and "approx" not in ptx and "fma" not in ptx
    for m, k, n in ((64, 64, 64), (5, 3, 7), (17, 1, 33)):
        f = mt.compile("x @ y", x="f32[M, K]", y="f32[K, N]")
        assert ".tf32" not in f.lower(M=m, K=k, N=n)["ptx"]


@pytest.mark.parametrize(
    "text, types, code",
    [
        ("x - x", {"x": "bool[3]"}, "MT0202"),  # 14
        ("-x", {"x": "bool[3]"}, "MT0202"),
        ("x + 200", {"x": "i8[3]"}, "MT0208"),  # 17
        ("x + -1", {"x": "u8[3]"}, "MT0208"),
        ("max(x)", {"x": "f32[0]"}, "MT0209"),  # 30
        ("argmin(x, axis=1)", {"x": "f32[2, 0]"}, "MT0209"),
        ("max(x)", {"x": "f32[N]"}, "MT0209"),
        ("x[3]", {"x": "f32[3]"}, "MT0206"),  # 26
        ("x[3]", {"x": "f32[N]"}, "MT0206"),
    ],
)
def test_14_17_26_30_refused_as_in_numpy(text: str, types: dict[str, str], code: str) -> None:
    kind = types["x"].split("[")[0]
    shape = [
        0 if n == "N" and text == "max(x)" else 3 if n == "N" else int(n)
        for n in types["x"][len(kind) + 1 : -1].split(", ")
    ]
    refuses(text, types, [np.zeros(shape, mt.base.types.dtype(kind).numpy)], code)


@pytest.mark.parametrize("on", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_23_offsets_past_32_bits(on: str) -> None:
    """Two elements are 2**31 apart. The memory between them is never touched."""
    if on == "gpu":
        import torch

        memory = torch.empty(2**31 + 64, dtype=torch.int8, device="cuda")
        x = torch.as_strided(memory, (2,), (2**31,))
        x[:] = torch.tensor([3, 5], dtype=torch.int8)
        assert mt.compile("x + 1", x="i8[N]")(x).tolist() == [4, 6]
        return
    x = np.lib.stride_tricks.as_strided(np.empty(2**31 + 64, np.int8), (2,), (2**31,))
    x[:] = 3, 5
    assert mt.compile("x + 1", x="i8[N]").run("triton", x).tolist() == [4, 6]


def test_24_one_grid_axis() -> None:
    """CUDA's second and third grid axes end at 65535. So all grid axes are combined into the first one."""
    source = mt.compile("x + 1", x="f32[A, B, C, D]").lower(A=100_000, B=3, C=70_000, D=5)["triton"]
    assert "program_id(0)" in source and "program_id(1)" not in source and "program_id(2)" not in source


@pytest.mark.parametrize("sizes", [{"M": 3, "N": 5_000_001}, {"M": 1_000_003, "N": 7}, {"M": 70_001, "N": 70_001}, {}])
@pytest.mark.parametrize(
    "text", ["x + 1", "sum(x, axis=1)", "sum(x, axis=0)", "softmax(x)", "x @ x.T", "cumsum(x, axis=1)", "x.T + 0.5"]
)
def test_25_tiles_are_powers_of_two(text: str, sizes: dict[str, int]) -> None:
    program = mt.compile(text, x="f32[M, N]")
    for target in ("cuda:90", "interpreter"):
        for tile in program.lower(target=target, **sizes).compilation.value("tile"):
            block = {axis.name: axis.block for axis in tile.axes}
            assert all(b & (b - 1) == 0 for b in block.values()), block
            assert max(math.prod(block[name] for name in op.axes) for op in tile.ops()) <= 1 << 20, block


def test_27_results_do_not_alias() -> None:
    """An input that is also an output, or occurs twice, is returned as a new array."""
    x = rng(7)
    for got in (*mt.compile("x, x, x + y", x="f32[N]", y="f32[N]")(x, x), mt.compile("x", x="f32[N]")(x)):
        assert not np.shares_memory(got, x)
    first, second, _ = mt.compile("x, x, x", x="f32[N]")(x)
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("text", [t[1] for t in TRAPS], ids=[t[0] for t in TRAPS])
def test_28_what_is_interpreted_compiles(text: str) -> None:
    arrays = next(t[2] for t in TRAPS if t[1] == text)
    lowered = mt.compile(text, **declared(arrays, True)).lower(target="cuda:90")
    assert lowered["ptx"].count(".entry") == len(lowered.kernels)


def test_29_big_endian() -> None:
    x = np.arange(12, dtype=">f4").reshape(3, 4)[::-1, ::2]
    for stage in CPU_STAGES:
        got = mt.compile("x + 1", x="f32[M, N]").run(stage, x)
        np.testing.assert_array_equal(got, x + 1)
        assert got.dtype == np.float32 and got.dtype.isnative


# ---- the table of docs/reference/semantics.md ------------------------------------------------------------

AT_EVERY_STAGE = {6, 12, 17}  # own tests run these at every stage, like TRAPS
COMPILED = {28}  # tested by every row of TRAPS


def standing_for(number: int) -> list[str]:
    """The rows of `TRAPS` and the functions of this file that test a trap."""
    rows = [t[0] for t in TRAPS if t[0].split()[0] == str(number)]
    alone = [n for n in globals() if n.startswith("test_") and str(number) in n.split("_")]
    return [*rows, *alone]


def documented() -> dict[int, list[str]]:
    """The last column of the table: the tests of each trap."""
    text = (Path(__file__).parent.parent / "docs" / "reference" / "semantics.md").read_text(encoding="utf-8")
    section = text[text.index("## Where Triton differs from numpy") :]
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", section, re.MULTILINE)
    return {int(number): re.findall(r"`([^`]+)`", tests) for number, tests in rows}


def test_every_trap_is_documented_with_its_tests() -> None:
    assert documented() == {number: standing_for(number) for number in range(1, 32)}


def test_every_trap_is_tested_at_every_stage() -> None:
    at_every_stage = {int(t[0].split()[0]) for t in TRAPS} | AT_EVERY_STAGE | COMPILED
    assert at_every_stage == set(range(1, 32))
    assert all(standing_for(number) for number in range(1, 32))
