"""The Python API: its arguments, results and refusals, and effects that must never happen.

Programs run as in user code, on the CPU: the generated kernels run in Triton's interpreter. Tests with
CUDA tensors are in test_gpu.py.
"""

from __future__ import annotations

import ast as python
import importlib.util
import math
import mmap
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.base.diagnostics import CompileError, ParseError
from minitri.cli.inputs import make_inputs
from minitri.graph.parameter_binding import Instance
from minitri.hardware.targets import INTERPRETER, StageUnavailable, Target
from minitri.optimize import pass_table
from minitri.pipeline import Compilation
from minitri.runtime import interpreter, launch, variants
from minitri.runtime.array_interop import view
from minitri.runtime.call_binding import bind
from minitri.runtime.launch import Bound
from minitri.triton import source
from minitri.trust import run_stage
from minitri.trust.check_passes import compare, enclosures
from minitri.trust.run_stage import launchable

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[1]
BF16 = np.dtype(ml_dtypes.bfloat16)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return rng().normal(size=shape).astype(dtype)


def linear() -> mt.Program:
    return mt.compile("relu(x @ w + b)", x="f32[M, K]", w="f32[K, N]", b="f32[N]")


def arrays_of_linear() -> tuple[Any, Any, Any]:
    return normal(3, 4), normal(4, 5), normal(5)


class Exported:
    """An array of another library, which supports only DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


# ---- kinds of arrays -------------------------------------------------------------------------


def test_numpy_in_numpy_out() -> None:
    x, w, b = arrays_of_linear()
    out = linear()(x, w, b)
    assert type(out) is np.ndarray and out.dtype == np.float32
    np.testing.assert_allclose(out, np.maximum(x @ w + b, 0), rtol=1e-5, atol=1e-6)


def test_torch_in_torch_out() -> None:
    x, w, b = map(torch.from_numpy, arrays_of_linear())
    out = linear()(x, w, b)
    assert type(out) is torch.Tensor and out.dtype == torch.float32 and out.device.type == "cpu"
    torch.testing.assert_close(out, torch.relu(x @ w + b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool"])
def test_every_dtype_comes_back(name: str) -> None:
    f = mt.compile("where(c, x, y)", c="bool[N]", x=f"{name}[N]", y=f"{name}[N]")
    dtype = {"bool": torch.bool, "u8": torch.uint8}.get(name) or getattr(torch, mt.base.types.dtype(name).triton)
    x, y, c = torch.arange(6).to(dtype), torch.arange(6).flip(0).to(dtype), torch.arange(6) % 2 == 0
    out = f(c, x, y)
    assert out.dtype == dtype and torch.equal(out, torch.where(c, x, y))
    host = [view(t, "t").numpy() for t in (c, x, y)]
    same = f(*host)
    assert same.dtype == mt.base.types.dtype(name).numpy and same.tobytes() == view(out, "out").numpy().tobytes()


def test_bf16_numpy_and_torch_agree() -> None:
    f = mt.compile("x * y + x", x="bf16[N]", y="bf16[N]")
    x, y = normal(65).astype(BF16), normal(65).astype(BF16) + BF16.type(1)
    tensors = [torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) for a in (x, y)]
    out, host = f(*tensors), f(x, y)
    assert out.dtype == torch.bfloat16 and host.dtype == BF16
    assert out.view(torch.int16).numpy().tobytes() == host.tobytes()


def test_parameters_and_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    out = mt.compile("x * 2", x="f32[N]")(weight)
    assert type(out) is torch.Tensor and not out.requires_grad and torch.equal(out, torch.full((4,), 2.0))


def test_dlpack() -> None:
    x = normal(6)
    frozen = x.copy()
    frozen.flags.writeable = False
    f = mt.compile("x * 2", x="f32[N]")
    for array in (x, frozen, torch.from_numpy(x)):
        np.testing.assert_array_equal(f(Exported(array)), x * 2)


def test_dlpack_without_copy() -> None:
    x = normal(6)
    assert view(Exported(x), "x").address == x.ctypes.data
    t = torch.ones(6, dtype=torch.bfloat16)  # numpy cannot represent it
    assert view(Exported(t), "x").address == t.data_ptr()


def test_dlpack_that_fails_is_a_diagnostic() -> None:
    class Broken(Exported):
        def __dlpack__(self, **options: Any) -> Any:
            raise KeyError("internal")

    f = mt.compile("x * 2", x="f32[N]")
    for array in (
        Broken(normal(3)),
        Exported(torch.ones(3, requires_grad=True)),
        Exported(torch.ones(3, device="meta")),
    ):
        refused("MT0305", f, array)


def test_scalars_and_0d() -> None:
    f = mt.compile("x * 2 + y", x="f32[]", y="f32[N]")
    y = normal(5)
    for x in (np.float32(1.5), np.array(1.5, np.float32), torch.tensor(1.5), 1.5):
        np.testing.assert_array_equal(np.asarray(f(x, y)), np.float32(3) + y)
    out = mt.compile("x * 2", x="f32[]")(np.array(1.5, np.float32))
    assert type(out) is np.ndarray and out.shape == () and out == 3
    assert mt.compile("x * 2", x="f32[]")(torch.tensor(1.5)).shape == ()


@pytest.mark.parametrize(
    "declared, number, fits",
    [
        ("f32", 2, True), ("f32", 2.5, True), ("f32", True, True), ("bf16", 1.5, True), ("i8", 127, True),
        ("i8", 128, False), ("u8", -1, False), ("i32", 2.0, False), ("bool", True, True), ("bool", 1, False),
        ("i64", True, True), ("u64", 2**64 - 1, True), ("f16", 1e9, True),
    ],
)  # fmt: skip
def test_python_numbers_are_weak(declared: str, number: Any, fits: bool) -> None:
    """A number takes the dtype of a declared array without axes, if its kind allows."""
    f = mt.compile("x", x=f"{declared}[]")
    if not fits:
        return refused("MT0303", f, number)
    out = f(number)
    with np.errstate(over="ignore"):
        assert out.dtype == mt.base.types.dtype(declared).numpy and out == np.asarray(number).astype(out.dtype)


def test_mixed_numpy_and_torch() -> None:
    """The first array decides the library of the result."""
    f = mt.compile("x + y", x="f32[N]", y="f32[N]")
    assert type(f(torch.ones(3), np.ones(3, np.float32))) is torch.Tensor
    assert type(f(np.ones(3, np.float32), torch.ones(3))) is np.ndarray


def test_no_arguments() -> None:
    assert mt.compile("1 + 2")() == 3
    np.testing.assert_array_equal(mt.compile("eye(3)")(), np.eye(3, dtype=np.float32))


# ---- layouts ---------------------------------------------------------------------------------


def _layouts() -> dict[str, Callable[[], Any]]:
    base = normal(6, 8)
    return {
        "plain": lambda: base,
        "transposed": lambda: normal(8, 6).T,
        "sliced": lambda: normal(12, 24)[::2, 1::3],
        "reversed": lambda: base[::-1, ::-1],
        "reversed and sliced": lambda: normal(12, 16)[::-2, ::-2],
        "repeated row": lambda: np.broadcast_to(base[:1], (6, 8)),
        "repeated column": lambda: np.broadcast_to(base[:, :1], (6, 8)),
        "repeated everywhere": lambda: np.broadcast_to(np.float32(3), (6, 8)),
        "window": lambda: normal(20, 20)[3:9, 5:13],
        "overlapping": lambda: np.lib.stride_tricks.sliding_window_view(normal(13), 8),
        "fortran": lambda: np.asfortranarray(base),
        "read-only": lambda: frozen(base.copy()),
    }


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", list(_layouts()))
def test_layouts_without_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read the caller's own memory, with any strides."""
    read: list[int] = []
    pointer = interpreter.HostPointer
    monkeypatch.setattr(interpreter, "HostPointer", lambda a: (read.append(a.address), pointer(a))[1])
    f = mt.compile("x * 2 + sum(x, axis=0)", x="f32[M, N]")
    x = _layouts()[name]()
    before = x.tobytes()
    out = f(x)
    np.testing.assert_allclose(out, x * 2 + x.sum(0), rtol=1e-5, atol=1e-5)
    assert view(x, "x").address == x.ctypes.data and x.ctypes.data in read
    assert set(read) & {x.ctypes.data} and x.tobytes() == before


