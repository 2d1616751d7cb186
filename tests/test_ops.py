"""The operator table and the leaf functions of the runtime: numpy, Triton's interpreter and the compiler agree."""

from __future__ import annotations

import linecache
import math
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from minitri.base import operators
from minitri.base.operators import ALIASES, BY_SYMBOL, OPERATORS, POSITIONS, REDUCTIONS, SCANS, Operator, Reduction
from minitri.base.operators_unlike_numpy import float_to_int
from minitri.base.types import DTYPES, DType, bool_, dtype, f32, f64, i8, i32, i64

triton = pytest.importorskip("triton")
torch = pytest.importorskip("torch")

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpretedFunction

from minitri.triton import rt, rt_fast_math, rt_float_division, rt_interpreter

TARGETS = {
    "cuda:80": GPUTarget("cuda", 80, 32),
    "cuda:90": GPUTarget("cuda", 90, 32),
    "hip:gfx942": GPUTarget("hip", "gfx942", 64),
}
COMPUTE = [d for d in DTYPES.values() if d == d.compute]


# ---- kernels from text -------------------------------------------------------------------


def function(text: str, **namespace: Any) -> Callable[..., Any]:
    """The function `kernel` that `text` defines; its source stays readable for Triton."""
    name = f"<kernel {hash(text) & 0xFFFFFFFF:x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"tl": tl, **namespace}
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"]


def interpret(text: str, *arrays: np.ndarray) -> None:
    """Runs a kernel in the interpreter as one program. It writes to the arrays that it stores to."""
    kernel = InterpretedFunction(function(text, rt=rt_interpreter.rt, libdevice=rt_interpreter.libdevice))
    with np.errstate(all="ignore"):
        kernel.run(*map(as_tensor, arrays), grid=(1,), warmup=False)


def launch(text: str, *arrays: np.ndarray) -> None:
    """Runs a kernel on the GPU as one program, like `interpret`."""
    tensors = [as_tensor(a).cuda() for a in arrays]
    kernel = triton.jit(function(text, rt=rt, libdevice=libdevice))
    kernel[(1,)](*tensors, enable_fp_fusion=False, enable_reflect_ftz=False)
    for a, tensor in zip(arrays, tensors):
        as_tensor(a).copy_(tensor)


Runner = Callable[..., None]
GPU = pytest.param(
    launch, id="gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
)


@pytest.fixture(params=[pytest.param(interpret, id="interpreter"), GPU])
def run(request: pytest.FixtureRequest) -> Runner:
    """A way to run a kernel text: interpreted or compiled."""
    return request.param


def as_tensor(a: np.ndarray) -> Any:
    """A torch tensor over the same memory."""
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def compile_text(text: str, signature: dict[str, str], target: str) -> Any:
    kernel = triton.jit(function(text, rt=rt, libdevice=libdevice))
    source = ASTSource(fn=kernel, signature=signature, constexprs={})
    return triton.compile(source, target=TARGETS[target], options={"enable_fp_fusion": False})


def elementwise_text(rows: list[Operator], operand: DType, size: int) -> str:
    """A kernel that loads x0, x1, x2 and stores each row's result to its own output."""
    arguments = [f"p{k}" for k in range(4)] + [f"o{k}" for k in range(len(rows))]
    lines = [f"def kernel({', '.join(arguments)}):", f"i = tl.arange(0, {size})"]
    lines += [f"x{k} = tl.load(p{k} + i)" for k in range(4)]
    for k, row in enumerate(rows):
        names = ["x3", "x1", "x2"] if row.operands == "where" else ["x0", "x1", "x2"]
        lines += [f"y{k} = {row.spell(operand, *names[: row.arity])}", f"tl.store(o{k} + i, y{k})"]
    return "\n    ".join(lines) + "\n"


def rows_of(operand: DType) -> list[Operator]:
    """The rows of the table that compute in this dtype."""
    return [
        row for row in OPERATORS.values()
        if any(row.operand_dtype(d) == operand for d in COMPUTE if d.kind in row.accepts)
    ]  # fmt: skip


# ---- values --------------------------------------------------------------------------------


def specials(d: DType) -> list[Any]:
    if d == bool_:
        return [False, True]
    if d.is_integer:
        low, high = d.limits
        return [v for v in (0, 1, 2, 3, 7, d.bits - 1, d.bits, high - 1, high, -1, -2, -7, low + 1, low) if v >= low]
    info = np.finfo(d.numpy)
    positive = [0.0, info.smallest_subnormal * 3, info.tiny, info.eps, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0,
                7.0, 86.5, 100.0, 2.0**31, info.max, np.inf]  # fmt: skip
    return [np.nan] + positive + [-v for v in positive]


