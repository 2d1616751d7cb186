"""The pass software-pipelining: rotated loops, whose iterations do not start with a wait. Also: registers of a
thread.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from short_profile import every_second, slow_except
from test_attention import VARIANTS, arrays, checked, program, sizes_of

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.kernels.ir import Dot, Load
from minitri.optimize.software_pipelining import rotate
from minitri.tiles.ir import Loop, Program
from minitri.tiles.text import format_programs, parse_programs
from minitri.trust.memory_proofs import prove

SMALL = {"k": 16, "r": 16}
SIZES = {"B": 2, "H": 2, "T": 40, "S": 160, "D": 16, "E": 16}
ROTATED = (
    "full", "alibi", "capped", "bias", "padding", "lengths", "grouped views", "logsumexp", "max and sum", "causal", "by hand",
)  # fmt: skip


def rotated(name: str, **options: Any) -> mt.Program:
    return program(name).configured(options=mt.Options(SMALL, **({"descriptors": True} | options)))


def lowered(f: mt.Program, **sizes: int) -> Any:
    return f.lower(target="cuda:90", **sizes_of(f, SIZES | sizes))


def computes_ahead(low: Any) -> list[bool]:
    """For each loop: whether an iteration starts with a product that the iteration before computed."""
    (p,) = low.compilation.value("tile").programs
    loops = [s for s in p.body if isinstance(s, Loop)]
    last = [(loop, loop.carries[-1][1]) for loop in loops]
    return [isinstance(made, Dot) and set(loop.axes) <= set(made.axes) for loop, made in last]


def unrotated(name: str) -> mt.Program:
    return rotated(name).configured(without=["software-pipelining"])


def test_the_first_product_moves_to_the_iteration_before() -> None:
    after = steps(lowered(rotated("full"))["tile"])
    before = steps(lowered(unrotated("full"))["tile"])
    first, own, following = "load k[i, r_lane, s]", "load k[i, r, s]", "load k[i, r + 16, s]"
    assert before.index(own) == before.index("for") + 1 and first not in before
    head, loop = after[: after.index("for")], after[after.index("for") :]
    assert head[-4:] == [first, "spread", "dot", "carry"] and own not in after
    assert loop[loop.index("next") - 3 : loop.index("next")] == [following, "spread", "dot"]
    assert loop[loop.index("load v[i, r, l]") + 1] == "dot"  # a loaded block is awaited where it is used
    assert loop[loop.index("exp2") + 1] == "cast"


def steps(tile: str) -> list[str]:
    found = [re.search(r"(?:= )?(load \w+\[[^\]]*\]|for|next|(?<== )[\w.]+)", line) for line in tile.splitlines()[2:]]
    return [m[1] for m in found if m is not None]


@pytest.mark.parametrize("name", every_second(list(ROTATED)))
def test_rotated_loops_are_right_at_every_stage(name: str) -> None:
    f = rotated(name)
    assert any(computes_ahead(lowered(f))), lowered(f)["tile"]
    checked(f, arrays(name, SIZES, "bf16"))


KINDS = ("ragged keys", "ragged rows", "huge scores", "infinities", "other widths")


@pytest.mark.parametrize("kind", slow_except(["ragged keys", "huge scores", "infinities"], KINDS))
def test_rotated_loops_are_right_for_special_arrays(kind: str) -> None:
    sizes = SIZES | {"ragged keys": {"S": 171}, "ragged rows": {"T": 37}, "other widths": {"E": 32}}.get(kind, {})
    f, given = rotated("full"), arrays("full", sizes, "f16", seed=5, scale=100 if kind == "huge scores" else 1)
    f = program("full", "f16").configured(options=f.options)
    if kind == "infinities":
        given[1][0, 0, 3], given[2][0, 1, 5] = -np.inf, np.nan
    assert computes_ahead(lowered(f, **sizes)) == ([True, False] if kind == "ragged keys" else [True])
    checked(f, given)


def test_rotation_keeps_every_bit() -> None:
    given = arrays("full", SIZES, "bf16", seed=3)
    np.testing.assert_array_equal(*(evaluated(f("full"), given) for f in (rotated, unrotated)))


def evaluated(f: mt.Program, given: list[Any]) -> Any:
    low = f.lower(*given, target="cuda:90")
    return mt.load(low["tile"], "tile")(*given)


def test_bounds_checks_of_rotated_loops_are_proven() -> None:
    for name, sizes in (("full", {}), ("full", {"S": 171}), ("causal", {}), ("bias", {"T": 37})):
        for p in lowered(rotated(name), **sizes).compilation.value("tile.masked").programs:
            assert [str(v) for v in prove(p) if not v.ok] == []


def test_descriptors_read_past_the_end() -> None:
    low = lowered(rotated("full"))
    (p,) = low.compilation.value("tile.target").programs
    assert len([op for op in p.ops() if p.hint(op).descriptor]) == 4 and "desc1.load([i, 0, 0])" in low["triton"]
    assert "desc1.load([i, r_start + 16, 0])" in low["triton"] and "mask=" not in low["triton"].split("tl.store")[0]


def test_texts_of_rotated_loops_can_be_read() -> None:
    given = arrays("full", SIZES, "bf16")
    low = rotated("full", registers=64).lower(*given, target="cuda:90")
    for stage in ("tile", "tile.masked"):
        assert format_programs(parse_programs(low[stage], masked=stage != "tile")) == low[stage]
        np.testing.assert_array_equal(mt.load(low[stage], stage)(*given), rotated("full")(*given))


def test_unaligned_arrays_are_read_by_pointers() -> None:
    given = arrays("full", SIZES, "f16")
    loaded = mt.load(
        program("full", "f16").configured(options=rotated("full").options).lower(*given, target="cuda:90")["tile"],
        "tile",
    )
    memory = np.zeros(given[1].size + 16, np.float16)
    first = next(k for k in range(16) if memory[k:].ctypes.data % 16 == 2)
    odd = memory[first : first + given[1].size].reshape(given[1].shape)
    odd[:] = given[1]
    np.testing.assert_array_equal(loaded(given[0], odd, given[2]), loaded(*given))


@pytest.mark.parametrize("name, sizes, options", [
    ("full", {"S": 112}, {}), ("full", {}, {"descriptors": False}), ("full", {}, {"persistent": 3}), ("grouped", {}, {}),
    ("full", {"D": 17}, {}), ("window", {}, {}),
])  # fmt: skip
def test_loops_that_are_not_rotated(name: str, sizes: dict[str, int], options: dict[str, Any]) -> None:
    """Loops with few iterations, without descriptors, in persistent kernels, or that do not start at 0."""
    f = rotated(name, **options)
    assert not any(computes_ahead(lowered(f, **sizes)))


def test_a_value_shared_with_the_first_product_is_rotated_too() -> None:
    """Keys are loaded once for the product and for their own maximum, which is added to the scores."""
    given = arrays("full", SIZES, "bf16", seed=4)
    before = unrotated("full").lower(*given, target="cuda:90")["tile"]
    keys, scores = re.findall(r"(%\d+): bf16\[i, r, s\] = load k|(%\d+): f32\[i, k, r\] = dot", before)
    line = next(l for l in before.splitlines() if "= dot" in l)
    more = [
        "%90: bf16[i, r] = reduce.max KEYS {over = [s]}",
        "%91: f32[i, r] = cast %90",
        "%92: f32[i, k, r] = add SCORES, %91",
    ]
    head, tail = before.split(line)
    tail = re.sub(rf"{scores[1]}\b", "%92", tail)
    own = "".join(f"\n    {x}" for x in more).replace("KEYS", keys[0]).replace("SCORES", scores[1])
    text = head + line + own + tail
    (program,) = parse_programs(text, masked=False).programs
    after = rotate(program)
    loop = next(s for s in after.body if isinstance(s, Loop))
    reads = [op.index for op in loop.body if isinstance(op, Load) and op.buffer.name == "k"]
    assert [str(index[1]) for index in reads] == ["r", "r + 16"]
    whole = parse_programs(text, masked=False)
    made = format_programs(replace(whole, programs=(after,)))
    np.testing.assert_array_equal(mt.load(made, "tile")(*given), mt.load(text, "tile")(*given))


def test_loops_that_start_with_two_products_are_not_rotated() -> None:
    f = mt.compile(
        "softmax(q @ k.mT + q @ u.mT, axis=-1) @ v", **{n: "bf16[2, 160, 16]" for n in "qkuv"}
    ).configured(options=mt.Options({"k": 16, "r": 16}, descriptors=True))  # fmt: skip
    low = f.lower(target="cuda:90")
    assert low["tile"].count("= dot ") == 3


# ---- registers -------------------------------------------------------------------------


def test_registers_of_a_thread() -> None:
    f = mt.compile("x + y", x="f32[4096]", y="f32[4096]")
    low = f.configured(options=mt.Options(registers=40)).lower(target="cuda:90")
    assert " registers 40 " in low["tile"] and "maxnreg=40)" in low["triton"] and ".maxnreg 40" in low["ptx"]
    assert "maxnreg" not in f.lower(target="cuda:90")["triton"] + f.lower(target="cuda:90")["ptx"]
    assert f.configured(options=mt.Options(registers=40)).lower(target="hip:gfx942")["amdgcn"]
    for wrong in (0, 31, 256, 64.0, True):
        with pytest.raises(CompileError, match="registers cannot be") as error:
            mt.Options(registers=wrong)  # type: ignore[arg-type]
        assert error.value.code == "MT0404"


RULE = {  # sizes → (rows, keys, warps, registers)
    "64 held": ({}, (128, 128, 8, 128)), "128 held": ({"D": 128, "E": 128}, (128, 64, 8, 128)),
    "few rows": ({"B": 1, "H": 8, "T": 1024, "S": 1024}, (64, 64, 4, 0)), "few keys": ({"S": 512, "T": 8192}, (64, 64, 4, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(RULE))
def test_the_schedule_of_rotated_loops(name: str) -> None:
    sizes, wanted = RULE[name]
    f = program("full")
    (p,) = f.lower(
        target="cuda:90", **({"B": 4, "H": 16, "T": 4096, "S": 4096, "D": 64, "E": 64} | sizes)
    ).compilation.value("tile")
    assert blocks(p) == wanted and p.stages in (2, 3)


def blocks(p: Program) -> tuple[int, int, int, int]:
    (keys,) = [a.block for a in p.axes if a.role == "loop"]
    return max(a.block for a in p.grid), keys, p.warps, p.registers


@pytest.mark.parametrize("width", [64, 128])
def test_tensor_cores_wait_once_for_each_product(width: int) -> None:
    """There is one wait for each product, not for each of its instructions. No register is spilled."""
    f = program("full")
    sass = f.lower(target="cuda:90", B=4, H=16, T=4096, S=4096, D=width, E=width)["sass"]
    assert sass.count("HGMMA") >= 2 * sass.count("WARPGROUP.DEPBAR") and "STL" not in sass


# ---- on a GPU --------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["full", "causal", "capped"])
@pytest.mark.parametrize("width, keys", [(64, 2048), (128, 1024), (64, 2088)])
def test_on_a_gpu(name: str, width: int, keys: int) -> None:
    sizes = {"B": 2, "H": 16, "T": 2048, "S": keys, "D": width, "E": width}
    given = [torch.from_numpy(a.astype(np.float32)).cuda().bfloat16() for a in arrays(name, sizes, "bf16", seed=7)]
    rule = program(name).configured(
        options=mt.Options({"k": 128, "r": 8192 // width}, 8, 2, descriptors=True, registers=128)
    )
    results = [rule(*given) for _ in range(3)]
    before = program(name).configured(options=rule.options, without=["software-pipelining"])(*given)
    assert all(torch.equal(r, results[0]) for r in results)
    torch.testing.assert_close(results[0], before, rtol=2e-2, atol=2e-3)
    if name == "full" and keys % 128 == 0:  # otherwise the short last block is now last and was first before
        assert torch.equal(results[0], before)


def test_every_variant_of_attention_is_tested() -> None:
    assert set(ROTATED) <= set(VARIANTS)
