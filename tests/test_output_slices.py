"""The optimisation output-slices: which results are stored in slices, which are not, and results at every stage."""

import re
from typing import Any

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.base.diagnostics import BrokenRule
from minitri.optimize import output_slices
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check
from minitri.trust.memory_proofs import prove

X, W = "f32[5, 7]", "f32[7, 7]"
TWO = {"x": X, "y": X}
ROTARY = "concat((x[:, :8] * c - x[:, 8:] * s, x[:, :8] * s + x[:, 8:] * c), axis=-1)"
SLICED = {  # the text and the types of a program with one result, and the index of each store of its only kernel
    "rotary": (ROTARY, {"x": "f32[5, 16]", "c": "f32[5, 8]", "s": "f32[5, 8]"}, "i,0,j i,1,j"),
    "rows and a copy": ("concat((softmax(x), y), axis=1)", TWO, "i,0,j i,1,j"),
    "a copy and rows": ("concat((y, softmax(x)), axis=1)", TWO, "i,0,j i,1,j"),
    "the first axis": ("concat((softmax(x), y * 2), axis=0)", TWO, "0,i,j 1,i,j"),
    "a middle axis": ("concat((x * 2, y), axis=1)", {"x": "f32[2, 5, 8]", "y": "f32[2, 5, 8]"}, "i,0,j i,1,j"),
    "four operands": (
        "concat((x * 2, y, x + y, y), axis=1)",
        {"x": "f32[5, 8]", "y": "f32[5, 8]"},
        "i,0,j i,1,j i,3,j i,2,j",
    ),
    "one operand twice": ("concat((x * 2, x * 2), axis=0)", {"x": X}, "0,i 1,i"),
    "a stack of rows": ("stack((softmax(x), y), axis=1)", TWO, "i,0,0,j i,1,0,j"),
    "a stack of numbers": ("stack((mean(x, axis=1), var(x, axis=1)), axis=1)", {"x": X}, "i,0,0 i,1,0"),
    "a product": ("concat((relu(x @ w), y), axis=0)", {**TWO, "w": W}, "0,i,j 1,i,j"),
    "a rounded product": ("astype(concat((x @ w, y), axis=1), f16)", {**TWO, "w": W}, "i,0,j i,1,j"),
    "two products": ("concat((x @ w, y @ v), axis=1)", {**TWO, "w": W, "v": W}, "i,0,j i,1,j"),
    "operations after it": ("relu(concat((x * 2, y), axis=0)) * z", {**TWO, "z": "f32[10, 7]"}, "0,i 1,i"),
    "reversed operands": ("concat((x[::-1] * 2, y[:, ::-1] + 1), axis=0)", TWO, "0,i,j 1,i,j"),
    "reversed afterwards": ("concat((x * 2, y + 1), axis=0)[:, ::-1]", TWO, "0,i,j 1,i,j"),
    "a constant": ("concat((exp(x), zeros((5, 7))), axis=0)", {"x": X}, "0,i 1,i"),
    "a scan": ("concat((cumulative_sum(x, axis=1), y), axis=0)", TWO, "0,i,j 1,i,j"),
}
WHOLE = {
    "unequal operands": ("concat((x * 2, y[:, 1:]), axis=1)", TWO),
    "five operands": ("concat((x * 2, y, x, y, x), axis=1)", TWO),
    "copies": ("concat((x, y), axis=1)", TWO),
    "transposed operands": ("concat((x.T * 2, y.T * 3), axis=0)", {"x": "f32[5, 8]", "y": "f32[5, 8]"}),
    "transposed afterwards": ("concat((x * 2, y + 1), axis=1).T", {"x": "f32[5, 8]", "y": "f32[5, 8]"}),
    "rows beside a transposed copy": (
        "exp(x - max(x, axis=-1, keepdims=True)), x * 2, stack((x.mT, y), axis=0)",
        {"x": "bf16[64, 197, 128]", "y": "bf16[64, 128, 197]"},
    ),
    "no elements": ("stack((roll(x, 1, axis=0), x - mean(x)))", {"x": "f32[0, 5]"}),
    "short runs": ("stack((x * 2, y), axis=2)", TWO),
    "rows of the whole result": ("softmax(concat((x * 2, y), axis=1))", TWO),
    "rows of another array": ("softmax(z) * concat((x * 2, y), axis=1)", {**TWO, "z": "f32[5, 14]"}),
    "a result that another kernel reads": ("sum(concat((x * 2, y), axis=1))", TWO),
    "products in kernels of their own": (
        "concat((x @ w, y @ v), axis=1)",
        {"x": "f32[512, 256]", "w": "f32[256, 512]", "y": "f32[512, 384]", "v": "f32[384, 512]"},
    ),
}  # fmt: skip