def operands(row: Operator, d: DType, size: int = 2048) -> list[np.ndarray]:
    """Pairs of special values, then random ones; three operands and a bool for `where`."""
    rng = np.random.default_rng(7)
    special = np.array(specials(d), d.numpy)
    n = len(special)
    out = []
    for k in range(3):
        pairs = special[(np.arange(size) // n**k if k < 2 else rng.integers(0, n, size)) % n]
        if d.is_float:
            noise = rng.uniform(*row.domain, size).astype(d.numpy)
        elif d == bool_:
            noise = rng.integers(0, 2, size).astype(bool)
        else:
            low, high = d.limits if k == 0 else (max(-9, d.limits[0]), 9)
            noise = rng.integers(low, high, size, dtype=d.numpy, endpoint=True)
        out.append(np.where(np.arange(size) < n * n, pairs, noise))
    return [*out, rng.integers(0, 2, size).astype(bool)]


def reference(row: Operator, values: Sequence[np.ndarray]) -> np.ndarray:
    chosen = [values[3], *values[1:3]] if row.operands == "where" else values[: row.arity]
    with np.errstate(all="ignore"):
        return np.asarray(row.numpy(*chosen))


def assert_close(got: np.ndarray, want: np.ndarray, ulp: float, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, what
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=f"{what}: NaN positions")
    finite = np.isfinite(want) & np.isfinite(got)
    largest = np.finfo(want.dtype).max
    rounded_up = np.isinf(got) & (np.abs(want) > largest * (1 - ulp * np.finfo(want.dtype).eps))
    same = finite | np.isnan(want) | (got == want) | rounded_up & (np.sign(got) == np.sign(want))
    assert same.all(), (what, got[~same][:5], want[~same][:5])
    with np.errstate(over="ignore"):
        error = np.abs(got[finite] - want[finite]) / np.spacing(np.abs(want[finite]))
    assert error.size == 0 or error.max() <= ulp, (what, error.max())


# ---- the table -----------------------------------------------------------------------------


def test_table_is_consistent() -> None:
    for row in OPERATORS.values():
        assert row.name.isidentifier() and row.doc and 1 <= row.arity <= 3
        assert len(row.derivative) in (0, row.arity), row.name
        assert row.domain[0] < row.domain[1]
    assert all(target in OPERATORS and alias not in OPERATORS for alias, target in ALIASES.items())
    assert BY_SYMBOL["-", 1].name == "negative" and BY_SYMBOL["-", 2].name == "subtract"
    assert {s for s, n in BY_SYMBOL if n == 2} == set("+ - * / // % ** == != < <= > >= & | ^ << >>".split())
    assert {s for s, n in BY_SYMBOL if n == 1} == set("+-~")


def test_spelling_by_dtype() -> None:
    assert OPERATORS["divide"].spell(f32, "a", "b") == "rt.divide(a, b)"
    assert OPERATORS["divide"].spell(f64, "a", "b") == "a / b"
    assert OPERATORS["sign"].spell(i8, "a") == "(a > 0).to(tl.int8) - (a < 0).to(tl.int8)"
    assert OPERATORS["add"].spell(bool_, "a", "b") == "a | b"


@pytest.mark.parametrize("d", COMPUTE, ids=str)
def test_reference_types(d: DType) -> None:
    """References give the exact result dtype, also for 0-d and empty arrays, without warnings."""
    for row in rows_of(d):
        values = operands(row, d)
        for shape in ((), (0,), (4, 8)):
            parts = [np.resize(v, shape) for v in values]
            out = reference(row, parts)
            assert (out.dtype, out.shape) == (row.result_dtype(d).numpy, shape), row.name


@pytest.mark.parametrize("d", COMPUTE, ids=str)
def test_kernels_match_numpy(d: DType, run: Runner) -> None:
    """Pairs of special values, then random values. On a GPU, errors are within the row's own bound."""
    for row in rows_of(d):
        values = operands(row, d)
        out = np.zeros(values[0].shape, row.result_dtype(d).numpy)
        run(elementwise_text([row], d, out.size), *values, out)
        want, ulp = reference(row, values), 2.0
        if run is launch and d.is_float:
            ulp = 0.0 if row.ulp == 0.5 else 5.0
            if d == f32 and ulp:  # the bound is relative to the exact result: f64, rounded
                ulp = row.ulp + 0.5
                with np.errstate(all="ignore"):
                    want = reference(row, [v.astype(np.float64) for v in values]).astype(np.float32)
        assert_close(out, want, ulp, f"{row.name} {d}")
        if row.name not in ("maximum", "minimum", "clip"):  # these may give either zero
            zero = (want == 0) & (out == 0)
            np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(want[zero]), err_msg=row.name)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("d", COMPUTE, ids=str)
def test_compiles_ahead_of_time(d: DType, target: str) -> None:
    rows = rows_of(d)
    signature = {f"p{k}": f"*{d.signature}" for k in range(3)} | {"p3": "*i1"}
    signature |= {f"o{k}": f"*{row.result_dtype(d).signature}" for k, row in enumerate(rows)}
    compile_text(elementwise_text(rows, d, 128), signature, target)


@pytest.mark.parametrize("d", [f32, f64], ids=str)
def test_exact_operators_are_exact(d: DType) -> None:
    """An operator with an error bound of half an ulp is not approximated on the GPU."""
    loops = ("floor_divide", "remainder", "fmod")  # fmod starts from an estimate and corrects it
    exact = [r for r in rows_of(d) if r.result == "operand" and r.ulp == 0.5 and r.name not in loops]
    assert {"divide", "sqrt", "reciprocal"} <= {r.name for r in exact}
    signature = {f"p{k}": f"*{d.signature}" for k in range(3)} | {"p3": "*i1"}
    signature |= {f"o{k}": f"*{d.signature}" for k in range(len(exact))}
    ptx = compile_text(elementwise_text(exact, d, 128), signature, "cuda:90").asm["ptx"]
    assert ".approx" not in ptx and "div.full" not in ptx and "fma" not in ptx


# ---- fast math ---------------------------------------------------------------------------------

# defined in minitri/triton/rt_fast_math.py
RELAXED = {"sigmoid": 2.0**-17, "tanh": 2.0**-18, "erf": 2.0**-18, "log": 2.0**-18, "log1p": 2.0**-18}


def on_the_cpu(name: str, x: np.ndarray, off: float) -> np.ndarray:
    """The device function itself, run by numpy in f32. Instructions that a GPU approximates are off by their error."""

    def power(e: np.ndarray) -> np.ndarray:
        return (np.exp2(e.astype(np.float64)) * (1 + off)).astype(np.float32)

    def flushed(e: np.ndarray) -> np.ndarray:
        return np.where(e < -126, np.float32(0), power(e))

    tile = SimpleNamespace(abs=np.abs, where=np.where, exp=lambda e: power(e * np.float32(math.log2(math.e))))
    names = {"tl": tile, "libdevice": SimpleNamespace(copysign=np.copysign), "exp2": flushed}
    names["reciprocal"] = lambda y: (1 / y.astype(np.float64) * (1 - off / 2)).astype(np.float32)
    names["_log2"] = lambda y: (np.log2(y.astype(np.float64)) + off).astype(np.float32)
    names["_log_of_sum"] = FunctionType(rt_fast_math._log_of_sum.fn.__code__, names)
    with np.errstate(all="ignore"):
        return FunctionType(getattr(rt, f"relaxed_{name}").fn.__code__, names)(x)


def on_a_gpu(name: str, x: np.ndarray, off: float) -> np.ndarray:
    text = leaf_text(f"rt.relaxed_{name}(x0)", ["tl.arange(0, 4096)"], ["tl.arange(0, 4096)"])
    parts = np.resize(x, (-(-len(x) // 4096), 4096))
    out = np.zeros_like(parts)
    for k, part in enumerate(parts):
        launch(text, part, out[k])
    return out.reshape(-1)[: len(x)]


def all_sizes() -> np.ndarray:
    """Numbers of every magnitude that f32 has, most of them where the functions bend, with their negatives."""
    ends = np.array([2.0**-149, 2.0**-7, 8, np.finfo(np.float32).max], np.float32).view(np.int32)
    counts = (20_000, 300_000, 20_000)
    bits = [np.linspace(low, high, n).astype(np.int32) for low, high, n in zip(ends, ends[1:], counts)]
    sizes = np.concatenate(bits).view(np.float32)
    return np.concatenate([np.array(specials(f32), np.float32), sizes, -sizes])


@pytest.mark.parametrize("evaluate, off", [
    pytest.param(on_the_cpu, off, id=f"cpu-{off:.1g}") for off in (0.0, 2.0**-22.5, -(2.0**-22.5))
] + [pytest.param(on_a_gpu, 0.0, id="gpu", marks=GPU.marks)])  # fmt: skip
@pytest.mark.parametrize("name", RELAXED)
def test_fast_math_functions_keep_their_error_bounds(name: str, evaluate: Callable[..., Any], off: float) -> None:
    """The bound holds everywhere. Zeros keep their sign, and odd functions stay odd."""
    x, row = all_sizes(), OPERATORS[name]
    assert row.relaxed == f"rt.relaxed_{name}({{0}})"
    with np.errstate(all="ignore"):
        got, want = evaluate(name, x, off), row.numpy(x.astype(np.float64))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    got, want, x = (values[np.isfinite(want) | np.isnan(want)] for values in (got, want, x))
    error = np.abs(got - want)
    worst = np.nanargmax(error / (RELAXED[name] * np.abs(want) + 2.0**-148))
    assert error[worst] <= RELAXED[name] * abs(want[worst]) + 2.0**-148, (x[worst], got[worst], want[worst])
    if name in ("tanh", "erf"):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x))
        np.testing.assert_array_equal(np.abs(got), np.abs(evaluate(name, -x, off)))


@pytest.mark.parametrize(
    "evaluate", [pytest.param(on_the_cpu, id="cpu"), pytest.param(on_a_gpu, marks=GPU.marks, id="gpu")]
)
def test_fast_math_erf_has_an_error_below_1e_7(evaluate: Callable[..., Any]) -> None:
    """gelu below -3 is x times half of 1 + erf(x): the small difference of erf from -1 becomes visible in bf16."""
    x = all_sizes()
    x = x[~np.isnan(x)]
    error = np.abs(evaluate("erf", x, 0.0) - OPERATORS["erf"].numpy(x.astype(np.float64)))
    assert error.max() < 2.5e-7
    assert error[np.abs(x) > 1.5].max() < 6e-8
    assert (np.abs(evaluate("erf", x[np.abs(x) > 4], 0.0)) == 1).all()


class Tile(np.ndarray):
    """An array with the method `to` of a tile, which only copies the bits here."""

    def to(self, dtype: Any, bitcast: bool) -> np.ndarray:
        return self.view(dtype)


def fused(x: Any, y: Any, z: Any) -> np.ndarray:
    product = np.asarray(x, np.float64) * np.asarray(y, np.float32).astype(np.float64)
    return (product + np.asarray(z, np.float32).astype(np.float64)).astype(np.float32).view(Tile)


def wide_range(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits: numbers of every magnitude, among them denormals, infinities and NaN."""
    return random.integers(0, 1 << 32, shape, np.uint32).view(np.float32)


def divided_by_few(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The device function that divides by few values, run by numpy in f32, and the rounded quotients."""
    tile = SimpleNamespace(
        abs=np.abs, where=np.where, fma=fused, int32=np.int32, float32=np.float32, maximum=np.maximum, div_rn=np.divide
    )
    divide = FunctionType(rt_float_division._divide_by_few.fn.__code__, {"tl": tile})
    with np.errstate(all="ignore"):
        want = a.astype(np.float64) / b.astype(np.float64)
        return np.asarray(divide(a.view(Tile), b.view(Tile))), want.astype(np.float32)


def test_a_division_by_one_value_rounds_correctly_at_the_largest_number() -> None:
    """The quotient is 2**128, which overflows, or one of the numbers below it."""
    b = np.ldexp(1 + np.random.default_rng(0).random(2000), -100).astype(np.float32)
    below = b * np.float32(2.0**126)
    for _ in range(4):
        got, want = divided_by_few(below * np.float32(4), b)
        np.testing.assert_array_equal(got, want)
        below = np.nextafter(below, np.float32(0))


def test_a_division_by_one_value_for_a_row_rounds_correctly() -> None:
    """The device function itself, run by numpy in f32. Quotients near 0 may be off by three ulps."""
    random = np.random.default_rng(0)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.0, -7.0, 1e-45, 2e38, -3.4e38, 1.17e-38], np.float32)
    a = np.concatenate([ends, wide_range(random, (4000,)), random.standard_normal(4000, np.float32)])
    b = np.concatenate([ends, wide_range(random, (300,)), random.standard_normal(300, np.float32)])[:, None]
    got, want = divided_by_few(a, b)
    near_zero = np.abs(want) < 2.0**-100
    assert_close(np.where(near_zero, 0, got), np.where(near_zero, 0, want), 0, "quotients")
    assert_close(got, want, 3, "all quotients")
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


ROUND = """
import sys
import numpy as np, torch, triton, triton.language as tl
from types import SimpleNamespace
import minitri.triton.rt as device
from minitri.base.operators_unlike_numpy import round_to_tf32
device.libdevice = SimpleNamespace(trunc=lambda x: tl.where(x < 0, tl.ceil(x), tl.floor(x)))
rounded = device.round_to_tf32

@triton.jit
def kernel(p, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, rounded(tl.load(p + i)))

for dtype, bits in ((np.float32, np.uint32), (np.float64, np.uint64)):
    x = np.random.default_rng(0).integers(0, np.iinfo(bits).max, 1 << 14, bits).view(dtype)
    ends = [0.0, np.inf, np.nan, 1.0, 1 + 2.0**-11, 1 + 2.0**-12, 1 + 3 * 2.0**-12, 3.4e38, 2.0**-126, 3 * 2.0**-137,
            2.0**-137, 2.0**-138, 2.0**-130 + 2.0**-137, 65535, 123456789, float(np.finfo(dtype).max), 5e-324]
    x[: 2 * len(ends)] = ends + [-v for v in ends]
    out = torch.empty(len(x), dtype=torch.from_numpy(x).dtype)
    with np.errstate(all="ignore"):
        kernel[(1,)](torch.from_numpy(x), out, len(x))
        want = round_to_tf32(x)
    same = (out.numpy().view(bits) == want.view(bits)) | np.isnan(want) & np.isnan(out.numpy())
    assert same.all(), (x[~same], want[~same], out.numpy()[~same])
"""


def test_round_to_tf32_of_the_device_equals_the_reference() -> None:
    """The device function's own text runs in Triton's interpreter. Elsewhere the interpreter uses the reference."""
    pytest.importorskip("torch")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"  # Triton reads the source of a kernel from a file
        script.write_text(ROUND)
        subprocess.run([sys.executable, str(script)], env=environment, check=True)


def test_a_new_row_of_the_table_is_a_complete_operator() -> None:
    """A registered row runs in the interpreter and compiles. No other code has to know it."""
    row = operators.register(Operator("cbrt", 1, np.cbrt, "libdevice.cbrt({0})", "cube root", operands="float"))
    try:
        values = operands(row, f32)
        out = np.zeros_like(values[0])
        interpret(elementwise_text([row], f32, out.size), *values, out)
        assert_close(out, np.cbrt(values[0]), 0, "cbrt")
        signature = {"p0": "*fp32", "p1": "*fp32", "p2": "*fp32", "p3": "*i1", "o0": "*fp32"}
        assert "fma" in compile_text(elementwise_text([row], f32, 128), signature, "cuda:90").asm["ptx"]
    finally:
        del OPERATORS["cbrt"]


# ---- references against Python's own arithmetic ----------------------------------------------


def wrap(value: int, d: DType) -> int:
    low, high = d.limits
    return (value - low) % (high - low + 1) + low


INTEGERS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "floor_divide": lambda x, y: x // y if y else 0,
    "remainder": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1) if y else 0,
    "negative": lambda x: -x,
    "square": lambda x: x * x,
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "minimum": min,
    "maximum": max,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "bitwise_invert": lambda x: ~x,
    "less": lambda x, y: x < y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
}


