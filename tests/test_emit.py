"""The emitter: the lines of Triton that it writes for each form of a masked tile program, given by hand.

The texts of complete kernels are in tests/goldens (emit_*). The tests here cover forms that those kernels
do not have: blocks of one element, indices at the limits of their known range, and numbers that Python and
Triton write differently.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import minitri as mt
from minitri.base.dims import Dim
from minitri.base.types import bf16, dtype, f32, f64, i32
from minitri.tiles.text import parse_programs
from minitri.triton.emit import EmittedKernel, emit
from minitri.triton.expressions import constant, convert, number, other_value

X_OUT = ("input x: f32[7, 5]", "output out: f32[7, 5]")
COPY = "%0: f32[i, j] = load x[i, j] {because = []}\nstore out[i, j] %0 {because = []}"
VECTOR = ("input x: f32[N]", "output out: i64[7]")


def emitted(axes: str, body: str, buffers: tuple[str, ...], hints: str = "") -> EmittedKernel:
    """The kernel of one tile program. `axes` and `body` are lines of its text."""
    given = [b.partition(" ")[2] for b in buffers if b.startswith("input")]
    made = [b.partition(" ")[2] for b in buffers if b.startswith("output")]
    lines = "\n".join(f"  {line}" for line in f"{axes}\n{body}".splitlines())
    head = f"plan f({', '.join(given)}) -> {', '.join(made)}"
    text = f"{head}\n\nprogram k0({', '.join(buffers)}){hints} {{\n{lines}\n}}\n"
    return emit(parse_programs(text, masked=True).programs[0])


def lines(kernel: EmittedKernel) -> list[str]:
    return [line.strip() for line in kernel.source.splitlines()[1:]]


# ---- axes --------------------------------------------------------------------------------

AXES = {
    "grid i: 7 by 4\ngrid j: 5 by 1": [
        "BLOCK_I: tl.constexpr = 4", "tile = tl.program_id(0)", "j_tile = tile % 5", "tile = tile // 5", "j = j_tile",
        "i_tile = tile", "i = i_tile * BLOCK_I + tl.arange(0, BLOCK_I)",
    ],
    "grid i: 7 by 3\nwhole j: 5 by 8": [
        "BLOCK_I: tl.constexpr = 3", "tile = tl.program_id(0)", "i_tile = tile", "i_lane = tl.arange(0, 4)",
        "i = i_tile * BLOCK_I + i_lane", "j = tl.arange(0, 8)",
    ],
    "whole i: 7 by 8\nwhole j: 1 by 1": ["i = tl.arange(0, 8)", "j = tl.full((), 0, tl.int32)"],
    "whole i: 7 by 8\nwhole j: 5 by 2": ["i = tl.arange(0, 8)", "j = tl.arange(0, 2)"],
}  # fmt: skip


@pytest.mark.parametrize("axes", list(AXES))
def test_axes(axes: str) -> None:
    found = lines(emitted(axes, COPY, X_OUT))
    assert found[: len(AXES[axes])] == AXES[axes] and found[len(AXES[axes])].startswith("v0 = tl.load(")


def loop(block: int, hints: str = "", expr: str = "r") -> list[str]:
    axes = f"grid i: 7 by 4\nloop r: 5 by {block}"
    body = f"""\
