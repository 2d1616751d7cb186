"""The schedules that the rules choose, at the sizes where a rule changes its decision: one golden table.

tests/goldens/schedules.txt is made from `CASES`, for people to read: a line for each kernel gives the role and block
of every axis, and the rule. The constants of minitri/tiles/schedule.py or rows.py change only speed, not results. So
only this test notices a wrong constant. After an intended change run `pytest tests/test_schedules.py --update-golden`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduled import scheduled
from stages import SPLITS

import minitri as mt
from minitri.base.operators import OPERATORS
from minitri.optimize.schedules.block_sizes import ENOUGH, at_most
from minitri.optimize.schedules.long_bodies import instructions
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Loop
from minitri.tiles.schedule import Options, Schedule
from minitri.tiles.verify import verify
from minitri.trust.check_passes import check

Sizes = dict[str, int]


def sizes(**given: list[int]) -> list[Sizes]:
    """One dictionary for each position of the lists."""
    return [dict(zip(given, row)) for row in zip(*given.values())]


MN = "f32[M, N]"
LENGTHS = [1, 100, 512, 1000, 1023, 1024, 1025, 1536, 2048, 2049, 4096, 8192, 16384, 16385, 32768, 32769, 100_000]
ROWS = [{"M": 4096, "N": n} for n in LENGTHS] + sizes(M=[1, 3, 100], N=[256, 256, 4])
CASES: list[tuple[str, dict[str, str], list[Sizes]]] = [
    ("x + 1", {"x": "f32[N]"}, [{"N": n} for n in (1, 3, 1024, 1025, 4096)] + [{}]),
    ("x + 1", {"x": "f16[N]"}, [{"N": n} for n in (1024, 2048, 4096)]),
    ("x + 1", {"x": "f32[]"}, [{}]),
    ("x + b", {"x": MN, "b": "f32[N]"}, sizes(M=[1, 4096, 4096, 7, 4096], N=[4096, 1, 32, 1000, 4096]) + [{}]),
    ("x + b[:, None]", {"x": "f16[M, N]", "b": "f64[M]"}, sizes(M=[4096], N=[4096])),
    ("x.mT + 1", {"x": MN}, sizes(M=[4096, 4096, 3, 64, 65], N=[4096, 3, 4096, 64, 65]) + [{}]),
    ("x.mT + 1", {"x": "f16[M, N]"}, sizes(M=[4096, 100], N=[4096, 100])),
    ("x.mT + y + z + v + u + w + t + s + r", {"x": MN} | dict.fromkeys("yzvuwtsr", "f32[N, M]"), sizes(M=[4096], N=[4096])),
    ("x.mT + y + z + v + u + w + t", {"x": MN} | dict.fromkeys("yzvuwt", "f32[N, M]"), sizes(M=[4096], N=[4096])),
    ("x.mT + y + z + v + u + w + t + s", {"x": MN} | dict.fromkeys("yzvuwts", "f32[N, M]"), sizes(M=[4096], N=[4096])),
    ("permute_dims(x, (1, 0, 2)) + 1", {"x": "f32[M, N, K]"}, sizes(M=[64], N=[64], K=[64])),
    ("sum(x, axis=1)", {"x": MN}, [*ROWS, {}]),
    ("sum(x, axis=1)", {"x": "f16[M, N]"}, sizes(M=[4096] * 6, N=[256, 777, 1024, 4096, 32768, 65536])),
    ("sum(x, axis=1)", {"x": "i8[M, N]"}, sizes(M=[4096] * 3, N=[777, 4096, 32768]) + [{}]),
    ("mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])", {"z": "bf16[M, N]", "y": "i64[M]"},
     sizes(M=[300] * 5, N=[777, 2048, 4100, 8192, 32768])),
    ("softmax(x)", {"x": MN}, [*ROWS, {}]),
    ("softmax(x)", {"x": "bf16[M, N]"}, sizes(M=[4096] * 9, N=[777, 1024, 4096, 4100, 8192, 20_000, 32768, 40_000, 65536])),
    ("softmax(x)", {"x": "f64[M, N]"}, sizes(M=[4096] * 4, N=[1024, 8192, 32768, 65536])),
    ("logsumexp(x, axis=1)", {"x": MN}, sizes(M=[4096] * 3, N=[32768, 40_000, 100_000]) + [{}]),
    ("logsumexp(x, axis=1)", {"x": "f16[M, N]"}, sizes(M=[4096], N=[100_000])),
    ("argmax(x, axis=1)", {"x": MN}, sizes(M=[4096] * 5, N=[777, 2048, 2049, 4096, 100_000]) + [{}]),
    ("argmax(x, axis=1)", {"x": "bf16[M, N]"}, sizes(M=[4096] * 2, N=[777, 4096])),
    ("x[:, 0] + argmax(x, axis=1)", {"x": MN}, sizes(M=[4096], N=[4096])),
    ("x + argmax(x, axis=1, keepdims=True)", {"x": MN}, sizes(M=[4096] * 2, N=[4096, 40_000])),
    ("cumulative_sum(x, axis=1)", {"x": MN}, sizes(M=[4096] * 3, N=[1024, 32768, 40_000]) + [{}]),
    ("sum(x, axis=(1, 2))", {"x": "f32[M, N, K]"}, sizes(M=[64] * 4, N=[8, 300, 1 << 16, 3], K=[8, 300, 4, 1 << 16]) + [{}]),
    ("x - max(x, axis=(0, 2), keepdims=True)", {"x": "f32[M, N, K]"}, sizes(M=[64, 1 << 10], N=[8, 8], K=[8, 1 << 10])),
    ("sum(x[:, ::-1], axis=1)", {"x": MN}, sizes(M=[4096], N=[4096])),
    ("sum(x + y.mT + z.mT, axis=1)", {"x": "f64[M, N]", "y": "f16[N, M]", "z": "f16[N, M]"}, sizes(M=[4096], N=[4096])),
    ("logsumexp(x, axis=(0, 2))", {"x": "f32[M, N, K]"}, sizes(M=[1 << 10, 8], N=[8, 8], K=[1 << 10, 1 << 17])),
    ("sum(x, axis=(0, 2))", {"x": "f32[A, B, C, D]"}, sizes(A=[64, 3], B=[600, 600], C=[64, 600], D=[600, 600]) + [{}]),
    ("sum(x)", {"x": MN}, sizes(M=[7, 1 << 12], N=[9, 1 << 12])),
    ("sum(x, axis=0)", {"x": MN}, sizes(M=[4096, 4096, 4096, 8, 16, 17, 1], N=[4096, 3, 65, 4096, 64, 64, 64]) + [{}]),
    ("sum(x, axis=0)", {"x": "bf16[M, N]"}, sizes(M=[4096] * 3, N=[4096, 4100, 777]) + [{}]),
    ("softmax(x, axis=0)", {"x": "bf16[M, N]"}, sizes(M=[4096], N=[4096])),
    ("sum(x, axis=(0, 1))", {"x": "f32[M, N, K]"}, sizes(M=[64, 4], N=[64, 3], K=[64, 64]) + [{}]),
    ("sum(x, axis=(0, 2))", {"x": "f32[M, K, N]"}, sizes(M=[64], N=[3], K=[512])),
    ("x @ w", {"x": "f16[M, K]", "w": "f16[K, N]"},
     sizes(M=[16, 100, 2048, 4096, 8192, 64, 127, 1536, 1408, 1536, 128, 16896, 16896, 16768, 64], N=[16, 100, 2048, 4096, 8192, 8192, 1 << 17, 1536, 1536, 2816, 33792, 256, 128, 256, 128], K=[16, 8, 2048, 64, 512, *[64] * 10]) + [{}]),
    ("w @ (x * y)", {"w": "f16[M, K]", "x": "f16[B, K, N]", "y": "f16[B, K, N]"}, sizes(B=[1460] * 2, M=[64] * 2, N=[777] * 2, K=[3, 17])),
    ("(x @ w).mT * 2", {"x": "f16[M, K]", "w": "f16[K, N]"}, sizes(M=[8192, 2048], N=[1024, 512], K=[4096, 1024])),
    ("x @ w", {"x": "f32[M, K]", "w": "f32[K, N]"}, sizes(M=[3, 4096], N=[5, 4096], K=[7, 4096]) + [{}]),
    ("x @ w", {"x": "f64[M, K]", "w": "f64[K, N]"}, sizes(M=[3, 4096], N=[5, 4096], K=[7, 4096])),
    ("x @ w", {"x": "f16[B, M, K]", "w": "f16[B, K, N]"}, sizes(B=[4], M=[512], N=[512], K=[64])),
    ("(x @ w) * (x @ v)", {"x": "f16[M, K]", "w": "f16[K, N]", "v": "f16[K, N]"}, sizes(M=[64, 4096, 8192], N=[128, 4096, 8192], K=[64, 64, 64])),
]  # fmt: skip


def said(chosen: Schedule) -> str:
    axes = ", ".join(f"{name} {role} {block}" for name, (role, block) in chosen.axes.items()) or "no axes"
    group = f" group {chosen.group}" if (chosen.group or 1) > 1 else ""
    return f"{axes}; warps {chosen.warps} stages {chosen.stages}{group}; {chosen.rule}"


def rows() -> Iterator[str]:
    for text, types, each in CASES:
        f = mt.compile(text, **types)
        yield f"\n{text}    {', '.join(f'{n}: {t}' for n, t in types.items())}"
        for known in each:
            at = ", ".join(f"{n} = {size}" for n, size in known.items()) or "any size"
            for kernel in f.lower(without=(*SPLITS, "output-layouts"), **known).compilation.value("kernels").kernels:
                yield f"  {at:28} gpu          {said(scheduled(kernel))}"
                yield f"  {'':28} interpreter  {said(scheduled(kernel, interpreter=True))}"


def test_schedules(golden: Callable[[str, str], None]) -> None:
    golden("schedules", "\n".join(rows()).strip() + "\n")


SHORT: list[tuple[str, dict[str, str], dict[str, int], int]] = [  # text, types, blocks, warps
    ("permute_dims(x, (0, 2, 3, 1))", {"x": "f32[32, 3, 512, 512]"}, {"j": 1024, "l": 4}, 8),
    ("x.T", {"x": "f32[10000000, 3]"}, {"i": 4, "j": 1024}, 8),
    ("x.T", {"x": "f32[3, 10000000]"}, {"i": 1024, "j": 4}, 8),
    ("x.mT", {"x": "f32[100000, 4, 300]"}, {"i": 8, "j": 128, "k": 4}, 8),
    ("x.mT", {"x": "f32[100000, 31, 30]"}, {"i": 2, "j": 32, "k": 32}, 8),
    ("x.mT", {"x": "f32[1000000, 4, 8]"}, {"i": 1024}, 4),  # small matrices
    ("x.mT", {"x": "f16[1000000, 5, 8]"}, {"i": 2048}, 4),
    ("x.T + y + b", {"x": "f32[1023, 4096]", "y": "f32[4096, 1023]", "b": "f32[1023]"}, {"i": 16, "j": 128}, 8),
    ("x.T + y + b", {"x": "bf16[1023, 4097]", "y": "bf16[4097, 1023]", "b": "bf16[1023]"}, {"i": 32, "j": 64}, 8),
    ("x + b[:, None]", {"x": "f32[1000000, 3, 4]", "b": "f32[3]"}, {"i": 64, "j": 4, "k": 4}, 4),
    ("sum(x, axis=1)", {"x": "f32[1000000, 8, 4]"}, {"i": 32, "j": 4, "r": 8}, 4),
    ("argmax(x, axis=1)", {"x": "f32[1000000, 8, 4]"}, {"i": 32, "j": 4, "r": 8}, 4),
    ("cumulative_sum(x, axis=1)", {"x": "f32[1000000, 8, 4]"}, {"i": 32, "k": 4, "j": 8}, 4),
    ("cumulative_sum(x * c, axis=1)", {"x": "f32[10, 256, 4096]", "c": "f32[256, 1]"}, {"k": 16, "j": 256}, 4),
    ("cumulative_sum(x, axis=1)", {"x": "f32[10, 128, 4096]"}, {"k": 32, "j": 128}, 4),
    ("mean(x, axis=1)", {"x": "f32[1000000, 16, 3]"}, {"i": 16, "j": 4, "r": 16}, 4),
    ("softmax(x, axis=1)", {"x": "f32[100000, 10, 4]"}, {"i": 16, "k": 4, "j": 16}, 4),
    ("softmax(x + b)", {"x": "f32[1000000, 2, 16]", "b": "f32[2, 16]"}, {"i": 32, "j": 2, "k": 16}, 4),
    ("max(x, axis=(1, 3))", {"x": "f32[100000, 4, 3, 4]"}, {"i": 16, "j": 4, "r": 4, "s": 4}, 1),
    ("x + b", {"x": "f32[1000, 528]", "b": "f32[528]"}, {"i": 8, "j": 128}, 4),
    ("softmax(x + b)", {"x": "f32[1000, 3, 200]", "b": "f32[3, 200]"}, {"i": 4, "k": 256}, 1),
    ("var(x, axis=0)", {"x": "f32[250, 4096]"}, {"i": 32, "r": 256}, 8),
    ("var(x, axis=0)", {"x": "f32[450, 24]"}, {"i": 8, "r": 512}, 4),
]  # fmt: skip
RAGGED = [
    ("x.T", "{n}, {m}"), ("x.mT", "{n}, {m}, 3"), ("permute_dims(x, (2, 0, 1))", "{n}, 2, {m}"), ("x + b[:, None]", "{n}, {m}, 3"),
    *((f"{name}(x, axis=1)", "{n}, {m}, 3") for name in ("sum", "argmax", "cumulative_sum", "softmax")),
    ("softmax(x + b[:, None])", "{n}, {m}, 3"), ("max(x, axis=(1, 3))", "{n}, {m}, 2, 3"), ("var(x, axis=(0, 2))", "{n}, {m}, 3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "types", "blocks", "warps"), SHORT)
def test_short_axes_share_a_program(text: str, types: dict[str, str], blocks: dict[str, int], warps: int) -> None:
    """If the axes that a rule blocks are short, the block includes more of other axes, so that a program has enough
    work.
    """
    (kernel,) = mt.compile(text, **types).lower(target="cuda:90").compilation.value("kernels").kernels
    chosen = scheduled(kernel)
    assert {name: block for name, (_, block) in chosen.axes.items() if block > 1} == blocks
    assert chosen.warps == warps and math.prod(blocks.values()) >= ENOUGH


@pytest.mark.parametrize("m", [1, 3, 5])
@pytest.mark.parametrize("n", [0, 1, 3, 17, 300])
@pytest.mark.parametrize(("text", "shape"), RAGGED)
def test_short_axes_are_right_at_every_stage(text: str, shape: str, n: int, m: int) -> None:
    types = {"x": f"f32[{shape.format(n=n, m=m)}]"} | ({"b": f"f32[{m}]"} if " b" in text else {})
    shapes = [tuple(map(int, re.findall(r"\d+", t[3:]))) for t in types.values()]
    given = [np.random.default_rng(k).integers(-9, 9, s).astype(np.float32) for k, s in enumerate(shapes)]
    f = mt.compile(text, **types)
    report = check(f, bind(f.function, given, {}), ("cuda",))
    assert report.ok, report


@pytest.mark.parametrize(("text", "types", "elements"), [
    ("log(x)[:, ::2]", {"x": "bf16[57925, 128]"}, 512), ("log(x)[:, ::2]", {"x": "f32[57925, 128]"}, 512),
    ("x[:, ::-2] * 2", {"x": "bf16[4096, 1000]"}, 512), ("x[:, 1:] * 2", {"x": "bf16[4096, 1026]"}, 2048),
    ("log(x)[:, ::16]", {"x": "bf16[57925, 4096]"}, 2048),  # each element is alone in a sector of 32 bytes
    # of four loads, the memory serves two, and the L1 cache serves all
    ("(x[:, :1025] - m[:1025]) * tanh(x[:, 1025:] - m[1025:])", {"x": "bf16[32768, 2050]", "m": "bf16[2050]"}, 512),
    ("(x[:, :1025] - m[:1025]) * tanh(x[:, 1025:] - m[1025:])", {"x": "f32[32768, 2050]", "m": "f32[2050]"}, 1024),
    ("x[:, :1025] * tanh(x[:, 1025:])", {"x": "bf16[32768, 2050]"}, 2048),
])  # fmt: skip
def test_a_tile_is_small_if_one_instruction_loads_elements_that_are_far_apart(
    text: str, types: dict[str, str], elements: int
) -> None:
    (kernel,) = mt.compile(text, **types).lower(target="cuda:90").compilation.value("kernels").kernels
    assert math.prod(block for _, block in scheduled(kernel).axes.values()) == elements


STRIDED = [
    # three contiguous axes: of x, of y and of the result
    ("permute_dims(concat((x, y.mT), axis=2), (2, 1, 0)) * z", {"x": "bf16[64, 2048, 200]", "y": "bf16[64, 200, 2048]", "z": "bf16[400, 2048, 64]"},
     {"i": 16, "j": 16, "k": 32}),
    ("permute_dims(concat((x, y.mT), axis=2), (2, 1, 0)) * z", {"x": "f32[64, 2048, 200]", "y": "f32[64, 200, 2048]", "z": "f32[400, 2048, 64]"},
     {"i": 8, "j": 8, "k": 32}),
    # neighbouring elements of c lie 256 bytes apart, and all indices k need them again
    ("x - permute_dims(c, (1, 2, 0))", {"x": "f32[64, 127, 4090]", "c": "f32[4090, 64, 1]"}, {"i": 1, "j": 16, "k": 64}),
    ("permute_dims(concat((x, y.mT), axis=2), (2, 1, 0)) * z", {"x": "bf16[32, 32, 16]", "y": "bf16[32, 16, 32]", "z": "bf16[32, 32, 32]"},
     {"i": 1, "j": 32, "k": 16}),  # so few elements that tiles of three axes would leave most of the chip idle
    ("x[:, :, ::2] - permute_dims(c, (1, 2, 0))", {"x": "f32[64, 127, 8180]", "c": "f32[4090, 64, 1]"}, {"i": 1, "j": 1, "k": 512}),
    ("x - c.mT", {"x": "f32[64, 127, 4090]", "c": "f32[64, 4090, 1]"}, {"i": 1, "j": 1, "k": 1024}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "types", "blocks"), STRIDED)
def test_a_tile_uses_all_elements_of_a_sector(text: str, types: dict[str, str], blocks: dict[str, int]) -> None:
    (kernel,) = mt.compile(text, **types).lower(target="cuda:90").compilation.value("kernels").kernels
    assert {name: block for name, (_, block) in scheduled(kernel).axes.items()} == blocks


STRIDED_RESULTS = [
    ("permute_dims(concat((x, y.mT), axis=2), (2, 1, 0)) * z", (100, 101, 110), 3),  # just enough elements
    ("permute_dims(concat((x, y.mT), axis=2), (2, 1, 0)) * z", (68, 23, 11), 2),
    ("x - permute_dims(c, (1, 2, 0))", (9, 17, 70), 2), ("x - permute_dims(c, (1, 2, 0))", (8, 33, 130), 2),
    ("x - permute_dims(c, (1, 2, 0))", (33, 18, 16), 3), ("x - permute_dims(c, (1, 2, 0))", (1, 1, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sizes", "blocked"), STRIDED_RESULTS)
def test_strided_tiles_are_right_at_every_stage(text: str, sizes: tuple[int, int, int], blocked: int) -> None:
    """`blocked`: along how many axes a tile has several elements."""
    a, b, n = sizes
    shapes = {"x": (a, b, n), "y": (a, n, b), "z": (2 * n, b, a), "c": (n, a, 1)}
    shapes = {name: shape for name, shape in shapes.items() if re.search(rf"\b{name}\b", text)}
    f = mt.compile(text, **{name: f"f32[{', '.join(map(str, shape))}]" for name, shape in shapes.items()})
    (kernel,) = f.lower(target="cuda:90").compilation.value("kernels").kernels
    assert sum(block > 1 for _, block in scheduled(kernel).axes.values()) == blocked
    given = [np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in shapes.values()]
    given[0].flat[-1] = np.nan
    report = check(f, bind(f.function, tuple(given), {}), ("cuda",), shrinking=False)
    assert report.ok, report


def test_few_elements_have_few_warps() -> None:
    sizes = (
        ("x + 1", "300", 4),
        ("x + 1", "200", 2),
        ("x + 1", "3", 1),
        ("x.T", "3, 5", 1),
        ("sum(x, axis=1)", "2, 3, 5", 1),
    )
    for text, shape, warps in sizes:
        (kernel,) = mt.compile(text, x=f"f32[{shape}]").lower().compilation.value("kernels").kernels
        assert scheduled(kernel).warps == warps, (text, shape)


def test_the_number_of_warps_is_a_power_of_two() -> None:
    """Triton compiles no others. A block of 15 small matrices had 7 warps."""
    assert at_most(8, {"i": 15, "j": 8, "k": 8}) == 4
    (program,) = mt.compile("x.mT", x="f32[2000, 8, 8]").lower(target="cuda:90").compilation.value("tile").programs
    program = replace(program, warps=7)
    with pytest.raises(ValueError, match="7, is no power of two"):
        verify(program, False)


@pytest.mark.parametrize(("text", "x", "warps"), [
    ("sum(exp(x), axis=1)", "f32[65536, 256]", 1), ("sum(sin(x), axis=1)", "f32[65536, 256]", 2), ("sum(x ** 2.7, axis=1)", "f32[65536, 256]", 1),
    ("sum(exp(x), axis=1)", "bf16[65536, 256]", 1), ("sum(cos(x), axis=1)", "bf16[65536, 256]", 4),
    ("sum(x ** 2.7, axis=1)", "bf16[65536, 256]", 2),
])  # fmt: skip
def test_long_bodies_get_more_warps(text: str, x: str, warps: int) -> None:
    """A thread has fewer than 32 elements, or at most 2560 instructions."""
    (program,) = mt.compile(text, x=x).lower(target="cuda:90").compilation.value("tile").programs
    assert program.warps == warps


def test_long_bodies_of_columns_get_more_warps() -> None:
    """With one warp, a thread had 128 elements, and its registers were spilled to memory (random program bf16 100/41)."""
    text = "def f(x: bf16[33554432]):\n    y = stack((gelu(x), sigmoid(x) * tanh(x)), axis=0)\n    return (y - mean(y, axis=0)) * rsqrt(var(y, axis=0) + 1e-5)\n"
    (program,) = mt.compile(text).lower(target="cuda:90").compilation.value("tile").programs
    assert program.warps >= 2 and "columns held whole" in mt.compile(text).explain()


@pytest.mark.parametrize(("text", "types"), [
    ("sin(x).mT + y", {"x": "bf16[4096, 4096]", "y": "bf16[4096, 4096]"}), ("gelu(x).mT + y", {"x": "bf16[4096, 4096]", "y": "bf16[4096, 4096]"}),
    ("sum(sin(x) * tan(x) * cos(x), axis=1)", {"x": "bf16[512, 16384]"}), ("std(sin(x) * tan(x), axis=0)", {"x": "f32[16, 100000]"}),
])  # fmt: skip
def test_long_bodies_fit_gpus_whose_warps_have_64_threads(text: str, types: dict[str, str]) -> None:
    programs = mt.compile(text, **types).lower(target="hip:gfx942").compilation.value("tile").programs
    assert all(p.warps * 64 <= 1024 for p in programs)


@pytest.mark.parametrize("text", ["sin(x)", "cos(x)", "tan(x)", "x ** y", "exp(x)", "log(x)", "erf(x)", "tanh(x)"])
def test_counted_instructions_are_those_of_machine_code(text: str) -> None:
    """The table of operators names the operators that take many more instructions than others."""

    def count(text: str) -> float:
        f = mt.compile(text, x="f32[4096]", y="f32[4096]")
        low = f.lower(target="cuda:90", options=Options(blocks={"i": 1024}, warps=4))
        return low["sass"].count(";") / 8  # a thread has 8 elements

    (operator,) = [op for op in OPERATORS.values() if text.startswith(f"{op.name}(") or f" {op.symbol} " in text]
    found, wanted = count(text) - count("x + y"), instructions(operator.name)
    assert found / 1.5 < wanted < found * 1.5 or not operator.instructions and found < 3 * wanted


def test_columns_of_two_arrays_get_more_warps() -> None:
    """With more warps, as many bytes of each array are loaded at the same time."""
    for text, types, warps in (
        ("x @ w", {"x": "bf16[1, 4096]", "w": "bf16[4096, 4096]"}, 8),
        ("sum(w, axis=0)", {"w": "bf16[16384, 8192]"}, 4),
        ("sum(w * x, axis=0)", {"x": "bf16[16384, 8192]", "w": "bf16[16384, 8192]"}, 8),
    ):
        first = mt.compile(text, **types).lower(target="cuda:90").compilation.value("tile").programs[0]
        assert first.warps == warps and any(isinstance(s, Loop) for s in first.body)


@pytest.mark.parametrize(("text", "x", "block", "warps"), [
    ("sum(x, axis=0)", "f32[2, 1048576]", 512, 4), ("sum(x, axis=0)", "f32[4, 524288]", 256, 2), ("sum(x, axis=0)", "bf16[4, 524288]", 256, 1),
    ("softmax(x, axis=0)", "f32[8, 4194304]", 64, 1), ("softmax(x, axis=1)", "bf16[256, 8, 16384]", 128, 1),
    ("softmax(x, axis=1)", "bf16[64, 32, 16384]", 128, 2), ("softmax(x, axis=1)", "f32[64, 33, 16384]", 32, 2),
    ("sum(x, axis=0)", "f32[17, 65536]", 64, 8), ("softmax(x, axis=0)", "f32[4, 65536]", 128, 1),
    ("softmax(x, axis=1)", "f32[64, 197, 777]", 32, 8), ("softmax(x, axis=1)", "bf16[64, 256, 1024]", 32, 4), ("softmax(x, axis=1)", "bf16[64, 257, 1024]", 64, 2),
    ("softmax(x, axis=1)", "bf16[64, 4, 99999]", 256, 4), ("sum(x, axis=1)", "f32[1000000, 8, 4]", 4, 4),
    ("sum(x, axis=1)", "bf16[32, 3, 50176]", 512, 1), ("sum(x, axis=1)", "f32[32, 16, 50176]", 128, 1), ("var(x, axis=1)", "f32[32, 3, 50176]", 512, 2),
    ("var(x, axis=1)", "bf16[32, 8, 50176]", 512, 2), ("var(x, axis=1)", "f32[32, 16, 50176]", 64, 1),
    ("softmax(x, axis=0)", "bf16[128, 262144]", 64, 4), ("softmax(x, axis=1)", "bf16[4096, 128, 96]", 32, 2), ("softmax(x, axis=0)", "bf16[128, 65536]", 32, 2), ("softmax(x, axis=0)", "f32[128, 262144]", 32, 4),
])  # fmt: skip
def test_few_warps_hold_short_columns(text: str, x: str, block: int, warps: int) -> None:
    """Columns of up to 32 elements if they are only reduced, and of up to 256 elements if they are also written."""
    (kernel,) = mt.compile(text, x=x).lower(target="cuda:90").compilation.value("kernels").kernels
    chosen = scheduled(kernel)
    assert (chosen.axes[kernel.parallel[-1].name][1], chosen.warps) == (block, warps)


@pytest.mark.parametrize(("text", "x", "blocks", "warps"), [
    ("var(x[..., :128], axis=1)", "bf16[8, 3, 512, 136]", {"j": 8, "k": 128, "r": 4}, 2), ("sum(x[..., :128], axis=1)", "f32[8, 3, 512, 136]", {"j": 4, "k": 128, "r": 4}, 1),
    ("var(x[..., :24], axis=1)", "f32[800, 3, 512, 136]", {"j": 8, "k": 32, "r": 4}, 4), ("cumulative_sum(x[..., :32], axis=1)", "f32[80, 64, 512, 136]", {"k": 1, "l": 32, "j": 64}, 2),
])  # fmt: skip
def test_short_rows_share_a_program_that_reduces_columns(text: str, x: str, blocks: dict[str, int], warps: int) -> None:
    """Rows of 128 elements with gaps: a program of one row would have a few elements for each thread."""
    (kernel,) = mt.compile(text, x=x).lower(target="cuda:90").compilation.value("kernels").kernels
    chosen = scheduled(kernel)
    assert ({a: chosen.axes[a][1] for a in blocks}, chosen.warps) == (blocks, warps)


@pytest.mark.parametrize(("x", "rows"), [
    ("f32[64, 25]", 8), ("f32[64, 256]", 2), ("f32[128, 128]", 4), ("f32[40, 1000]", 1), ("f32[4096, 128]", 8), ("f32[M, 128]", 8),
])  # fmt: skip
def test_a_few_rows_are_divided_among_multiprocessors(x: str, rows: int) -> None:
    """The programs of a few rows would otherwise leave most of the chip idle."""
    (kernel,) = mt.compile("sum(x, axis=1)", x=x).lower(target="cuda:90").compilation.value("kernels").kernels
    assert scheduled(kernel).axes["i"] == ("grid", rows)


@pytest.mark.parametrize(("text", "loop"), [
    ("var(reshape(x[..., :388], (512, 2, 24832)), axis=-1)", (2048, 8)), ("var(reshape(x, (512, 2, 49728)), axis=-1)", (8192, 4)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_loop_with_an_address_for_each_element_has_small_blocks(text: str, loop: tuple[int, int], dtype: str) -> None:
    """The index has the quotient r//388, so that neighbouring elements have no common address."""
    plan = mt.compile(text, x=f"{dtype}[512, 128, 777]").lower(target="cuda:90").compilation.value("kernels")
    chosen = scheduled(plan.kernels[0])
    assert (chosen.axes["r"], chosen.warps) == (("loop", loop[0]), loop[1])


