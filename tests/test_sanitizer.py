"""The sanitizer, which is the tile evaluator: it finds planted errors of accesses and reports each one correctly.

An error is an edit of a compiled program: one op, axis or program is replaced. Programs are small, and their
blocks do not divide the sizes (a grid block of 3 has tiles of 4 elements).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import figures
import numpy as np
import pytest

import minitri as mt
from minitri.base.dims import Dim, axis
from minitri.kernels.ir import Load, Mask, Plan, Store
from minitri.tiles.evaluate import evaluate
from minitri.tiles.ir import Program, TileAxis
from minitri.tiles.rewrite import exchange
from minitri.tiles.text import statements
from minitri.trust.sanitizer import AccessError

Edit = Callable[[list[Program]], list[Program]]


@dataclass
class Case:
    """A compiled program with the arrays it runs on."""

    text: str
    types: Mapping[str, str]
    arrays: Mapping[str, Any]
    sizes: Mapping[str, int]
    blocks: Mapping[str, int]
    without: tuple[str, ...] = ()

    def compiled(self) -> tuple[Plan, list[Program]]:
        f = mt.compile(self.text, **self.types).configured(options=mt.Options(blocks=self.blocks))
        c = f.lower(**self.sizes, target="cuda:90", without=self.without).compilation
        return c.value("kernels"), list(c.value("tile.masked"))

    def run(self, edit: Edit) -> tuple[Any, ...]:
        plan, programs = self.compiled()
        return evaluate(plan, edit(programs), self.arrays, self.sizes, True)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


ROWS = Case(
    "x + sum(x, axis=1, keepdims=True)", {"x": "f32[M, N]"}, {"x": numbers(5, 6)}, {"M": 5, "N": 6}, {"i": 3, "j": 4}
)
FLIP = Case(
    "x.mT", {"x": "f32[M, N]"}, {"x": numbers(5, 7)}, {"M": 5, "N": 7}, {"i": 3, "j": 4}, without=("collapse-axes",)
)  # one axis would be left of so small a transpose
JOINED = Case(
    "concat([x, y]) * 2", {"x": "f32[N]", "y": "f32[K]"}, {"x": numbers(5), "y": numbers(4)}, {"N": 5, "K": 4}, {"i": 4}
)
CHAIN = Case("exp(x) * x", {"x": "f32[N]"}, {"x": numbers(7)}, {"N": 7}, {"i": 4}, without=("fusion",))
PRODUCT = Case(
    "x @ w", {"x": "f32[M, K]", "w": "f32[K, N]"}, {"x": numbers(5, 7), "w": numbers(7, 3)},
    {"M": 5, "K": 7, "N": 3}, {"i": 16, "j": 16, "r": 16},
)  # fmt: skip


# ---- edits -------------------------------------------------------------------------------


def access(p: Program, kind: type, buffer: str, number: int = 0) -> Any:
    return [op for op in p.ops() if isinstance(op, kind) and op.buffer.name == buffer][number]


def edited(kind: type, buffer: str, change: Callable[[Any], Any], kernel: int = 0, number: int = 0) -> Edit:
    def edit(programs: list[Program]) -> list[Program]:
        p = programs[kernel]
        op = access(p, kind, buffer, number)
        programs[kernel] = exchange(p, op, change(op))
        return programs

    return edit


def masked(*conditions: Dim) -> Callable[[Any], Any]:
    return lambda op: replace(op, mask=Mask(conditions))


def without_condition(number: int) -> Callable[[Any], Any]:
    def change(op: Any) -> Any:
        kept = tuple(c for k, c in enumerate(op.mask.conditions) if k != number)
        return replace(op, mask=replace(op.mask, conditions=kept))

    return change


def on_axes(change: Callable[[TileAxis], TileAxis]) -> Edit:
    return lambda programs: [replace(p, axes=tuple(map(change, p.axes))) for p in programs]


class Short(TileAxis):
    """An axis that lacks its last block."""

    @property
    def tiles(self) -> Dim:
        return self.extent // self.block


class Long(TileAxis):
    """An axis with one block too many."""

    @property
    def tiles(self) -> Dim:
        return self.extent // self.block + 2


def counted_by(kind: type[TileAxis]) -> Edit:
    return on_axes(lambda a: kind(a.name, a.extent, a.role, a.block))


def extended(name: str, more: int) -> Edit:
    return on_axes(lambda a: replace(a, extent=a.extent + more) if a.name == name else a)


def swapped_strides(op: Any) -> Any:
    return replace(op, buffer=replace(op.buffer, strides=op.buffer.strides[::-1]))


def transposed_view(op: Any) -> Any:
    b = op.buffer
    return replace(op, buffer=replace(b, shape=b.shape[::-1], strides=b.strides), index=op.index[::-1])


def index_of(*index: Dim) -> Callable[[Any], Any]:
    return lambda op: replace(op, index=index)


def filled_with(value: float) -> Callable[[Any], Any]:
    return lambda op: replace(op, other=value)


def in_place(programs: list[Program]) -> list[Program]:
    """The second kernel does not read x, but its own output, one row further."""
    out = access(programs[1], Store, "out").buffer
    return edited(Load, "x", lambda op: replace(op, buffer=out), kernel=1)(programs)


i, j, lane = axis("i"), axis("j"), axis("i_lane")

# name: (case, edit, kind, buffer, a part of the report)
BUGS: dict[str, tuple[Case, Edit, str, str, str]] = {
    "the mask of a load dropped": (
        ROWS, edited(Load, "x", masked()), "out of bounds", "x", "k0, program (0): reads x[0, 6], out of bounds: its shape is [5, 6]"),
    "the mask of a store dropped": (
        ROWS, edited(Store, "out", masked()), "out of bounds", "out", "writes out[0, 6], out of bounds"),
    "one condition dropped": (
        FLIP, edited(Load, "x", without_condition(1)), "out of bounds", "x", "reads x[5, 0], out of bounds"),
    "the mask on the wrong axis": (
        FLIP, edited(Load, "x", masked(4 - i, 6 - j)), "out of bounds", "x", "reads x[5, 0], out of bounds"),
    "a mask off by one": (
        ROWS, edited(Load, "x", masked(5 - i, 5 - j, 2 - lane)), "out of bounds", "x", "reads x[5, 0], out of bounds"),
    "a mask that excludes too much": (
        ROWS, edited(Store, "out", masked(3 - i, 5 - j, 2 - lane)), "never written", "out", "k0: out[4, 0] is never written"),
    "elements past the block stored": (
        ROWS, edited(Store, "out", masked(4 - i, 5 - j)), "written twice", "out",
        "k0, program (1): writes out[3, 4] twice: k0, program (0), has written it"),
    "an extent off by one": (JOINED, extended("i", -1), "never written", "out", "out[8] is never written"),
    "a block too few": (ROWS, counted_by(Short), "never written", "out", "out[3, 0] is never written"),
    "a block too many": (
        FLIP, lambda ps: edited(Load, "x", masked(4 - j))(counted_by(Long)(ps)), "out of bounds", "x", "reads x[0, 7]"),
    "blocks that overlap": (
        ROWS, lambda ps: on_axes(lambda a: replace(a, block=4) if a.name == "j" and a.role == "loop" else a)(
            edited(Store, "out", index_of(i - axis("i") + i % 4, j))(ps)), "written twice", "out", "writes out[0, 4] twice"),
    "strides swapped": (
        FLIP, edited(Load, "x", swapped_strides), "layout", "x", "takes x: f32[5, 7] {strides = [1, 7]} for x: f32[5, 7]"),
    "a view with its axes swapped": (
        FLIP, edited(Store, "out", index_of(j, i)), "out of bounds", "out", "writes out[0, 5], out of bounds"),
    "the index of a store permuted": (
        Case("x * 2 + y", {"x": "f32[N, N]", "y": "f32[N]"}, {"x": numbers(3, 3), "y": numbers(3)}, {"N": 3}, {"i": 2, "j": 2}),
        edited(Store, "out", index_of(i, i)), "written twice", "out", "writes out[0, 0] twice"),
    "every row stored to the first": (
        ROWS, edited(Store, "out", index_of(Dim.of(0), j)), "written twice", "out", "writes out[0, 4] twice"),
    "a part of a concat missing": (
        JOINED, edited(Store, "out", masked(4 - i)), "never written", "out", "out[5] is never written"),
    "a part of a concat read too far": (
        JOINED, edited(Load, "y", masked(8 - i)), "out of bounds", "y", "program (0): reads y[-5], out of bounds: its shape is [4]"),
    "a kernel missing": (CHAIN, lambda ps: ps[1:], "not written", "t0", "reads t0[0], which nothing has written yet"),
    "the last kernel missing": (CHAIN, lambda ps: ps[:-1], "never written", "out", "out[0] is never written: nothing stores it"),
    "two kernels in the wrong order": (CHAIN, lambda ps: ps[::-1], "not written", "t0", "k1, program (0): reads t0[0]"),
    "a kernel run twice": (CHAIN, lambda ps: [ps[0], *ps], "written twice", "t0", "writes t0[0] twice: k0"),
    "a read of a neighbour's output": (CHAIN, in_place, "not written", "out", "reads out[0], which nothing has written yet"),
    "the wrong neutral element": (
        ROWS, edited(Load, "x", filled_with(1.0)), "not neutral", "", "a lane past the end of j is 1.640"),
    "the depth of a product not masked": (
        PRODUCT, edited(Load, "x", filled_with(1.0)), "not neutral", "", "a lane past the end of r is 1.0, which would change the product"),
    "an input written": (
        FLIP, lambda ps: edited(Store, "out", lambda op: replace(op, buffer=access(ps[0], Load, "x").buffer, index=(j, i)))(ps),
        "out of bounds", "x", "writes x, which is an input"),
}  # fmt: skip


@pytest.mark.parametrize("case", [ROWS, FLIP, JOINED, CHAIN, PRODUCT], ids=lambda c: c.text)
def test_nothing_is_reported_without_a_bug(case: Case) -> None:
    (out,) = case.run(lambda programs: programs)
    np.testing.assert_allclose(out, mt.compile(case.text, **case.types).numpy(*case.arrays.values()), rtol=1e-5)


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    case, edit, kind, buffer, report = BUGS[bug]
    with pytest.raises(AccessError) as raised:
        case.run(edit)
    error = raised.value
    assert (error.kind, error.buffer) == (kind, buffer), error
    assert report in str(error), error
    plan, programs = case.compiled()
    lines = {line for p in edit(programs) for line in statements(p).values()}
    assert error.statement in lines or kind == "never written"


def test_a_report_shows_the_statement_and_its_source_text() -> None:
    case, edit, *_ = BUGS["the mask of a load dropped"]
    with pytest.raises(AccessError) as raised:
        case.run(edit)
    assert str(raised.value).splitlines() == [
        "k0, program (0): reads x[0, 6], out of bounds: its shape is [5, 6]",
        "  %2: f32[i, j] = load x[i, j]",
        "  --> <expression>:1:5",
        "  1 | x + sum(x, axis=1, keepdims=True)",
        "    |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]
    assert raised.value.place == (0,) and raised.value.index == (0, 6)


def test_a_race_within_a_kernel_is_found() -> None:
    """Each program reads the output of its left neighbour. That is right only if programs run one after another."""
    case = Case("x * 2", {"x": "f32[N]"}, {"x": numbers(8)}, {"N": 8}, {"i": 4})

    def edit(programs: Sequence[Program]) -> list[Program]:
        out = access(programs[0], Store, "out").buffer
        load = access(programs[0], Load, "x")
        return [exchange(programs[0], load, replace(load, buffer=out, index=(i - 4,), mask=Mask((i - 4,))))]

    with pytest.raises(AccessError) as raised:
        case.run(edit)
    assert raised.value.kind == "race" and "reads out[0], which another program of k0 writes" in str(raised.value)


@pytest.mark.parametrize("last", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_every_small_shape(last: int) -> None:
    """All sizes up to twice a block plus one. Results equal those of the interpreter bit for bit."""
    found = figures.enumerated(figures.Options(0, 1), last)
    assert found["wrong"] == [] and found["configurations"] > 50 * last


def test_a_failing_enumeration_names_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "ENUMERATED", {"sum": figures.ENUMERATED["sum of rows"]})
    monkeypatch.setattr(figures, "evaluate_graph", lambda *_: (np.full(1, np.pi),))
    found = figures.enumerated(figures.Options(0, 1), 1)
    assert len(found["wrong"]) == 8 and "another result" in found["wrong"][0]
