"""The pass mask-elision: which bounds checks an access keeps, and the reasons why others are dropped.

Example: a load of x[i] needs no check `i < 7` if x has 8 elements and the blocks cover 8. Programs are written
by hand, so that an index goes exactly to the end of its array, or one past it. tests/test_proofs.py and the
sanitizer test that the masks are sufficient. This file tests that no unnecessary check is left, and that each
dropped check has its reason.
"""

from __future__ import annotations

import pytest

from minitri.base.dims import Dim, Symbol
from minitri.kernels.ir import Load, Mask, Store
from minitri.kernels.text import comparison
from minitri.optimize.mask_elision import implies, mask
from minitri.tiles.ir import Program
from minitri.tiles.mask import mask as plain_mask
from minitri.tiles.text import parse_programs


def masked(axes: str, body: str, x: str = "8", out: str = "7", lanes: str = "i") -> Program:
    """A program `out[…] = x[…]`. `body` is the index of the load, optionally with guards, or complete lines."""
    if "\n" not in body:
        index, _, guards = body.partition(" if ")
        where = f" {{where = [{guards}]}}" if guards else ""
        body = f"%0: f32[{lanes}] = load x[{index}]{where}\nstore out[{lanes}] %0"
    return mask(parse_programs(program_text(axes, body, x, out), masked=False).programs[0])


def program_text(axes: str, body: str, x: str, out: str) -> str:
    lines = "\n".join(f"  {line}" for line in f"{axes}\n{body}".splitlines())
    return f"plan f(x: f32[{x}]) -> out: f32[{out}]\n\nprogram k0(input x: f32[{x}], output out: f32[{out}]) {{\n{lines}\n}}\n"


def load_mask(program: Program) -> Mask:
    (load,) = [op for op in program.ops() if isinstance(op, Load)]
    assert load.mask is not None
    return load.mask


def remaining_checks(program: Program) -> list[str]:
    return [comparison(c) for c in load_mask(program).conditions]


# ---- arrays that are larger than the axis --------------------------------------------------

ARRAYS = {  # axes, index, size of x, whether the last block stays inside x
    "to the end": ("grid i: 7 by 8", "i", "8", True),
    "one element past the end": ("grid i: 7 by 8", "i", "7", False),
    "two blocks": ("grid i: 7 by 4", "i", "8", True),
    "two blocks, one element past the end": ("grid i: 7 by 4", "i + 1", "8", False),
    "tiles larger than blocks": ("grid i: 7 by 3", "i", "10", True),
    "tiles larger than blocks, one element past the end": ("grid i: 7 by 3", "i", "9", False),
    "reversed, to the start": ("grid i: 7 by 4", "7 - i", "9", True),
    "reversed, one element before the start": ("grid i: 7 by 4", "6 - i", "9", False),
}


@pytest.mark.parametrize("name", list(ARRAYS))
def test_a_check_is_dropped_if_the_last_block_stays_inside_the_array(name: str) -> None:
    axes, index, x, inside = ARRAYS[name]
    program = masked(axes, index, x=x)
    assert ("i < 7" not in remaining_checks(program)) == inside, program
    assert ("i: no test, x reaches further" in load_mask(program).reasons) == inside
    (store,) = [op for op in program.ops() if isinstance(op, Store)]
    assert store.mask is not None and "i < 7" in [comparison(c) for c in store.mask.conditions]


@pytest.mark.parametrize("x, inside", [("32", True), ("31", False)])
def test_an_axis_that_fits_ends_at_its_extent(x: str, inside: bool) -> None:
    """The largest value of 4*i + j is 4*7 + 3."""
    program = masked("grid i: 7 by 4\nwhole j: 4 by 4", "4*i + j", x=x, out="7, 4", lanes="i, j")
    assert (remaining_checks(program) == []) == inside


@pytest.mark.parametrize("x, inside", [("32", True), ("31", False)])
def test_an_access_with_two_incomplete_axes_keeps_one_check(x: str, inside: bool) -> None:
    """Only the grid's axis needs no check: elements past the end of the other axis would be used."""
    program = masked("grid i: 7 by 4\nwhole j: 3 by 4", "4*i + j", x=x, out="7, 3", lanes="i, j")
    assert remaining_checks(program) == (["j < 3"] if inside or x == "31" else [])


def test_a_loop_keeps_its_check() -> None:
    body = """\
%0: f32[] = const 0.0
%1: f32[i] = carry %0
for r {
  %2: f32[i, r] = load x[i, r]
  %3: f32[i] = reduce.sum %2 {over = [r]}
  %4: f32[i] = add %1, %3
  next %1 = %4
}
store out[i] %1"""
    assert remaining_checks(masked("grid i: 8 by 8\nloop r: 7 by 4", body, x="8, 8", out="8")) == ["r < 7"]


GUARDED = {  # index, guards, size of x: the checks that are left
    "a guard is stronger": ("grid i: 7 by 4", "i if i < 5", "5", ["i < 5"]),
    "a guard is as strong": ("grid i: 7 by 4", "i if i < 7", "7", ["i < 7"]),
    "a guard is weaker": ("grid i: 7 by 4", "i if i < 8", "7", ["i < 7"]),
    "guards bound the index": ("grid i: 7 by 4", "i - 2 if i >= 2", "6", ["i >= 2"]),
    "guards do not bound it": ("grid i: 7 by 4", "i - 2 if i >= 2", "5", ["i < 7", "i >= 2"]),
    "twice an index gives no bound": ("grid i: 7 by 4", "i if 2*i < 12", "6", ["i < 7", "11 - 2*i >= 0"]),
    "a sum of axes gives no bound": (
        "grid i: 7 by 4\nwhole j: 4 by 4",
        "i + j if i + j < 8",
        "8",
        ["i < 7", "7 - i - j >= 0"],
    ),
}