@pytest.mark.parametrize("d", [d for d in COMPUTE if d.is_integer], ids=str)
def test_integers_against_python(d: DType) -> None:
    for name, exact in INTEGERS.items():
        row = OPERATORS[name]
        values = operands(row, d)
        got = reference(row, values).tolist()
        for g, *xs in zip(got, *(v.tolist() for v in values[: row.arity])):
            want = exact(*xs)
            assert g == (want if row.result == "bool" else wrap(want, d)), (name, xs)


@pytest.mark.parametrize("d", [d for d in COMPUTE if d.is_integer], ids=str)
def test_shifts_and_powers_against_python(d: DType) -> None:
    values = operands(OPERATORS["power"], d)
    left, right = (reference(OPERATORS[f"bitwise_{s}_shift"], values).tolist() for s in ("left", "right"))
    power = reference(OPERATORS["power"], values).tolist()
    for x, n, shifted_left, shifted_right, raised in zip(*(v.tolist() for v in values[:2]), left, right, power):
        amount = n if 0 <= n < d.bits else d.bits
        assert shifted_left == wrap(x << amount, d), (x, n)
        assert shifted_right == x >> amount, (x, n)
        want = pow(x, n, 1 << d.bits) if n >= 0 else {1: 1, -1: -1 if n % 2 else 1}.get(x, 0)
        assert raised == wrap(want, d), (x, n)