@pytest.mark.parametrize("name", ["transposed", "sliced", "repeated row", "window"])
def test_torch_layouts(name: str) -> None:
    x = torch.from_numpy(np.array(normal(12, 16)))
    t = {"transposed": x.T, "sliced": x[::2, 1::3], "repeated row": x[:1].expand(5, 16), "window": x[3:9, 5:13]}[name]
    assert view(t, "x").address == t.data_ptr() and view(t, "x").strides == t.stride()
    out = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")(t)
    torch.testing.assert_close(out, torch.softmax(t, -1), rtol=1e-5, atol=1e-6)


def test_a_large_view_is_not_copied() -> None:
    """A view of 2^40 elements over one number: a copy would not fit in memory."""
    x = np.broadcast_to(np.float32(2), (2**20, 2**20))
    assert mt.compile("x[5, 7:9] * 3", x="f32[M, N]")(x).tolist() == [6, 6]


@pytest.mark.parametrize("order", [">f4", "<f4", ">i2", ">f8"])
def test_byte_orders(order: str) -> None:
    x = (normal(5, 3) * 100).astype(order)
    f = mt.compile("x * 2", x=f"{mt.base.types.BY_NUMPY_NAME[x.dtype.name]}[M, N]")
    out = f(x[::-1])
    assert out.dtype.isnative
    np.testing.assert_array_equal(out, x[::-1] * 2)


def test_unaligned_and_odd_strides() -> None:
    raw = np.zeros(41, np.uint8)
    unaligned = raw[1:].view(np.float32)
    fields = np.zeros(5, dtype=[("a", "i1"), ("b", "f4")])["b"]  # a stride of five bytes
    for x in (unaligned, fields):
        x[...] = np.arange(len(x))
        np.testing.assert_array_equal(mt.compile("x + 1", x="f32[N]")(x), x + 1)


def test_negative_torch_views() -> None:
    t = torch.arange(4.0)._neg_view()
    torch.testing.assert_close(mt.compile("x + 1", x="f32[N]")(t), t + 1)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (1, 1)])