@pytest.mark.parametrize(("text", "x", "expected"), [
    ("sum(gelu(x) * tanh(softplus(x)), axis=1)", "f32[4096, 16384]", ({"r": ("loop", 2048), "i": ("grid", 1)}, 8)),
    ("sum(gelu(x) * tanh(softplus(x)), axis=1)", "f32[4096, 1024]", ({"r": ("whole", 1024), "i": ("grid", 1)}, 4)),
    ("sum(gelu(x) * tanh(softplus(x)), axis=1)", "bf16[4096, 16384]", ({"r": ("whole", 16384), "i": ("grid", 1)}, 16)),
    ("sum(gelu(x), axis=1)", "f32[4096, 16384]", ({"r": ("whole", 16384), "i": ("grid", 1)}, 8)),
    ("sum(tanh(x), axis=1)", "f32[16, 2048, 1024]", ({"i": ("grid", 1), "j": ("grid", 32), "r": ("loop", 64)}, 8)),
    ("cumulative_sum(x, axis=0)", "f32[4096, 65536]", ({"j": ("grid", 64), "i": ("loop", 16)}, 1)),
])  # fmt: skip
def test_a_thread_has_few_elements_if_each_takes_long(text: str, x: str, expected: tuple[Any, int]) -> None:
    kernel = mt.compile(text, x=x).lower(target="cuda:90").compilation.value("kernels").kernels[0]
    chosen = scheduled(kernel)
    assert (dict(chosen.axes), chosen.warps) == expected