FLOATS: dict[str, Callable[..., Any]] = {
    "exp": math.exp, "expm1": math.expm1, "exp2": lambda x: 2.0**x, "log": math.log, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos,
    "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh,
    "acosh": math.acosh, "atanh": math.atanh, "erf": math.erf, "atan2": math.atan2, "hypot": math.hypot,
    "power": math.pow, "copysign": math.copysign, "divide": lambda x, y: x / y, "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x)),
    "round": lambda x: float(round(x)), "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "remainder": lambda x, y: x % y, "floor_divide": lambda x, y: x // y, "fmod": math.fmod,
    "next_float": lambda x, y: math.nextafter(x, y),
}  # fmt: skip


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_floats_against_math(name: str, d: DType) -> None:
    row, exact = OPERATORS[name], FLOATS[name]
    rng = np.random.default_rng(3)
    xs = [rng.uniform(*row.domain, 500).astype(d.numpy) for _ in range(row.arity)]
    if name == "power":
        xs[0] = np.abs(xs[0])
    want = np.array([exact(*map(float, p)) for p in zip(*xs)])
    got = np.asarray(row.numpy(*xs))
    bound = 4.5 * np.spacing(np.abs(want).astype(d.numpy)).astype(np.float64)
    assert (np.abs(got - want) <= bound).all()


