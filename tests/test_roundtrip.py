"""Stages as text: reading a printed text and printing it again gives the same text.

Every stage of goldens, examples and random programs is parsed, verified, printed and evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS
from short_profile import every_second, numbers

import minitri as mt
from minitri.cli.inputs import make_inputs
from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.graph.rewrite import specialise
from minitri.graph.text import format_graph, parse_graph
from minitri.hardware.targets import INTERPRETER
from minitri.kernels.evaluate import evaluate as evaluate_kernels
from minitri.kernels.parse import parse_plan
from minitri.kernels.text import format_plan
from minitri.optimize.collapse_axes import flatten
from minitri.optimize.pass_table import PASSES
from minitri.pipeline import Compilation
from minitri.runtime.call_binding import bind
from minitri.testing import random_program
from minitri.tiles.evaluate import evaluate as evaluate_tile
from minitri.tiles.text import parse_programs

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
STAGES = ("graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target")
LIGHT, FULL = 24, 1500


def parsed(stage: str, text: str) -> Any:
    """The IR of a stage, after its verifier."""
    if stage.startswith("graph"):
        value: Any = parse_graph(text)
    else:
        value = parse_plan(text) if stage == "kernels" else parse_programs(text, stage != "tile")
    row(stage).verify(value)
    return value


def row(stage: str) -> Any:
    return next(p for p in PASSES if p.stage == stage)


def printed(stage: str, text: str) -> str:
    return row(stage).text(parsed(stage, text))


def evaluated(stage: str, value: Any, inputs: Any, sizes: Any) -> tuple[Any, ...]:
    if stage.startswith("graph"):
        return evaluate_graph(value, inputs, sizes)
    if stage == "kernels":
        return evaluate_kernels(value, inputs, sizes)
    return evaluate_tile(value.plan, list(value), inputs, sizes, stage != "tile")


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Compares element by element. NaN equals NaN."""
    return len(a) == len(b) and all(map(alike, a, b))


def alike(x: Any, y: Any) -> bool:
    return x.dtype == y.dtype and (
        np.array_equal(x, y) or np.array_equal(x.astype(np.float64), y.astype(np.float64), equal_nan=True)
    )


# ---- texts that the compiler prints --------------------------------------------------------


def golden_stages() -> Iterator[Any]:
    for path in sorted(GOLDENS.glob("*.txt")):
        blocks = re.findall(r"^---- (?:before|after) .*\n((?:(?!----).*\n?)*)", path.read_text("utf-8"), re.MULTILINE)
        for k, text in enumerate(blocks):
            stage = stage_of(text)
            if stage:
                yield pytest.param(stage, text, id=f"{path.stem}-{k}")


def stage_of(text: str) -> str:
    if text.startswith("graph "):
        return "graph"
    if not text.startswith("plan "):
        return ""
    return "kernels" if "\nkernel " in text else "tile.masked" if "because = " in text else "tile"


@pytest.mark.parametrize(("stage", "text"), list(golden_stages()))
def test_goldens(stage: str, text: str) -> None:
    assert printed(stage, text).strip() == text.strip()


@pytest.mark.parametrize("path, stage", every_second(EXAMPLES, STAGES), ids=lambda v: getattr(v, "stem", v))
def test_examples(path: Path, stage: str) -> None:
    f = mt.compile(path)
    known = make_inputs(f.function, {}, {}).sizes
    for low in (f.lower(), f.lower(**known), f.lower(*make_inputs(f.function, {}, {}).arrays)):
        assert printed(stage, low[stage]) == low[stage]


def compilations(example: Any, seed: int) -> Iterator[tuple[Compilation, Any]]:
    """A random program with symbolic and with known sizes, for a GPU and for the interpreter, and a call of it."""
    f = example.compile()
    call = bind(f.function, example.arguments(seed), {})
    yield f.lower().compilation, call
    yield f.lower(*example.arguments(seed)).compilation, call
    yield f.compilation(f.context(call, INTERPRETER)), call


