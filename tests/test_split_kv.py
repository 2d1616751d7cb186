"""The pass split-kv (minitri/optimize/split_kv.py): products that depend on a maximum, split along their long loop.

Few queries and many keys are an example. For each variant of tests/test_attention.py, the tests require two
kernels that are right at every stage. This includes parts that a mask leaves empty, parts of different length,
and axes of equal size. Other tests require when the pass splits a loop, and that little is stored. The stages are
those of a GPU: a CPU runs one program after another, so nothing is split there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from short_profile import every_second, one_in
from test_attention import DTYPES, QKV, SCORES, VARIANTS, arrays, program, sizes_of

import minitri as mt
from minitri.explain import explain
from minitri.graph.ir import Contract, Reduce
from minitri.hardware.targets import Target
from minitri.kernels.ir import Load
from minitri.optimize import split_kv
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Loop
from minitri.trust.check_passes import check
from minitri.trust.run_stage import results

SIZES = {"B": 1, "H": 2, "T": 9, "S": 50, "D": 16, "E": 16}
DECODE = {"B": 1, "H": 8, "T": 8, "S": 32768, "D": 128, "E": 128}


@pytest.fixture
def short() -> Any:
    """Lowers thresholds: loops of 16 are split, into parts of 16 elements."""
    with mock.patch.multiple(split_kv, SHORTEST=16, PART=8, STEP=8):
        yield


def lowered(name: str, sizes: dict[str, int], dtype: str = "bf16") -> Any:
    f = program(name, dtype)
    return f.lower(**sizes_of(f, sizes))


def checked(f: Any, given: list[Any]) -> None:
    report = check(f, bind(f.function, given, {}), ("cuda",))
    assert report.ok, report


KERNELS = {"logsumexp": 3, "max and sum": 5}  # results without columns are combined in kernels of their own


@pytest.mark.parametrize("name", every_second(list(VARIANTS)))
def test_each_variant_is_two_correct_kernels(name: str, short: None) -> None:
    low = lowered(name, SIZES)
    assert len(low.kernels) <= KERNELS.get(name, 2) and "concat" in low["graph.simplified"], low["kernels"]
    checked(program(name), arrays(name, SIZES, "bf16"))


@pytest.mark.parametrize("name, s", every_second(["full", "causal", "lengths"], [48, 50]))
def test_special_values_in_parts(name: str, s: int, short: None) -> None:
    """Parts of equal and of different length, with huge scores, infinities and nan in queries, keys and values."""
    sizes = SIZES | {"S": s}
    given = arrays(name, sizes, "f32", seed=1, scale=100)
    checked(program(name, "f32"), given)
    rng = np.random.default_rng(2)
    for x in given[:3]:
        x[rng.random(x.shape[:-1]) < 0.1] = rng.choice([np.inf, -np.inf, np.nan])
    checked(program(name, "f32"), given)


@pytest.mark.parametrize("n", [0, 1, 16, 17, 50])
def test_parts_that_are_completely_masked(n: int, short: None) -> None:
    """Rows of -inf alone give nan, and their logsumexp is -inf. A part of -inf alone changes nothing."""
    scores = f"where(arange(S) < n, {SCORES}, -inf)"
    f = mt.compile(
        f"def f({QKV.format(t='f32')}, n: i32[]):\n    s = {scores}\n    return softmax(s) @ v, logsumexp(s, axis=-1)\n"
    )
    q, k, v = arrays("full", SIZES, "f32")
    checked(f, [q, k, v, np.int32(n)])


@pytest.mark.parametrize("sizes", [(1, 4, 4, 64), (1, 1, 16, 256), (2, 16, 16, 256), (16, 16, 16, 256), (1, 2, 1, 48)])
def test_axes_of_equal_size(sizes: tuple[int, ...], short: None) -> None:
    """There may be as many parts as rows, heads or columns. Axes of equal size must not be confused."""
    b, h, t, s = sizes
    known = {"B": b, "H": h, "T": t, "S": s, "D": 16, "E": 16}
    for name in ("full", "logsumexp"):
        f = program(name, "f32")
        assert t == 1 or len(lowered(name, known).kernels) <= KERNELS.get(name, 2)
        if b * h * t <= 64:
            checked(f, arrays(name, known, "f32"))


@pytest.mark.parametrize("rows", ["B, H // 4, 4, 1", "B, H // 2, 1, 2", "H // 4, B, 4, 1"])
def test_one_query_a_head(rows: str, short: None) -> None:
    """Heads that share keys become the rows of a product. The axes of the maximum and of the product differ in order."""
    first, *rest = rows.split(", ")
    heads = {"B": "k[:, :, None]", "H // 4": "permute_dims(k, (1, 0, 2, 3))[:, :, None]"}[first]
    group = 4 if "4" in rows else 2
    text = (
        f"def f(q: f32[B, H, 1, D], k: f32[B, H // {group}, S, D], v: f32[B, H // {group}, S, D]):\n"
        f"    s = reshape(q, ({rows}, D)) @ {heads}.mT\n    return softmax(s, axis=-1) @ {heads.replace('k', 'v')}\n"
    )
    f, rng = mt.compile(text), np.random.default_rng(0)
    sizes = {"B": 2, "H": 8, "S": 50, "D": 16}
    if rest[-1] == "1":
        assert len(f.lower(**sizes).kernels) <= 3
    shapes = (2, 8, 1, 16), (2, 8 // group, 50, 16), (2, 8 // group, 50, 16)
    checked(f, [rng.normal(size=shape).astype(np.float32) for shape in shapes])


def test_other_corrections_than_that_of_softmax(short: None) -> None:
    """A factor next to the exponential, and a product without a division."""
    for term in ("exp(s - m) * w", "exp(s - m) / (2 + w * w)", "-exp(s - m) / sum(exp(s - m), axis=-1, keepdims=True)"):
        text = f"def f({QKV.format(t='f32')}, w: f32[S]):\n    s = {SCORES}\n    m = max(s, axis=-1, keepdims=True)\n    return ({term}) @ v\n"
        f = mt.compile(text)
        for s in (48, 50):
            sizes = SIZES | {"S": s}
            checked(f, [*arrays("full", sizes, "f32"), np.linspace(-2, 2, s, dtype=np.float32)])


def contracts(low: Any) -> list[Contract]:
    return [n for n in low.compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({}, 32),  # 8 programs
        ({"H": 64}, 4),
        ({"H": 128}, 1),  # enough programs
        ({"T": 512}, 4),
        ({"T": 4096}, 1),
        ({"S": 1024}, 1),  # a second kernel would take longer
        ({"S": 2048}, 8),
        ({"S": 32000}, 25),  # the largest number that divides it into complete blocks
        ({"S": 32771}, 33),
        ({"D": 512}, 16),  # one loop would not fit into registers: `split-k` splits the second product
        ({"B": 8, "H": 16}, 1),
    ],
)
def test_the_number_of_parts(changed: dict[str, int], parts: int) -> None:
    low = lowered("full", DECODE | changed)
    shapes = [n.shape for n in contracts(low)]
    assert ([int(s[2]) for s in shapes if len(s) == 5] or [1]) == [parts]


def test_sizes_must_be_known() -> None:
    """Rows, heads and columns must be known. The number of keys may be symbolic."""
    for unknown in DECODE:
        known = {k: v for k, v in DECODE.items() if k != unknown}
        assert (len(lowered("full", known).kernels) == 2) == (unknown == "S")


@pytest.mark.parametrize("name, s", one_in(4, ["full", "causal", "lengths", "logsumexp"], [1, 63, 65, 2049]))
def test_a_loop_of_unknown_length(name: str, s: int) -> None:
    """Parts that start past the end are empty and change nothing, also in Triton's interpreter."""
    f, sizes = program(name, "f32"), SIZES | {"S": s, "T": 3}
    call = bind(f.function, arrays(name, sizes, "f32"), {})
    known = {n: size for n, size in call.sizes.items() if n != "S"}
    compiled = f.compilation(replace(f.context(call, Target("cuda", "90"), False), sizes=known))
    assert len(compiled.value("kernels").kernels) <= KERNELS.get(name, 2) and "S" in compiled["kernels"]
    wanted = f.numpy(*call.inputs.values())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for stage in ("graph.simplified", "kernels", "tile.masked", "triton"):
        for want, got in zip(wanted, results(compiled, stage, call), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_if_the_product_is_not_split_its_maximum_is_not_split_either() -> None:
    """There are 200 rows of one query each. Alone, a maximum of so few long rows would be split."""
    low = lowered("full", {"B": 2, "H": 100, "T": 2, "S": 8192, "D": 64, "E": 64})
    assert len(low.kernels) == 1
    maxima = [n for n in low.compilation.value("graph.simplified").nodes() if isinstance(n, Reduce) and n.op == "max"]
    assert len(maxima) == 1


@pytest.mark.parametrize("dtype, d", every_second(list(DTYPES), [64, 80, 128, 256]))
def test_little_is_stored_between_the_kernels(dtype: str, d: int) -> None:
    """Each part stores the columns of the product and two numbers for each row. Keys and values are read once."""
    for s in (32768, 32771):
        low = lowered("full", DECODE | {"S": s, "D": d, "E": d}, dtype)
        (n,) = (int(c.shape[2]) for c in contracts(low) if len(c.shape) == 5)
        shapes = sorted(tuple(map(int, b.shape)) for b in low.compilation.plan.temporaries)
        assert shapes == sorted([(1, 8, 8, n), (1, 8, 8, n), (1, 8, n, 8, d)])
        first, _ = low.compilation.value("tile.masked").programs
        for name in ("k", "v"):
            per_loop = [
                sum(isinstance(op, Load) and op.buffer.name == name for op in loop.body)
                for loop in first.body if isinstance(loop, Loop)
            ]  # fmt: skip
            assert per_loop in ([1], [1, 1])


def test_explain_names_the_split_loop() -> None:
    page = explain(lowered("full", DECODE).compilation)
    found = page[page.index("\nin parts\n") :].partition("\n\n")[0].splitlines()[2:]
    assert [line.split()[0] for line in found] == ["max:", "sum:", "contract:"]
    assert all(line.endswith("32 parts  of 1,024 elements") for line in found)
    whole = lowered("full", DECODE | {"B": 64})
    assert "\nin parts\n" not in explain(whole.compilation)


def test_one_kernel_computes_parts_and_one_combines_them() -> None:
    """The ledger says what is not fused, and that both sums depend on the maximum of their part."""
    ledger = lowered("full", DECODE).compilation.value("kernels").ledger
    apart = {d.value.partition(":")[0] for d in ledger if not d.fused}
    assert apart == {"max", "sum", "contract"}
    followed = [d for d in ledger if d.rule.startswith("one loop with the max")]
    assert {d.value.partition(":")[0] for d in followed} == {"sum", "contract"}