def bits(x: Any) -> bytes:
    return struct.pack("d", float(x))


@pytest.mark.parametrize(
    "name, args, want",
    [
        ("floor_divide", (-0.0, 1.0), -0.0), ("floor_divide", (1.0, np.inf), 0.0),
        ("floor_divide", (-1.0, np.inf), -1.0), ("floor_divide", (1.0, 0.0), np.inf),
        ("floor_divide", (np.inf, 1.0), np.nan), ("remainder", (-1.0, np.inf), np.inf),
        ("remainder", (4.0, -2.0), -0.0), ("remainder", (-7.0, 3.0), 2.0), ("remainder", (1.0, 0.0), np.nan),
        ("sign", (np.nan,), np.nan), ("sign", (-0.0,), 0.0), ("negative", (0.0,), -0.0),
        ("round", (0.5,), 0.0), ("round", (-0.5,), -0.0), ("round", (2.5,), 2.0), ("ceil", (-0.5,), -0.0),
        ("maximum", (np.nan, 1.0), np.nan), ("minimum", (1.0, np.nan), np.nan),
        ("clip", (np.nan, 0.0, 1.0), np.nan), ("clip", (2.0, 0.0, 1.0), 1.0),
        ("hypot", (np.inf, np.nan), np.inf), ("power", (1.0, np.nan), 1.0), ("power", (np.nan, 0.0), 1.0),
        ("atan2", (-0.0, -1.0), -math.pi), ("sigmoid", (-1e4,), 0.0), ("sigmoid", (1e4,), 1.0),
        ("fmod", (-7.0, 3.0), -1.0), ("fmod", (-4.0, 2.0), -0.0), ("fmod", (1.0, 0.0), np.nan), ("fmod", (1.0, np.inf), 1.0),
        ("fmod", (np.inf, 1.0), np.nan), ("next_float", (0.0, -1.0), -5e-324), ("next_float", (1.0, np.inf), 1 + 2.0**-52),
        ("next_float", (-0.0, 0.0), 0.0), ("next_float", (1.0, np.nan), np.nan), ("next_float", (np.inf, 0.0), 1.7976931348623157e308),
        ("erf", (-0.0,), -0.0), ("erf", (np.inf,), 1.0), ("log1p", (-1.0,), -np.inf),
    ],
)  # fmt: skip
def test_special_values(name: str, args: tuple[float, ...], want: float, run: Runner) -> None:
    """The reference and the interpreter give the special value, with the sign of zero."""
    row = OPERATORS[name]
    values = [np.full(16, (args + (0.0, 0.0))[k]) for k in range(3)] + [np.ones(16, bool)]
    out = np.zeros(16)
    run(elementwise_text([row], f64, 16), *values, out)
    for got in (reference(row, values)[0], out[0]):
        assert math.isnan(got) if math.isnan(want) else bits(got) == bits(want)