%0: i64[] = const 0
%1: i64[i] = carry %0
for r {{
  %2: i64[r] = position {{expr = {expr}}}
  %3: i64[] = reduce.sum %2 {{over = [r]}}
  %4: i64[i] = add %1, %3
  next %1 = %4
}}
store out[i] %1 {{mask = [i < 7], because = []}}"""
    found = lines(emitted(axes, body, ("input x: f32[7]", "output out: i64[7]"), hints))
    return [line for line in found if re.match(r"(r|r_lane|BLOCK_R:?|for|v2) ", line)]


def test_loops() -> None:
    """A block of one element needs no `tl.arange`. With 64-bit offsets every index has 64 bits."""
    many = ["BLOCK_R: tl.constexpr = 2", "for r_start in range(0, 5, BLOCK_R):", "r = r_start + tl.arange(0, BLOCK_R)"]
    assert loop(2)[:3] == many
    assert loop(1)[:2] == ["for r_start in range(0, 5, 1):", "r = r_start"]
    assert loop(2, " wide")[2] == "r = r_start + tl.arange(0, BLOCK_R).to(tl.int64)"
    assert loop(1, " wide")[1] == "r = r_start + tl.full((), 0, tl.int32).to(tl.int64)"


def test_the_position_of_an_element_in_its_block() -> None:
    assert "r_lane = tl.arange(0, BLOCK_R)" in loop(2, expr="r_lane")
    assert "r_lane = 0" in loop(1, expr="r_lane")
    assert not any(line.startswith("r_lane") for line in loop(2))


GROUPED = [
    "group = tile // (2 * 5)", "first = group * 2", "height = tl.minimum(2 - first, 2)",
    "i_tile = first + (tile % (2 * 5)) % height", "j_tile = (tile % (2 * 5)) // height",
]  # fmt: skip


def test_the_tiles_of_a_grid_are_taken_in_groups() -> None:
    """Groups need two or more axes, and more than one row of tiles."""

    def tiles(axes: str, hints: str, body: str = COPY, buffers: tuple[str, ...] = X_OUT) -> list[str]:
        return [s for s in lines(emitted(axes, body, buffers, hints)) if "tile" in s or "group" in s or "first" in s]

    two = "grid i: 7 by 4\ngrid j: 5 by 1"
    assert [s for s in tiles(two, " group 2") if s in GROUPED] == GROUPED
    assert not any("group" in s for s in tiles(two, "") + tiles("grid i: 7 by 4\nwhole j: 5 by 8", " group 2"))
    three = "grid h: 3 by 1\ngrid i: 7 by 4\ngrid j: 5 by 1"
    body = "%0: f32[h, i, j] = load x[h, i, j] {because = []}\nstore out[h, i, j] %0 {because = []}"
    found = tiles(three, " group 2", body, ("input x: f32[3, 7, 5]", "output out: f32[3, 7, 5]"))
    assert found[1:3] == ["place = tile % (2 * 5)", "tile = tile // (2 * 5)"] and "h_tile = tile" in found


# ---- indices -----------------------------------------------------------------------------

EXPRESSIONS = {
    "i": "i", "2*i": "i * 2", "-1*i": "-i", "i - 1": "i - 1", "3 - i": "3 - i", "i + 0": "i", "i*i": "i * i",
    "N - i": "s0 - i", "i - N": "i + s0", "i*N - 2": "i * s0 - 2", "N": "s0", "0": "0", "-4": "-4",
    "max(i, 3)": "tl.maximum(i, 3)", "min(i, 3) + 1": "tl.minimum(i, 3) + 1", "max(i, N) - min(i, 2)": "tl.maximum(i, s0) - tl.minimum(i, 2)",
    "i//2": "((i) // 2)", "i%3": "((i) % 3)", "i//N": "((i) // s0)", "i//(i + 1)": "((i) // (i + 1))",
    "(3 - i)%(i + 1)": "rt.remainder(3 - i, i + 1)", "(1 - i)//2": "rt.floordiv(1 - i, 2)",
}  # fmt: skip


@pytest.mark.parametrize("expr", list(EXPRESSIONS))
def test_indices(expr: str) -> None:
    body = f"%0: i64[i] = position {{expr = {expr}}}\nstore out[i] %0 {{mask = [i < 7], because = []}}"
    assert f"v0 = ({EXPRESSIONS[expr]}).to(tl.int64)" in lines(emitted("grid i: 7 by 4", body, VECTOR))


@pytest.mark.parametrize("block, lanes, last", [(4, 4, 7), (3, 4, 9), (1, 1, 6)])
def test_an_index_that_cannot_be_negative_is_divided_by_the_operator(block: int, lanes: int, last: int) -> None:
    """The largest index of the last block is exact: 2 blocks of 4; 3 of 3 in tiles of 4 elements; 7 of 1."""
    for extra, plain in ((0, True), (-1, False)):
        body = f"%0: i64[i] = position {{expr = ({last + extra}*N - N*i)//(N + 1)}}\nstore out[i] %0 {{mask = [i < 7], because = []}}"
        (line,) = [s for s in lines(emitted(f"grid i: 7 by {block}", body, VECTOR)) if s.startswith("v0")]
        assert ("//" in line) == plain and ("rt.floordiv" in line) == (not plain), line


def test_the_smallest_index_is_0() -> None:
    """Triton's x // y truncates, which is wrong if x may be -1."""
    for expr, plain in (("i//N", True), ("(i - 1)//N", False)):
        body = f"%0: i64[i] = position {{expr = {expr}}}\nstore out[i] %0 {{mask = [i < 7], because = []}}"
        assert ("rt.floordiv" in emitted("grid i: 7 by 4", body, VECTOR).source) == (not plain)


CONDITIONS = {
    "i < 5": "i < 5", "i >= 2": "i >= 2", "i < N": "i < s0", "2*i < 5": "4 - i * 2 >= 0", "i + j < 9": "8 - i - j >= 0",
    "3*i >= 2": "i * 3 - 2 >= 0",
}  # fmt: skip