@pytest.mark.parametrize(
    ("columns", "warps"), [(65536, 8), (67584, 8), (67648, 4), (96000, 4), (101376, 4), (101440, 8)]
)
def test_programs_of_costly_columns_run_at_once_if_half_of_the_warps_suffice(columns: int, warps: int) -> None:
    """1056 programs of 64 columns and 8 warps run at once, or 2112 programs of 4 warps."""
    f = mt.compile("softmax(1 / (1 + exp(-log(abs(x) + 1))), axis=0)", x=f"f32[32, {columns}]")
    (kernel,) = f.lower(target="h200").compilation.value("kernels").kernels
    assert scheduled(kernel).warps == warps


@pytest.mark.parametrize(("text", "x", "block", "warps"), [
    ("sum(x, axis=1)", "f32[132, 50257]", 8192, 32), ("sum(x, axis=1)", "bf16[100, 50257]", 8192, 32),
    ("sum(x, axis=1)", "f32[133, 50257]", 4096, 16), ("sum(x, axis=1)", "f32[264, 50257]", 4096, 16),
    ("sum(x, axis=1)", "f32[265, 50257]", 2048, 8), ("sum(x, axis=1)", "f64[132, 50257]", 2048, 8),
    ("logsumexp(x, axis=1)", "f32[96, 50257]", 8192, 32), ("logsumexp(x, axis=1)", "f32[300, 50257]", 8192, 4),
    ("argmax(x, axis=1)", "f32[96, 50257]", 8192, 32), ("argmax(x, axis=1)", "f32[300, 50257]", 512, 8),
    ("softmax(x)", "bf16[96, 50257]", 8192, 32), ("cumulative_sum(x, axis=1)", "f32[128, 50257]", 8192, 32),
    ("cumulative_sum(x, axis=1)", "bf16[1600, 50257]", 4096, 4), ("cumulative_sum(x, axis=1)", "f32[300, 100001]", 4096, 4),
    ("sum(x, axis=(0, 2))", "f32[96, 99, 512]", 8192, 32), ("sum(x, axis=1)", "f32[N, 50257]", 2048, 8),
    ("sum(x, axis=1)", "f32[96, N]", 2048, 8),
])  # fmt: skip
def test_few_programs_of_long_rows_have_many_warps(text: str, x: str, block: int, warps: int) -> None:
    """A program that has a multiprocessor for itself has 32 warps, and a program that shares it with another has 16."""
    compiled = mt.compile(text, x=x).lower(target="cuda:90", without=SPLITS).compilation
    chosen = scheduled(compiled.value("kernels").kernels[0])
    looped = [block for role, block in chosen.axes.values() if role == "loop"]
    assert (math.prod(looped), chosen.warps) == (block, warps)