def test_erf_is_fast_and_accurate() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), np.logspace(-300, 0, 500)])
    want = np.array([math.erf(v) for v in x])
    assert np.abs(OPERATORS["erf"].numpy(x) - want).max() <= 1e-15


# ---- leaf functions ----------------------------------------------------------------------------


def test_device_and_interpreter_have_the_same_functions() -> None:
    ours = {
        n: v
        for n, v in vars(rt).items()
        if (getattr(v, "__module__", None) or "").startswith(rt.__name__) and n[0] != "_"
    }
    public = {n for n, v in ours.items() if isinstance(v, triton.runtime.JITFunction) or tl.core.is_builtin(v)}
    assert {"maximum", "exp2", "settle"} <= public
    assert all(callable(getattr(rt_interpreter.rt, name)) for name in public)
    assert public >= set(rt_interpreter.rt._functions)
    with pytest.raises(AttributeError):
        _ = rt_interpreter.rt.no_such_function


def leaf_text(expression: str, shapes: list[str], stores: list[str]) -> str:
    """A kernel that loads x0, x1, … from tiles of offsets and stores y or the tuple y0, y1."""
    arguments = [f"p{k}" for k in range(len(shapes))] + [f"o{k}" for k in range(len(stores))]
    lines = [f"def kernel({', '.join(arguments)}):"]
    lines += [f"x{k} = tl.load(p{k} + {offsets})" for k, offsets in enumerate(shapes)]
    lines += [f"{', '.join(f'y{k}' for k in range(len(stores)))} = {expression}"]
    lines += [f"tl.store(o{k} + {offsets}, y{k})" for k, offsets in enumerate(stores)]
    return "\n    ".join(lines) + "\n"


ROWS, COLUMNS = 8, 16
TILE = f"tl.arange(0, {ROWS})[:, None] * {COLUMNS} + tl.arange(0, {COLUMNS})[None, :]"
LINE = [f"tl.arange(0, {COLUMNS})", f"tl.arange(0, {ROWS})"]  # the remaining offsets after axis 0, after axis 1

FOLDS: dict[str, tuple[Callable[..., Any], Reduction]] = {
    **{f"reduce_{name}": (row.ufunc.reduce, row) for name, row in REDUCTIONS.items() if name not in POSITIONS},
    **{f"scan_{name}": (REDUCTIONS[name].ufunc.accumulate, REDUCTIONS[name]) for name in SCANS},
}
CASES = [
    (name, d) for name, (_, row) in FOLDS.items() for d in COMPUTE
    if d.kind in row.accepts and (d.bits >= 32 or row.kind not in ("sum", "product"))
]  # fmt: skip


