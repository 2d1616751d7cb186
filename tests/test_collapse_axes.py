"""The pass collapse-axes: for each kind of op, the smallest program whose axes become one, and one whose axes do not.

Kernels are written by hand, so that each shows one thing. tests/test_passes.py tests that results stay
equal.
"""

from __future__ import annotations

import numpy as np
import pytest

import minitri as mt
from minitri.base.dims import axis
from minitri.base.pass_logs import recorded
from minitri.kernels.ir import Load, Plan, Store
from minitri.kernels.parse import parse_plan
from minitri.optimize.collapse_axes import flatten

COPY = "%0: f32[i, j] = load x[i, j]\nstore out[i, j] %0"


def flattened(axes: str, body: str, x: str = "f32[4, 6]", out: str = "f32[4, 6]") -> Plan:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    return flatten(parse_plan(
        f"plan f(x: {x}) -> out: {out}\n\nkernel k0(input x: {x}, output out: {out}) over {axes} {{\n{lines}\n}}\n", "<plan>"
    ))  # fmt: skip


def axes_of(plan: Plan) -> str:
    (kernel,) = plan.kernels
    return ", ".join(f"{'reduce ' if a.role == 'reduced' else ''}{a.name}: {a.extent}" for a in kernel.axes)


COUNT = 33  # one operation more, and one axis takes fewer instructions than two
I = axis("i")
IJ, IJK = "i: 4, j: 6", "i: 4, j: 6, k: 2"
R = "f32[4, 6, 2]"
CASES = {
    "a copy": (IJ, COPY, {}, "i: 24"),
    "a copy of three": (IJK, "%0: f32[i, j, k] = load x[i, j, k]\nstore out[i, j, k] %0", {"x": R, "out": R}, "i: 48"),
    "rows with gaps": (IJ, COPY, {"x": "f32[4, 6] {strides = [8, 1]}"}, IJ),
    "elements with gaps, rows without": (IJ, COPY, {"x": "f32[4, 6] {strides = [12, 2]}"}, "i: 24"),
    "small columns": (IJ, COPY, {"x": "f32[4, 6] {strides = [1, 4]}"}, "i: 24"),
    "a slice of columns": (IJ, COPY, {"x": "f32[4, 8]"}, IJ),
    "a slice of rows": (IJ, COPY, {"x": "f32[5, 6]"}, "i: 24"),
    "an offset": (IJ, COPY.replace("x[i, j]", "x[i, j + 1]"), {"x": "f32[4, 7]"}, IJ),
    "an offset in unaligned rows": ("i: 4, j: 7", COPY.replace("x[i, j]", "x[i, j + 1]"), {"x": "f32[4, 8]", "out": "f32[4, 7]"}, "i: 28"),
    "an aligned load of unaligned rows": ("i: 4, j: 7", COPY, {"x": "f32[4, 8]", "out": "f32[4, 7]"}, "i: 4, j: 7"),
    "unaligned rows with a guard": ("i: 4, j: 7", COPY.replace("x[i, j]", "x[i, j + 1] {where = [i < 3]}"), {"x": "f32[4, 8]", "out": "f32[4, 7]"}, "i: 4, j: 7"),
    "one unaligned row": ("i: 4, j: 7", "%0: f32[j] = load x[1, j]\nstore out[i, j] %0", {"x": "f32[4, 7]", "out": "f32[4, 7]"}, "i: 28"),
    "unaligned rows of unknown length": ("i: M, j: N", COPY.replace("x[i, j]", "x[i, j + 1]"), {"x": "f32[M, N + 1]", "out": "f32[M, N]"}, "i: M, j: N"),
    "unaligned rows that are loaded twice": ("i: 4, j: 7", "%0: f32[i, j] = load x[i, j + 1]\n%1: f32[i, j] = load x[i, j]\n%2: f32[i, j] = add %0, %1\n"
                                             "store out[i, j] %2", {"x": "f32[4, 9]", "out": "f32[4, 7]"}, "i: 28"),
    "unaligned rows and a column": ("i: 4, j: 7", "%0: f32[i] = load x[i, 1]\nstore out[i, j] %0", {"x": "f32[4, 7]", "out": "f32[4, 7]"}, "i: 4, j: 7"),
    "a small transpose": (IJ, COPY.replace("x[i, j]", "x[j, i]"), {"x": "f32[6, 4]"}, "i: 24"),
    "a load with one of the axes": (IJ, "%0: f32[j] = load x[j]\nstore out[i, j] %0", {"x": "f32[6]"}, IJ),
    "a repeated small matrix": (IJK, "%0: f32[i, j] = load x[i, j]\nstore out[i, j, k] %0", {"out": R}, "i: 48"),
    "a load with the last two axes": (IJK, "%0: f32[j, k] = load x[j, k]\nstore out[i, j, k] %0", {"x": "f32[6, 2]", "out": R}, "i: 4, j: 12"),
    "an axis used twice": (IJ, COPY.replace("x[i, j]", "x[i, j, i]"), {"x": "f32[4, 6, 4]"}, IJ),
    "an index with another axis": ("h: 3, " + IJ, "%0: f32[h, i, j] = load x[h, i, j + h]\nstore out[h, i, j] %0",
                           {"x": "f32[3, 4, 9]", "out": "f32[3, 4, 6]"}, "h: 3, i: 4, j: 6"),
    "a guard": ("i: 4, j: 8", COPY.replace("x[i, j]", "x[i, j] {where = [i + j < 5]}"), {"x": "f32[4, 8]", "out": "f32[4, 8]"}, "i: 4, j: 8"),
    "a guard of rows that would be padded": ("i: 4, j: 9", COPY.replace("x[i, j]", "x[i, j] {where = [j < 5]}"), {"x": "f32[4, 9]", "out": "f32[4, 9]"}, "i: 36"),
    "a guard of rows of unknown length": ("i: M, j: N", COPY.replace("x[i, j]", "x[i, j] {where = [i + j < 5]}"), {"x": "f32[M, N]", "out": "f32[M, N]"}, "i: M, j: N"),
    "unaligned rows and a row": ("i: 4, j: 31", "%0: f32[j] = load x[0, j]\n%1: f32[i, j] = load x[i, j]\n%2: f32[i, j] = add %0, %1\nstore out[i, j] %2",
                                 {"x": "f32[4, 31]", "out": "f32[4, 31]"}, "i: 124"),
    "a guard of another axis": ("h: 3, " + IJ, "%0: f32[h, i, j] = load x[h + 1, i, j] {where = [h < 2]}\nstore out[h, i, j] %0",
                                {"x": "f32[3, 4, 6]", "out": "f32[3, 4, 6]"}, "h: 3, i: 24"),
    "a position": (IJ, "%1: i64[i, j] = position {expr = i + j}\n%0: f32[i, j] = cast %1\nstore out[i, j] %0", {}, IJ),
    "a predicate": (IJ, "%1: bool[i, j] = inside {where = [i < j]}\n%0: f32[i, j] = cast %1\nstore out[i, j] %0", {}, IJ),
    "a predicate of another axis": ("h: 3, " + IJ, "%0: f32[h, i, j] = load x[h, i, j]\n%1: bool[h] = inside {where = [h < 2]}\n%2: f32[h, i, j] = where %1, %0, %0\n"
                                    "store out[h, i, j] %2", {"x": "f32[3, 4, 6]", "out": "f32[3, 4, 6]"}, "h: 3, i: 24"),
    "a store with an axis of size 1": ("i: 4, j: 7", "%0: f32[i, j] = load x[i, j + 1]\nstore out[i, 0, j] %0", {"x": "f32[4, 8]", "out": "f32[4, 1, 7]"}, "i: 28"),
    "one axis reduced": ("i: 4, reduce r: 6", "%0: f32[i, r] = load x[i, r]\n%1: f32[i] = reduce.sum %0 {over = [r]}\nstore out[i] %1",
                        {"out": "f32[4]"}, "i: 4, reduce r: 6"),
    "both reduced": ("reduce r: 4, reduce s: 6", "%0: f32[r, s] = load x[r, s]\n%1: f32[] = reduce.sum %0 {over = [r, s]}\nstore out[] %1",
                     {"out": "f32[]"}, "reduce r: 24"),
    "both reduced, one after the other": (
        "reduce r: 4, reduce s: 6",
        "%0: f32[r, s] = load x[r, s]\n%1: f32[r] = reduce.max %0 {over = [s]}\n%2: f32[] = reduce.sum %1 {over = [r]}\nstore out[] %2",
        {"out": "f32[]"}, "reduce r: 4, reduce s: 6"),
    "a sum of equal values over one of two": ("reduce r: 4, reduce s: 6", "%0: f32[] = load x[0, 0]\n%1: f32[] = reduce.sum %0 {over = [r]}\nstore out[] %1",
                                              {"out": "f32[]"}, "reduce r: 4, reduce s: 6"),
    "neither reduced": ("i: 4, j: 6, reduce r: 2", "%0: f32[i, j, r] = load x[i, j, r]\n%1: f32[i, j] = reduce.sum %0 {over = [r]}\nstore out[i, j] %1",
                        {"x": R}, "i: 24, reduce r: 2"),
    "an argmax over another axis": ("i: 4, j: 6, reduce r: 2", "%0: f32[i, j, r] = load x[i, j, r]\n%1: i64[i, j] = reduce.argmax %0 {over = [r]}\nstore out[i, j] %1",
                           {"x": R, "out": "i64[4, 6]"}, "i: 24, reduce r: 2"),
    "a running sum along another axis": (IJK, "%0: f32[i, j, k] = load x[i, j, k]\n%1: f32[i, j, k] = scan.sum %0 {along = k}\nstore out[i, j, k] %1",
                             {"x": R, "out": R}, "i: 24, k: 2"),
    "axes that are not neighbours": ("i: 4, k: 2, j: 6", "%0: f32[i, j] = load x[i, j]\nstore out[k, i, j] %0", {"out": "f32[2, 4, 6]"}, "i: 24, k: 2"),
    "an index that is split and combined": (
        "i: 24", "%0: f32[i] = load x[i//6, i%6]\nstore out[i] %0", {"out": "f32[24]"}, "i: 24"),
    "small transposed matrices": ("i: 100, j: 8, k: 3", "%0: f32[i, j, k] = load x[i, k, j]\nstore out[i, j, k] %0", {"x": "f32[100, 3, 8]", "out": "f32[100, 8, 3]"}, "i: 2400"),
    "small matrices, and others in their order": (
        "i: 100, j: 8, k: 3",
        "%0: f32[i, j, k] = load x[i, k, j]\n%1: f32[i, j, k] = load x[i, k, 0]\n%2: f32[i, j, k] = add %0, %1\nstore out[i, j, k] %2",
        {"x": "f32[100, 3, 8]", "out": "f32[100, 8, 3]"}, "i: 2400"),
    "small matrices in a batch of unknown length": ("i: N, j: 8, k: 3", "%0: f32[i, j, k] = load x[i, k, j]\nstore out[i, j, k] %0", {"x": "f32[N, 3, 8]", "out": "f32[N, 8, 3]"}, "i: 24*N"),
    "small matrices in rows with gaps": ("i: 100, j: 8, k: 3", "%0: f32[i, j, k] = load x[i, k, j]\nstore out[i, j, k] %0", {"x": "f32[100, 3, 8]", "out": "f32[100, 8, 5]"}, "i: 100, j: 8, k: 3"),
    "transposed matrices of 900 elements": ("i: 100, j: 30, k: 30", "%0: f32[i, j, k] = load x[i, k, j]\nstore out[i, j, k] %0", {"x": "f32[100, 30, 30]", "out": "f32[100, 30, 30]"}, "i: 100, j: 30, k: 30"),
    "large transposed matrices": ("i: 100, j: 60, k: 30", "%0: f32[i, j, k] = load x[i, k, j]\nstore out[i, j, k] %0", {"x": "f32[100, 30, 60]", "out": "f32[100, 60, 30]"}, "i: 100, j: 60, k: 30"),
    "a running sum along one of the axes": (IJ, "%0: f32[i, j] = load x[i, j]\n%1: f32[i, j] = scan.sum %0 {along = j}\nstore out[i, j] %1", {}, IJ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_contiguous_axes_become_one(name: str) -> None:
    axes, body, types, expected = CASES[name]
    assert axes_of(flattened(axes, body, **types)) == expected


@pytest.mark.parametrize(("operations", "expected"), [(COUNT, "i: 64, j: 33"), (COUNT + 1, "i: 2112")])
def test_what_is_the_same_for_a_row_counts_after_the_merge_only(operations: int, expected: str) -> None:
    """As two axes, nearly half of the elements are padding. As one, each element needs its row's load and predicate."""
    chain = "\n".join(f"%{k}: f32[i, j] = add %{k - 1}, %0" for k in range(4, 4 + operations))
    body = (
        "%0: f32[i, j] = load x[i, j + 1]\n%1: f32[i] = load x[i, 1]\n%2: bool[i] = inside {where = [i < 9]}\n"
        f"%3: f32[i, j] = where %2, %0, %1\n{chain}\nstore out[i, j] %{3 + operations}"
    )
    assert axes_of(flattened("i: 64, j: 33", body, "f32[64, 36]", "f32[64, 33]")) == expected


def test_a_call_passes_the_strides_that_its_kernels_have() -> None:
    x = np.arange(48, dtype=np.float32).reshape(4, 12)
    for seen in (x[:, ::2], x[::2], x.T, x[::-1]):
        np.testing.assert_array_equal(mt.compile("x + 1", x="f32[M, N]")(seen), seen + 1)


def test_an_array_may_have_two_shapes() -> None:
    """One kernel reads the array as a row of 24; the access to a single element keeps the original shape."""
    body = "%0: f32[i, j] = load x[i, j]\n%1: f32[] = load x[0, 0]\n%2: f32[i, j] = add %0, %1\nstore out[i, j] %2"
    assert axes_of(flattened(IJ, body)) == "i: 24"
    (kernel,) = flattened(IJ, body).kernels
    assert {op.buffer.shape for op in kernel.body if isinstance(op, Load)} == {kernel.buffers[0].shape, (4, 6)}


def loads(plan: Plan) -> list[str]:
    return [f"{op.buffer.name}[{', '.join(map(str, op.index))}]" for op in plan.kernels[0].body if isinstance(op, Load)]


JOINED = {
    "x[i//6, i%6]": "x[i]", "x[i//6 + 1, i%6]": "x[i + 6]", "x[(i + 1)//6 + 2*i, (i + 1)%6]": "x[13*i + 1]",
    "x[i//6, i%4]": None, "x[i//4, i%6]": None, "x[i%6, i//6]": None, "x[i, i%6]": None,
    "x[2*(i//6), i%6]": "x[i + 6*(i//6)]",
}  # fmt: skip


@pytest.mark.parametrize("access", list(JOINED))
@pytest.mark.parametrize("gap", [0, 2])
def test_a_quotient_and_its_remainder(access: str, gap: int) -> None:
    """The two are one index if the array has no gaps between its rows."""
    x = f"f32[80, 6] {{strides = [{6 + gap}, 1]}}"
    found = loads(flattened("i: 24", f"%0: f32[i] = load {access}\nstore out[i] %0", x, "f32[24]"))
    assert found == [JOINED[access] or access if gap == 0 else access]


def test_a_combined_index_is_reported() -> None:
    with recorded() as firings:
        plan = flattened(
            "i: 24",
            "%0: f32[i] = load x[i//6, i%6]\n%1: f32[i] = load x[i%4, 0]\n%2: f32[i] = add %0, %1\nstore out[i] %2",
            out="f32[24]",
        )
    (one,) = firings
    assert (one.rule, one.before.index, one.after) == (flatten, (I // 6, I % 6), plan.kernels[0].body[0])


def test_an_array_has_no_two_shapes_of_equal_rank() -> None:
    """The shapes would be [24, 2] and [4, 12]. In a text, `x[i, 0]` could then mean either."""
    body = """%0: f32[i] = load x[i//6, i%6, 0]
%1: f32[j] = load x[0, j//2, j%2]
%2: f32[i, j] = add %0, %1
store out[i, j] %2"""
    assert loads(flattened("i: 24, j: 12", body, R, "f32[24, 12]")) == ["x[i//6, i%6, 0]", "x[0, j//2, j%2]"]


def test_a_remainder_of_a_smaller_index_is_the_index() -> None:
    assert loads(flattened("i: 6", "%0: f32[i] = load x[2, i%6]\nstore out[i] %0", "f32[80, 6]", "f32[6]")) == [
        "x[i + 12]"
    ]


def test_a_remainder_of_an_index_that_reaches_the_next_row_stays() -> None:
    """Only the last of the 7 indices is in the next row."""
    assert loads(flattened("i: 7", "%0: f32[i] = load x[2, i%6]\nstore out[i] %0", "f32[80, 6]", "f32[7]")) == [
        "x[2, i%6]"
    ]


def test_three_parts_of_an_index() -> None:
    text = "%0: f32[i] = load x[i//20, (i//5)%4, i%5]\nstore out[i] %0"
    assert loads(flattened("i: 60", text, "f32[3, 4, 5]", "f32[60]")) == ["x[i]"]


def test_a_flat_index_of_a_store_becomes_one_index_for_each_axis() -> None:
    """The axis with the largest stride comes first. The axes stay apart, because x is transposed."""
    (kernel,) = flattened("i: 40, j: 60", COPY.replace("x[i, j]", "x[j, i]").replace("out[i, j]", "out[60*i + j]"),
                          "f32[60, 40]", "f32[2400]").kernels  # fmt: skip
    (store,) = (op for op in kernel.body if isinstance(op, Store))
    assert (store.index, store.buffer.shape, store.buffer.strides) == ((I, axis("j")), (40, 60), (60, 1))


PRODUCT = """%0: f32[i, j, r] = load x[i, j, r]
%1: f32[{b}r, k] = load x[{c}r, k]
%2: f32[i, j, k] = dot %0, %1 {{over = r, precision = ieee, tile = [j, k]}}
store out[i, j, k] %2"""


@pytest.mark.parametrize(
    ("own", "expected"), [("", "i: 24, reduce r: 2, k: 2"), ("i, ", "i: 4, j: 6, reduce r: 2, k: 2")]
)
def test_a_batch_of_matrices_times_one_matrix_is_one_product(own: str, expected: str) -> None:
    """The axes stay apart if each matrix of the batch has its own factor."""
    body = PRODUCT.format(b=own, c=own or "0, ")
    assert axes_of(flattened("i: 4, j: 6, reduce r: 2, k: 2", body, R, R)) == expected


def test_rows_and_columns_of_a_product_stay_apart() -> None:
    """No load refuses to merge the two axes, because all elements of the result are equal."""
    body = """%0: f32[r] = load x[0, r]
%1: f32[i, j] = dot %0, %0 {over = r, precision = ieee, tile = [i, j]}
store out[i, j] %1"""
    assert axes_of(flattened("i: 4, j: 6, reduce r: 6", body)) == "i: 4, j: 6, reduce r: 6"


def test_two_batch_axes_become_one() -> None:
    """Both factors have both batch axes. The axes of rows and columns stay."""
    body = """%0: f32[g, h, i, r] = load x[g, h, i, r]
%1: f32[g, h, r, j] = load y[g, h, r, j]
%2: f32[g, h, i, j] = dot %0, %1 {over = r, precision = ieee, tile = [i, j]}
store out[g, h, i, j] %2"""
    arrays = "input x: f32[2, 3, 4, 6], input y: f32[2, 3, 6, 5], output out: f32[2, 3, 4, 5]"
    head = "plan f(x: f32[2, 3, 4, 6], y: f32[2, 3, 6, 5]) -> out: f32[2, 3, 4, 5]"
    kernel = f"kernel k0({arrays}) over g: 2, h: 3, i: 4, reduce r: 6, j: 5 {{\n{body}\n}}\n"
    assert axes_of(flatten(parse_plan(f"{head}\n\n{kernel}"))) == "g: 6, i: 4, reduce r: 6, j: 5"
