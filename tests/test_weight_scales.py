"""The pass factor-out-scales: it multiplies the sums, not the 8-bit weights, by the scale. Which scales, and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from short_profile import every_second
from strategies import by_types

import minitri as mt
from minitri.graph import weight_scales
from minitri.graph.evaluate import evaluate
from minitri.graph.ir import Const, Contract
from minitri.optimize import pack_operands
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import compare, enclosures

TYPES = {"x": "f16[M, K]", "w": "i8[K, N]", "s": "f16[N]"}
TEXT = "x @ (w.astype(f16) * s)"
CASES: dict[str, tuple[str, dict[str, str], int]] = {  # the largest weight; 0: nothing is factored out
    "a scale of columns": (TEXT, TYPES, 128),
    "unsigned": (TEXT, TYPES | {"w": "u8[K, N]"}, 255),
    "a scale on the left": ("x @ (s * w.astype(f16))", TYPES, 128),
    "a scale in f32, rounded": ("x @ (w.astype(f32) * s).astype(f16)", TYPES | {"s": "f32[N]"}, 128),
    "a constant scale": ("x @ (w.astype(f16) * 0.01)", {"x": TYPES["x"], "w": TYPES["w"]}, 128),
    "zero points of 8 bits": ("x @ ((w.astype(f16) - z.astype(f16)) * s)", TYPES | {"z": "i8[N]"}, 256),
    "a transposed factor": ("x @ (w.astype(f16) * s[:, None]).T", TYPES | {"w": "i8[N, K]"}, 128),
    "a batch": (TEXT, {"x": "f16[B, M, K]", "w": "i8[B, K, N]", "s": "f16[B, 1, N]"}, 128),
    "one matrix for a batch": (TEXT, TYPES | {"x": "f16[B, M, K]"}, 128),
    "computed": ("x @ (w.astype(f16) * (s * 0.5 + 1))", TYPES, 128),
    "a scale of rows": ("x @ (w.astype(f16) * s[:, None])", TYPES | {"s": "f16[K]"}, 0),
    "bf16": ("x @ (w.astype(bf16) * s)", {"x": "bf16[M, K]", "w": "i8[K, N]", "s": "bf16[N]"}, 0),
    "f32": ("x @ (w.astype(f32) * s)", {"x": "f32[M, K]", "w": "i8[K, N]", "s": "f32[N]"}, 0),
    "weights of 16 bits": (TEXT, TYPES | {"w": "i16[K, N]"}, 0),
    "weights that are floats": ("x @ (w * s)", TYPES | {"w": "f16[K, N]"}, 0),
    "the sum of eight weights": ("x @ (((w + w) + (w + w) + (w + w) + (w + w)).astype(f16) * s)", TYPES, 128),
    "the sum of sixteen converted weights": (f"x @ (({' + '.join(['w.astype(f16)'] * 16)}) * s)", TYPES, 2048),
    "the sum of seventeen converted weights": (f"x @ (({' + '.join(['w.astype(f16)'] * 17)}) * s)", TYPES, 0),
    "a sum": ("x @ (w.astype(f16) + s)", TYPES, 0),
    "zero points that are floats": ("x @ ((w.astype(f16) - z) * s)", TYPES | {"z": "f16[N]"}, 0),
    "a square": ("x @ (w.astype(f16) * w.astype(f16))", {"x": TYPES["x"], "w": TYPES["w"]}, 0),
    "a function": ("x @ tanh(w.astype(f16) * s)", TYPES, 0),
}  # fmt: skip
SIZES = {"B": 2, "M": 21, "K": 35, "N": 19}


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "REUSE REUSE_OF_COMPUTED REUSE_OF_CONVERTED REUSE_OF_SINGLE WORTH WORTH_COMPUTED WORTH_OF_SINGLE"
    for constant in ("DEPTH", "DEPTH_OF_SINGLE", *names.split()):
        monkeypatch.setattr(pack_operands, constant, 1)


def sizes(types: dict[str, str], known: dict[str, int]) -> dict[str, int]:
    return {n: size for n, size in known.items() if any(n in t[t.index("[") :] for t in types.values())}


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("stage", ["graph", "graph.folded"])
def test_scales_that_can_be_factored_out_are_found(name: str, stage: str) -> None:
    """In the graph as written, which `check` uses, and in the simplified graph, which the pass changes."""
    text, types, wanted = CASES[name]
    graph = mt.compile(text, **types).lower(target="cuda:90", **sizes(types, SIZES)).compilation.value(stage)
    (product,) = [n for n in graph.nodes() if isinstance(n, Contract)]
    found = weight_scales.find(product)
    assert (0 if found is None else found.most) == wanted


@pytest.mark.parametrize("step", ["y = y + y", "y = y - w.astype(f16)"])
def test_shared_values_are_visited_once(step: str) -> None:
    """The number of paths from the product to its weights is exponential. A long path must not recurse deeply."""
    steps = "\n".join([f"    {step}"] * 300)
    text = f"def f(x: f16[2048, 4096], w: i8[4096, 4096], s: f16[4096]):\n    y = w.astype(f16)\n{steps}\n    return x @ (y * s)\n"
    f = mt.compile(text)
    graph = f.lower(target="cuda:90").compilation.value("graph.folded")
    assert weight_scales.find(next(n for n in graph.nodes() if isinstance(n, Contract))) is None


def test_scales_are_factored_out_only_if_weights_are_packed() -> None:
    few, many = (mt.compile(TEXT, **TYPES).lower(target="cuda:90", M=m, K=4096, N=4096) for m in (1279, 1280))
    assert "511.75" not in few["graph.simplified"] and "511.75" in many["graph.simplified"]
    first, second = many["triton"].split("def k1")
    assert "511.75" in first and "511.75" in second
    assert len(many.kernels) == 2


@pytest.mark.parametrize("name, wide", every_second(list(CASES), [False, True]))
def test_every_stage(name: str, wide: bool, of_any_size: None) -> None:
    """Results have 16 or 32 bits. For 32 bits, `check` allows smaller errors."""
    text, types, _ = CASES[name]
    given = by_types(types, SIZES)
    if "s" in types:
        s = given[list(types).index("s")].reshape(-1)
        s[:6] = np.inf, np.nan, 0.0, 600.0, -511.5, 6e-8
    report = mt.compile(f"({text}).astype(f32)" if wide else text, **types).check(*given)
    assert report.ok, report


@pytest.mark.parametrize(
    "more", ["argmax({}, axis=1)", "softmax({})", "1 / ({})", "({0}, sum({0}, axis=1))", "floor({})"]
)
def test_operations_after_the_product_are_right(more: str, of_any_size: None) -> None:
    report = mt.compile(more.format(TEXT), **TYPES).check(*by_types(TYPES, SIZES))
    assert report.ok, report


def packed(x: Any, w: Any, s: Any) -> Any:
    """The result of the pass's graph, evaluated by numpy."""
    f = mt.compile(TEXT, **TYPES)
    known = {"M": x.shape[0], "K": x.shape[1], "N": w.shape[1]}
    graph = f.lower(target="cuda:90", **known).compilation.value("graph.packed")
    assert any(isinstance(n, Const) and n.value == 511.75 for n in graph.nodes())
    with np.errstate(all="ignore"):
        (result,) = evaluate(graph, {"x": x, "w": w, "s": s}, known)
    return result