def tile(d: DType, rng: np.random.Generator, shape: tuple[int, int] = (ROWS, COLUMNS)) -> np.ndarray:
    if d.is_float:
        x = rng.integers(-3, 4, shape).astype(d.numpy) / 2
        x.flat[[5, 40]] = np.nan
        x[2] = -np.inf
        return x
    low, high = d.limits
    x = rng.integers(max(low, -9), min(high, 9), shape, endpoint=True).astype(d.numpy)
    x.flat[[3, 77]] = low, high
    return x


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name, d", CASES, ids=str)
def test_reductions_and_scans(name: str, d: DType, axis: int, run: Runner) -> None:
    x = tile(d, np.random.default_rng(1))
    scan = name.startswith("scan")
    with np.errstate(all="ignore"):
        want = np.asarray(FOLDS[name][0](x, axis=axis)).astype(d.numpy)
    out = np.zeros(want.shape, d.numpy)
    run(leaf_text(f"rt.{name}(x0, {axis})", [TILE], [TILE if scan else LINE[axis]]), x, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("d", [f32, f64, i8, i32, i64, dtype("u32")], ids=str)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions(name: str, d: DType, axis: int, run: Runner) -> None:
    """The first NaN, else the first of equal elements. The index tile gives the index of each element."""
    x = tile(d, np.random.default_rng(2))
    index = np.broadcast_to(np.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1)), x.shape)
    n = x.shape[1 - axis]
    value, where = np.zeros(n, d.numpy), np.zeros(n, np.int64)
    text = leaf_text(f"rt.reduce_{name}(x0, x1, {axis})", [TILE, TILE], [LINE[axis]] * 2)
    run(text, x, index.copy(), value, where)
    np.testing.assert_array_equal(where, getattr(np, name)(x, axis=axis))
    np.testing.assert_array_equal(value, getattr(np, name[3:])(x, axis=axis))


def test_axis_of_length_one(run: Runner) -> None:
    for name in ("reduce_max", "reduce_sum", "scan_sum"):
        x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
        column = "tl.arange(0, 8)[:, None] + tl.arange(0, 1)[None, :]"
        store = column if name == "scan_sum" else LINE[1]
        run(leaf_text(f"rt.{name}(x0, 1)", [column], [store]), x, out)
        np.testing.assert_array_equal(out, x)


def test_reduction_to_a_scalar(run: Runner) -> None:
    x, value, where = (
        np.array([1, np.nan, 3, np.nan], np.float32),
        np.zeros(1, np.float32),
        np.zeros(1, np.int32),
    )
    text = leaf_text("rt.reduce_argmax(x0, tl.arange(0, 4), 0)", ["tl.arange(0, 4)"], ["0", "0"])
    run(text, x, value, where)
    assert np.isnan(value[0]) and where[0] == 1


@pytest.mark.parametrize("to", [d for d in COMPUTE if d.is_integer], ids=str)
@pytest.mark.parametrize("d", [f32, f64], ids=str)
def test_float_to_int(d: DType, to: DType, run: Runner) -> None:
    low, high = to.limits
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 1e30, -1e30]
    edges += [
        float(high),
        float(low),
        float(high) * 1.01,
        float(low) * 1.01 - 1,
        float(high) / 2,
        float(low) / 2,
    ]
    x = np.resize(np.array(edges, d.numpy), 32)
    clipped = [0.0 if math.isnan(v) else min(max(v, -1e300), 1e300) for v in x.tolist()]
    want = [min(max(int(v), low), high) for v in clipped]
    assert float_to_int(x, to.numpy).tolist() == want
    out = np.zeros(32, to.numpy)
    run(leaf_text(f"rt.float_to_int(x0, tl.{to.triton})", ["tl.arange(0, 32)"], ["tl.arange(0, 32)"]), x, out)
    assert out.tolist() == want


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "bool"])
def test_conversions(d: DType, to: str, run: Runner) -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([np.array(specials(d)), rng.normal(0, 1, 64), rng.uniform(-1, 1, 64) * 1e-39])
    x = np.resize(x.astype(d.numpy), 256)
    with np.errstate(all="ignore"):
        want = x.astype(np.float32).astype(DTYPES[to].numpy) if to == "bf16" else x.astype(DTYPES[to].numpy)
    out = np.zeros_like(want)
    run(leaf_text(f"rt.to_{to}(x0)", ["tl.arange(0, 256)"], ["tl.arange(0, 256)"]), x, out)
    # numpy does not recognise the NaN of ml_dtypes
    np.testing.assert_array_equal(out.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("size", [256, 16, 2])
@pytest.mark.parametrize("name", ["i8", "u8"])
def test_bytes_are_converted_to_halves(name: str, size: int, run: Runner) -> None:
    """All bytes, and tiles that are smaller than one conversion instruction."""
    x = np.arange(256, dtype=np.uint8).view(DTYPES[name].numpy)[-size:].copy()
    out = np.zeros(size, np.float16)
    lanes = [f"tl.arange(0, {size})"]
    run(leaf_text("rt.byte_to_f16(x0)", lanes, lanes), x, out)
    np.testing.assert_array_equal(out, x.astype(np.float16))


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_halves_widen_exactly(to: str, run: Runner) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[to].numpy)
    out = np.zeros(x.shape, np.float32)
    run(leaf_text("rt.to_f32(x0)", ["tl.arange(0, 65536)"], ["tl.arange(0, 65536)"]), x, out)
    np.testing.assert_array_equal(out, x.astype(np.float32))


