"""The pass output-layouts: the strides of results, kernels that no longer store across rows, and results at every stage."""

import re
from typing import Any

import numpy as np
import pytest

import minitri as mt
from minitri.base.dims import axis
from minitri.optimize.output_layouts import memory_order
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

X, Y, B, C = "f32[5, 7]", "f32[7, 5]", "f32[3, 5, 7]", "f32[5, 1]"
LAID = {  # the text, the types, and the axes of each result in the order of their strides, or "" for row-major results
    "the operand is transposed": ("2 * x.T", {"x": X}, "10"),
    "so are both operands": ("x.T * y.T", {"x": X, "y": X}, "10"),
    "as many transposed bytes as others": ("x.T + y", {"x": X, "y": Y}, ""),
    "more transposed bytes than others": ("x.T * z.T + y", {"x": X, "z": X, "y": Y}, "10"),
    "wide elements count more": ("astype(x, f32).T * y", {"x": "i64[5, 7]", "y": Y}, "10"),
    "a vector has no vote": ("x.T * y", {"x": X, "y": "f32[5]"}, "10"),
    "three axes": ("exp(permute_dims(x, (2, 0, 1)))", {"x": B}, "120"),
    "a batch of matrices": ("exp(x.mT)", {"x": B}, "021"),
    "an axis of one element": ("exp(x).mT", {"x": "f32[3, 1, 7]"}, ""),
    "rows that are reduced": ("softmax(x).T * 2", {"x": X}, "10"),
    "columns that are reduced": ("softmax(x, axis=0).T * 2", {"x": X}, "10"),
    "a scan": ("cumulative_sum(x, axis=1).T * 2", {"x": X}, "10"),
    "a slice": ("x.T[1:, 2:] * 2", {"x": X}, "10"),
    "a product": ("relu(x @ y).T", {"x": X, "y": Y}, ""),
    "a product in parts of a batch": ("(x @ y).mT * 2", {"x": B, "y": "f32[3, 7, 4]"}, ""),
    "a product and a column": ("(x @ y).T * c.T", {"x": X, "y": "f32[7, 4]", "c": C}, ""),
    "several results": ("exp(x), exp(x).T, x + 1, x.T - 1", {"x": X}, ",10,,10"),
    "a copy": ("x.T", {"x": X}, ""),
    "a conversion is no copy": ("astype(x.T, f16)", {"x": X}, "10"),
    "a split axis": ("exp(reshape(x.T, (35,)))", {"x": X}, ""),
    "a constant": ("zeros((5, 7)) + 0 * sum(x)", {"x": X}, ""),
    "no elements": ("2 * x.T", {"x": "f32[0, 7]"}, ""),
}


def arrays(types: dict[str, str]) -> list[Any]:
    rng, numbers = np.random.default_rng(0), [re.findall(r"\d+", t[4:]) for t in types.values()]
    return [
        rng.integers(-9, 9, [int(n) for n in shape]).astype("i8" if t[0] == "i" else "f4")
        for shape, t in zip(numbers, types.values())
    ]


@pytest.mark.parametrize("name", list(LAID))
def test_strides_of_results(name: str) -> None:
    text, types, wanted = LAID[name]
    f, given = mt.compile(text, **types), arrays(types)
    results, expected = ((r if isinstance(r, tuple) else (r,)) for r in (f(*given), f.numpy(*given)))
    for result, value, order in zip(results, expected, wanted.split(","), strict=True):
        np.testing.assert_allclose(result, value, 1e-3 if result.dtype == np.float16 else 1e-5)
        axes = [int(k) for k in order] or range(result.ndim)
        assert np.transpose(result, axes).flags.c_contiguous
    report = check(f, bind(f.function, given, {}), ("cuda",))
    assert report.ok, report


@pytest.mark.parametrize("known", [{}, {"M": 5, "N": 7}])
@pytest.mark.parametrize("text", ["2 * x.T", "softmax(x).T * 2", "cumulative_sum(x, axis=1).T[1:] * 2"])
def test_stages_with_layouts_are_read_back(text: str, known: dict[str, int]) -> None:
    f = mt.compile(text, x="f32[M, N]")
    (x,) = arrays({"x": X})
    low = f.lower(**known)
    for stage in ("kernels", "tile", "tile.masked", "tile.target"):
        assert " {strides = [1, " in low[stage].splitlines()[0]
        read = mt.load(low[stage], stage)(x)
        assert np.array_equal(read, f(x)) and read.strides == f(x).strides