@pytest.mark.parametrize("condition", list(CONDITIONS))
def test_conditions(condition: str) -> None:
    body = f"%0: f32[i, j] = load x[i, j] {{mask = [{condition}], because = [], other = 0}}\nstore out[i, j] %0 {{because = []}}"
    found = lines(emitted("whole i: 7 by 8\nwhole j: N by 8", body, ("input x: f32[7, N]", "output out: f32[7, N]")))
    text = CONDITIONS[condition].replace("i - j", "i[:, None] - j[None, :]")
    assert any(re.fullmatch(rf"m\d+ = {re.escape(text)}", line) for line in found), found


def test_a_mask_has_the_shape_of_its_tile() -> None:
    """A comparison of a scalar is broadcast first."""
    body = "%0: f32[j] = load x[i, j] {mask = [i < 5], because = [], other = 0}\nstore out[i, j] %0 {because = []}"
    found = lines(emitted("grid i: 7 by 1\nwhole j: 5 by 8", body.replace("f32[j]", "f32[i, j]"), X_OUT))
    (test,) = [s for s in found if s.startswith("m")]
    name = test.partition(" ")[0]
    assert test == f"{name} = rt.to_bool(i < 5)"
    assert f"v0 = tl.load(p0 + i * 5 + j, mask=tl.full((8, ), 1, tl.int1) & {name}, other=0)" in found
    scalar = body.replace("j] {", "0] {").replace("out[i, j]", "out[i, 0]").replace("f32[j]", "f32[i]")
    assert any("mask=m" in s for s in lines(emitted("grid i: 7 by 1", scalar, X_OUT)))


# ---- numbers -----------------------------------------------------------------------------

NUMBERS = {
    "True": (True, "1"), "False": (False, "0"), "3": (3, "3"), "-1": (-1, "-1"), "0.5": (0.5, "0.5"), "0.0": (0.0, "0.0"),
    "inf": (float("inf"), 'float("inf")'), "-inf": (float("-inf"), 'float("-inf")'), "nan": (float("nan"), 'float("nan")'),
}  # fmt: skip


@pytest.mark.parametrize("name", list(NUMBERS))
def test_numbers(name: str) -> None:
    value, text = NUMBERS[name]
    assert number(value) == text
    assert other_value(value, f32) == other_value(value, i32) == text
    assert constant(value, f32) == f"tl.full((), {text}, tl.float32)"


def test_numbers_of_bf16() -> None:
    """Triton 3.6's interpreter has no bf16 constants except 0. So they are rounded from f32."""
    assert constant(0.0, bf16) == "tl.full((), 0.0, tl.bfloat16)" and other_value(0.0, bf16) == "0.0"
    for value in (1.0, -1.0, 0.5, float("-inf")):
        assert constant(value, bf16) == other_value(value, bf16) == f"rt.to_bf16({constant(value, f32)})"


def test_negative_zero_is_written_as_a_product() -> None:
    assert constant(-0.0, f32) == "tl.full((), 0.0, tl.float32) * -1.0"
    assert constant(-0.0, f64).endswith("tl.float64) * -1.0")
    assert "*" not in constant(0.0, f32) + constant(0, i32) + constant(-1.0, f32) + constant(1e-30, f32)


CONVERSIONS = {
    ("f32", "f32"): "v", ("f16", "f32"): "rt.to_f32(v)", ("bf16", "f64"): "rt.to_f32(v).to(tl.float64)",
    ("f16", "bf16"): "rt.to_bf16(rt.to_f32(v))", ("bf16", "bool"): "rt.to_bool(rt.to_f32(v))", ("f32", "f16"): "rt.to_f16(v)",
    ("f64", "bf16"): "rt.to_bf16(v)", ("i64", "f16"): "rt.to_f16(v.to(tl.float32))", ("bool", "bf16"): "rt.to_bf16(v.to(tl.float32))",
    ("f32", "i8"): "rt.float_to_int(v, tl.int8)", ("f16", "i32"): "rt.float_to_int(rt.to_f32(v), tl.int32)",
    ("i16", "i64"): "v.to(tl.int64)", ("i32", "f32"): "v.to(tl.float32)", ("i32", "bool"): "rt.to_bool(v)",
    ("f64", "f32"): "v.to(tl.float32)", ("i16", "u8"): "v.to(tl.uint8)", ("u8", "i16"): "v.to(tl.int16)",
}  # fmt: skip


@pytest.mark.parametrize("pair", list(CONVERSIONS), ids="-".join)
def test_conversions(pair: tuple[str, str]) -> None:
    source, target = map(dtype, pair)
    assert convert("v", source, target) == CONVERSIONS[pair]