def dot_text(precision: str = "") -> str:
    tile = "tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]"
    return leaf_text(f"rt.dot(x0, x1, x2{precision})", [tile] * 3, [tile])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_dot(name: str, run: Runner) -> None:
    rng = np.random.default_rng(8)
    d, wide = DTYPES[name].numpy, DTYPES[name].compute.numpy
    a, b = (rng.normal(0, 1, (16, 16)).astype(d) for _ in "ab")
    acc, out = rng.normal(0, 1, (16, 16)).astype(wide), np.zeros((16, 16), wide)
    run(dot_text(), a, b, acc, out)
    exact = a.astype(np.float64) @ b.astype(np.float64) + acc
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + np.abs(acc)
    assert (np.abs(out - exact) <= 16 * np.finfo(wide).eps * scale).all()  # TF32 would be off by 2e-4 of the scale


# ---- leaf functions, compiled ------------------------------------------------------------------


def leaf_kernels() -> dict[str, tuple[str, dict[str, str]]]:
    """Every leaf function with structure, in few kernels: name → text, signature."""
    out: dict[str, tuple[str, dict[str, str]]] = {}
    for d in (f32, f64, i32, i64, i8, dtype("u32"), bool_):
        lines = ["def kernel(p, q, o, n):", f"x = tl.load(p + ({TILE}))", f"i = tl.load(q + ({TILE}))"]
        for name in [n for n, c in CASES if c == d]:
            at = TILE if name.startswith("scan") else LINE[1]
            lines += [f"y = rt.{name}(x, 1)", f"tl.store(o + ({at}), y)"]
        if d != bool_:
            for name in ("argmax", "argmin"):
                lines += [f"v, w = rt.reduce_{name}(x, i, 0)", f"tl.store(o + {LINE[0]}, v)",
                          f"tl.store(n + {LINE[0]}, w)"]  # fmt: skip
        pointer = f"*{d.signature}"
        out[f"reduce {d}"] = (
            "\n    ".join(lines) + "\n",
            {"p": pointer, "q": "*i64", "o": pointer, "n": "*i64"},
        )
    for d in (f32, f64):
        kinds = [t for t in COMPUTE if t.is_integer] + [DTYPES[n] for n in ("bool", "f16", "bf16", "f32")]
        lines = [f"def kernel(p, {', '.join(f'o{k}' for k in range(len(kinds)))}):", "i = tl.arange(0, 128)"]
        lines += ["x = tl.load(p + i)"]
        for k, to in enumerate(kinds):
            call = f"rt.float_to_int(x, tl.{to.triton})" if to.is_integer else f"rt.to_{to}(x)"
            lines += [f"tl.store(o{k} + i, {call})"]
        outputs = {f"o{k}": f"*{to.signature}" for k, to in enumerate(kinds)}
        out[f"convert {d}"] = "\n    ".join(lines) + "\n", {"p": f"*{d.signature}", **outputs}
    for d in (i8, dtype("u8")):
        lines = ["def kernel(p, o):", "i = tl.arange(0, 128)", "x = tl.load(p + i)", "y = tl.load(p)"]
        lines += ["tl.store(o + i, rt.byte_to_f16(x))", "tl.store(o, rt.byte_to_f16(y))", "rt.settle()"]
        out[f"bytes {d}"] = "\n    ".join(lines) + "\n", {"p": f"*{d.signature}", "o": "*fp16"}
    for name in ("f16", "bf16", "f32", "f64"):
        a, c = f"*{DTYPES[name].signature}", f"*{DTYPES[name].compute.signature}"
        out[f"dot {name}"] = dot_text(), {"p0": a, "p1": a, "p2": c, "o0": c}
    out["dot tf32"] = dot_text(', "tf32"'), {"p0": "*fp32", "p1": "*fp32", "p2": "*fp32", "o0": "*fp32"}
    return out


LEAVES = leaf_kernels()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LEAVES)
def test_leaf_functions_compile(name: str, target: str) -> None:
    text, signature = LEAVES[name]
    kernel = compile_text(text, signature, target)
    if name.startswith("dot f32") and target.startswith("cuda"):
        assert ".tf32" not in kernel.asm["ptx"]
    if name == "dot tf32" and target.startswith("cuda"):
        assert ".tf32" in kernel.asm["ptx"]
