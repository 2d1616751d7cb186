"""The pass skip-blocks: which blocks of keys a masked product visits and where it evaluates the mask, compared with
numpy.

tests/test_attention.py tests the values. Here, no block may be visited and no mask evaluated without need.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stages import SMALL

import minitri as mt
from minitri.base.dims import Symbol, axis, size
from minitri.explain import explain
from minitri.optimize.skip_blocks.condition_ranges import SAMPLES, average_steps
from minitri.optimize.skip_blocks.skip import ends_in_block
from minitri.tiles.ir import Loop

T, S, BLOCK = 64, 96, 16
MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "i >= j": lambda i, j: i >= j,
    "i > j": lambda i, j: i > j,
    "i <= j": lambda i, j: i <= j,
    "i < j": lambda i, j: i < j,
    "j <= i + 15": lambda i, j: j <= i + 15,
    "i + 16 >= j": lambda i, j: i + 16 >= j,
    "i - 17 < j": lambda i, j: i - 17 < j,
    "i - 17 >= j": lambda i, j: i - 17 >= j,
    "j >= i - 1": lambda i, j: j >= i - 1,
    "-i >= -j": lambda i, j: -i >= -j,
    "(i >= j) & (j >= 20)": lambda i, j: (i >= j) & (j >= 20),
    "(j >= 0) & (j < 33)": lambda i, j: j < 33,
    "j >= 16": lambda i, j: j >= 16,
    "j > 16": lambda i, j: j > 16,
    "j <= 15": lambda i, j: j <= 15,
    "abs(i - j) <= 31": lambda i, j: abs(i - j) <= 31,
    "abs(i - j) < 32": lambda i, j: abs(i - j) < 32,
    "abs(i - j) < 33": lambda i, j: abs(i - j) < 33,
    "abs(j - i - 8) <= 23": lambda i, j: abs(j - i - 8) <= 23,
    "(i - j >= -20) & (i - j < 26)": lambda i, j: (i - j >= -20) & (i - j < 26),
    "(i - j > -32) & (i - j <= 32)": lambda i, j: (i - j > -32) & (i - j <= 32),
    "~(i < j)": lambda i, j: i >= j,
    "~((i < j) | (j < 20))": lambda i, j: (i >= j) & (j >= 20),
    "(j < 33) | (j < 20)": lambda i, j: j < 33,
    "i == j": lambda i, j: i == j,
    "j + j <= i": lambda i, j: 2 * j <= i,
    "2 * j <= i": lambda i, j: 2 * j <= i,
    "i >= 3 * j - 5": lambda i, j: i >= 3 * j - 5,
    "(i >= j) & (i < 40)": lambda i, j: (i >= j) & (i < 40),
    "(i >= j) & (i + 8 >= 40)": lambda i, j: (i >= j) & (i + 8 >= 40),
}  # fmt: skip
# Only a part of these conditions depends on indices. It bounds the loop, and all blocks evaluate the condition.
IN_PART: dict[str, Callable[[Any, Any], Any]] = {
    "(i >= j) & there": lambda i, j: i >= j,
    "there & (i >= j)": lambda i, j: i >= j,
    "(i <= j) & there": lambda i, j: i <= j,
    "abs(i * i - j) < 5": lambda i, j: i == i,
    "i * i - 2 >= j": lambda i, j: i == i,
    "2 - i * i >= -j": lambda i, j: i == i,
    "-(i * i) <= j": lambda i, j: i == i,
    "abs(i - j) < i * i": lambda i, j: i == i,
    "i // 2 >= j": lambda i, j: i == i,
    "there": lambda i, j: i == i,
}


def visited(condition: str, other: str = "-inf", **known: int) -> dict[int, list[tuple[int, bool]]]:
    """For each block of rows: the visited blocks of keys, and whether each one evaluates the mask."""
    text = condition.replace("i", "arange(T)[:, None]").replace("j", "arange(S)")
    f = mt.compile(
        f"softmax(where({text}, q @ k.mT, {other}), axis=-1) @ v",
        q="f32[B, T, D]", k="f32[B, S, D]", v="f32[B, S, D]", **({"there": "bool[T, S]"} if "there" in condition else {}),
    ).configured(options=SMALL)  # fmt: skip
    (program,) = f.lower(D=16, **(known or {"B": 2, "T": T, "S": S})).compilation.value("tile").programs
    rows = program.axis("i") if program.axis("i").block > 1 else program.axis("j")
    loops = [s for s in program.body if isinstance(s, Loop)]
    assert rows.block == program.axis(loops[0].axes[0]).block == BLOCK
    found: dict[int, list[tuple[int, bool]]] = {}
    for start in range(0, T, BLOCK):
        env = {Symbol(f"{rows.name}_start", "axis"): start, Symbol("T"): T, Symbol("S"): S}
        found[start] = []
        for loop in loops:
            first, last = (int(d.substitute(env)) if d is not None else e for d, e in ((loop.first, 0), (loop.last, S)))
            tested = any(op.dtype.kind == "b" and loop.axes[0] in op.axes for op in loop.body)
            found[start] += [(k, tested) for k in range(first, last, BLOCK)]
    return {start: sorted(blocks) for start, blocks in found.items()}  # the last piece of a loop runs first


def wanted(seen: Callable[[Any, Any], Any]) -> dict[int, list[tuple[int, bool]]]:
    i, j = np.arange(T)[:, None], np.arange(S)
    mask = np.broadcast_to(seen(i, j), (T, S)).reshape(T // BLOCK, BLOCK, S // BLOCK, BLOCK).swapaxes(1, 2)
    some, every = mask.any((2, 3)), mask.all((2, 3))
    return {
        row * BLOCK: [(k * BLOCK, not every[row, k]) for k in range(S // BLOCK) if some[row, k]]
        for row in range(T // BLOCK)
    }


@pytest.mark.parametrize("condition", list(MASKS))
def test_the_visited_blocks_are_those_with_unmasked_elements(condition: str) -> None:
    assert visited(condition) == wanted(MASKS[condition])


@pytest.mark.parametrize("condition", list(IN_PART))
def test_a_partly_known_condition_bounds_the_loop(condition: str) -> None:
    blocks = {row: [(k, True) for k, _ in keys] for row, keys in wanted(IN_PART[condition]).items()}
    assert visited(condition) == blocks


@pytest.mark.parametrize("other", ["0.0", "-1e9", "inf", "nan"])
def test_blocks_that_change_the_result_are_visited(other: str) -> None:
    """Only a masked score of -inf changes nothing. Any other value counts."""
    everywhere = {row: [(k, True) for k in range(0, S, BLOCK)] for row in range(0, T, BLOCK)}
    assert visited("i >= j", other) == everywhere


@pytest.mark.parametrize("condition", ["i >= j", "i + 16 >= j", "i - j < S - T", "abs(i - j) < 32"])
def test_blocks_are_skipped_for_symbolic_sizes(condition: str) -> None:
    seen = MASKS.get(condition, lambda i, j: i - j < S - T)
    assert visited(condition, B=2) == wanted(seen)


def test_the_bounds_of_an_expression_in_a_block() -> None:
    """Bounds are in terms of the start of a grid block. Other axes, and products of indices, have none."""
    f = mt.compile("softmax(q @ k.mT) @ v", q="f32[T, D]", k="f32[S, D]", v="f32[S, E]").configured(options=SMALL)
    (program,) = f.lower(T=37, S=50, D=16, E=24).compilation.value("tile")
    assert [(a.name, a.role) for a in program.axes] == [("i", "grid"), ("r", "loop"), ("s", "whole"), ("j", "whole")]
    i, n = axis("i"), size("N")
    assert [str(ends_in_block(program, d)) for d in (i, 3 - 2 * i, i + n, n, i // 2)] == [
        "(i_start, i_start + 15)",
        "(-2*i_start - 27, 3 - 2*i_start)",
        "(N + i_start, N + i_start + 15)",
        "(N, N)",
        "(i_start//2, (i_start + 1)//2 + 7)",
    ]
    for d in (axis("r"), axis("s"), axis("j"), i + axis("s"), i * i):
        assert ends_in_block(program, d) is None


# ---- the remaining part of a loop ------------------------------------------------------------


@pytest.mark.parametrize("condition", [*MASKS, *IN_PART])
def test_the_average_number_of_remaining_steps(condition: str) -> None:
    """Equals numpy's count for the sampled rows, over the part of the condition that depends on indices alone."""
    text = condition.replace("i", "arange(T)[:, None]").replace("j", "arange(S)")
    there = {"there": f"bool[{T}, {S}]"} if "there" in condition else {}
    types = {"q": f"f32[{T}, 16]", "k": f"f32[{S}, 16]", "v": f"f32[{S}, 16]"} | there
    f = mt.compile(
        f"softmax(where({text}, q @ k.mT, -inf), axis=-1) @ v".replace("(T)", f"({T})").replace("(S)", f"({S})"),
        **types,
    )
    (kernel,) = f.lower(target="cuda:90").compilation.plan.kernels
    loop = next(a for a in kernel.reduced if a.extent == S)
    row = next(a for a in kernel.parallel if a.extent == T)
    i, j = np.arange(T)[:, None], np.arange(S)
    exact = MASKS | {"there": lambda i, j: i == i}
    known = np.broadcast_to(exact.get(condition, lambda i, j: i != i)(i, j), (T, S))
    rows = [T * (2 * k + 1) // (2 * SAMPLES) for k in range(SAMPLES)]
    assert average_steps(kernel, row, loop, T, S) == sum(int(known[r].sum()) for r in rows) // SAMPLES


TILES = {  # mask, heads, length, width, and the rows of a tile
    "causal, far": ("i >= j", 64, 4096, 128, 128), "causal, near": ("i >= j", 64, 2048, 128, 128),
    "causal, narrow": ("i >= j", 64, 4096, 64, 128), "causal, near and narrow": ("i >= j", 64, 1024, 64, 64),
    "a window": ("(i >= j) & (i - j < 512)", 64, 4096, 128, 128), "a narrow window": ("(i >= j) & (i - j < 512)", 64, 4096, 64, 64),
    "half a wave": ("j >= 0", 6, 4096, 128, 64), "most of a wave": ("j >= 0", 8, 4096, 128, 128),
    "one wave of uneven rows": ("i >= j", 8, 4096, 128, 64), "two waves": ("i >= j", 16, 4096, 128, 128),
    "two programs for each multiprocessor": ("i >= j", 16, 4096, 64, 128), "fewer than two programs for each multiprocessor": ("i >= j", 8, 4096, 64, 64),
    "scores that also depend on indices": ("(i >= j) & (i * j % 3 > 0)", 64, 4096, 128, 64), "all": ("j >= 0", 64, 1024, 128, 128),
    "keys that blocks do not divide": ("j >= 0", 64, 4090, 128, 256), "near, with keys that blocks do not divide": ("i >= j", 64, 2042, 128, 64),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TILES))