@pytest.mark.parametrize(
    "text", ["var(x, axis=1)", "argmax(x, axis=1)", "softmax(x)", "cumulative_sum(x, axis=1)", "sum(x, axis=1)"]
)
def test_few_programs_of_long_rows_are_right_at_every_stage(text: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 33001)).astype(np.float32)
    f = mt.compile(text, x="f32[3, 33001]").configured(without=SPLITS)
    report = check(f, bind(f.function, [x], {}), ("cuda",))
    assert report.ok, report


@pytest.mark.parametrize(("shape", "warps"), [("32, 262144", 2), ("32, 16384", 8), ("16, 262144", 1)])
def test_a_division_of_columns_by_one_value_takes_few_instructions(shape: str, warps: int) -> None:
    text = "log_softmax(log(abs(x / y) + 1), axis=0)"
    (kernel,) = (
        mt.compile(text, x=f"f32[{shape}]", y="f32[1]").lower(target="cuda:90").compilation.value("kernels").kernels
    )
    assert scheduled(kernel).warps == warps
    dear = "log_softmax(log(abs(tanh(x)) + 1), axis=0)"
    (kernel,) = mt.compile(dear, x=f"f32[{shape}]").lower(target="cuda:90").compilation.value("kernels").kernels
    assert scheduled(kernel).warps == (8 if shape.startswith("32") else 4)