@pytest.mark.parametrize("name", list(GUARDED))
def test_a_guard_replaces_a_weaker_check(name: str) -> None:
    axes, body, x, kept = GUARDED[name]
    lanes, out = ("i, j", "7, 4") if "j" in axes else ("i", "7")
    assert remaining_checks(masked(axes, body, x=x, out=out, lanes=lanes)) == kept


@pytest.mark.parametrize("x, checks", [("7", []), ("6", ["i_lane < 3"])])
def test_a_tile_that_is_larger_than_its_block_ends_after_the_last_block(x: str, checks: list[str]) -> None:
    """The last tile of 4 elements starts at 3, so the largest index is 6."""
    assert remaining_checks(masked("grid i: 6 by 3", "i", x=x, out="6")) == checks


DROPPED = {  # axes, index and guards, size of x: the line of a check that is not the bounds check of an axis
    "a weaker guard": ("grid i: 7 by 4", "i if i < 8", "7", "i < 8: no test, i < 7 is tested"),
    "elements past the end of a block": ("grid i: 6 by 3", "i", "8", "i_lane < 3: no test, x reaches further"),
}


@pytest.mark.parametrize("name", list(DROPPED))
def test_a_dropped_guard_and_a_dropped_check_in_a_block_have_a_reason(name: str) -> None:
    axes, body, x, line = DROPPED[name]
    assert line in load_mask(masked(axes, body, x=x)).reasons


I, J, N = (Dim({(symbol,): 1}) for symbol in (Symbol("i", "axis"), Symbol("j", "axis"), Symbol("N", "size")))
IMPLIED = [  # a check, another one, and whether the first implies the second
    (N - 1 - I, N - I, True), (N - 1 - I, N - 1 - I, True), (N - 1 - I, N - 2 - I, False), (I - 3, I - 2, True),
    (I - 3, I - 4, False), (N - 1 - I, N + 1 - J, False), (N - 1 - I, 2 * N - I, True), (N - 1 - I, 2 - I, False),
    (2 * I - 4, 2 * I, False), (N - 3, N - 2, False), (7 - I - J, 8 - I - J, False), (N - 1 - I, N - I + J, False),
]  # fmt: skip


@pytest.mark.parametrize("stronger, c, follows", IMPLIED, ids=str)
def test_a_check_implies_weaker_ones(stronger: Dim, c: Dim, follows: bool) -> None:
    """Only comparisons of one index with a size count, because they are exact in 32 bits, too."""
    assert implies(stronger, c) == follows


# ---- empty axes, and axes of one element ---------------------------------------------------


def test_an_empty_axis_that_is_read_at_once_is_tested() -> None:
    assert remaining_checks(masked("grid i: 4 by 4\nwhole j: 0 by 1", "i, j", x="4, 0", out="4, 0", lanes="i, j")) == [
        "j < 0"
    ]


def test_an_empty_grid_needs_no_checks() -> None:
    program = masked("grid i: 0 by 4\nwhole j: 3 by 4", "i, j", x="0, 3", out="0, 3", lanes="i, j")
    assert remaining_checks(program) == [] and "j: no test, nothing runs, i is empty" in load_mask(program).reasons


def test_an_axis_of_one_element_keeps_its_check() -> None:
    program = masked("grid i: 1 by 4\nwhole j: 3 by 4", "i, j", x="1, 3", out="1, 3", lanes="i, j")
    assert remaining_checks(program) == ["i < 1", "j < 3"]


# ---- values of elements past the end -------------------------------------------------------

SUMMED = """\
%0: f32[j] = load x[j]
{step}
%9: f32[i] = reduce.sum %2 {{over = [j]}}
store out[i] %9"""
NEUTRAL = {
    "spread": ("%2: f32[i, j] = spread %0", True),
    "doubled": ("%1: f32[j] = add %0, %0\n%2: f32[i, j] = spread %1", True),
    "plus one": ("%3: f32[] = const 1.0\n%1: f32[j] = add %0, %3\n%2: f32[i, j] = spread %1", False),
}


def test_without_the_pass_the_sum_of_a_load_needs_no_where() -> None:
    body = "%2: f32[i, j] = load x[i, j]\n%9: f32[i] = reduce.sum %2 {over = [j]}\nstore out[i] %9"
    text = program_text("grid i: 7 by 4\nwhole j: 5 by 8", body, "7, 5", "7")
    masked = plain_mask(parse_programs(text, masked=False).programs[0])
    assert "j < 5" in remaining_checks(masked) and not any(getattr(op, "op", "") == "where" for op in masked.ops())


@pytest.mark.parametrize("name", list(NEUTRAL))
def test_elements_that_are_already_zero_need_no_where(name: str) -> None:
    """A sum needs no `where` if the elements past the end are already 0."""
    step, zero = NEUTRAL[name]
    program = masked("grid i: 7 by 4\nwhole j: 5 by 8", SUMMED.format(step=step), x="5")
    assert any(getattr(op, "op", "") == "where" for op in program.ops()) == (not zero)