@pytest.mark.parametrize("seed", numbers(LIGHT, FULL))
def test_random_programs(seed: int) -> None:
    """Text and results stay the same for strides, gathers, accumulators, scans, casts and unusual constants."""
    example = random_program(40_000 + seed)
    for number, (compilation, call) in enumerate(compilations(example, seed)):
        inputs = {n: a.numpy() for n, a in call.arrays.items()} | call.scalars
        for stage in STAGES:
            text = compilation[stage]
            value = parsed(stage, text)
            assert row(stage).text(value) == text
            if number == 1 and stage != "graph":
                with np.errstate(all="ignore"):
                    wanted = evaluated(stage, compilation.value(stage), inputs, call.sizes)
                    assert same(evaluated(stage, value, inputs, call.sizes), wanted), text


def test_an_empty_result_does_not_divide_by_a_size() -> None:
    """A row of N * N elements as N rows of N has the index d1 % N. If N is 0, no element is read."""
    lines = (
        "graph program(x: f32[N, N], i: i64[N]) {",
        "  %0: i64[N, N*N] = view i {index = [d0]}",
        "  %1: f32[N, N*N] = gather x, %0 {index = [@0, d1%N]}",
        "  return %1",
        "}",
    )
    graph = parse_graph("\n".join(lines) + "\n")
    empty = format_graph(specialise(graph, {"N": 0}))
    assert "gather x, %0 {index = [@0, 0]}" in empty
    assert format_graph(parse_graph(empty)) == empty
    assert "d1%7" in format_graph(specialise(graph, {"N": 7}))


# ---- ambiguous texts -----------------------------------------------------------------------

TWO_VIEWS = """\
plan f(y: f32[2, 3, 5]) -> out: f32[2, 3, 5, 2, 3, 5]

kernel k0(input y: f32[2, 3, 5], output out: f32[2, 3, 5, 2, 3, 5]) over i: 2, j: 3, k: 5, l: 2, h: 3, g: 5 {
  %0: f32[i, j, k] = load y[i, j, k]
  %1: f32[l, h, g] = load y[l, h, g]
  %2: f32[i, j] = load y[i, j, 0]
  %3: f32[h, g] = load y[0, h, g]
  %4: f32[i, j, k, l, h, g] = add %0, %1
  %5: f32[i, j, h, g] = add %2, %3
  %6: f32[i, j, k, l, h, g] = add %4, %5
  store out[i, j, k, l, h, g] %6
}
"""


def test_no_array_has_two_shapes_of_equal_rank() -> None:
    """Collapsing axes could give y the shapes f32[6, 5] and f32[2, 15]. Then `y[i, k]` could mean either."""
    text = format_plan(flatten(parse_plan(TWO_VIEWS)))
    assert "input y: f32[6, 5], input y: f32[2, 3, 5]" in text and format_plan(parse_plan(text)) == text


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("cumulative_sum(x[::-1], axis=0) + arange(i)", {"x": "f32[i]"}),  # a size with the name of an axis
        ("x[:, ::2] + d0", {"x": "f32[d0, d1]"}),
        ("take(x, y, axis=1) * j_lane", {"x": "f32[i, j]", "y": "i64[j_lane]"}),
        ("load + store * by", {"load": "f32[over]", "store": "f32[over]", "by": "f32[reduce]"}),
        ("x + eps * where(x > nan, -0.0, inf)", {"x": "f16[N]", "eps": "float"}),
        ("x | 18446744073709551615", {"x": "u64[N]"}),
        ("astype(x, bf16) * -9223372036854775808", {"x": "i64[N]"}),
        ("argmax(x, axis=1), argmin(x, axis=0), x @ x.mT, x.mT @ x", {"x": "f32[M, N]"}),
        ("roll(x, 3, axis=0)[1:-1]", {"x": "f64[N]"}),
    ],
)
def test_names_and_constants(text: str, types: dict[str, str]) -> None:
    f = mt.compile(text, **types)
    for low in (f.lower(), f.lower(target="cuda:80", options=mt.Options(warps=2, stages=5, group=4))):
        for stage in STAGES:
            assert printed(stage, low[stage]) == low[stage]


def test_wide_offsets_and_strides_are_in_the_text() -> None:
    f = mt.compile("x @ y", x="f32[M, K]", y="f32[K, N]")
    low = f.lower(M=2**16, K=2**16, N=16)
    assert " wide {" in low["tile"] and parse_programs(low["tile"], False).programs[-1].wide
    low = f.lower(np.ones((5, 7), np.float32).T, np.ones((5, 3), np.float32))
    assert "x: f32[7, 5] {strides = [1, 7]}" in low["tile"] and printed("tile", low["tile"]) == low["tile"]
