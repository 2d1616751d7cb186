"""The roofline: bytes and operations of graph, kernels and tiles, the least time on a chip, and a kernel's resources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tracing

import minitri as mt
from minitri.explain import explain
from minitri.explore.kernel_statistics import resources
from minitri.explore.machine_code import MachineCode
from minitri.hardware.chips import blocks_at_once, chip_of, multiprocessor
from minitri.hardware.predicted_work import Work, graph_work, tile_work
from minitri.hardware.roofline import LAUNCH, Roofline, predicted_seconds, roofline
from minitri.hardware.targets import Target
from minitri.profile import profile

EXAMPLES = Path(__file__).parent.parent / "examples"


def roof(text: str, target: str = "cuda:90", **sizes: int) -> Roofline:
    found = roofline(mt.compile(text).lower(target=target, **sizes).compilation)
    assert found is not None
    return found


def test_bytes_and_operations_of_a_vector_addition() -> None:
    found = roof("def f(x: f32[N], y: f32[N]):\n    return x + y\n", N=1000)
    assert found.graph.needed == Work(8000, 4000, {"f32": 1000})
    (kernel,) = found.kernels
    assert (kernel.needed.bytes, kernel.needed.total, kernel.needed.intensity) == (12000, 1000, 1 / 12)
    assert kernel.asked is not None and kernel.asked.bytes == 12000 and kernel.asked.total >= 1000
    assert found.chip is not None and kernel.floor(found.chip) == ("memory", 12000 / 4.8e12)


def test_tiles_of_a_product_load_their_operands_several_times() -> None:
    low = mt.compile("x @ w", x="f16[512, 256]", w="f16[256, 1024]").lower().compilation
    (program,) = low.value("tile.masked")
    blocks = {a.name: a.block for a in program.grid}
    rows, columns = (512 // blocks["i"], 1024 // blocks["j"])
    asked = tile_work(program, {})
    assert asked.read == 2 * (512 * 256 * columns + 256 * 1024 * rows)
    assert asked.written == 512 * 1024 * 2
    assert asked.operations == {"f16": 2 * 512 * 256 * 1024}


def test_unread_elements_do_not_count() -> None:
    graph = mt.compile("exp(x[:, 0]) + 1", x="f32[64, 100]").lower().compilation.value("graph.simplified")
    assert graph_work(graph, {}) == Work(256, 256, {"f32": 128, "special": 64})
    table = mt.compile("w[i]", w="f32[5000, 16]", i="i64[7]").lower().compilation.value("graph.simplified")
    assert graph_work(table, {}).read == 7 * 16 * 4 + 7 * 8


@pytest.mark.parametrize("name", tracing.SIZES)
def test_each_stage_moves_at_least_the_bytes_of_the_stage_before(name: str) -> None:
    low = tracing.compiled(name).lower(**tracing.SIZES[name])
    found = roofline(low.compilation)
    assert found is not None
    total = found.total
    assert total.asked is not None
    assert found.graph.needed.bytes <= total.needed.bytes <= total.asked.bytes
    assert set(found.graph.needed.operations) <= set(total.needed.operations)


def test_a_reduction_over_a_long_row_reads_it_twice() -> None:
    found = roof("def f(x: f32[M, N]):\n    return softmax(x)\n", M=4096, N=200_000)
    asked = found.total.asked
    assert asked is not None and asked.read == 2 * found.total.needed.read


def test_measured_time_is_compared_with_the_least_time() -> None:
    low = mt.compile("x + 1", x="f32[1000000]").lower().compilation
    page = explain(low, {"k0": 4e-6})
    assert "measured  reached" in page and "4.00 µs      42%" in page
    assert "measured" not in explain(low)


def test_measured_times_are_of_their_own_kernels() -> None:
    f, x = mt.compile("cumulative_sum(x), sum(x)", x="f32[N]"), np.ones(20001, np.float32)
    measured = profile(f, x=x, repeats=1).measured
    assert "  reached\n" in f.explain(x, measured=measured, target="interpreter")
    for page, why in [
        (f.explain(x, measured=measured), "they are of Triton's interpreter, and this is cuda:90"),
        (f.explain(x[1:], measured=measured, target="interpreter"), "they are of a call with other sizes"),
        (f.explain(x, measured=measured, target="interpreter", options=mt.Options(warps=8)), "of another schedule"),
        (f.explain(np.ones(40002, np.float32)[::2], measured=measured, target="interpreter"), "other strides"),
    ]:
        (line,) = [line for line in page.splitlines() if line.startswith("measured times are left out: ")]
        assert why in line and "  reached" not in page


def test_time_is_predicted_from_bytes_operations_and_waves() -> None:
    """A copy of 4.8 GB takes at least a thousandth of a second at peak rate. 33 programs leave 99 of 132
    multiprocessors idle.
    """
    h200, amd = chip_of(Target.parse("h200")), chip_of(Target.parse("hip:gfx90a"))
    moves, nothing = Work(2_400_000_000, 2_400_000_000), Work(0, 0)
    assert 1e-3 < predicted_seconds(moves, nothing, 10_000, h200) < 1.3e-3
    product = Work(0, 0, {"f16": 10**12})
    full, quarter = (predicted_seconds(nothing, product, n, h200) - LAUNCH for n in (132, 33))
    assert quarter == pytest.approx(4 * full)
    assert predicted_seconds(moves, product, 132, h200) == max(
        predicted_seconds(moves, nothing, 132, h200), predicted_seconds(nothing, product, 132, h200)
    )
    assert predicted_seconds(moves, product, 132, amd) is None  # there is no data sheet of it


def test_skipped_blocks_do_not_count() -> None:
    """Of a triangle of 32 by 32 blocks, a program computes (1 + ... + 32) / 32 on average."""
    text = "softmax(where(arange(T)[:, None] >= arange(T), q @ k.mT, -inf), axis=-1) @ v"
    types = dict.fromkeys("qkv", "bf16[B, T, D]")
    options = mt.Options(blocks={"i": 128, "r": 128})

    def asked(without: list[str]) -> Work:
        program = mt.compile(text, **types).configured(options=options, without=without)
        found = roofline(program.lower(target="cuda:90", B=64, T=4096, D=64).compilation)
        assert found is not None and found.total.asked is not None
        return found.total.asked

    causal, full = asked([]), asked(["skip-blocks"])
    assert causal.operations["f16"] == pytest.approx(full.operations["f16"] * 33 / 64, rel=0.02)


def test_an_empty_program_computes_nothing() -> None:
    found = roof("def f(x: f32[M, N]):\n    return softmax(x)\n", M=0, N=5)
    assert found.chip is not None
    assert [(r.needed.total, r.needed.bytes, r.floor(found.chip)) for r in (found.graph, *found.kernels)] == [
        (0, 0, ("", 0.0))
    ] * 2
    assert found.total.asked == Work(0, 0)


def test_unknown_sizes_and_chips() -> None:
    assert roofline(mt.compile("x + 1", x="f32[N]").lower().compilation) is None
    found = roof("def f(x: f32[N]):\n    return x + 1\n", "cuda:86", N=100)
    assert found.chip is None and "no peak rates are known" in str(found)


def test_a_program_loaded_from_tiles_has_no_kernels_to_count() -> None:
    low = mt.compile("x + 1", x="f32[100]").lower()
    assert roofline(mt.load(low["tile"], "tile").lower().compilation) is None
    assert roofline(mt.load(low["kernels"], "kernels").lower().compilation) is not None


LIMITS = [
    # warps, registers, shared -> blocks: the occupancy that NVIDIA's calculator gives
    ("cuda:80", 4, 32, 0, 16),
    ("cuda:90", 8, 255, 0, 1),
    ("cuda:90", 4, 128, 0, 4),
    ("cuda:90", 1, 16, 0, 32),
    ("cuda:90", 4, 32, 100 * 1024, 2),
    ("cuda:90", 8, 32, 227 * 1024, 1),
    ("cuda:86", 4, 32, 0, 12),
    ("cuda:75", 8, 64, 32 * 1024, 2),
]


@pytest.mark.parametrize(("target", "warps", "registers", "shared", "blocks"), LIMITS)
def test_occupancy(target: str, warps: int, registers: int, shared: int, blocks: int) -> None:
    limits = multiprocessor(Target.parse(target))
    assert limits is not None
    assert min(blocks_at_once(limits, warps, registers, shared).values()) == blocks


# ---- resources -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_resources_of_a_product(target: str) -> None:
    low = mt.compile(EXAMPLES / "matmul.mt").lower(target=target, **tracing.SIZES["matmul"])
    (found,) = resources(MachineCode(low.compilation))
    assert found.kernel == "k0" and 16 <= found.registers <= 512 and found.shared > 0
    assert found.instructions["matrix"] > 0 and found.instructions["global memory"] > 0
    assert found.blocks is not None and found.occupancy is not None and 0 < found.occupancy <= 1
    assert found.occupancy == 1 or found.bound in ("registers", "shared memory", "registers and shared memory")


def test_resources_of_an_addition() -> None:
    low = mt.compile("x + y", x="f32[4096]", y="f32[4096]").lower()
    (found,) = resources(MachineCode(low.compilation))
    assert (found.shared, found.local, found.spills) == (0, 0, 0)
    assert found.instructions["float"] > 0 and "matrix" not in found.instructions
    instructions = [line for line in low["sass"].split("\n") if "\t" in line]
    assert sum(found.instructions.values()) == len(instructions)


def test_a_kernel_with_too_many_registers_spills() -> None:
    options = mt.Options(blocks={"i": 64, "j": 128}, warps=1)  # 256 sums per thread
    low = mt.compile("x.mT + y", x="f32[512, 512]", y="f32[512, 512]").lower(options=options)
    (found,) = resources(MachineCode(low.compilation))
    assert found.spills > 0 and found.local > 0 and found.occupancy is not None and found.occupancy < 1


def test_the_interpreter_has_no_resources() -> None:
    low = mt.compile("x + 1", x="f32[8]").lower(target="interpreter")
    assert resources(MachineCode(low.compilation)) == ()
