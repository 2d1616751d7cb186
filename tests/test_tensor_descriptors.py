"""The pass tensor-descriptors, and persistent kernels, whose programs take one tile after the other: stage texts,
machine code, results."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scheduled import scheduled
from short_profile import every_second

import minitri as mt
from minitri.base.dims import Dim
from minitri.explain import explain
from minitri.hardware.chips import CHIPS, H200, Chip
from minitri.hardware.targets import Target
from minitri.kernels.ir import Buffer, Dot, Load, Store
from minitri.optimize.schedules.products import RESERVED, has_steps, programs
from minitri.optimize.tensor_descriptors import describe
from minitri.runtime import tuning_policy, variants
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Access, Program
from minitri.tiles.text import parse_programs
from minitri.triton.compiled_stages import build
from minitri.triton.descriptors import Descriptor
from minitri.trust import run_stage

BLOCKS = {"i": 32, "j": 32, "k": 32, "r": 32}
CASES: dict[str, tuple[str, dict[str, str], dict[str, Any], set[str]]] = {
    "a product": ("x @ w", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, {"x", "w"}),
    "a transposed first factor": ("x.T @ w", {"x": "f16[72, 40]", "w": "f16[72, 48]"}, {}, {"x", "w"}),
    "a transposed second factor": ("x @ w.T", {"x": "f16[40, 72]", "w": "f16[48, 72]"}, {}, {"x", "w"}),
    "a batch": ("relu(x @ w.mT)", {"x": "f16[3, 40, 72]", "w": "f16[3, 48, 72]"}, {"persistent": 2}, {"x", "w"}),
    "with a bias": ("x @ w + b", {"x": "f16[40, 72]", "w": "f16[72, 48]", "b": "f16[48]"}, {"persistent": 3}, {"x", "w"}),
    "weights of 8 bits": ("x @ w.astype(f16)", {"x": "f16[40, 64]", "w": "i8[64, 48]"}, {}, {"x", "w"}),
    "a slice": ("x[8:, 4:] @ w", {"x": "f16[48, 76]", "w": "f16[72, 48]"}, {}, {"w"}),
    "a slice that starts at an odd index": ("x[:, 3:67] @ w", {"x": "f16[40, 80]", "w": "f16[64, 48]"}, {}, {"w"}),
    "a slice that starts at an aligned index": ("x[:, 8:72] @ w", {"x": "f16[40, 80]", "w": "f16[64, 48]"}, {}, {"x", "w"}),
    "parts of the depth": ("einsum('ibk,bkj->bij', reshape(x, (40, 2, 64)), w)",
                           {"x": "f16[40, 128]", "w": "f16[2, 64, 48]"}, {}, {"x", "w"}),
    "parts that blocks do not divide": ("einsum('ibk,bkj->bij', reshape(x, (40, 2, 72)), w)",
                                      {"x": "f16[40, 144]", "w": "f16[2, 72, 48]"}, {}, {"w"}),
    "rows with an odd stride": ("x @ w", {"x": "f16[40, 33]", "w": "f16[33, 48]"}, {}, {"w"}),
    "zeros past the end": ("pad(x, ((0, 0), (0, 23))) @ pad(w, ((0, 23), (0, 0)))",
                           {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, {"x", "w"}),
    "ones past the end": ("pad(x, ((0, 0), (0, 23)), constant_values=1) @ pad(w, ((0, 23), (0, 0)))",
                          {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, {"x", "w"}),
    "zeros before the start": ("pad(x, ((0, 0), (8, 0))) @ pad(w, ((0, 8), (0, 0)))",
                     {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, {"w"}),
    "symbolic sizes": ("x @ w", {"x": "f16[M, K]", "w": "f16[K, N]"}, {}, set()),
    "rows shorter than a block": ("x @ w", {"x": "f16[40, 24]", "w": "f16[24, 48]"}, {}, {"w"}),
    "fewer rows than a block": ("x @ w", {"x": "f16[24, 72]", "w": "f16[72, 48]"}, {}, {"x", "w"}),
    "gathered rows": ("x[i] @ w", {"x": "f16[9, 72]", "i": "i64[40]", "w": "f16[72, 48]"}, {}, {"w"}),
    "no product": ("x + 1", {"x": "f16[40, 64]"}, {"persistent": 2}, set()),
    "a sum": ("sum(x, axis=1)", {"x": "f32[40, 64]"}, {"persistent": 2}, {"x"}),
    "attention": ("softmax(q @ k.mT, axis=-1) @ v", {"q": "f16[2, 40, 16]", "k": "f16[2, 48, 16]", "v": "f16[2, 48, 16]"},
                  {"persistent": 3}, {"q", "k", "v"}),
}  # fmt: skip


def in_blocks(text: str, types: dict[str, str], **options: Any) -> mt.Program:
    """The program with small blocks for the axes of its products."""
    f = mt.compile(text, **types)
    kernels = [
        k for k in f.lower(target="cuda:90").compilation.plan.kernels if any(isinstance(op, Dot) for op in k.body)
    ]
    axes = {a.name for kernel in kernels for a in kernel.axes}
    return f.configured(options=mt.Options({n: b for n, b in BLOCKS.items() if n in axes}, **options))


def program(name: str) -> mt.Program:
    text, types, more, _ = CASES[name]
    return in_blocks(text, types, descriptors=True, **more)


def arrays(name: str) -> list[np.ndarray]:
    return arrays_of(CASES[name][1])


def on_gpu(arrays: list[np.ndarray], types: dict[str, str]) -> list[torch.Tensor]:
    bits = [torch.from_numpy(a.view(np.int16) if a.dtype.itemsize == 2 else a).cuda() for a in arrays]
    dtypes = [getattr(torch, mt.base.types.DTYPES[t.split("[")[0]].triton) for t in types.values()]
    return [b.view(dtype) for b, dtype in zip(bits, dtypes)]


def arrays_of(types: dict[str, str]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [[int(n) if n.strip().isdigit() else 40 for n in t[:-1].split("[")[1].split(",")] for t in types.values()]
    dtypes = [mt.base.types.DTYPES[t.split("[")[0]] for t in types.values()]
    return [
        (rng.integers(-8, 9, s) if d.is_integer else rng.normal(size=s)).astype(d.numpy) for s, d in zip(shapes, dtypes)
    ]


def described(program: Program) -> list[Access]:
    """The accesses that use descriptors."""
    return [op for op in program.ops() if isinstance(op, (Load, Store)) and program.hint(op).descriptor]


@pytest.mark.parametrize("name", list(CASES))
def test_loads_that_use_descriptors(name: str) -> None:
    low = program(name).lower(target="cuda:90")
    found = [op for p in low.compilation.value("tile.target") for op in described(p)]
    assert {op.buffer.name for op in found if isinstance(op, Load)} == CASES[name][3]
    assert low["triton"].count("=TensorDescriptor(") == len({op.buffer for op in found})
    assert parse_programs(low["tile.masked"], masked=True).programs[0].descriptors


@pytest.mark.parametrize("name", every_second(list(CASES)))
def test_descriptors_are_right_at_every_stage(name: str) -> None:
    report = program(name).check(*arrays(name))
    assert report.ok, report


STORES: dict[str, tuple[str, dict[str, str], dict[str, Any], int]] = {  # the last number: how many stores use descriptors
    "ragged": ("x @ w", {"x": "f16[40, 72]", "w": "f16[72, 56]"}, {}, 1),
    "whole": ("x @ w", {"x": "f16[64, 64]", "w": "f16[64, 64]"}, {}, 1),
    "bf16": ("relu(x @ w)", {"x": "bf16[40, 72]", "w": "bf16[72, 48]"}, {}, 1),
    "wider": ("(x @ w).astype(f32) / 3", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 1),
    "a transposed result": ("(x @ w).T * 2", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 1),
    "a batch": ("x @ w", {"x": "f16[3, 40, 72]", "w": "f16[3, 72, 48]"}, {}, 1),
    "a batch as the middle axis": ("einsum('bik,bkj->ibj', x, w)", {"x": "f16[3, 40, 72]", "w": "f16[3, 72, 48]"}, {}, 1),
    "a result with another load": ("x @ w + y", {"x": "f16[40, 72]", "w": "f16[72, 48]", "y": "f16[40, 48]"}, {}, 1),
    "two results": ("(x @ w, exp(x @ w))", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 2),
    "two results, one transposed": ("(x @ w, exp(x @ w).T)", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 2),
    "computed weights": ("x @ (w.astype(f16) * s)", {"x": "f16[40, 64]", "w": "i8[64, 48]", "s": "f16[48]"}, {}, 1),
    "rows with an odd stride": ("x @ w[:, :33]", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 0),
    "rows shorter than a block": ("x @ w", {"x": "f16[40, 72]", "w": "f16[72, 24]"}, {}, 0),
    "an integer result": ("(x @ w).astype(i32)", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {}, 0),
    "one tile for each program": ("x @ w", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {"persistent": None}, 0),
    "no descriptors": ("x @ w", {"x": "f16[40, 72]", "w": "f16[72, 48]"}, {"descriptors": False}, 0),
    "symbolic sizes": ("x @ w", {"x": "f16[M, K]", "w": "f16[K, N]"}, {}, 0),
    "two results, one elementwise": ("(x @ w, y + zeros((40, 48), f16))", {"x": "f16[40, 72]", "w": "f16[72, 48]", "y": "f16[48]"}, {}, 1),
    "attention": (*CASES["attention"][:2], {}, 0),
}  # fmt: skip


def storing(name: str) -> mt.Program:
    text, types, more, _ = STORES[name]
    return in_blocks(text, types, **{"descriptors": True, "persistent": 3, **more})


@pytest.mark.parametrize("name", list(STORES))
def test_stores_that_use_descriptors(name: str) -> None:
    low = storing(name).lower(target="cuda:90")
    stores = [op for p in low.compilation.value("tile.target") for op in described(p) if isinstance(op, Store)]
    assert low["triton"].count(".store([") == len(stores) == STORES[name][3]
    read = parse_programs(low["tile.masked"], masked=True)
    assert len([op for p in read.programs for op in described(describe(p, True)) if isinstance(op, Store)]) == len(
        stores
    )


@pytest.mark.parametrize("name", [n for n, (*_, stores) in STORES.items() if stores])
def test_stores_at_every_stage(name: str) -> None:
    report = storing(name).check(*arrays_of(STORES[name][1]))
    assert report.ok, report


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", [n for n, (*_, stores) in STORES.items() if stores])
def test_stores_on_a_gpu(name: str) -> None:
    types = STORES[name][1]
    f, tensors = storing(name), on_gpu(arrays_of(types), types)
    plain = f.configured(options=mt.Options(f.options.blocks))
    for _ in range(3):
        torch.testing.assert_close(f(*tensors), plain(*tensors), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("text, types, more, stores", [
    ("x @ w", {"x": "bf16[4096, 4096]", "w": "bf16[4096, 4096]"}, {}, True),
    ("x @ w", {"x": "bf16[4096, 512]", "w": "bf16[512, 4096]"}, {}, False),  # loads need more blocks in shared memory
    ("x @ w", {"x": "bf16[4096, 4096]", "w": "bf16[4096, 4096]"}, {"stages": 4, "persistent": 128, "descriptors": True}, False),
    ("x @ w + y", {"x": "bf16[4096, 4096]", "w": "bf16[4096, 4096]", "y": "bf16[4096, 4096]"}, {}, False),
    ("relu(x @ w + b)", {"x": "bf16[4096, 4096]", "w": "bf16[4096, 4096]", "b": "bf16[4096]"}, {}, True),
    ("(x @ w, exp(x @ w))", {"x": "bf16[4096, 4096]", "w": "bf16[4096, 4096]"}, {}, False),  # two buffers
])  # fmt: skip
def test_stores_use_descriptors_if_shared_memory_is_sufficient(
    text: str, types: dict[str, str], more: dict[str, Any], stores: bool
) -> None:
    """Shared memory also holds the blocks of loads. A kernel that needs more than there is cannot be launched."""
    f = mt.compile(text, **types).configured(options=mt.Options(**more))
    low = f.lower(target="cuda:90")
    (program,) = low.compilation.value("tile")
    assert program.persistent == 128 and program.descriptor_stores == stores
    assert (".store([" in low["triton"]) == stores
    (built,) = build(low["triton"], low.compilation.value("triton"), Target.parse("cuda:90"))
    assert built.metadata.shared <= H200.shared


def test_the_shared_memory_of_the_chip_decides_to_the_byte() -> None:
    f = mt.compile("x @ w", x="f16[4096, 4096]", w="f16[4096, 4096]")
    (kernel,) = f.lower(target="cuda:90").compilation.plan.kernels
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    needed = 3 * (128 + 256) * 64 * 2 + 128 * 256 * 2 + RESERVED
    blocks = dict(zip((*dots[0].tile, dots[0].over), (128, 256, 64)))
    options = mt.Options(blocks, warps=8, stages=3, persistent=128, descriptors=True)
    for shared in (needed, needed - 1):
        chosen = scheduled(kernel, options=options, chip=replace(H200, shared=shared))
        assert chosen.descriptor_stores == (shared == needed)


@given(st.integers(1, 10**6), st.sampled_from(list(CHIPS.values())))
def test_a_persistent_kernel_has_the_fewest_programs_for_its_waves(tiles: int, chip: Chip) -> None:
    n = programs(tiles, chip)
    rounds = -(-tiles // n)
    assert n <= chip.multiprocessors and rounds == -(-tiles // chip.multiprocessors)
    assert n == 1 or -(-tiles // (n - 1)) > rounds


def test_machine_code_loads_through_the_copy_engine() -> None:
    f = mt.compile("x @ w", x="f16[512, 512]", w="f16[512, 512]")
    plain = f.configured(options=mt.Options(descriptors=False)).lower(target="cuda:90")["ptx"]
    fetched = f.configured(options=mt.Options(descriptors=True, persistent=132)).lower(target="cuda:90")
    assert "cp.async.bulk.tensor" not in plain and "wgmma" in plain
    assert "cp.async.bulk.tensor" in fetched["ptx"] and "wgmma" in fetched["ptx"]
    assert fetched.compilation.value("triton")[0].tiles.constant == min(
        132, plain_tiles(f.lower(target="cuda:90").compilation.value("tile.masked").programs[0])
    )


def plain_tiles(p: Any) -> int:
    return int(np.prod([a.tiles.constant for a in p.grid]))


@pytest.mark.parametrize("target", ["cuda:80", "cuda:100", "hip:gfx942"])
def test_other_targets_compile(target: str) -> None:
    f = mt.compile("x @ w", x="f16[128, 128]", w="f16[128, 128]").configured(
        options=mt.Options(descriptors=True, persistent=16)
    )
    low = f.lower(target=target)
    assert low["amdgcn" if target.startswith("hip") else "sass"]


def test_unaligned_arrays_are_read_without_descriptors() -> None:
    """The array of a descriptor starts at a multiple of 16 bytes. Whether an array does is only known at the call."""
    f = program("a product")
    x, w = arrays("a product")
    memory = np.zeros(x.size + 64, np.float16)
    first = next(k for k in range(64) if memory[k:].ctypes.data % 16 == 2)
    odd = memory[first : first + x.size].reshape(x.shape)
    odd[:] = x
    assert odd.ctypes.data % 16 == 2
    np.testing.assert_array_equal(f(odd, w), f(x, w))


def test_reads_past_the_end_are_masked_in_the_ir() -> None:
    (tile,) = program("a product").lower(target="cuda:90").compilation.value("tile.masked").programs
    loads = [op for op in tile.ops() if isinstance(op, Load)]
    assert all(op.mask is not None and op.mask.conditions for op in loads)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", list(CASES))
def test_on_a_gpu(name: str) -> None:
    tensors = on_gpu(arrays(name), CASES[name][1])
    f = program(name)
    plain = f.configured(options=mt.Options(f.options.blocks))
    for _ in range(3):
        np.testing.assert_allclose(f(*tensors).cpu().numpy(), plain(*tensors).cpu().numpy(), rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_the_first_launch_of_a_process(tmp_path: Path) -> None:
    """The launcher of a kernel with descriptors waits for the driver that creates them."""
    script = (
        "import torch, minitri as mt\n"
        "f = mt.compile('x @ w', x='f16[M, K]', w='f16[K, N]')\n"
        "f = f.configured(options=mt.Options(descriptors=True, persistent=16))\n"
        "x, w = (torch.randn(256, 256, device='cuda').half() for _ in 'xw')\n"
        "torch.testing.assert_close(f(x, w), x @ w, rtol=1e-2, atol=1e-1)\n"
    )
    caches = {"MINITRI_CACHE_DIR": str(tmp_path / "ours"), "TRITON_CACHE_DIR": str(tmp_path / "its")}
    for _ in ("empty caches", "full ones"):
        subprocess.run([sys.executable, "-c", script], env={**os.environ, **caches}, check=True)


# ---- the choice ------------------------------------------------------------------------

PERSISTENT: dict[str, tuple[str, dict[str, str], tuple[bool, int]]] = {  # whether descriptors are used, and how many persistent programs
    "long loops": ("x @ w", {"x": "bf16[8192, 4096]", "w": "bf16[4096, 8192]"}, (True, 128)),
    "short loops": ("x @ w", {"x": "bf16[8192, 512]", "w": "bf16[512, 8192]"}, (True, 128)),
    "a transposed factor": ("x @ w.T", {"x": "bf16[8192, 4096]", "w": "bf16[8192, 4096]"}, (True, 128)),
    "one tile for each program": ("x @ w.T", {"x": "bf16[2048, 4096]", "w": "bf16[2048, 4096]"}, (True, 0)),
    "a small product": ("x @ w", {"x": "bf16[256, 512]", "w": "bf16[512, 512]"}, (False, 0)),
    "small tiles": ("x @ w", {"x": "bf16[1000, 1000]", "w": "bf16[1000, 1000]"}, (True, 0)),
    "small tiles, f32 results": ("(x @ w).astype(f32)", {"x": "bf16[1000, 1000]", "w": "bf16[1000, 1000]"}, (False, 0)),
    "a transposed factor, f32 results": ('matmul(x, w.T, precision="tf32")', {"x": "f32[8192, 4096]", "w": "f32[8192, 4096]"}, (True, 0)),
    "no tensor cores": ('matmul(x, w, precision="ieee")', {"x": "f32[8192, 512]", "w": "f32[512, 8192]"}, (False, 0)),
    "products of TF32 parts": ("x @ w", {"x": "f32[8192, 512]", "w": "f32[512, 8192]"}, (True, 0)),
    "f32 results": ("(x @ w).astype(f32)", {"x": "bf16[8192, 4096]", "w": "bf16[4096, 8192]"}, (True, 0)),
    "rows with an odd stride": ("x @ w", {"x": "bf16[8192, 4095]", "w": "bf16[4095, 8192]"}, (True, 128)),
    "one factor with an odd stride": ("x @ w", {"x": "bf16[1000, 2050]", "w": "bf16[2050, 3000]"}, (True, 0)),
    "one computed factor": ("x @ w.astype(bf16)", {"x": "bf16[128, 4096]", "w": "i8[4096, 4096]"}, (True, 0)),
    "one computed factor, few rows": ("x @ w.astype(bf16)", {"x": "bf16[32, 4096]", "w": "i8[4096, 4096]"}, (True, 0)),
    "a split product": ("x @ w", {"x": "bf16[128, 16384]", "w": "bf16[16384, 512]"}, (True, 0)),
    "one computed factor, many rows": ("x @ w.astype(bf16)", {"x": "bf16[1024, 1024]", "w": "i8[1024, 4096]"}, (True, 0)),
    "few rows": ("x @ w", {"x": "bf16[16, 4096]", "w": "bf16[4096, 8192]"}, (False, 0)),
    "a slice": ("x[:, 8:] @ w", {"x": "bf16[8192, 520]", "w": "bf16[512, 8192]"}, (False, 0)),
    "symbolic sizes": ("x @ w", {"x": "bf16[M, 512]", "w": "bf16[512, N]"}, (False, 0)),
}  # fmt: skip


def descriptors_and_programs(f: mt.Program, target: str = "cuda:90") -> tuple[bool, int]:
    return max((p.descriptors, p.persistent) for p in f.lower(target=target).compilation.value("tile"))


@pytest.mark.parametrize("name", list(PERSISTENT))
def test_persistent_kernels_are_chosen_where_they_are_faster(name: str) -> None:
    text, types, wanted = PERSISTENT[name]
    assert descriptors_and_programs(mt.compile(text, **types)) == wanted


def test_descriptors_need_the_default_tile_and_a_gpu_with_a_copy_engine() -> None:
    text, types, wanted = PERSISTENT["long loops"]
    f = mt.compile(text, **types)
    assert (
        descriptors_and_programs(f, "cuda:80")
        == descriptors_and_programs(f, "hip:gfx942")
        == descriptors_and_programs(f, "interpreter")
        == (False, 0)
    )
    assert descriptors_and_programs(f, "cuda:100") == wanted
    assert descriptors_and_programs(f.configured(options=mt.Options(warps=4))) == (False, 0)
    assert descriptors_and_programs(f.configured(options=mt.Options(descriptors=False))) == (False, 0)


def test_unaligned_arrays_have_no_descriptors() -> None:
    f = mt.compile("x @ w", x="f16[8192, 64]", w="f16[64, 8192]")
    w, room = torch.zeros(64, 8192, dtype=torch.float16), torch.zeros(8192 * 64 + 8, dtype=torch.float16)
    x = room[4:-4].view(8192, 64)
    for array, wanted in ((x, False), (x.clone(), None)):
        call = bind(f.function, [array, w], {})
        assert f.context(call, Target.parse("cuda:90")).options.descriptors is wanted


def test_the_launch_plan_lists_the_arrays_of_descriptors() -> None:
    low = mt.compile("x @ w", x="bf16[1000, 1000]", w="bf16[1000, 1000]").lower(target="cuda:90")
    assert "desc0=TensorDescriptor(x, [1000, 1000], [1000, 1], [64, 128])" in low["triton"]


@pytest.mark.parametrize("strides, described", [
    ((5760, 144, 2), True), ((8192, 160, 2), False), ((8000, 160, 2), True), ((144, 432, 2), False), ((5760, 128, 2), False),
    ((2880, 144, 2), False), ((0, 144, 2), False), ((5760, 144, 4), False), ((5768, 144, 2), False), ((40 * 152, 152, 2), False),
])  # fmt: skip
def test_strides_that_descriptors_support(strides: tuple[int, ...], described: bool) -> None:
    """Strides in bytes, of an array f16[3, 40, 72]."""
    x = np.lib.stride_tricks.as_strided(np.zeros(1 << 14, np.float16), (3, 40, 72), strides)
    f = mt.compile("x @ w", x="f16[3, 40, 72]", w="f16[3, 72, 48]")
    f = f.configured(options=mt.Options({"i": 32, "j": 32, "k": 32, "r": 32}, descriptors=True))
    assert ("TensorDescriptor(x" in f.lower(x, np.zeros((3, 72, 48), np.float16))["triton"]) == described


@pytest.mark.parametrize("shape, strides, wanted", [
    ((4, 1, 64, 64), (6144, 7, 64, 1), (6144, 6144, 64, 1)), ((4, 1, 24), (32, 0, 1), (32, 32, 1)),
    ((1, 40, 72), (5, 152, 1), (6080, 152, 1)), ((1, 1, 20), (3, 3, 1), (24, 24, 1)), ((3, 40, 72), (8000, 80, 1), (8000, 80, 1)),
    ((1, 2, 1, 8), (0, 16, 0, 1), (32, 16, 16, 1)),
])  # fmt: skip
def test_axes_of_one_element_get_valid_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    buffer = Buffer("x", mt.base.types.DTYPES["f16"], tuple(map(Dim.of, shape)), tuple(map(Dim.of, strides)), "input")
    found = Descriptor.of("desc0", 0, buffer, (1,) * len(shape)).strides
    assert has_steps(buffer) and found == wanted
    assert all(a % b == 0 for a, b in zip(found[:-2], found[1:-1])) and all(s % 8 == 0 for s in found[:-1])


def test_64_bit_offsets_have_no_descriptors() -> None:
    f = mt.compile("x @ w", x="f16[M, K]", w="f16[K, N]")
    for n, wanted in ((32768, True), (65536, False)):
        (program,) = f.lower(target="cuda:90", M=n, K=4096, N=n).compilation.value("tile")
        assert (program.descriptors, program.persistent > 0, program.wide) == (wanted, wanted, not wanted)


def test_tuned_options_do_not_bring_descriptors_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "target_of", lambda device: Target.parse("cuda:90"))
    monkeypatch.setattr(
        tuning_policy, "chosen", lambda program, call, context, build: build(mt.Options(descriptors=True))
    )
    seen: list[Any] = []
    monkeypatch.setattr(run_stage, "launchable", lambda compilation, target: seen.append(compilation.context))
    f = mt.compile("x @ w", x="f16[64, 64]", w="f16[64, 64]").configured(effort="quick")
    room = np.zeros(64 * 64 + 16, np.float16)
    odd = next(k for k in range(16) if room[k:].ctypes.data % 16 == 2)
    for x, wanted in ((room[odd : odd + 4096].reshape(64, 64), False), (np.zeros((64, 64), np.float16), True)):
        f._variants.executable(f, bind(f.function, [x, np.zeros((64, 64), np.float16)], {}))
        assert seen[-1].options.descriptors is wanted


def test_a_loaded_text_accepts_unaligned_arrays() -> None:
    f = program("a product")
    x, w = arrays("a product")
    loaded = mt.load(f.lower(x, w, target="interpreter")["tile.masked"], "tile.masked")
    memory = np.zeros(x.size + 16, np.float16)
    first = next(k for k in range(16) if memory[k:].ctypes.data % 16 == 2)
    odd = memory[first : first + x.size].reshape(x.shape)
    odd[:] = x
    np.testing.assert_array_equal(loaded(odd, w), loaded(x, w))


def test_an_axis_of_one_element_may_have_any_stride() -> None:
    f = mt.compile("x @ w", x="f16[1, 40, 72]", w="f16[72, 48]")
    f = f.configured(options=mt.Options({"i": 32, "j": 32, "r": 32}, descriptors=True))
    memory = np.random.default_rng(0).normal(size=40 * 72).astype(np.float16)
    x = np.lib.stride_tricks.as_strided(memory, (1, 40, 72), (14, 144, 2))
    w = np.random.default_rng(1).normal(size=(72, 48)).astype(np.float16)
    assert "TensorDescriptor(x" in f.lower(x, w)["triton"]
    report = f.check(x, w)
    assert report.ok, report


def test_explain_names_the_rule_of_the_target() -> None:
    text, types, _ = PERSISTENT["long loops"]
    f = mt.compile(text, **types)
    said = {target: explain(f.lower(target=target).compilation) for target in ("cuda:90", "cuda:80")}
    assert "one after the other" in said["cuda:90"] and "one after the other" not in said["cuda:80"]


ATTENTION = "softmax(q @ k.mT * 0.125) @ v"
MERGED = {  # program, and whether Triton may merge the loop over tiles with the inner loop
    "a product": ("x @ w", {"x": "f16[512, 256]", "w": "f16[256, 512]"}, True),
    "attention": (ATTENTION, {n: "f16[2, 4, 512, 64]" for n in "qkv"}, False),
    "two products": ("(x @ w) * (x @ u)", {"x": "f16[512, 256]", "w": "f16[256, 512]", "u": "f16[256, 512]"}, False),
    "rows": ("softmax(x)", {"x": "f32[300, 50000]"}, False),
}


def persistent_program(text: str, types: dict[str, str]) -> mt.Program:
    blocks = {"k": 64, "r": 128} if text == ATTENTION else {}
    return mt.compile(text, **types).configured(options=mt.Options(blocks, warps=4, stages=2, persistent=3))


@pytest.mark.parametrize("name", list(MERGED))
def test_loops_that_triton_merges(name: str) -> None:
    text, types, one = MERGED[name]
    source = persistent_program(text, types).lower(target="cuda:90")["triton"]
    assert "for turn in tl.range" in source and ("flatten=True" in source) == one


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", list(MERGED))
def test_persistent_kernels_on_a_gpu(name: str) -> None:
    text, types, _ = MERGED[name]
    shapes = {n: [int(s) for s in t.split("[")[1][:-1].split(",")] for n, t in types.items()}
    tensors = [torch.randn(s, device="cuda").to(getattr(torch, f"float{types[n][1:3]}")) for n, s in shapes.items()]
    f = persistent_program(text, types)
    wanted = f.configured(options=mt.Options(warps=4))(*tensors)
    torch.testing.assert_close(f(*tensors), wanted, rtol=1e-3, atol=1e-3)