def test_empty_and_single(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    out = mt.compile("x + sum(x, axis=0)", x="f32[M, N]")(x)
    assert out.shape == shape
    np.testing.assert_array_equal(out, x + x.sum(0))


# ---- arguments are only read -----------------------------------------------------------------


def test_inputs_are_never_written() -> None:
    """The memory between the elements of a view must not change either: it is filled with poison and compared."""
    f = mt.compile(
        "def f(x: f32[M, N], y: f32[M, N]):\n    a = x + y\n    return a, softmax(a, axis=0), cumulative_sum(x, axis=1)\n"
    )
    base = np.full((14, 20), 0x7F, np.uint8).repeat(4, axis=1).view(np.float32).copy()
    x = base[2:12:2, 3:18:3]
    x[...] = normal(*x.shape)
    before = base.tobytes()
    for stage in ("ast", "graph", "kernels", "tile.masked", "triton"):
        f.run(stage, x, x)
        assert base.tobytes() == before, stage
    f(x, x[::-1])
    assert base.tobytes() == before


def test_the_same_array_twice() -> None:
    x = normal(5)
    out = mt.compile("x * y - x", x="f32[N]", y="f32[N]")(x, x)
    np.testing.assert_array_equal(out, x * x - x)
    assert out is not x and not np.shares_memory(out, x)


def test_an_output_is_never_an_input() -> None:
    x = normal(5)
    a, b = mt.compile("def f(x: f32[N]):\n    return x, x\n")(x)
    assert not np.shares_memory(a, x) and not np.shares_memory(a, b)


def test_several_outputs() -> None:
    f = mt.compile(
        "def f(x: f32[M, N]):\n    m = max(x, axis=1)\n    return m, argmax(x, axis=1), x - m[:, None], 1.5\n"
    )
    x = normal(4, 6)
    for values in (f(x), f.numpy(x), f.run("tile", x), f(torch.from_numpy(x))):
        assert isinstance(values, tuple) and len(values) == 4
        m, place, rest, number = map(np.asarray, values)
        np.testing.assert_array_equal(m, x.max(1))
        np.testing.assert_array_equal(place, x.argmax(1))
        np.testing.assert_array_equal(rest, x - x.max(1, keepdims=True))
        assert place.dtype == np.int64 and number == 1.5


def test_parameters_may_have_the_names_of_buffers() -> None:
    """A parameter may have the name of an output, a temporary, an axis or a kernel."""
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    for name in (
        "out",
        "out0",
        "out1",
        "t0",
        "t1",
        "k0",
        "p0",
        "v0",
        "tl",
        "rt",
        "tile",
        "i",
        "r",
        "m1",
        "range",
        "self",
    ):
        text = f"def f({name}: f32[N, N], y: f32[N]):\n    a = sum({name}, axis=0)\n    return {name} * 2 + sum(a[:, None] * y, axis=0), a\n"
        f = mt.compile(text)
        wanted = x * 2 + (x.sum(0)[:, None] * x[0]).sum(0)
        for stage in ("kernels", "tile", "tile.masked", "tile.target", "triton"):
            out, a = f.run(stage, x, x[0])
            np.testing.assert_array_equal(out, wanted, err_msg=f"{name} {stage}")
            np.testing.assert_array_equal(a, x.sum(0))
    keywords = mt.compile("self + stage + text + args", self="f32[N]", stage="f32[N]", text="f32[N]", args="f32[N]")
    given = dict.fromkeys(("self", "stage", "text", "args"), x[1])
    for out in (keywords(**given), keywords.run("graph", **given), keywords.numpy(**given), keywords.bind(**given)()):
        np.testing.assert_array_equal(out, x[1] * 4)
    assert keywords.check(**given).ok and "add" in keywords.lower(**given)["graph"]
    np.testing.assert_array_equal(mt.evaluate("text * 2", text=x), x * 2)


# ---- jit -------------------------------------------------------------------------------------


@mt.jit
def quoted(x: "f32[M, N]", y: "f32[N]") -> "f32[M, N]":
    s = x - y
    return s * s


@mt.jit(options=mt.Options(blocks={"i": 2}))
def blocked(x: "f32[N]"):
    return x + 1


@mt.jit
def untyped(x, y, scale=2.0, axis=-1, flag=True):
    s = sum(x * y * scale, axis=axis)
    return s if flag else -s


@mt.jit
def scalars(x: "f32[N]", a: float, b: float = 0.5, n: int = 2, flip: bool = False):
    return x if flip else (x * a + b) ** n


def module_of(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"data_{name}", ROOT / "tests" / "data" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_jit_with_quoted_annotations() -> None:
    x, y = normal(3, 4), normal(4)
    assert isinstance(quoted, mt.Program) and quoted.name == "quoted"
    np.testing.assert_array_equal(quoted(x, y), (x - y) ** 2)
    assert repr(quoted) == "<minitri program quoted(x: f32[M, N], y: f32[N])>"


def test_jit_under_future_annotations() -> None:
    module = module_of("annotated")
    x, w = normal(3, 4), normal(4)
    np.testing.assert_array_equal(module.scaled(x, w), x * w * 2)
    np.testing.assert_array_equal(module.scaled(x, w, by=3.0), x * w * 3)
    batch = normal(2, 3, 4)
    wanted = batch / np.sqrt((batch**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(module.normalised(batch), wanted, rtol=1e-5)
    np.testing.assert_array_equal(module.Holder.inner(w), w + 1)
    assert "class Holder" not in module.Holder.inner._repr_html_()


def test_jit_errors_point_into_the_file() -> None:
    def wrong(x: "f32[N]"):
        return x + nonsense

    with pytest.raises(CompileError) as raised:
        mt.jit(wrong)
    assert raised.value.span is not None and raised.value.span.source.name == __file__
    assert "return x + nonsense" in raised.value.span.first_line


@pytest.mark.parametrize("thing", [lambda x: x, print, 3, int, object()])
def test_jit_refuses_objects_without_source_text(thing: Any) -> None:
    with pytest.raises(ParseError) as raised:
        mt.jit(thing)
    assert raised.value.code in ("MT0002", "MT0003") and isinstance(raised.value, SyntaxError)


def test_jit_options() -> None:
    assert "by 2" in blocked.lower(N=8)["tile"]
    assert blocked(normal(7)).shape == (7,)


# ---- scalars and variants --------------------------------------------------------------------


def test_float_parameters_are_passed_at_run_time() -> None:
    f = mt.jit(scalars_function)
    x = normal(4)
    for a, b in ((1.0, 0.5), (2.0, 0.5), (-3, 1e-3), (float("inf"), 0.0), (np.float32(0.1), 7)):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(f(x, a, b), (x * np.float32(a) + np.float32(b)) ** 2)
    assert len(f._variants.kept) == 1


def scalars_function(x: "f32[N]", a: float, b: float = 0.5, n: int = 2, flip: bool = False):
    return x if flip else (x * a + b) ** n


def test_ints_and_bools_are_compiled_in() -> None:
    x = normal(4)
    f = mt.jit(scalars_function)
    np.testing.assert_allclose(f(x, 1.0, n=3), (x + np.float32(0.5)) ** 3, rtol=1e-6)
    np.testing.assert_array_equal(f(x, 1.0, n=np.int64(1)), x + np.float32(0.5))
    np.testing.assert_array_equal(f(x, 1.0, n=True), x + np.float32(0.5))  # an int: 1
    np.testing.assert_array_equal(f(x, 1.0, flip=np.bool_(True)), x)
    assert len(f._variants.kept) == 3
    f(x, 9.0, n=3)
    assert len(f._variants.kept) == 3


def test_full_precision_of_floats() -> None:
    f = mt.compile("x * k", x="f64[N]", k="float")
    x = normal(4).astype(np.float64)
    np.testing.assert_array_equal(f(x, 0.1), x * 0.1)


def test_untyped_parameters_take_the_arrays_types() -> None:
    f = mt.jit(untyped_function)
    x = normal(3, 4)
    np.testing.assert_allclose(f(x, x), (x * x * 2).sum(-1), rtol=1e-6)
    np.testing.assert_allclose(f(x, x[0]), (x * x[0] * 2).sum(-1), rtol=1e-6)
    np.testing.assert_allclose(f(x, x, scale=3.0, axis=0), (x * x * 3).sum(0), rtol=1e-6)
    np.testing.assert_allclose(f(x, x, axis=(0, 1), flag=False), -(x * x * 2).sum(), rtol=1e-6)
    np.testing.assert_allclose(f(x, x, axis=[0, 1]), (x * x * 2).sum(), rtol=1e-6)
    integers = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert f(integers, integers, scale=1).dtype == np.int64
    assert f(x, x.astype(np.float64)).dtype == np.float64
    assert f(torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def untyped_function(x, y, scale=2.0, axis=-1, flag=True):
    s = sum(x * y * scale, axis=axis)
    return s if flag else -s


def test_constants_of_different_meaning_are_different_variants() -> None:
    """0.0 == -0.0 and 1 == True == 1.0, but a program's result may differ."""
    f = mt.compile("def f(x: f32[N], k=1.0):\n    return x * k\n")
    x = np.ones(2, np.float32)
    assert np.signbit(f(x, 0.0)).tolist() == [False, False] and np.signbit(f(x, -0.0)).tolist() == [True, True]
    g = mt.compile("def f(x: i32[N], k=1):\n    return x * k\n")
    assert [g(np.ones(1, np.int32), k).dtype.name for k in (1, 1.0, True)] == ["int32", "float32", "int32"]
    assert np.isnan(f(x, float("nan"))).all() and f(x, float("inf")).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 2.5}, {"n": "2"}, {"n": None}, {"n": 10**30}, {"flip": 1}, {"flip": None}, {"a": "x"}, {"a": 1j}, {"a": [1.0]},
        {"a": 10**400}, {"b": np.ones(3)},
    ],
)  # fmt: skip
def test_scalars_of_the_wrong_type(arguments: dict[str, Any]) -> None:
    refused("MT0303", scalars, normal(3), **{"a": 1.0, **arguments})


def test_invalid_constants_are_errors() -> None:
    f = mt.compile("def f(x: f32[N], k=1):\n    return x * k\n")
    for value in ({}, object(), 10**40, [object()], b"bytes", 1j):
        refused("MT0303", f, normal(3), value)


def test_untyped_sizes_do_not_clash_with_declared_ones() -> None:
    for declared in ("n0", "n1", "*n"):
        f = mt.compile(f"def f(y, x: f32[{declared}]):\n    return sum(x) + sum(y)\n")
        assert f(np.ones(5, np.float32), np.ones(3, np.float32)) == 8


def test_one_program_serves_all_sizes() -> None:
    f = linear()
    for m, k, n in ((1, 1, 1), (3, 4, 5), (17, 33, 20), (0, 4, 5), (3, 0, 5), (64, 16, 16)):
        x, w, b = normal(m, k), normal(k, n), normal(n)
        np.testing.assert_allclose(f(x, w, b), np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)
    assert len(f._graphs) == 1


def test_variants_are_cached_up_to_a_limit() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    for _ in range(3):
        f(normal(4))
    assert len(f._variants.kept) == 1
    f(np.ones(8, np.float32)[::2])
    assert len(f._variants.kept) == 2
    for n in range(1, 80):
        f(np.ones(n, np.float32))
    assert len(f._variants.kept) <= variants.MAX_VARIANTS
    g, x = mt.compile("x * n", x="i64[N]", n="int"), np.arange(3)
    for n in range(80):
        np.testing.assert_array_equal(g(x, n), x * n)
    for n in (79, 0, 40):
        np.testing.assert_array_equal(g(x, n), x * n)
    assert len(g._graphs) == len(g._conditions) == len(g._variants.kept) == variants.MAX_VARIANTS


def test_star_dimensions_of_any_rank() -> None:
    f = mt.compile("def f(x: f32[*B, N], y: f32[*B]):\n    return x + y[..., None]\n")
    for axes in ((), (2,), (2, 3), (1, 2, 3)):
        x, y = normal(*axes, 4), normal(*axes)
        np.testing.assert_array_equal(f(x, y), x + y[..., None])


# ---- evaluate, compile, entry ----------------------------------------------------------------


def test_evaluate() -> None:
    x, w = normal(3, 4), normal(4, 5)
    np.testing.assert_allclose(mt.evaluate("a @ b", a=x, b=w), x @ w, rtol=1e-5)
    np.testing.assert_array_equal(mt.evaluate("a * b + c", a=x, b=x, c=normal(3, 1)), x * x + normal(3, 1))
    assert torch.equal(mt.evaluate("a + 1", a=torch.ones(2)), torch.full((2,), 2.0))
    assert mt.evaluate("a + b", a=1, b=2) == 3


def test_evaluate_takes_numbers_as_numpy_does() -> None:
    """NEP 50: a Python number takes the array's dtype unless its kind is higher."""
    for dtype, number, wanted in (
        ("f4", 2.0, "f4"),
        ("f4", 2, "f4"),
        ("i4", 2, "i4"),
        ("i4", 2.5, "f4"),
        ("f8", 2.0, "f8"),
    ):
        assert mt.evaluate("a + c", a=np.ones(3, dtype), c=number).dtype == np.dtype(wanted)
    assert mt.evaluate("sum(a, axis=k)", a=np.ones((2, 3), np.float32), k=1).shape == (2,)


MODULE = """\
def double(x: f32[N]) -> f32[N]:
    return x + x

def shift(x: f32[N], by: float = 0.5) -> f32[N]:
    return double(x) + by
"""


def test_entry() -> None:
    x = normal(3)
    assert mt.compile(MODULE).name == "shift"
    np.testing.assert_array_equal(mt.compile(MODULE, entry="double")(x), x + x)
    np.testing.assert_array_equal(mt.compile(MODULE)(x), x + x + np.float32(0.5))
    assert refusal(mt.compile, MODULE, entry="dubble").code == "MT0101"
    assert "double" in str(refusal(mt.compile, MODULE, entry="dubble"))


def test_paths(tmp_path: Path) -> None:
    path = tmp_path / "model.mt"
    path.write_text(MODULE, encoding="utf-8")
    for given in (path, str(path)):
        f = mt.compile(given, entry="double")
        assert f.name == "double" and f.module.source.name == str(path)
    path.write_bytes(b"\xff\xfe")
    assert refusal(mt.compile, path).code == "MT0003"
    assert refusal(mt.compile, tmp_path / "missing.mt").code == "MT0003"
    assert refusal(mt.compile, str(tmp_path)).code != "" and refusal(mt.compile, tmp_path).code == "MT0003"


@pytest.mark.parametrize(
    "arguments, types, code",
    [
        ((3,), {}, "MT0003"), ((None,), {}, "MT0003"), (("x",), {"x": 3}, "MT0004"), (("x",), {"x": np.float32}, "MT0004"),
        (("x",), {"x": "f32[N"}, "MT0001"), (("x +",), {"x": "f32[N]"}, "MT0001"), (("",), {}, "MT0003"),
        (("x",), {"x": "f99[N]"}, "MT0202"), (("x + y",), {"x": "f32[N]"}, "MT0101"), (("x.data",), {"x": "f32[N]"}, "MT0103"),
        ((MODULE,), {"x": "f32[N]"}, "MT0102"), (("x < 1 < 2",), {"x": "f32[N]"}, "MT0002"),
        (("softmax(x, axis=3)",), {"x": "f32[N]"}, "MT0204"), (("x @ y",), {"x": "f32[2, 3]", "y": "f32[2, 3]"}, "MT0203"),
    ],
)  # fmt: skip
def test_compile_refuses(arguments: tuple[Any, ...], types: dict[str, Any], code: str) -> None:
    assert refusal(mt.compile, *arguments, **types).code == code


# ---- bind, run, check, lower, explain, html --------------------------------------------------


def test_bind_launches_again() -> None:
    f = linear()
    x, w, b = arrays_of_linear()
    launched = f.bind(x, w, b)
    first = launched()
    np.testing.assert_array_equal(first, f(x, w, b))
    x *= 2  # the handle reads the arrays, not a copy
    second = launched()
    np.testing.assert_array_equal(second, f(x, w, b))
    assert first is second  # the handle owns its outputs and overwrites them


def test_only_calls_on_a_gpu_are_captured() -> None:
    refused("MT0305", linear().capture, *arrays_of_linear())


def test_bind_checks_first() -> None:
    x, w, b = arrays_of_linear()
    refused("MT0304", linear().bind, x, w, normal(6))
    f = mt.compile("reshape(x, (B, 4, C // 4))", x="f32[B, C]")
    refused("MT0205", f.bind, normal(2, 6))


STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")


@pytest.mark.parametrize("stage", STAGES)
def test_run_at_each_stage(stage: str) -> None:
    f = mt.compile("softmax(x @ w, axis=-1)", x="f32[M, K]", w="f32[K, N]")
    x, w = normal(5, 4), normal(4, 7)
    out = f.run(stage, x, w)
    assert type(out) is np.ndarray
    np.testing.assert_allclose(out, f.numpy(x, w), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(f.run(stage, torch.from_numpy(x), w=torch.from_numpy(w)), out, rtol=1e-6)


def test_run_at_stages_of_another_target() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    assert refusal(f.run, "ttgir", normal(3)).code == "MT0402"
    assert refusal(f.run, "nonsense", normal(3)).code == "MT0402"
    if not torch.cuda.is_available():
        with pytest.raises(StageUnavailable) as raised:
            f.run("gpu", normal(3))
        assert raised.value.help


def test_check() -> None:
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    report = f.check(normal(3, 5))
    assert report.ok and report.first_bad is None
    assert {r.stage for r in report.rows} >= {s for s in STAGES if s != "ast"} | {"gpu"}
    assert all(r.max_error <= r.bound or r.bound == 0 for r in report.rows)


def test_check_names_the_stage_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    f = mt.compile("x + 1", x="f32[N]")
    right = run_stage.results

    def wrong(compiled: Any, stage: str, call: Any) -> Any:
        results = right(compiled, stage, call)
        return tuple(r + np.float32(1e-3) for r in results) if stage.startswith("tile") else results

    monkeypatch.setattr(run_stage, "results", wrong)
    report = f.check(normal(4))
    assert not report.ok and report.first_bad == "tile.lowered" and "WRONG" in str(report)


def test_lower_leaves_unknown_sizes_symbolic() -> None:
    low = linear().lower(N=256)
    assert "f32[K, 256]" in low["graph.simplified"] and low.sizes == {"N": 256}
    assert low.target == "cuda:90" and "M" in low["kernels"]
    assert low.stages == (*STAGES, "ttir", "ttgir", "llir", "ptx", "sass")
    assert linear().lower(target="hip:gfx942").stages[-1] == "amdgcn"


def test_lower_with_packs_and_scalars() -> None:
    f = mt.compile("def f(x: f32[*B, N], k: int = 2, by: float = 1.0):\n    return sum(x, axis=-1) * k * by\n")
    assert "f32[2, 3, 8]" in f.lower(B=(2, 3), N=8)["graph.simplified"]
    assert "f32[N]" in f.lower(B=())["graph"] and "f32[5, N]" in f.lower(B=5)["graph.simplified"]
    assert "const 7" in f.lower(k=7)["graph"] and "const 7" not in f.lower()["graph"]
    assert f.lower(by=3.0)["graph"] == f.lower()["graph"]  # the number is passed at run time


@pytest.mark.parametrize(
    "given, code",
    [
        ({"Q": 3}, "MT0304"), ({"B0": 3}, "MT0304"), ({"N": -1}, "MT0304"), ({"N": 2.0}, "MT0304"), ({"N": True}, "MT0304"),
        ({"N": "3"}, "MT0304"), ({"N": 2**60}, "MT0304"), ({"B": (2, -1)}, "MT0304"), ({"B": "ab"}, "MT0304"),
        ({"k": 1.5}, "MT0303"), ({"by": "x"}, "MT0303"), ({"target": "tpu:4"}, "MT0402"), ({"without": ("mask",)}, "MT0402"),
        ({"x": np.ones((2, 3), np.float64)}, "MT0303"), ({"x": np.ones((), np.float32)}, "MT0302"),
    ],
)  # fmt: skip
def test_lower_refuses(given: dict[str, Any], code: str) -> None:
    f = mt.compile("def f(x: f32[*B, N], k: int = 2, by: float = 1.0):\n    return sum(x, axis=-1) * k * by\n")
    assert refusal(f.lower, **given).code == code


def test_lower_for_arrays() -> None:
    f = mt.compile("x * k", x="f32[M, N]", k="float")
    low = f.lower(normal(6, 4).T, 2.0)
    assert low.sizes == {"M": 4, "N": 6} and "strides = [1, 4]" in low["kernels"]
    assert f.lower(x=normal(6, 4).T, k=2.0)["kernels"] == low["kernels"]
    refused("MT0301", f.lower, normal(6, 4), 2.0, M=3)


def test_lower_of_huge_sizes_is_wide() -> None:
    f = mt.compile("x + 1", x="f32[M, N]")
    assert "tl.int64" in f.lower(M=2**17, N=2**17)["triton"]
    assert "tl.int64" not in f.lower(M=2**10, N=2**10)["triton"] and "tl.int64" not in f.lower()["triton"]


def test_stages_of_another_target() -> None:
    low = mt.compile("x + 1", x="f32[N]").lower(target="hip:gfx942")
    assert refusal(low.__getitem__, "ptx").code == "MT0402" and refusal(low.__getitem__, "ttgirr").code == "MT0402"


def test_ahead_of_time() -> None:
    low = mt.compile("x + 1", x="f32[N]").lower()
    assert (
        "tt.func" in low["ttir"]
        and "ttg" in low["ttgir"]
        and "define" in low["llir"]
        and ".visible .entry" in low["ptx"]
    )
    assert "fma" not in low["ptx"]


def test_explain() -> None:
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    text = f.explain(M=100, N=100)
    assert (
        "fused" in text
        and "saves" in text
        and "no test, 4 divides 100" in text.replace("128 divides", "")
        or "tested" in text
    )
    assert "kernel k0" in f.explain(normal(3, 4)) and "kernel k0" in f.explain()


@pytest.mark.parametrize(
    ("text", "types", "sizes", "parts"),
    [
        ("x @ (w.astype(f16) * s)", ("f16[M, K]", "i8[K, N]", "f16[N]"), (2048, 16384, 256), ["4 parts  of 4,096"]),
        ("x @ w", ("f16[M, K]", "f16[K, N]"), (16, 16384, 256), ["32 parts  of 512"]),
        ("sum(x)", ("f32[M, N]",), (4096, 4096), ["1024 parts  of 16,384"]),
        ("x @ w", ("f16[M, K]", "f16[K, N]"), (4096, 512, 4096), []),
    ],
)
def test_explain_shows_the_parts_that_were_compiled(
    text: str, types: tuple[str, ...], sizes: tuple[int, ...], parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    f = mt.compile(text, **dict(zip("xws", types)))
    names = [n for n in ("M", "K", "N") if any(re.search(rf"\b{n}\b", t) for t in types)]
    given = dict(zip(names, sizes))
    runs: list[str] = []
    counted = (replace(p, run=lambda v, c, p=p: runs.append(p.name) or p.run(v, c)) for p in pass_table.PASSES)
    monkeypatch.setattr(pass_table, "PASSES", tuple(counted))
    page = f.explain(**given)
    assert re.findall(r"\d+ parts  of [\d,]+", page) == parts and runs.count("split-k") == 1
    compiled = f.lower(**given)["graph.simplified"]
    assert all(f"[{p.split()[0]}" in compiled for p in parts)


def test_explain_of_arrays_with_gaps_shows_their_parts() -> None:
    f, x = mt.compile("sum(x)", x="f32[M, N]"), np.ones((512, 1026), np.float32)
    for array in (x, x[:, :1024]):
        page, graph = f.explain(array), f.lower(array)["graph.simplified"]
        ((count, length),) = re.findall(r"(\d+) parts +of ([\d,]+)", page)
        parts = [
            tuple(map(int, shape.split(", ")))
            for shape in re.findall(r"= view .*|f32\[(\d+, [\d, ]+)\]", graph)
            if shape
        ]
        elements = int(length.replace(",", ""))
        assert any(math.prod(s) == int(count) * elements and int(count) in s for s in parts), graph
    assert "parts" not in f.explain(x, target="interpreter") and "in parts" not in f.explain(
        x, without=["split-reduction"]
    )


def test_html_is_escaped() -> None:
    f = mt.compile("def f(x: f32[N]):\n    # <script>alert('&')</script>\n    return x\n")
    html = f._repr_html_()
    assert "<pre" in html and "<script>" not in html and "&lt;script&gt;" in html
    assert "return s * s" in quoted._repr_html_() and "import" not in quoted._repr_html_()
    assert "graph.simplified" in html and "untyped" not in mt.compile("x + 1", x=None)._repr_html_()
    assert len(mt.compile("x + " + "x + " * 2000 + "x", x="f32[N]")._repr_html_()) < 20_000


def test_parameters() -> None:
    assert linear().parameters == (("x", "f32[M, K]"), ("w", "f32[K, N]"), ("b", "f32[N]"))
    assert untyped.parameters[0] == ("x", "")


def test_every_public_name_exists() -> None:
    for name in mt.__all__:
        assert getattr(mt, name) is not None and name in dir(mt)
    with pytest.raises(AttributeError):
        _ = mt.nonsense


# ---- wrong calls -----------------------------------------------------------------------------


def refusal(call: Callable[..., Any], *args: Any, **keywords: Any) -> CompileError:
    """The diagnostic of a call. Any other exception passes through."""
    with pytest.raises(CompileError) as raised:
        call(*args, **keywords)
    assert str(raised.value).startswith(f"error[{raised.value.code}]: ")
    return raised.value


@contextmanager
def nothing_runs() -> Iterator[None]:
    """Fails if anything is allocated or launched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "empty", lambda *_: pytest.fail("allocated"))
        patch.setattr(Bound, "__call__", lambda *_: pytest.fail("launched"))
        yield


def refused(code: str, call: Callable[..., Any], *args: Any, **keywords: Any) -> None:
    """Asserts that the call gives a diagnostic with this code, runs nothing and does not change its arguments."""
    before = [a.tobytes() for a in args if isinstance(a, np.ndarray)]
    with nothing_runs():
        error = refusal(call, *args, **keywords)
    assert error.code == code, error
    assert before == [a.tobytes() for a in args if isinstance(a, np.ndarray)]


X, W, B = normal(3, 4), normal(4, 5), normal(5)
MISFITS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "too few": ("MT0301", (X, W), {}),
    "too many": ("MT0301", (X, W, B, B), {}),
    "an unknown keyword": ("MT0301", (X, W), {"bias": B}),
    "given twice": ("MT0301", (X, W, B), {"x": X}),
    "rank": ("MT0302", (X, W, X), {}),
    "no axes": ("MT0302", (X, W, B[0]), {}),
    "a number for an array": ("MT0302", (X, W, 1.0), {}),
    "f64": ("MT0303", (X, W, B.astype(np.float64)), {}),
    "integers": ("MT0303", (X, W, B.astype(np.int32)), {}),
    "complex": ("MT0303", (X, W, B.astype(np.complex64)), {}),
    "objects": ("MT0303", (X, W, B.astype(object)), {}),
    "texts": ("MT0303", (X, W, np.array(["a"] * 5)), {}),
    "dates": ("MT0303", (X, W, np.zeros(5, "M8[s]")), {}),
    "records": ("MT0303", (X, W, np.zeros(5, [("a", "f4")])), {}),
    "complex tensor": ("MT0303", (X, W, torch.ones(5, dtype=torch.complex64)), {}),
    "sizes": ("MT0304", (X, W, normal(6)), {}),
    "contracted sizes": ("MT0304", (X, normal(3, 5), B), {}),
    "a list": ("MT0305", (X, W, [1.0] * 5), {}),
    "None": ("MT0305", (X, W, None), {}),
    "a word": ("MT0305", (X, W, "b"), {}),
    "a buffer": ("MT0305", (X, W, memoryview(B)), {}),
    "a masked array": ("MT0305", (X, W, np.ma.masked_array(B, B > 0)), {}),
    "a meta tensor": ("MT0305", (X, W, torch.ones(5, device="meta")), {}),
    "a sparse tensor": ("MT0305", (X, W, torch.ones(5).to_sparse()), {}),
}


@pytest.mark.parametrize("name", list(MISFITS))
def test_wrong_calls_are_refused(name: str) -> None:
    code, args, keywords = MISFITS[name]
    f = linear()
    for call in (f, f.numpy, f.check, f.bind, lambda *a, **k: f.run("tile", *a, **k)):
        refused(code, call, *args, **keywords)


def test_messages_name_the_parameter_and_no_data() -> None:
    secret = np.full(5, 123456789.0)
    error = refusal(linear(), X, W, secret)
    assert "`b`" in str(error) and "f64" in str(error) and "f32" in str(error) and "12345678" not in str(error)
    error = refusal(linear(), X, W, normal(6))
    assert "6" in str(error) and "N" in str(error) and "5" in str(error) and "`w`" in str(error)
    assert "did you mean `b`" in str(refusal(mt.compile("a + bias", a="f32[N]", bias="f32[N]"), B, bais=B)).replace(
        "bias", "b"
    )


def test_conditions_that_depend_on_the_call() -> None:
    f = mt.compile("reshape(x, (B, 4, C // 4))", x="f32[B, C]")
    assert f(normal(2, 8)).shape == (2, 4, 2) and f(normal(2, 0)).shape == (2, 4, 0)
    refused("MT0205", f, normal(2, 6))
    g = mt.compile("x[2]", x="f32[N]")
    assert g(normal(3)).shape == ()
    refused("MT0206", g, normal(2))
    h = mt.compile("max(x, axis=0)", x="f32[M, N]")
    assert h(normal(1, 0)).shape == (0,)
    refused("MT0209", h, normal(0, 3))
    broadcast = mt.compile("x + y", x="f32[M]", y="f32[N]")
    assert broadcast(normal(4), normal(4)).shape == (4,)
    refused("MT0201", broadcast, normal(4), normal(5))


def test_conditions_are_checked_at_every_stage() -> None:
    f = mt.compile("x[2]", x="f32[N]")
    for stage in STAGES:
        refused("MT0206", f.run, stage, normal(2))
    refused("MT0206", f.check, normal(2))
    assert refusal(f.lower(N=2).__getitem__, "graph.simplified").code == "MT0206"


def test_declared_results_are_checked() -> None:
    f = mt.compile("def f(x: f32[M, N]) -> f32[M, M]:\n    return x + 1\n")
    assert f(normal(3, 3)).shape == (3, 3)
    refused("MT0207", f, normal(3, 4))


@pytest.mark.gpu
def test_devices() -> None:
    refused("MT0305", linear(), torch.ones(3, 4), torch.ones(4, 5).cuda(), torch.ones(5))


@pytest.mark.gpu
def test_replayed_calls_use_new_numbers() -> None:
    """A second call on a GPU skips the checks, but it must notice that a compiled constant has changed."""
    x = torch.ones(4, device="cuda")
    compiled_in = mt.compile("def f(x: f32[N], k=1.0):\n    return x * k\n")
    passed = mt.compile("x * k", x="f32[N]", k="float")
    for k in (2.0, 3.0, 2.0, 3, 0.0, -0.0, float("inf"), np.float64(4)):
        for f in (passed,) if isinstance(k, np.generic) else (compiled_in, passed):
            assert torch.equal(f(x, k), x * float(k)) and torch.equal(
                torch.signbit(f(x, k)), torch.signbit(x * float(k))
            )
    assert torch.equal(compiled_in(x), x) and torch.equal(compiled_in(x * 2), x * 2)
    refused("MT0302", passed, x[:, None], 2.0)
    refused("MT0303", passed, x.double(), 2.0)


# ---- kernels for any sizes, and for arrays past 2^31 elements ----------------------------------

GENERAL: dict[str, tuple[str, dict[str, str], dict[str, int]]] = {
    "elementwise": ("x * y + 1", {"x": "f32[M, N]", "y": "f32[N]"}, {"M": 5, "N": 7}),
    "softmax": ("softmax(x, axis=-1)", {"x": "f32[M, N]"}, {"M": 5, "N": 37}),
    "matmul": ("relu(x @ w + b)", {"x": "f32[M, K]", "w": "f32[K, N]", "b": "f32[N]"}, {"M": 33, "K": 20, "N": 17}),
    "batches": ("x @ w", {"x": "f16[B, M, K]", "w": "f16[B, K, N]"}, {"B": 3, "M": 33, "K": 20, "N": 17}),
    "cumsum": ("cumulative_sum(x, axis=-1)", {"x": "f32[M, N]"}, {"M": 5, "N": 37}),
    "argmax": ("argmax(x, axis=-1)", {"x": "f32[M, N]"}, {"M": 5, "N": 37}),
    "columns": ("sum(x, axis=0)", {"x": "f32[M, N]"}, {"M": 50, "N": 37}),
    "all": ("sum(x) + max(x)", {"x": "f32[M, N]"}, {"M": 9, "N": 21}),
    "concat": ("concat((x, y), axis=1)", {"x": "f32[M, N]", "y": "f32[M, K]"}, {"M": 5, "N": 7, "K": 4}),
    "take": ("w[idx]", {"w": "f32[V, D]", "idx": "i64[N]"}, {"V": 11, "D": 7, "N": 5}),
    "flip": ("flip(x.mT)", {"x": "f32[M, N]"}, {"M": 5, "N": 7}),
    "reshape": ("reshape(x, (N, M)) * 2", {"x": "f32[M, N]"}, {"M": 5, "N": 7}),
    "attention": (
        "attention(q, k, v)",
        {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, D]"},
        {"T": 19, "S": 21, "D": 16},
    ),
    "cross_entropy": ("cross_entropy(z, y)", {"z": "f32[N, C]", "y": "i64[N]"}, {"N": 9, "C": 21}),
    "bf16": ("gelu(x) * y", {"x": "bf16[M, N]", "y": "bf16[M, 1]"}, {"M": 5, "N": 7}),
}


def _general(f: mt.Program, arrays: tuple[Any, ...], known: bool, wide: bool) -> tuple[Compilation, Any]:
    """The compilation that a GPU would get for these arrays (or for any), and the call."""
    call = bind(f.function, arrays, {})
    return f.compilation(f.context(call, Target("cuda", "90"), known, wide)), call


def _strided(array: Any) -> Any:
    """The same elements with gaps of one element between them and reversed order of axes."""
    wide = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
    return np.array(wide.T, order="C").T[::-1] if array.ndim == 2 else wide


@pytest.mark.parametrize(
    "name, mode", every_second(list(GENERAL), ["general", "general, strided", "general, wide", "wide"])
)
def test_general_and_wide_kernels(name: str, mode: str) -> None:
    """Kernels for any sizes (strides are arguments, too), also with 64-bit offsets."""
    text, types, sizes = GENERAL[name]
    f = mt.compile(text, **types)
    arrays = make_inputs(f.function, {}, sizes).arrays
    arrays = tuple(map(_strided, arrays)) if "strided" in mode else arrays
    known, wide = "general" not in mode, "wide" in mode
    compiled, call = _general(f, arrays, known, wide)
    kernels = compiled.value("triton")
    if not known:
        assert any(k.sizes for k in kernels)
    results = [v.numpy() for v in launchable(compiled, INTERPRETER)(call)]
    for got, wanted in zip(results, enclosures(f, call), strict=True):
        ok, error, bound, note = compare(got, wanted)
        assert ok, f"{name} {mode}: {error} > {bound} {note}"
    assert ".visible .entry k0" in compiled["ptx"]


def test_strides_are_sizes_of_the_general_kernel() -> None:
    f = mt.compile("x * 2", x="f32[M, N]")
    compiled, call = _general(f, (_strided(normal(4, 6)),), False, False)
    text = compiled["kernels"]
    assert "x.stride0" in text and call.numbers["x.stride1"] == 4 and "x.stride1" not in call.sizes
    assert "x.stride" not in "".join(k.source for k in compiled.value("triton"))


HUGE: dict[str, tuple[str, dict[str, int]]] = {
    "elementwise": ("x + 1", {}),
    "rows": ("sum(x, axis=1)", {}),
    "columns": ("sum(x, axis=0)", {}),
    "columns in a loop": ("sum(x, axis=0)", {"r": 2}),
    "columns one by one": ("sum(x, axis=0)", {"r": 1}),
    "rows in a loop": ("x - max(x, axis=0)", {"i": 4}),
    "product": ("x.mT @ x", {}),
    "gather": ("x[k]", {}),
}


@pytest.mark.parametrize("name", list(HUGE))
def test_offsets_past_32_bits(name: str) -> None:
    """Rows are 2^30 elements apart, so the last ones have offsets above 2^31: on grid axes, axes in registers, and
    loops.
    """
    text, blocks = HUGE[name]
    step = 2**30 + 5
    dtype, item = ("f32", 4) if "@" in text else ("i8", 1)
    memory = mmap.mmap(
        -1, (5 * step + 64) * item, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
    )  # reserves no memory
    owner = np.frombuffer(memory, mt.base.types.dtype(dtype).numpy)
    x = np.lib.stride_tricks.as_strided(owner, (6, 8), (step * item, item))
    x[...] = rng().integers(-9, 9, (6, 8))
    types = {"x": f"{dtype}[M, N]"} | ({"k": "i32[K]"} if "k" in text else {})
    arrays = (x, np.array([5, 3, -1, 0], np.int32))[: len(types)]
    f = mt.compile(text, **types).configured(options=mt.Options(blocks=blocks))
    np.testing.assert_array_equal(f(*arrays), f.run("graph", *arrays))
    assert f.context(bind(f.function, arrays, {}), INTERPRETER).wide
    compiled, call = _general(f, arrays, False, True)
    (out,) = launchable(compiled, INTERPRETER)(call)
    np.testing.assert_array_equal(out.numpy(), f.run("graph", *arrays))


# ---- start-up, and missing packages ------------------------------------------------------------


def python_says(script: str, **environment: str) -> str:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick_and_light() -> None:
    script = """
        import time
        start = time.process_time()
        import minitri
        seconds = time.process_time() - start
        import sys
        heavy = {"torch", "triton", "networkx", "lark", "numpy", "ml_dtypes", "rich", "click"} & set(sys.modules)
        print(seconds, *heavy)
    """
    said = [python_says(script).split() for _ in range(2)]
    assert min(float(s[0]) for s in said) < 0.3 and all(len(s) == 1 for s in said), said


def test_compiling_needs_neither_torch_nor_triton() -> None:
    """Compiling to SASS does not import torch. Compiling to Triton source does not import triton."""
    script = """
        import sys
        import minitri as mt
        low = mt.compile("x + 1", x="f32[N]").lower()
        low["triton"]
        print("triton" in sys.modules, "torch" in sys.modules)
        low["ptx"]
        print("triton" in sys.modules, "torch" in sys.modules)
    """
    assert python_says(script).split() == ["False", "False", "True", "False"]


WITHOUT = """
    import sys

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {missing}:
                raise ImportError(name)

    sys.meta_path.insert(0, Missing())
    import numpy as np
    import minitri as mt

    f = mt.compile("softmax(x @ w, axis=-1)", x="f32[M, K]", w="f32[K, N]")
    x, w = np.ones((3, 4), "f4"), np.ones((4, 5), "f4")
"""


def test_without_torch_and_triton() -> None:
    script = (
        WITHOUT.format(missing={"torch", "triton"})
        + """
    low = f.lower(M=3, K=4, N=5)
    for stage in ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton"):
        assert low[stage]
        if stage != "triton":
            assert f.run(stage, x, w).shape == (3, 5)
    assert f.check(x, w).ok
    calls = [lambda: f(x, w), lambda: low["ttir"], lambda: f.run("triton", x, w), lambda: f.run("gpu", x, w),
             lambda: f.bind(x, w), lambda: mt.evaluate("a + a", a=x)]
    for call in calls:
        try:
            call()
        except mt.StageUnavailable as error:
            assert error.code == "MT0402" and error.help and isinstance(error, mt.CompileError)
        else:
            raise AssertionError("it ran")
    assert not {"torch", "triton"} & set(sys.modules)
    from minitri.cli.main import main
    for arguments, wanted in ((["--emit=triton"], 0), (["--emit=ttir"], 3)):
        try:
            main(["compile", "-e", "x + 1", "-t", "x=f32[N]", *arguments], prog_name="minitri")
        except SystemExit as end:
            assert (end.code or 0) == wanted, (arguments, end.code)
    """
    )
    assert "def k0(" in python_says(script)


def test_without_torch() -> None:
    """numpy arrays run in the interpreter, and everything compiles."""
    script = (
        WITHOUT.format(missing={"torch"})
        + """
    np.testing.assert_allclose(f(x, w), np.full((3, 5), 0.2), rtol=1e-6)
    assert "entry" in f.lower(M=3, K=4, N=5)["ptx"]
    print("torch" in sys.modules)
    """
    )
    assert python_says(script).strip() == "False"


def test_triton_imported_first() -> None:
    """The interpreter works whether or not triton was imported before, and it does not change triton's mode."""
    script = """
        import numpy as np
        import triton
        import minitri as mt
        x = np.array([1.0, np.nan, 3.0], "f4")
        print(mt.evaluate("max(x)", x=x), triton.knobs.runtime.interpret)
    """
    assert python_says(script).split() == ["nan", "False"]


# ---- hostile text ------------------------------------------------------------------------------

HOSTILE = (
    "__import__", "__builtins__", "os", "sys", "eval", "exec", "open", "tl", "triton", "rt", "libdevice", "range", "float",
    "tile", "program_id", "BLOCK_I", "p0", "v0", "s0", "i", "r", "k0", "def_", "_", "__", "x" * 60, "N0", "out",
)  # fmt: skip


def code_of(text: str) -> str:
    """The code of a module text, without comments."""
    return python.unparse(python.parse(text))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_the_user_reaches_the_source(name: str) -> None:
    """A program with other names gives the same source, except for comments in its launch plan."""
    text = "def {f}({x}: f32[{n}], {y}: float = 1.0):\n    {a} = {x} * {y}\n    return {a} + sum({a}, axis=0)\n"
    plain = mt.compile(text.format(f="f", x="x", n="N", y="y", a="a"))
    wanted = code_of(plain.lower()["triton"])
    for place in ("f", "x", "n", "y", "a"):
        names = {"f": "f", "x": "x", "n": "N", "y": "y", "a": "a"} | {place: name}
        if len(set(names.values())) < len(names):
            continue
        try:
            hostile = mt.compile(text.format(**names))
        except CompileError:
            continue  # refused: the name is reserved or has another meaning
        emitted = hostile.lower()["triton"]
        assert code_of(emitted) == wanted, (place, name)
        comments = [line for line in emitted.splitlines() if line.startswith("#")]
        assert len(comments) == len([line for line in plain.lower()["triton"].splitlines() if line.startswith("#")])


@pytest.mark.parametrize(
    "name", ["é", "ｘ", "x\u200b", "𝐱", "a b", "a\nb", "a;b", "1a", "", "x" * 5000, "a-b", "lambda", "x.y", "x\0"]
)
def test_invalid_names_are_errors(name: str) -> None:
    with pytest.raises(CompileError):
        mt.compile("1 + 1", **{name: "f32[N]"})
    with pytest.raises(CompileError):
        mt.compile(f"def f({name}: f32[N]):\n    return {name}\n")
    with pytest.raises(CompileError):
        mt.compile("x", x=f"f32[{name or '+'}]", y="f32[N" if name == "a-b" else None)  # a - b is a valid size


@pytest.mark.parametrize(
    "text",
    [
        "x.__class__", "x.T.__class__.__mro__", "x.__class__.__base__.__subclasses__()", "__import__('os').system('true')",
        "eval('1')", "exec('1')", "open('f')", "getattr(x, '__class__')", "(lambda: x)()", "[x for x in y]", "x if x else x; x",
        "f'{x}'", "x := 1", "print(x)", "globals()", "x['__class__']", "x.__array__()", "type(x)", "x(1)", "'a' * 1000000000",
        "x.astype('f4; import os')", "astype(x, __import__)", "softmax(x, axis='__import__(\"os\")')",
    ],
)  # fmt: skip
def test_hostile_expressions(text: str) -> None:
    assert refusal(mt.compile, text, x="f32[N]").code.startswith("MT0")


def test_strings_do_not_reach_the_source() -> None:
    evil = "'); import os; os.system('true'); ('"
    for value in (evil, "\n    import os\n", '"""', "\\", "#", "none"):
        f = mt.compile("def f(x: f32[N], mode='tanh'):\n    return gelu(x, approximate=mode)\n")
        try:
            emitted = f.lower(mode=value, N=4)["triton"]
        except CompileError:
            continue
        assert "import os" not in emitted and "os.system" not in emitted
        source.check(python.parse("".join(re.findall(r"^def .*?(?=^\S|\Z)", emitted, re.MULTILINE | re.DOTALL))))


FOREIGN = (
    "import os", "from os import path", "__import__('os')", "eval('1')", "exec('1')", "open('f')", "v0.__class__", "tl.__dict__",
    "v0 = tl.core.os", "rt.triton.language", "libdevice.core.os.system('x')", "v0.real", "lambda: 1", "[v0 for v0 in v1]",
    "{v0 for v0 in v1}", "{1: 2}", "f'{v0}'", "(v0 := 1)", "global v0", "del v0", "raise v0", "assert v0", "os", "v0 = globals", "getattr(v0, 'a')",
    "while v0:\n        v0 = 1", "with v0:\n        v0 = 1", "try:\n        v0 = 1\n    except v0:\n        v0 = 2", "yield v0", "await v0",
    "v0 = 'a string longer than a number'", "class v0:\n        v1 = 1", "v0, *v1 = v2", "print(v0)", "v0 = not_a_name", "v0 = __builtins__",
    "v0 = v1 and v2", "v0 = 1 if v1 else 2",
)  # fmt: skip


@pytest.mark.parametrize("line", FOREIGN)
def test_the_allowlist_refuses(line: str) -> None:
    tree = python.parse(f"{'async ' if 'await' in line else ''}def k0(p0):\n    {line}\n")
    with pytest.raises(ValueError, match="generated source"):
        source.check(tree)


def test_the_allowlist_accepts_emitted_code() -> None:
    for text, types, _ in GENERAL.values():
        emitted = mt.compile(text, **types).lower()["triton"]
        made = source.functions(emitted, {"tl": None, "rt": None, "libdevice": None})
        assert made and all(name.startswith("k") for name in made)


def test_only_kernels_of_a_module_text_are_executed() -> None:
    made = source.functions("import os\nos.abort()\n\n@os.abort\ndef k0(p0):\n    v0 = p0\n", {"tl": None})
    assert list(made) == ["k0"]
    with pytest.raises(ValueError):
        source.functions("def k0(p0=__import__('os').abort()):\n    v0 = p0\n", {"tl": None})


def test_programs_share_no_mutable_defaults() -> None:
    """The default of a dataclass field must not be shared between programs."""
    assert (
        Instance() is not Instance()
        and Instance().statics == {}
        and replace(Instance(), packs={"B": 1}).packs == {"B": 1}
    )
    given: Mapping[str, Any] = Instance().packs
    assert given == {}


def test_sizes_that_never_change_stay_literals() -> None:
    """Example: the lengths become arguments, but a width that is equal in every call stays a literal."""
    f = mt.compile("softmax(q @ k.mT) @ v", q="f32[T, D]", k="f32[S, D]", v="f32[S, D]")
    rng, gpu = np.random.default_rng(0), Target("cuda", "90")
    for n in range(3, 12):
        q, k, v = (rng.normal(size=(length, 16)).astype(np.float32) for length in (2, n, n))
        call = bind(f.function, (q, k, v), {})
        assert f._variants.is_special(call, gpu) == (n < 11)
    assert f._variants.unchanged(call) == {"T": 2, "D": 16}
    context = replace(f.context(call, INTERPRETER, False), sizes=f._variants.unchanged(call))
    compiled = f.compilation(context)
    assert len(compiled.value("kernels").kernels) == 1 and "S" in compiled["kernels"]
    (result,) = (x.returned() for x in launchable(compiled, INTERPRETER)(call))
    np.testing.assert_allclose(result, f.numpy(q, k, v), rtol=1e-5)
    other = bind(f.function, (q[:1], k, v), {})
    assert f._variants.unchanged(other) == {"D": 16}


class Addresses:
    """A replacement for a replay. It returns the addresses of the launch, and a device that is current."""

    device = 0

    def current(self) -> int:
        return self.device

    def run(self, pointers: list[int], args: Any) -> list[int]:
        return pointers


def again(args: Any) -> Any:
    """The entry that replays a call like the one with these arguments."""
    from minitri.runtime.replay import again_like

    pointers = [a.data_ptr() for a in args if hasattr(a, "data_ptr")]
    return again_like(args, pointers, Addresses())  # type: ignore[arg-type]


def test_calls_that_can_replay_the_one_before() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.randn(4, 8), torch.randn(8)
    repeat = again((x, y))
    other = torch.randn(4, 8), torch.randn(8)
    assert repeat((x, y)) == [x.data_ptr(), y.data_ptr()]
    assert repeat(other) == [t.data_ptr() for t in other]
    odd = torch.randn(4 * 8 + 4)[1:33].view(4, 8)
    unlike = [
        (x,), (x, y, y), (), (x, 3), (None, y), (x.double(), y), (x.to(torch.int32), y), (x[:3], y), (torch.randn(8, 4).T, y),
        (torch.randn(4, 16)[:, ::2], y), (x._neg_view(), y), (odd, y), (x.to_sparse(), y), (x, torch.empty(8, device="meta")),
        (x.expand(1, 4, 8), y), (torch.nn.Parameter(x), y), (x[None], y),
    ]  # fmt: skip
    for args in unlike:
        assert repeat(args) is None, args
    for args in ((odd, y), (x, 3), (), (x, x)):
        assert again(args) is None


def test_without_the_guards_of_torch_every_call_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for name, value in (("TensorGuards", None), ("TensorGuards", lambda *a: None)):
        monkeypatch.setattr(f"torch._C._dynamo.guards.{name}", value)
        assert again((torch.randn(8),)) is None


def test_a_tensor_for_a_number_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value is part of the program, but the key of a call does not contain it."""
    torch = pytest.importorskip("torch")
    from minitri.runtime import replay as module

    monkeypatch.setattr(module, "replayable", lambda call: True)
    monkeypatch.setattr(module, "Replay", lambda *a: pytest.fail("kept"))
    f = mt.compile("x * n", x="i64[N]", n="int")
    x = torch.ones(4, dtype=torch.int64)
    for n in (2, 3):
        assert torch.equal(f(x, torch.tensor(n)), x * n)


def test_the_least_recently_called_shape_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """If more shapes are called than the cache holds, the one that was called least recently is dropped."""
    monkeypatch.setattr(variants, "MAX_VARIANTS", 3)
    f = mt.compile("x + 1", x="f32[N]")

    def run(n: int) -> object:
        return f.prepare(np.zeros(n, np.float32))[0]

    first = run(1)
    for n in range(2, 9):
        run(n)
        assert run(1) is first
    assert len(f._variants.kept) == 3


# ---- sizes that are 1 in a call --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "x", "y"),
    [
        ("reshape(x, (2, -1)) * y", (2,), (2, 3)),
        ("reshape(x, (2, -1)) * y", (6,), (2, 3)),
        ("reshape(x, (2, -1)) * y", (0,), (2, 1)),
        ("reshape(x, (-1, 2)) @ reshape(y, (-1, 1))", (2,), (2,)),
        ("x[::2] + y", (2,), (5,)),
        ("x[:-1] - y", (2, 3), (4, 3)),
        ("squeeze(reshape(x, (2, -1))) + y", (2,), (3, 2)),
        ("x - x[1:2] + sum(y)", (1,), (3,)),
    ],
)
def test_a_size_that_is_1_in_the_call_broadcasts(text: str, x: tuple[int, ...], y: tuple[int, ...]) -> None:
    f, arrays = mt.compile(text, x=None, y=None), (normal(*x), normal(*y))
    expected = f.numpy(*arrays)
    for got in (f(*arrays), *(f.run(stage, *arrays) for stage in ("graph", "kernels", "tile.masked", "triton"))):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert f.check(*arrays).ok and f.lower(*arrays)["triton"]


def test_a_program_for_any_sizes_stays_one_program() -> None:
    f = mt.compile("reshape(x, (2, -1)) * y", x=None, y=None)
    f(normal(6), normal(2, 3)), f(normal(2), normal(2, 3)), f(normal(8), normal(2, 4))
    assert ["n0" in str(types) for _, types, _ in f._graphs] == [True, False, True]  # 8 shares the graph of 6
    f(normal(12), normal(2, 6))
    assert len(f._graphs) == 3


def test_symbolic_sizes_are_never_assumed_to_be_1() -> None:
    f = mt.compile("reshape(x, (2, -1)) * y", x="f32[N]", y=None)
    refused("MT0201", f, normal(2), normal(2, 3))
    error = refusal(mt.compile("reshape(x, (2, -1)) * y", x=None, y=None), normal(4), normal(2, 3))
    assert error.code == "MT0201" and "3 is not 2" in str(error)


def test_a_stage_is_lowered_once_for_similar_calls() -> None:
    f, x = mt.compile("softmax(x, axis=-1)", x="f32[M, N]"), normal(3, 4)
    first = f.run("tile", x)
    with mock.patch.object(Compilation, "_run", side_effect=AssertionError("lowered again")):
        for stage in ("graph", "kernels", "tile"):
            np.testing.assert_allclose(f.run(stage, x), first, rtol=1e-6)
    np.testing.assert_allclose(f.run("tile", normal(5, 4)), f.numpy(normal(5, 4)), rtol=1e-6)
    np.testing.assert_allclose(f.run("tile", np.asfortranarray(x)), first, rtol=1e-6)


# ---- the types of parameters -----------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"entry": "f32[N]", "name": "f32[N]"},
        {"types": {"entry": "f32[N]", "name": "f32[N]"}},
        {"types": {"entry": None, "name": None}},
        {"types": {"entry": "f32[N]"}, "name": " f32[N] "},
    ],
)
def test_parameters_may_have_the_names_of_compiles_keywords(given: dict[str, Any]) -> None:
    ones = np.ones(2, np.float32)
    assert mt.compile("2 * entry + name", **given)(ones, ones).tolist() == [3, 3]


def test_every_keyword_of_compile_may_name_a_parameter() -> None:
    kinds = {name: "f32[N]" for name in ("types", "entry", "name", "options", "effort")}
    f = mt.compile(" + ".join(kinds), **kinds)  # type: ignore[arg-type]
    assert f(*[np.ones(2, np.float32)] * 5).tolist() == [5, 5]


def test_keywords_of_compile_keep_their_meaning() -> None:
    module = "def entry(x: f32[N]):\n    return x\n\n\ndef name(x: f32[N]):\n    return -x\n"
    assert mt.compile(module, entry="entry").name == "entry"
    assert mt.compile("x + 1", entry="main", types={"x": "f32[N]"}).name == "main"
    with pytest.raises(CompileError) as caught:
        mt.compile("2 * names(x)", name="cell 3")
    assert "--> cell 3:1:5" in str(caught.value)


@pytest.mark.parametrize(
    "text, given, code",
    [
        ("2 * x", {"types": "f32[N]"}, "MT0004"),
        ("2 * x", {"types": {"x": 3}}, "MT0004"),
        ("2 * x", {"types": {3: "f32[N]"}}, "MT0001"),
        ("2 * x", {"types": {"x": "f32[N]"}, "x": "f32[N]"}, "MT0104"),
        ("2 * entry", {"entry": "float32[N]"}, "MT0202"),
        ("def f(x: f32[N]):\n    return x\n", {"types": {"x": "f32[N]"}}, "MT0102"),
    ],
)
def test_wrong_types_are_errors(text: str, given: dict[str, Any], code: str) -> None:
    with pytest.raises(CompileError) as caught:
        mt.compile(text, **given)
    assert caught.value.code == code