def test_a_long_row_with_a_short_last_axis_has_blocks_of_both_axes() -> None:
    (first, _) = mt.compile("sum(x, axis=(0, 2))", x="f32[1000000, 64, 3]").lower().compilation.value("kernels").kernels
    assert {a.name: scheduled(first).axes[a.name] for a in first.reduced} == {"r": ("loop", 64), "s": ("loop", 4)}


@pytest.mark.parametrize("given, expected", [
    ({}, ("whole", 32)), ({"j": 32}, ("whole", 32)), ({"j": 64}, ("whole", 64)), ({"j": 31}, ("whole", 32)),
    ({"j": 16}, ("loop", 16)), ({"j": 9}, ("loop", 16)), ({"j": 1}, ("loop", 1)), ({"i": 3}, ("whole", 32)),
])  # fmt: skip
def test_options_of_the_caller_are_used(given: dict[str, int], expected: tuple[str, int]) -> None:
    """A smaller block turns an axis in registers into a loop, in blocks of a power of two. A grid axis takes any
    number.
    """
    kernel = mt.compile("softmax(x)", x=MN).lower(M=10, N=30).compilation.value("kernels").kernels[0]
    chosen = scheduled(kernel, False, Options(blocks=given, warps=2, stages=5, group=7))
    assert chosen.axes["j"] == expected and chosen.axes["i"] == ("grid", given.get("i", scheduled(kernel).axes["i"][1]))
    assert (chosen.warps, chosen.stages, chosen.group) == (2, 5, 7)