def arrays(types: dict[str, str]) -> list[Any]:
    """Returns random arrays; each has a NaN, an infinity or a negative zero."""
    rng, made = np.random.default_rng(0), []
    for special, t in zip((np.nan, np.inf, -0.0, np.nan), types.values()):
        made.append(rng.standard_normal([int(n) for n in re.findall(r"\d+", t[4:])]).astype("f4"))
        if made[-1].size > 1:
            made[-1].flat[1] = special
    return made


def kernels(text: str, types: dict[str, str], **more: Any) -> tuple[Any, ...]:
    return mt.compile(text, **types).lower(target="cuda:90", **more).compilation.value("kernels").kernels


def stores(text: str, types: dict[str, str]) -> str:
    (kernel,) = kernels(text, types)
    written = [op for op in kernel.body if type(op).__name__ == "Store"]
    return " ".join(",".join(map(str, op.index)) for op in written)


@pytest.mark.parametrize("name", list(SLICED))
def test_a_result_in_slices(name: str) -> None:
    text, types, wanted = SLICED[name]
    assert stores(text, types) == wanted
    f, given = mt.compile(text, **types), arrays(types)
    np.testing.assert_allclose(f(*given), f.numpy(*given), 1e-3, 1e-3)
    report = check(f, bind(f.function, given, {}))
    assert report.ok, report
    for program in f.lower(target="cuda:90").compilation.value("tile.target"):
        assert all(verdict.ok for verdict in prove(program))


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_result_that_is_not_divided(name: str) -> None:
    text, types = WHOLE[name]
    low, without = (mt.compile(text, **types).lower(target="cuda:90", without=w) for w in ((), ["output-slices"]))
    assert low["kernels"] == without["kernels"]


@pytest.mark.parametrize("size, axis", every_second([0, 1, 2, 3, 16, 33], [0, 1]))
def test_sizes(size: int, axis: int) -> None:
    """Also with unknown sizes, which can be 0."""
    f = mt.compile(f"concat((exp(x), y, x * y), axis={axis})", x="f32[M, N]", y="f32[M, N]")
    for shape in ((size, 5), (3, size)):
        x, y = arrays({n: f"f32[{shape[0]}, {shape[1]}]" for n in "xy"})
        np.testing.assert_array_equal(f(x, y), f.numpy(x, y))
        report = f.check(x, y)
        assert report.ok, report


def test_several_results() -> None:
    text = "x * 2, concat((x * 2, y + 1), axis=0), sum(x, axis=1), concat((exp(x), y), axis=1)"
    f, (x, y) = mt.compile(text, **TWO), arrays(TWO)
    assert f.check(x, y).ok
    names = {b.name: b.shape for k in kernels(text, TWO) for b in k.buffers}
    assert {n: len(s) for n, s in names.items() if n.startswith("out")} == {"out0": 2, "out1": 3, "out2": 1, "out3": 3}


def test_fewer_kernels_and_bytes() -> None:
    """Without slices, the numbers of two reductions go through memory."""
    text, types, _ = SLICED["a stack of numbers"]
    plans = [
        mt.compile(text, **types).lower(target="cuda:90", without=w).compilation.value("kernels")
        for w in ((), ["output-slices"])
    ]
    (bytes, count, _), (more_bytes, more, _) = map(output_slices.costs, plans)
    assert bytes < more_bytes and (count, more) == (1, 2)


def test_every_stage_is_read_back() -> None:
    text, types, _ = SLICED["a middle axis"]
    f, given = mt.compile(text, **types), arrays(types)
    low = f.lower()
    for stage in ("kernels", "tile", "tile.masked", "tile.target"):
        read = mt.load(low[stage], stage)(*given)
        assert np.array_equal(read, f(*given), equal_nan=True) and read.strides == f(*given).strides


@pytest.mark.parametrize("wrong", ["out[i, 1, j]", "out[1, i, j]", "out[i, j, 1]"])
def test_slices_that_overlap_are_refused(wrong: str) -> None:
    text = mt.compile("concat((exp(x), x * 2), axis=1)", x="f32[8, 8]").lower()["kernels"]
    with pytest.raises((BrokenRule, mt.CompileError), match="written twice"):
        mt.load(text.replace("store out[i, 0, j]", f"store {wrong}"), "kernels").lower()["tile"]


def test_a_missing_slice_is_refuted() -> None:
    low = mt.compile("concat((exp(x), x * 2, x + 1), axis=1)", x="f32[8, 8]").lower(target="cuda:90")
    text = "".join(line for line in low["tile.target"].splitlines(keepends=True) if "store out[i, 1, j]" not in line)
    (program,) = mt.load(text, "tile.target").lower(target="cuda:90").compilation.value("tile.target")
    assert [v.status for v in prove(program) if v.claim == "written once"] == ["refuted"]