@pytest.mark.parametrize(
    "types",
    [
        {"x": "f32[5, 514]", "y": "f32[514, 4]"},
        {"x": "bf16[2, 5, 523]", "y": "bf16[2, 523, 3]"},
        {"x": "f16[3, 528]", "y": "f16[528, 4]"},
    ],
)
def test_rows_of_a_temporary_that_a_product_loads_are_aligned(types: dict[str, str]) -> None:
    f = mt.compile("softmax(x, axis=-2) @ y", **types)
    given = [a.astype(getattr(mt, t.split("[")[0]).numpy) for a, t in zip(arrays(types), types.values())]
    (t,) = f.lower(*given, target="cuda:90").compilation.plan.temporaries
    assert all(int(s) * t.dtype.bytes % 16 == 0 for s in t.strides[:-1]) and t.strides[-1] == 1
    assert int(t.strides[-2] - t.shape[-1]) < 16 // t.dtype.bytes
    report = check(f, bind(f.function, given, {}), ("cuda",))
    assert report.ok, report
    assert np.shape(f(*given)) == np.shape(f.numpy(*given))


def test_a_strided_operand_keeps_its_layout() -> None:
    (x,) = arrays({"x": X})
    assert (mt.compile("x * 2")(x.T)).strides == x.T.strides
    assert (mt.compile("x.T * 2")(x.T)).strides == x.strides


def test_a_factor_of_a_product_is_row_major() -> None:
    (x,) = arrays({"x": X})
    f = mt.compile("def f(x: f32[M, N]):\n    y = softmax(x).T * 2\n    return y @ x, y\n")
    _, y = f(x)
    assert "load out1" in f.lower(M=5, N=7, target="cuda:90")["kernels"] and y.flags.c_contiguous


def test_a_temporary_has_the_layout_of_its_operands() -> None:
    """Programs store neighbouring sums, and the second kernel loads neighbouring sums."""
    text = "def f(x: f32[64, M, 64]):\n    y = sum(permute_dims(x, (2, 1, 0)), axis=1)\n    return y / sum(y, axis=0)"
    f = mt.compile(text)
    kernels = f.lower(M=128, target="cuda:90")["kernels"]
    assert "store t0[j, i]" in kernels and "load t0[i, j]" not in kernels, kernels


@pytest.mark.parametrize(
    ("text", "strides"),
    [
        ("x @ w - mean(x @ w, axis=0)", [65472, 1, 1023]),
        ("x @ w - mean(x @ w, axis=1, keepdims=True)", [65472, 64, 1]),  # a reduction of columns, now of rows
        ("cumulative_sum((x @ w).mT, axis=-1)", [65472, 64, 1]),
    ],
)
def test_a_temporary_of_a_product_has_the_order_of_its_readers(text: str, strides: list[int]) -> None:
    """A regression: after the factors had changed places, a kernel loaded elements that are far apart."""
    f = mt.compile(text, x="f32[64, 64, 1024]", w="f32[64, 1024, 1023]")
    temporary = f.lower(target="cuda:90").compilation.plan.temporaries[0]
    assert list(map(int, temporary.shape)) == [64, 1023, 64] and list(map(int, temporary.strides)) == strides


def test_rows_store_transposed_results_as_rows() -> None:
    """Without the pass, each program stores one element to each row of the result."""
    f = mt.compile("softmax(x).T * 2", x="f32[4096, 2048]")
    assert "store out[j, i]" in f.lower(target="cuda:90")["kernels"]
    low = f.lower(target="cuda:90", without=["output-layouts"])
    assert "store out[i, j]" in low["kernels"] and "{strides" not in low["kernels"]


@pytest.mark.parametrize("names", ["ij", "ji", "ab", "ba", "kr", "rk", "xy", "yx"])
def test_axes_inside_a_remainder_count_in_the_order_of_their_strides(names: str) -> None:
    slow, fast = map(axis, names)
    assert memory_order((slow, fast), [(2, [(33 * slow + fast + 1086) % 1089])]) == (0, 1)
    assert memory_order((fast, slow), [(2, [(33 * slow + fast + 1086) % 1089])]) == (1, 0)
