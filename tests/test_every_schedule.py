"""A program for each rule that chooses a schedule, on ragged sizes: every stage is right, and runs give the same bits.

Without a GPU its schedules run in the interpreter (variant `cuda` of `check`). On a GPU each program runs several
times: bound, captured, on another stream, compiled again, and with copies of its inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from short_profile import every_second

import minitri as mt
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

PROGRAMS: dict[
    str, tuple[str, tuple[tuple[int, ...], ...], str]
] = {  # text, shapes of x and y, a text in the output of `explain`
    "elementwise": ("x * 2 + y", ((1037, 67), (67,)), "elements"),
    "a transpose": ("x.T + y", ((132, 260), (260, 132)), "a square"),
    "a transpose of odd rows": ("x.T + y", ((131, 257), (257, 131)), "a rectangle"),
    "a transpose with a short side": ("permute_dims(x, (0, 2, 3, 1))", ((3, 3, 31, 37),), "a rectangle"),
    "many small transposes": ("x.mT", ((1031, 3, 5),), "elements, contiguous along i"),
    "many transposes": ("x.mT", ((1031, 31, 30),), "two axes are contiguous"),
    "rows in registers": ("softmax(x)", ((5, 3001),), "rows held whole"),
    "short rows": ("softmax(x)", ((301, 77),), "short rows held whole"),
    "rows in blocks": ("softmax(x)", ((70, 32_771),), "rows in blocks"),
    "rows in blocks, read once": ("var(x, axis=1)", ((70, 16_387),), "rows in blocks"),
    "columns": ("sum(x, axis=0)", ((70, 1031),), "columns"),
    "many short columns": ("softmax(x, axis=1)", ((1031, 10, 3),), "columns"),
    "many short rows": ("softmax(x + y)", ((1031, 2, 13), (2, 13)), "short rows held whole"),
    "rows of 16 bits, read again": ("softmax(x)", ((70, 16_387),), "from a near cache"),
    "rows in blocks of two axes": ("sum(x, axis=(0, 2))", ((20_011, 2, 3),), ""),
    "moments of two axes": ("mean(x, axis=(0, 2)), var(x, axis=(0, 2))", ((67, 3, 301),), "rows held whole"),
    "elements that are far apart": ("exp(x[:, ::3]) + 1", ((311, 1003),), "elements"),
    "a sum in parts": ("sum(x)", ((333, 1027),), ""),
    "columns in parts": ("sum(x, axis=0)", ((5003, 131),), ""),
    "max and argmax in parts": ("argmax(x, axis=1), max(x, axis=1)", ((3, 40_001),), ""),
    "logsumexp in parts": ("logsumexp(x, axis=1)", ((3, 100_001),), ""),
    "a scan": ("cumulative_sum(x, axis=1)", ((67, 3001),), "rows held whole"),
    "a scan in blocks": ("cumulative_sum(x, axis=1)", ((70, 32_771),), "rows in blocks"),
    "a scan of columns": ("cumulative_sum(x, axis=0)", ((1037, 67),), ""),
    "a scan in parts": ("cumulative_sum(x, axis=1)", ((2, 40_001),), ""),
    "an exclusive scan": ("pad(cumulative_sum(exp(x), axis=1), ((0, 0), (2, 1)))", ((67, 3001),), "rows held whole"),
    "an exclusive scan in blocks": (
        "pad(cumulative_max(x, axis=1), ((0, 0), (2, 1)))",
        ((70, 40_001),),
        "rows in blocks",
    ),
    "an exclusive scan in parts": ("pad(cumulative_sum(x, axis=1), ((0, 0), (2, 1)))", ((2, 40_001),), ""),
    "scans and sums": ("cumulative_sum(x, axis=1) / sum(x * x, axis=1, keepdims=True)", ((2, 40_001),), ""),
    "several results": ("sum(x, axis=1), max(x, axis=1), x * 2", ((300, 3001),), ""),
    "a product": ("relu(x @ y)", ((137, 70), (70, 91)), "a product"),
    "a deep product": ("x @ y", ((20, 5000), (5000, 33)), ""),
    "a product in a loop": ("softmax(x @ x.T) @ y", ((137, 32), (137, 32)), "rows of a product stay"),
    "gathered rows": ("take(x, arange(50) * 2, axis=0)", ((131, 257),), ""),
}


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(np.float16 if "16 bits" in name else np.float32)


def program(name: str) -> tuple[mt.Program, list[tuple[int, ...]]]:
    text, shapes, _ = PROGRAMS[name]
    types = {n: f"f{8 * dtype(name).itemsize}[{', '.join(str(s) for s in shape)}]" for n, shape in zip("xy", shapes)}
    return mt.compile(text, **types), list(shapes)


@pytest.mark.parametrize("name", every_second(list(PROGRAMS)))
def test_every_stage_is_right(name: str) -> None:
    f, shapes = program(name)
    given = [np.random.default_rng(k).standard_normal(s).astype(dtype(name)) for k, s in enumerate(shapes)]
    report = check(f, bind(f.function, given, {}), ("cuda",))
    assert report.ok, report
    assert PROGRAMS[name][2] in f.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_runs_give_the_same_bits(name: str) -> None:
    f, shapes = program(name)
    given = [torch.randn(*s).to(getattr(torch, dtype(name).name)).cuda() for s in shapes]
    first = bits(f(*given))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert bits(f(*given)) == first
    fresh, copies = program(name)[0], [x.clone() for x in given]
    for run in (f, f.bind(*given), f.capture(*given)):
        again = run(*given) if run is f else run()
        assert bits(again) == first
    for _ in range(20):
        assert bits(fresh(*copies)) == first
    exact = several(f.numpy(*[x.cpu().numpy() for x in given]))
    for own, wanted in zip(several(f(*given)), exact):
        np.testing.assert_allclose(
            own.cpu().numpy(), wanted, rtol=2e-3, atol=2e-3 * max(1.0, float(np.abs(wanted).max()))
        )


def bits(result: Any) -> list[bytes]:
    torch.cuda.synchronize()
    return [x.cpu().numpy().tobytes() for x in several(result)]


def several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
