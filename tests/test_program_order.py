"""The pass program-order: programs with the most work start first, and a second loop starts with the last block."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minitri as mt
from minitri.explain import explain
from minitri.runtime.call_binding import bind
from minitri.tiles.text import parse_programs
from minitri.trust.check_passes import check

ATTENTION = "softmax(where({}, q @ k.mT * 0.1, -inf)) @ v"
BACK = "arange(T)[:, None] - arange(T)"
TYPES = {x: "bf16[B, H, T, 64]" for x in "qkv"}
MASKS = {  # the order of the grid
    "causal": (f"{BACK} >= 0", ["group 8", "descending"]),
    "causal, with swapped operands": ("arange(T) <= arange(T)[:, None]", ["group 8", "descending"]),
    "keys after the row": (f"{BACK} <= 0", []),
    "fewer keys for later rows": ("arange(T)[:, None] + arange(T) <= T", []),
    "more keys for later rows": ("arange(T)[:, None] + arange(T) >= T", ["group 8", "descending"]),
    "window": (f"({BACK} >= 0) & ({BACK} < 512)", []),
    "none": ("isfinite(q @ k.mT)", []),
}


def head(f: mt.Program, **sizes: int) -> str:
    """The hints of the first kernel."""
    (line,) = re.findall(r"^program k0\(.*\) (warps.*) \{$", f.lower(target="cuda:90", **sizes)["tile"], re.M)
    return line


@pytest.mark.parametrize("name", list(MASKS))
def test_grids_with_uneven_work_run_longest_first(name: str) -> None:
    mask, hints = MASKS[name]
    assert order_hints(head(mt.compile(ATTENTION.format(mask), **TYPES), B=4, H=16, T=4096)) == hints


def order_hints(hints: str) -> list[str]:
    return re.findall(r"group \d+|descending|returning", hints)


def test_a_group_has_the_tiles_that_run_at_once() -> None:
    f = mt.compile(ATTENTION.format(MASKS["causal"][0]), **TYPES)
    found = {T: head(f, B=2, H=80, T=T) for T in (128, 1024, 16384, 65536)}
    groups = {T: int(m[1]) if (m := re.search(r"group (\d+)", h)) else 1 for T, h in found.items()}
    assert groups == {128: 128, 1024: 16, 16384: 2, 65536: 1}
    assert "group" not in head(f.configured(options=mt.Options(group=1)), B=2, H=80, T=1024)
    assert "group 8" in head(f) and "group 3" in head(f.configured(options=mt.Options(group=3)), B=2, H=80, T=128)
    alone = mt.compile(ATTENTION.format(MASKS["causal"][0]), **{x: "bf16[T, 64]" for x in "qkv"})
    for T in (1024, 65536):
        assert order_hints(head(alone, T=T)) == ["descending"]


def test_the_emitted_order_of_tiles() -> None:
    f = mt.compile(ATTENTION.format(MASKS["causal"][0]), **TYPES)
    assert "k_tile = 31 - (tile % (8 * 32)) // height" in f.lower(target="cuda:90", B=4, H=16, T=4096)["triton"]
    assert "k_tile = s1 - 1 - (tile % (8 * s1)) // height" in f.lower(target="cuda:90")["triton"]
    alone = mt.compile(ATTENTION.format(MASKS["causal"][0]), **{x: "bf16[T, 64]" for x in "qkv"})
    assert "_tile = 511 - tile" in alone.lower(target="cuda:90", T=65536)["triton"]


def test_the_stage_text_has_the_order() -> None:
    low = mt.compile(ATTENTION.format(MASKS["causal"][0]), **TYPES).lower(target="cuda:90", B=4, H=16, T=4096)
    again = parse_programs(low["tile"], masked=False)
    assert again.programs[0].descending


@pytest.mark.parametrize("options", [{}, {"group": 2}, {"persistent": 3}], ids=str)
@pytest.mark.parametrize("heads, length", [(1, 1), (3, 70), (5, 64), (9, 33)])
def test_each_tile_is_computed_once(heads: int, length: int, options: dict[str, int]) -> None:
    f = mt.compile(ATTENTION.format(MASKS["causal"][0]), **{x: "f32[B, H, T, 16]" for x in "qkv"})
    f = f.configured(options=mt.Options({"k": 16, "r": 16}, **options))
    random = np.random.default_rng(heads)
    given = [random.standard_normal((2, heads, length, 16)).astype(np.float32) for _ in "qkv"]
    np.testing.assert_allclose(f(*given), f.numpy(*given), rtol=1e-4, atol=1e-5)


def test_explain_gives_the_reason() -> None:
    f = mt.compile(ATTENTION.format(MASKS["causal"][0]), **TYPES)
    wanted = "order: k from its end on, where loops are longer, 8 of i side by side"
    assert wanted in explain(f.lower(target="cuda:90", B=4, H=16, T=4096).compilation)
    assert "order:" not in explain(
        mt.compile("x @ w", x="f16[M, K]", w="f16[K, N]").lower(target="cuda:90").compilation
    )


# ---- second loops over the same blocks ---------------------------------------------------

REVERSED = {  # programs with a second loop over the same axis that has no accumulator
    "softmax(x)": True, "x - mean(x, axis=1, keepdims=True)": True, "softmax(x, axis=0)": True,
    "sum(x, axis=1)": False, "var(x, axis=1)": False, "cumulative_sum(x, axis=1)": False,
    "cumulative_sum(x, axis=1) / sum(x, axis=1, keepdims=True)": False, "x * 2": False,
}  # fmt: skip


@pytest.mark.parametrize("text", list(REVERSED))
def test_a_second_loop_reads_blocks_in_reverse_order(text: str) -> None:
    f = mt.compile(text, x="f32[M, N]")
    low = f.lower(target="cuda:90")
    assert (" returning {" in low["tile"]) is REVERSED[text] is bool(re.search(r"range\(s\d, -BLOCK_", low["triton"]))
    assert ("what is read a second time from its end on" in explain(low.compilation)) is REVERSED[text]
    assert parse_programs(low["tile"], masked=False).programs[0].returning is REVERSED[text]


def test_the_reversed_loop_starts_at_the_last_block() -> None:
    f = mt.compile("softmax(x)", x="f32[M, N]").configured(options=mt.Options({"j": 4096}, 8))
    for n, start in ((100_000, 98_304), (98_304, 94_208), (98_305, 98_304)):
        assert f"range({start}, -BLOCK_J, -BLOCK_J)" in f.lower(target="cuda:90", M=300, N=n)["triton"]


@pytest.mark.parametrize("shape", [(3, 0), (0, 70), (3, 1), (3, 16), (3, 17), (3, 70)], ids=str)
@pytest.mark.parametrize("text", ["softmax(x + 1)", "x - sum(x, axis=1, keepdims=True)", "softmax(x, axis=0)"])
def test_reversed_loops_are_right_at_every_stage(text: str, shape: tuple[int, int]) -> None:
    if 0 in shape and "sum" not in text:
        shape = (shape[0] or 1, shape[1] or 1)
    f = mt.compile(text, x="f32[M, N]").configured(options=mt.Options({"i": 16, "j": 16}))
    report = check(
        f,
        bind(f.function, [np.random.default_rng(0).normal(size=shape).astype(np.float32)], {}),
        ("interpreter", "cuda"),
    )
    assert report.ok, report