def test_a_product_has_blocks_of_at_least_sixteen() -> None:
    kernel = mt.compile("x @ w", x="f16[B, M, K]", w="f16[B, K, N]").lower().compilation.value("kernels").kernels[0]
    small = scheduled(kernel, False, Options(blocks=dict.fromkeys("ijkr", 4))).axes
    large = scheduled(kernel, False, Options(blocks=dict.fromkeys("ijkr", 64))).axes
    assert sorted(block for _, block in small.values()) == [1, 16, 16, 16]
    assert sorted(block for _, block in large.values()) == [1, 64, 64, 64]


@pytest.mark.parametrize("given", [
    {"blocks": {"i": 2**20}}, {"blocks": {"i": 1}}, {"stages": 16}, {"stages": 1}, {"group": 4096}, {"persistent": 132}, {"descriptors": True}, *({"warps": w} for w in (1, 2, 4, 8, 16, 32)),
])  # fmt: skip
def test_valid_options(given: Any) -> None:
    assert Options(**given)


@pytest.mark.parametrize("given, said", [
    ({"blocks": {"i": 2**20 + 1}}, "the block of `i` cannot be 1048577"), ({"blocks": {"i": 0}}, "cannot be 0"),
    ({"blocks": {"i": -4}}, "cannot be -4"), ({"blocks": {"i": 2.0}}, "cannot be 2.0"), ({"blocks": {"i": True}}, "cannot be True"),
    ({"blocks": {"i": "4"}}, "cannot be 4"), ({"blocks": {"i": [4]}}, "cannot be list"), ({"blocks": 4}, "blocks cannot be int"),
    ({"stages": 17}, "stages cannot be 17"), ({"stages": 0}, "stages cannot be 0"), ({"group": 4097}, "group cannot be 4097"),
    ({"persistent": 0}, "persistent cannot be 0"), ({"persistent": 2**16 + 1}, "persistent cannot be 65537"),
    ({"descriptors": 1}, "descriptors cannot be 1"), ({"warps": 3}, "warps cannot be 3"), ({"warps": 64}, "warps cannot be 64"), ({"warps": True}, "warps cannot be True"),
])  # fmt: skip
def test_invalid_options_are_errors(given: Any, said: str) -> None:
    with pytest.raises(mt.CompileError, match=re.escape(said)) as raised:
        Options(**given)
    assert raised.value.code == "MT0404"


def test_schedules_are_immutable() -> None:
    for value, name in (
        (Options(), "warps"),
        (scheduled(mt.compile("x", x="f32[N]").lower().compilation.value("kernels").kernels[0]), "rule"),
    ):
        with pytest.raises(AttributeError):
            setattr(value, name, 1)


@pytest.mark.parametrize(("target", "most"), [("cuda:90", 227), ("cuda:80", 163), ("cuda:86", 99), ("hip:gfx942", 64)])
@pytest.mark.parametrize("n", [16, 512, 4096])
def test_blocks_of_a_product_fit_a_targets_shared_memory(target: str, most: int, n: int) -> None:
    f = mt.compile("x @ w", x="f16[N, K]", w="f16[K, 4096]")
    (p,) = f.lower(target=target, N=n, K=4096).compilation.value("tile")
    rows, columns, depth = (p.axis(name).block for name in "ijr")
    assert 1 <= (rows + columns) * depth * 2 * p.stages <= most * 1024