def test_tiles_are_small_if_few_blocks_remain(name: str) -> None:
    condition, heads, length, d, rows = TILES[name]
    text = condition.replace("i", "arange(T)[:, None]").replace("j", "arange(T)")
    f = mt.compile(f"softmax(where({text}, q @ k.mT, -inf), axis=-1) @ v", **{x: "bf16[H, T, D]" for x in "qkv"})
    (tiles,) = f.lower(target="cuda:90", H=heads, T=length, D=d).compilation.value("tile").programs
    assert max(a.block for a in tiles.grid) == rows


SCORES_BY_PLACE = {  # for a triangle: scores, and the rows of a tile
    "a where of other scores": ("where({0} >= 0, s, s * 2)", 64), "a distance": ("where({0} >= 0, s - {0}.astype(bf16), -inf)", 64),
    "a distance in f32": ("where({0} >= 0, s.astype(f32) - {0}.astype(f32), -inf)", 64), "a mask as well": ("where(({0} >= 0) & m, s, -inf)", 64),
    "lengths": ("where(arange(T) < n[:, None, None], s, -inf)", 64), "a triangle": ("where({0} >= 0, s, -inf)", 128),
    "scores from memory": ("where(m, s, -inf)", 128),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SCORES_BY_PLACE))
def test_tiles_are_small_if_scores_also_depend_on_indices(name: str) -> None:
    """More is computed for each score then, and a large tile would not fit into registers."""
    text, rows = SCORES_BY_PLACE[name]
    text = text.format("(arange(T)[:, None] - arange(T))")
    more = {"m": "bool[T, T]"} if re.search(r"\bm\b", text) else {"n": "i32[H]"} if "n[" in text else {}
    f = mt.compile(
        "def f(" + ", ".join(f"{x}: {t}" for x, t in ({x: "bf16[H, T, 128]" for x in "qkv"} | more).items())
        + f"):\n    s = q @ k.mT\n    return softmax({text}) @ v\n"
    )  # fmt: skip
    tiles = f.lower(target="cuda:90", H=64, T=4096).compilation.value("tile").programs[-1]
    assert max(a.block for a in tiles.grid) == rows


def test_explain_gives_the_remaining_part_of_the_loop() -> None:
    f = mt.compile(
        "softmax(where(arange(T)[:, None] >= arange(T), q @ k.mT, -inf)) @ v", **{x: "bf16[H, T, 64]" for x in "qkv"}
    )
    said = "schedule: rows of a product stay with a program, which walks r"
    known, unknown = (explain(f.lower(target="cuda:90", **s).compilation) for s in ({"H": 64, "T": 4096}, {}))
    assert f"{said}: of its 4096 indices conditions leave 2049 to a row" in known
    assert said in unknown and "conditions leave" not in unknown