def test_special_values_stay_as_in_numpy(of_any_size: None) -> None:
    """Overflows, infinities and NaN appear at the same elements as in numpy. Zeros have no sign."""
    x = np.zeros((3, 4), np.float16)
    x[0, 0], x[1] = 1, (1, -1, 1, 0)
    w = np.full((4, 7), 127, np.int8)
    w[0, 1] = 0
    s = np.array([np.inf, np.inf, np.nan, 600, -600, -0.5, 511.5], np.float16)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32) @ (w.astype(np.float16) * s).astype(np.float32)
    result = packed(x, w, s)
    np.testing.assert_array_equal(result, wanted.astype(np.float16))
    assert not np.signbit(result[2, 5])


def test_weights_are_not_rounded(of_any_size: None) -> None:
    """Two weights that f16 would round differently are subtracted from each other."""
    w = np.stack([np.arange(-128, 127), np.arange(-127, 128)]).astype(np.int8)
    s = np.full(255, 0.1001, np.float16)
    result = packed(np.array([[-1.0, 1.0]] * 2, np.float16), w, s)
    np.testing.assert_array_equal(result, np.full((2, 255), s[0]))
    assert (
        len(np.unique(w[1].astype(np.float16) * s - w[0].astype(np.float16) * s)) > 1
    )  # they differ if they are rounded


def test_check_allows_weights_with_and_without_rounding() -> None:
    """`check` allows weights rounded to f16 and exact ones, but no fewer digits, and no rounding without a scale."""
    f = mt.compile(f"({TEXT}).astype(f32)", **TYPES)
    x, w, s = by_types(TYPES, {"M": 3, "K": 5, "N": 40})
    (allowed,) = enclosures(f, bind(f.function, [x, w, s], {}))
    wide = x.astype(np.float64), w.astype(np.float64), s.astype(np.float64)
    exact = wide[0] @ (wide[1] * wide[2])
    rounded = wide[0] @ (w.astype(np.float16) * s).astype(np.float64)
    coarse = wide[0] @ ((wide[1] * wide[2]).astype(np.float32).view(np.uint32) & 0xFFFF8000).view(np.float32).astype(
        np.float64
    )
    assert [compare(r.astype(np.float32), allowed)[0] for r in (exact, rounded, coarse)] == [True, True, False]
    g = mt.compile("(x @ (w * s)).astype(f32)", **TYPES | {"w": "f16[K, N]"})
    (allowed,) = enclosures(g, bind(g.function, [x, w.astype(np.float16), s], {}))
    assert [compare(r.astype(np.float32), allowed)[0] for r in (exact, rounded)] == [False, True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("m", [1280, 2001])
def test_on_a_gpu(m: int) -> None:
    random = torch.Generator("cuda").manual_seed(m)
    x = torch.randn(m, 4096, device="cuda", generator=random).half()
    w = torch.randint(-128, 128, (4096, 1032), device="cuda", dtype=torch.int8, generator=random)
    s = torch.randn(1032, device="cuda", generator=random).half()
    s[:4] = torch.tensor([torch.inf, torch.nan, 0.0, 600.0])
    result = mt.compile(TEXT, **TYPES)(x, w, s).double()
    wanted = x.double() @ (w.half() * s).double()
    assert torch.equal(result[:, :4].isfinite(), (wanted[:, :4].abs() < 65520))
    assert torch.equal(result[:, :2].isnan(), wanted[:, :2].isnan()) and not result[:, 2].any()
    error = (result - wanted)[:, 4:].norm() / wanted[:, 4:].norm()
    assert error < 5e-4
