"""The descriptions of chips (minitri/hardware/): their figures and sources, and cost models that use the target's
chip.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from scheduled import scheduled

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.hardware import chips
from minitri.hardware.chips import CHIPS, GENERIC, H200, Chip, chip_of, multiprocessor, peak, shared_bytes
from minitri.hardware.targets import ARCHITECTURES, GPUS, TARGETS, Target
from minitri.kernels.ir import Kernel
from minitri.optimize import dequantised_product_cost, program_order
from minitri.optimize.schedules import products
from minitri.optimize.split_k import split_products
from minitri.optimize.split_kv import split_loops
from minitri.optimize.split_reduction import split_reductions
from minitri.optimize.split_scan import split_scans
from minitri.runtime import timing
from minitri.runtime.schedule_search import propose

HALF = replace(H200, multiprocessors=H200.multiprocessors // 2)
SMALL = replace(H200, shared=99 << 10)  # the shared memory of a program on an RTX card
EVERY = {**CHIPS, **GENERIC}
TABLES = tomllib.loads(Path(chips.__file__).with_name("chips.toml").read_text(encoding="utf-8"))
ROWS = {**TABLES["chips"], **TABLES["generic"]}


# ---- the figures -------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(EVERY))
def test_every_figure_has_a_source(name: str) -> None:
    """Each figure has a source, or a reason why it is not known."""
    chip, row = EVERY[name], ROWS[name]
    assert row.keys() - {"architecture"} | {"shared", "warps"} == {f.name for f in fields(Chip)}
    for figure, entry in row.items():
        if figure not in ("name", "architecture"):
            source = entry["source"]
            assert source and source.startswith("None: ") == (getattr(chip, figure) is None), figure


@pytest.mark.parametrize("name", list(CHIPS))
def test_figures_are_in_proportion(name: str) -> None:
    """A wrong unit would make a figure a thousand times too large or too small."""
    chip = CHIPS[name]
    assert chip.peak is not None
    rates: Any = chip.peak.rates
    assert rates["f16"] > rates["tf32"] >= rates["f32"] > rates["f64"] and rates["f32"] > rates["special"]
    assert 1e12 <= chip.peak.bandwidth < 1e13 and 1e13 < rates["f32"] < rates["f16"] < 1e16
    assert 100 < chip.multiprocessors < 400 and 1 << 14 < chip.l1 < 1 << 20
    assert chip.l2 is None or chip.l1 < chip.l2 <= timing.CACHE_BYTES


def test_a_program_has_no_more_shared_memory_than_its_multiprocessor() -> None:
    for name, chip in CHIPS.items():
        limits = multiprocessor(Target.parse(name))
        assert chip.shared == shared_bytes(Target.parse(name))
        assert limits is None or chip.shared <= limits.shared


# ---- the chip of a target ----------------------------------------------------------------


def test_a_gpu_is_a_target() -> None:
    assert CHIPS.keys() == GPUS.keys()
    for name, chip in CHIPS.items():
        target = Target.parse(name)
        assert str(target) == name and Target.parse(str(target)) == target
        assert chip_of(target) is chip and peak(target) is chip.peak
        assert f"{target.kind}:{target.arch}" in TARGETS


def test_the_error_for_an_unknown_gpu_guesses_or_lists_the_known_ones() -> None:
    for name, words in {"rtx4091": ["did you mean `rtx4090`?"], "banana": ["rtx4090", "cuda:90", "gfx942"]}.items():
        with pytest.raises(CompileError) as caught:
            Target.parse(name)
        assert caught.value.code == "MT0402" and all(word in str(caught.value.help) for word in words)
        assert ("cuda:90" in str(caught.value.help)) == (name == "banana")


@pytest.mark.parametrize("text", TARGETS)
def test_an_architecture_gets_the_generic_chip(text: str) -> None:
    """It has the limits of the architecture. Only for Hopper it is the chip that was measured."""
    target = Target.parse(text)
    chip, generic = chip_of(target), GENERIC[target.kind]
    if text == "cuda:90":
        assert chip is H200
    else:
        limits = multiprocessor(target)
        shared, warps = shared_bytes(target) or generic.shared, limits.warps if limits else generic.warps
        assert chip == replace(generic, shared=shared, warps=warps) and chip.peak is None


def test_an_undescribed_architecture_gets_the_generic_chip() -> None:
    assert "130" not in ARCHITECTURES["cuda"] and "gfx9999" not in ARCHITECTURES["hip"]
    assert chip_of(Target("cuda", "130")) == GENERIC["cuda"] and chip_of(Target("hip", "gfx9999")) == GENERIC["hip"]
    assert peak(Target("cuda", "130")) is None


def test_a_named_gpu_is_compiled_for_its_architecture() -> None:
    """An H200 gets the same text as `cuda:90`. An A100 has fewer multiprocessors than the generic chip of cuda:80."""
    f = mt.compile("sum(x, axis=1)", x="f32[R, L]")
    texts = {t: f.lower(R=4, L=1 << 22, target=t)["triton"] for t in ("cuda:90", "h200", "cuda:80", "a100")}
    assert texts["h200"] == texts["cuda:90"]
    low = f.lower(R=4, L=1 << 22, target="a100")
    assert low.target == "a100" and low.stages == f.lower(R=4, L=1 << 22, target="cuda:80").stages
    assert _parts("a100") < _parts("cuda:80")
    assert "A100 SXM 80 GB" in f.explain(R=4, L=1 << 22, target="a100")


# ---- cost models that use the chip -------------------------------------------------------


def _parts(target: str, text: str = "sum(x, axis=1)", x: str = "f32[4, 4194304]", **types: str) -> int:
    (split, *_) = mt.compile(text, x=x, **types).lower(target=target).compilation.value("graph.simplified").splits
    return split.parts


SPLITTING = (split_reductions, split_loops, split_products, split_scans)
SPLIT_PROGRAMS = [  # text, types; the program is computed in parts
    ("sum(x, axis=1)", {"x": "f32[4, 4194304]"}),
    ("sum(x, axis=0)", {"x": "f32[4194304, 64]"}),
    ("cumulative_sum(x, axis=1)", {"x": "f32[4, 4194304]"}),
    ("x @ w", {"x": "f16[128, 16384]", "w": "f16[16384, 512]"}),
    ("x @ (w.astype(f16) * s)", {"x": "f16[64, 4096]", "w": "i8[4096, 4096]", "s": "f16[4096]"}),
    ("softmax(q @ k.mT, axis=-1) @ v", {"q": "f16[8, 8, 64]", "k": "f16[8, 32768, 64]", "v": "f16[8, 32768, 64]"}),
]


@pytest.mark.parametrize(("text", "types"), SPLIT_PROGRAMS)
def test_half_a_chip_needs_fewer_parts(text: str, types: dict[str, str]) -> None:
    graph = mt.compile(text, **types).lower(target="cuda:90").compilation.value("graph.packed")
    whole, half = (reduce(lambda g, split: split(g, chip), SPLITTING, graph).splits for chip in (H200, HALF))
    assert whole and sum(s.parts for s in half) < sum(s.parts for s in whole)


def _kernel(text: str, **types: str) -> Kernel:
    return mt.compile(text, **types).lower(target="cuda:90").compilation.value("kernels").kernels[0]


def test_a_persistent_kernel_has_a_program_for_each_multiprocessor() -> None:
    kernel = _kernel("x @ w", x="bf16[8192, 8192]", w="bf16[8192, 8192]")
    chosen = [scheduled(kernel, chip=chip).persistent for chip in (H200, HALF)]
    assert chosen[0] > HALF.multiprocessors >= chosen[1] > 0
    assert products.programs(1000, HALF) <= HALF.multiprocessors < products.programs(1000, H200)


def test_tiles_fit_the_shared_memory_of_the_chip() -> None:
    kernel = _kernel("x @ w", x="bf16[4096, 4096]", w="bf16[4096, 4096]")
    large, small = (scheduled(kernel, chip=chip) for chip in (H200, SMALL))
    assert (large.stages, large.axes) != (small.stages, small.axes)
    assert len(propose(_plan(kernel), False, "full", SMALL)) < len(propose(_plan(kernel), False, "full", H200))


def _plan(kernel: Kernel) -> Any:
    plan = mt.compile("x + 1", x="f32[8]").lower().compilation.value("kernels")
    return replace(plan, kernels=(kernel,))


def test_blocks_of_attention_fit_the_chip() -> None:
    types = {name: "f32[4, 512, 128]" for name in "qkv"}
    kernel = _kernel("softmax(q @ k.mT, axis=-1) @ v", **types)
    large, small = (scheduled(kernel, chip=chip) for chip in (H200, replace(H200, shared=40 << 10)))
    assert (large.stages, large.axes) != (small.stages, small.axes)


def test_attention_has_large_tiles_only_if_they_fill_the_chip() -> None:
    types = {name: "bf16[16, 2048, 64]" for name in "qkv"}
    kernel = _kernel("softmax(q @ k.mT, axis=-1) @ v", **types)
    rows = [scheduled(kernel, chip=replace(H200, multiprocessors=n)).axes["j"][1] for n in (132, 600)]
    assert rows == [128, 64]


def test_a_row_is_read_again_if_the_cache_holds_it() -> None:
    kernel = _kernel("softmax(x, axis=1)", x="f16[4096, 24576]")
    assert scheduled(kernel).near and not scheduled(kernel, chip=replace(H200, l1=32 << 10)).near


def test_the_number_of_multiprocessors_decides_what_few_columns_are() -> None:
    kernel = _kernel("sum(x, axis=0)", x="f32[64, 16384]")
    found = [scheduled(kernel, chip=replace(H200, multiprocessors=n)).axes["r"] for n in (132, 16)]
    assert found == [("whole", 64), ("loop", 32)]


def test_programs_have_half_of_the_warps_if_a_few_programs_would_start_last() -> None:
    """There are 11,264 warps. A chip runs 8,448 of them at once, or 6,336, or 12,672."""
    kernel = _kernel("log_softmax(log(abs(tanh(x)) + 1), axis=0)", x="f32[32, 90112]")
    assert [scheduled(kernel, chip=replace(H200, warps=n)).warps for n in (64, 48, 96)] == [4, 8, 8]


def test_a_group_has_as_many_tiles_as_run_at_once() -> None:
    text = "softmax(where(arange(T) <= arange(T)[:, newaxis], q @ k.mT, -inf), axis=-1) @ v"
    types = {name: "bf16[H, T, 64]" for name in "qkv"}
    low = mt.compile(text, **types).lower(H=64, T=1024, target="cuda:90")
    (program,) = low.compilation.value("tile.rotated")
    groups = [program_order.order(program, chip).group for chip in (H200, HALF)]
    assert groups[0] == 2 * groups[1] > 0


def test_a_larger_chip_gets_more_parts_of_a_mixed_product() -> None:
    found = [dequantised_product_cost.choose(chip, 1, 64, 4096, 4096).parts for chip in (HALF, H200)]
    assert found[0] < found[1]
