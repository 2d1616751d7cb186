"""The workaround that waits for tensor cores (wgmma): which loops wait, that they wait in time, and equal results."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from strategies import by_types
from wgmma_register_writes import has_loops, overtaken

import minitri as mt
from minitri.tiles.ir import Loop
from minitri.triton.workarounds import loops
from minitri.triton.workarounds.loops import settles

XW = {"x": "f16[M, K]", "w": "f16[K, N]"}
TWO = XW | {"y": "f16[M, L]", "v": "f16[L, N]"}
SIZES = {"M": 128, "K": 3584, "N": 4096, "L": 3584}  # loops that are neither unrolled nor split
NARROW = mt.Options({"i": 128, "j": 64, "r": 64}, warps=4, stages=4, descriptors=True)
CASES: dict[str, tuple[str, dict[str, str], dict[str, int], int]] = {  # the last number: how many loops wait
    "factors from memory": ("x @ w", XW, {}, 0),
    "a computed first factor": ("relu(x) @ w", XW, {}, 1),
    "a converted first factor": ("x.astype(bf16) @ w", {"x": "f32[M, K]", "w": "bf16[K, N]"}, {}, 1),
    "a computed first factor in TF32": ('matmul(x + 1, w, precision="tf32")', {"x": "f32[M, K]", "w": "f32[K, N]"}, {"M": 1024, "N": 1024}, 1),
    "a repeated first factor": ("broadcast_to(x, (128, K)) @ w", {"x": "f16[K]", "w": "f16[K, N]"}, {}, 1),
    "few rows": ("relu(x) @ w", XW, {"M": 16}, 0),
    "no tensor cores": ('matmul(relu(x), w, precision="ieee")', {"x": "f32[M, K]", "w": "f32[K, N]"}, {}, 0),
    "a second factor without depth": ("relu(x) @ broadcast_to(w, (3584, N))", {"x": "f16[M, 3584]", "w": "f16[N]"}, {}, 1),
    "both computed": ("relu(x) @ relu(w)", XW, {}, 0),
    "weights of 8 bits": ("x @ w.astype(f16)", {"x": "f16[M, K]", "w": "i8[K, N]"}, {}, 1),
    "weights of 8 bits, few rows": ("x @ w.astype(f16)", {"x": "f16[M, K]", "w": "i8[K, N]"}, {"M": 32}, 1),
    "a batch": ("relu(x) @ w", {"x": "f16[B, M, K]", "w": "f16[B, K, N]"}, {"B": 3}, 1),
    "two products in one loop": ("silu(relu(x) @ w) * (relu(x) @ v)", XW | {"v": "f16[K, N]"}, {"M": 512}, 2),
    "a loop before one that waits": ("relu(x) @ w + y @ relu(v)", TWO, {}, 0),
    "a loop after one that waits": ("y @ relu(v) + relu(x) @ w", TWO, {}, 1),
    "two loops": ("relu(x) @ w + y @ relu(v)", TWO, {"L": 3072}, 1),
    "attention": ("softmax(x @ w.T) @ w", {"x": "f16[M, 64]", "w": "f16[K, 64]"}, {"M": 4096, "K": 4096}, 0),
}  # fmt: skip


def lowered(name: str) -> mt.Lowered:
    text, types, sizes, _ = CASES[name]
    known = {n: size for n, size in (SIZES | sizes).items() if any(n in t[t.index("[") :] for t in types.values())}
    return mt.compile(text, **types).lower(target="cuda:90", **known)


@pytest.mark.parametrize("name", list(CASES))
def test_loops_that_need_a_wait(name: str) -> None:
    assert lowered(name)["triton"].count("rt.settle()") == CASES[name][3]


@pytest.mark.parametrize("name", [*CASES])
def test_no_operand_is_overwritten_while_a_tensor_core_reads_it(name: str) -> None:
    """With Triton 3.6, seven of the ten cases fail here without the wait."""
    low = lowered(name)
    assert has_loops(low["sass"]) or not CASES[name][3]
    assert not overtaken(low["sass"])
    assert ("GMMA" in low["sass"]) == (name not in ("no tensor cores", "few rows"))


def test_only_hopper_needs_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    text, types, _, _ = CASES["a computed first factor"]
    f, known = mt.compile(text, **types), {n: SIZES[n] for n in "MKN"}

    def waits() -> int:
        ptx = mt.compile(text, **types).lower(target="cuda:90", **known)["ptx"]
        return len(re.findall(r"wgmma\.wait_group\.sync\.aligned\s+0;", ptx))

    with_it = waits()
    monkeypatch.setattr(loops, "settles", lambda program, loop: False)
    assert with_it == waits() + 1
    monkeypatch.undo()
    for target in ("cuda:80", "cuda:100"):
        low = f.lower(target=target, **known)
        assert "rt.settle()" in low["triton"] and "wgmma" not in low["ptx"]


def test_the_check_finds_an_overwritten_operand() -> None:
    """Tests the check of machine code with a loop that Triton 3.6 made of `(x * 0.5) @ w`."""
    loop = [
        "LBB3:", "LDSM.16.M88.4 R100, [R14+0x20080];", "HGMMA.64x128x16.F32.BF16 R24, R100, gdesc[UR8].tnspB, R24, gsb0;",
        "WARPGROUP.DEPBAR.LE gsb0, 0x1;", "@P0 BRA LBB3;",
    ]  # fmt: skip
    assert len(overtaken("\n".join(loop))) == 1
    loop[3] = loop[3].replace("0x1", "0x0")
    assert not overtaken("\n".join(loop))
    assert not overtaken("\n".join(["LBB3:", "WARPGROUP.DEPBAR.LE gsb0, 0x0;", *loop[1:3], "BRA LBB3;"]))


def test_an_operand_from_before_the_loop_is_written_once() -> None:
    (program,) = lowered("a computed first factor").compilation.value("tile.masked")
    (loop,) = [s for s in program.body if isinstance(s, Loop)]
    assert settles(program, loop)
    dot = loop.body[-1]
    before = replace(loop, body=(dot,))
    assert not settles(replace(program, body=(*loop.body[:-1], before)), before)


@pytest.mark.parametrize("name", list(CASES))
def test_every_stage(name: str) -> None:
    text, types, _, _ = CASES[name]
    report = mt.compile(text, **types).check(*by_types(types, {"M": 70, "K": 65, "N": 37, "L": 65, "B": 2}))
    assert report.ok, report


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("rows, options", [(64, mt.Options()), (128, mt.Options()), (512, mt.Options()),
                                           (1024, mt.Options()), (512, NARROW)])  # fmt: skip
def test_results_are_the_same_every_time(rows: int, options: mt.Options) -> None:
    """With the default tiles and a narrow one. (Timing may hide an overlap. So the test above reads the machine
    code.)
    """
    g = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(rows, 4096, generator=g, device="cuda").half()
    w = torch.randint(-127, 128, (4096, 4096), generator=g, device="cuda", dtype=torch.int8)
    scale = torch.rand(4096, generator=g, device="cuda").half() * 0.01
    f = mt.compile("x @ (w.astype(f16) * scale)", x="f16[M, K]", w="i8[K, N]", scale="f16[N]", options=options)
    wanted = x.double() @ (w.half() * scale).double()
    results = [f(x, w, scale) for _ in range(30)]
    assert all(torch.equal(r, results[0]) for r in results)
    assert float((results[0].double() - wanted).norm() / wanted.norm()) < 3e-4