# ---- operations --------------------------------------------------------------------------


def test_a_scalar_comparison_is_converted_to_bool() -> None:
    body = """\
%0: f32[i] = load x[i, 0] {because = []}
%1: f32[] = const 2.0
%2: bool[i] = less %0, %1
store out[i, 0] %0 {because = []}"""
    assert "v2 = v0 < v1" in lines(emitted("whole i: 7 by 8", body, X_OUT))
    assert "v2 = rt.to_bool(v0 < v1)" in lines(emitted("grid i: 7 by 1", body, X_OUT))


@pytest.mark.parametrize("block", [1, 4])
def test_the_initial_value_of_an_accumulator_is_broadcast(block: int) -> None:
    body = """\
%0: i64[i] = position {expr = i}
%1: i64[i] = carry %0
for r {
  %2: i64[i] = add %1, %0
  next %1 = %2
}
store out[i] %1 {mask = [i < 7], because = []}"""
    found = lines(emitted(f"grid i: 7 by {block}\nloop r: 5 by 2", body, ("input x: f32[7]", "output out: i64[7]")))
    assert [s for s in found if "broadcast_to" in s] == (["v1 = tl.broadcast_to(v0, (4, ))"] if block == 4 else [])


@pytest.mark.parametrize("axes, text", [("iRj", 'rt.dot(v0, v1, v2, "ieee")'), ("Rij", 'rt.dot(tl.trans(v0), v1, v2, "ieee")'),
                                        ("ijR", 'rt.dot(v0, tl.trans(v1), v2, "ieee")'), ("jRi", 'rt.dot(v1, v0, v2, "ieee")')])  # fmt: skip
def test_a_product_transposes_operands_whose_axes_are_swapped(axes: str, text: str) -> None:
    extents = {"i": 32, "j": 64, "R": 16}
    axes_text = "\n".join(f"whole {a.lower()}: {extents[a]} by {extents[a]}" for a in axes)
    order = "".join(axes).lower()
    lanes = {pair: ", ".join(sorted(pair, key=order.index)) for pair in ("ir", "rj", "ij")}
    body = f"""\
%0: f32[{lanes["ir"]}] = load x[i, r] {{because = []}}
%1: f32[{lanes["rj"]}] = load w[r, j] {{because = []}}
%2: f32[] = const 0.0
%3: f32[{lanes["ij"]}] = carry %2
for r {{
  %4: f32[{lanes["ij"]}] = dot %0, %1, %3 {{over = r, precision = ieee}}
  next %3 = %4
}}
store out[i, j] %3 {{because = []}}"""
    buffers = ("input x: f32[32, 16]", "input w: f32[16, 64]", "output out: f32[32, 64]")
    found = lines(emitted(axes_text.replace("whole r: 16", "loop r: 16"), body, buffers))
    assert any(s.endswith(text) for s in found), found


# ---- the op of each line -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["softmax(x, axis=1)", "relu(x @ y.T) * 2", "cumulative_sum(x, axis=1)"])
def test_every_line_is_mapped_to_its_op(text: str) -> None:
    low = mt.compile(text, x="f32[M, N]", y="f32[M, N]").lower(M=100, N=300)
    for kernel in low.compilation.value("triton"):
        written = kernel.source.splitlines()
        for line, op in kernel.lines:
            said = written[line - 1].strip()
            assert re.match(r"v\d+ = |tl\.store\(", said), said
            name = getattr(op, "op", "")
            assert name != "reduce" and (type(op).__name__ != "Load" or "tl.load(" in said)
            assert (type(op).__name__ == "Store") == said.startswith("tl.store(")
            assert type(op).__name__ != "Reduce" or f"rt.reduce_{name}(" in said
        made = [k for k, s in enumerate(written, 1) if re.match(r"v\d+ = (?!v\d+$)|tl\.store\(", s.strip())]
        assert [line for line, _ in kernel.lines] == made


def test_kernels_are_compared_without_their_tile_programs() -> None:
    """Measured times are valid for a kernel of another compilation, whose ops are never equal to these."""
    first, second = (replace(emitted("whole i: 7 by 8\nwhole j: 5 by 8", COPY, X_OUT), lines=()) for _ in range(2))
    assert first == second and first.program != second.program
    assert first != replace(emitted("grid i: 7 by 2\nwhole j: 5 by 8", COPY, X_OUT), lines=())


def test_an_emitted_kernel_is_immutable() -> None:
    kernel = emitted("whole i: 7 by 8\nwhole j: 5 by 8", COPY, X_OUT)
    with pytest.raises(AttributeError):
        kernel.name = "k1"  # type: ignore[misc]
    assert kernel.tiles == Dim.of(1)
