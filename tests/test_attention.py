"""Attention from its definition: it becomes one kernel for any change of the scores, with numpy's results.

No operator of the compiler is called attention. `fusion` finds that the products, the maximum and the
sum share a loop. `online-reductions` finds how they depend on each other in it. The tests require that
each variant is one kernel, so that no matrix of scores is stored. They run it in small blocks, with rows
that are masked completely and with infinities, and compare within the bounds of `check`. They also read
the compiled code.
"""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from short_profile import every_second
from stages import SMALL

import minitri as mt
from minitri.base.dims import Symbol, product
from minitri.explore.kernel_statistics import resources
from minitri.explore.machine_code import MachineCode
from minitri.hardware.chips import shared_bytes
from minitri.hardware.targets import Target
from minitri.kernels.ir import Compute, Inside, Load, Store
from minitri.kernels.memory_traffic import traffic
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Loop
from minitri.triton import compiled_stages
from minitri.trust.check_passes import check

QKV = "q: {t}[B, H, T, D], k: {t}[B, H, S, D], v: {t}[B, H, S, E]"
FEW = "q: {t}[B, H, T, D], k: {t}[B, H // 2, S, D], v: {t}[B, H // 2, S, E]"
SCORES = "q @ k.mT * D**-0.5"
PLACE = "(arange(T)[:, None] - arange(S))"
VARIANTS = {
    "full": (f"softmax({SCORES}, axis=-1) @ v", QKV),
    "causal": (f"softmax(where(arange(T)[:, None] >= arange(S), {SCORES}, -inf), axis=-1) @ v", QKV),
    "window": (f"softmax(where(({PLACE} >= 0) & ({PLACE} < 9), {SCORES}, -inf), axis=-1) @ v", QKV),
    "two sided": (f"softmax(where(abs({PLACE}) < 5, {SCORES}, -inf), axis=-1) @ v", QKV),
    "alibi": (f"softmax({SCORES} - slope[:, None, None] * abs({PLACE}), axis=-1) @ v", QKV + ", slope: f32[H]"),
    "capped": (f"softmax(20 * tanh({SCORES} / 20), axis=-1) @ v", QKV),
    "bias": (f"softmax({SCORES} + bias, axis=-1) @ v", QKV + ", bias: {t}[H, T, S]"),
    "padding": (f"softmax(where(there[:, None, None, :], {SCORES}, -inf), axis=-1) @ v", QKV + ", there: bool[B, S]"),
    "lengths": (
        f"softmax(where(arange(S) < n[:, None, None, None], {SCORES}, -inf), axis=-1) @ v",
        QKV + ", n: i32[B]",
    ),
    "grouped": ("softmax(q @ k[:, arange(H) // 2].mT * D**-0.5, axis=-1) @ v[:, arange(H) // 2]", FEW),
    "grouped views": (
        "softmax(reshape(q, (B, H // 2, 2, T, D)) @ k[:, :, None].mT * D**-0.5, axis=-1) @ v[:, :, None]",
        FEW,
    ),
    "library": ("attention(q, k, v)", QKV),
    "by hand": (
        "(exp(q @ k.mT - max(q @ k.mT, axis=-1, keepdims=True))"
        " / sum(exp(q @ k.mT - max(q @ k.mT, axis=-1, keepdims=True)), axis=-1, keepdims=True)) @ v",
        QKV,
    ),
    "flat": (f"softmax({SCORES}, axis=-1) @ v", "q: {t}[T, D], k: {t}[S, D], v: {t}[S, E]"),
    "logsumexp": (f"softmax({SCORES}, axis=-1) @ v, logsumexp({SCORES}, axis=-1)", QKV),
    "max and sum": (
        f"max({SCORES}, axis=-1), sum(exp({SCORES} - max({SCORES}, axis=-1, keepdims=True)), axis=-1),"
        f" softmax({SCORES}, axis=-1) @ v",
        QKV,
    ),
}
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SIZES = {"B": 2, "H": 2, "T": 37, "S": 50, "D": 16, "E": 16}


def program(name: str, dtype: str = "bf16") -> Any:
    body, parameters = VARIANTS[name]
    return mt.compile(f"def f({parameters.format(t=dtype)}):\n    return {body}\n")


def sizes_of(f: Any, sizes: dict[str, int]) -> dict[str, int]:
    used = set(re.findall(r"\b[A-Z]\b", f.module.span.text.partition("\n")[0]))
    return {n: s for n, s in sizes.items() if n in used}


def arrays(name: str, sizes: dict[str, int], dtype: str, seed: int = 0, scale: float = 1.0) -> list[Any]:
    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for kind, dims in re.findall(r"\w+: (\w+)\[([^\]]*)\]", VARIANTS[name][1].format(t=dtype)):
        shape = [sizes["H"] // 2 if d == "H // 2" else sizes[d] for d in dims.split(", ")]
        match kind:
            case "bool":
                made.append(rng.random(shape) < 0.6)
            case "i32":
                made.append(rng.integers(0, sizes["S"] + 1, shape).astype(np.int32))
            case _:
                made.append((rng.normal(size=shape) * scale).astype(DTYPES[kind]))
    return made


def checked(f: Any, given: list[Any]) -> None:
    report = check(f, bind(f.function, given, {}), ("interpreter", "cuda"))
    assert report.ok, report


@pytest.mark.parametrize("name", list(VARIANTS))
def test_each_variant_is_one_correct_kernel(name: str) -> None:
    """Both axes have blocks of 16 that do not divide them. A row whose scores are all masked is nan, as in numpy."""
    f = program(name).configured(options=SMALL)
    assert len(f.lower(**sizes_of(f, SIZES)).kernels) == 1
    checked(f, arrays(name, SIZES, "bf16"))


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("name", list(VARIANTS))
def test_each_variant_is_one_kernel_for_every_dtype(name: str, dtype: str) -> None:
    f = program(name, dtype)
    for d in (64, 80, 128, 256):
        plan = f.lower(**sizes_of(f, {"B": 4, "H": 16, "T": 20000, "S": 40000, "D": d, "E": d})).compilation
        assert len(plan.value("kernels").kernels) == 1 and not plan.value("kernels").temporaries


@pytest.mark.parametrize("name", list(VARIANTS))
def test_memory_grows_linearly_with_the_length(name: str) -> None:
    """With 32,768 queries and keys, only the results are written."""
    f = program(name)
    plan = f.lower(**sizes_of(f, {"B": 1, "H": 2, "T": 32768, "S": 32768, "D": 64, "E": 64})).compilation.value(
        "kernels"
    )
    assert not plan.temporaries
    written = sum(t.written for t in traffic(plan, {}))
    assert written == sum(int(product(list(b.shape))) * b.dtype.bytes for b in plan.outputs)


def masked(name: str) -> Any:
    """A variant in which the sixth query may read no key."""
    body, parameters = VARIANTS[name]
    whole = re.sub(
        r"softmax\((.*?), axis=-1\) @", r"softmax(where(arange(T)[:, None] != 5, \1, -inf), axis=-1) @", body
    )
    assert "!= 5" in whole
    return mt.compile(f"def f({parameters.format(t='bf16')}):\n    return {whole}\n")


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in ("library", "by hand")])
def test_a_query_without_keys_is_right_in_every_variant(name: str) -> None:
    f = masked(name).configured(options=SMALL)
    given = arrays(name, SIZES, "bf16")
    checked(f, given)
    results = f(*given)
    result = results[-1 if name == "max and sum" else 0] if isinstance(results, tuple) else results
    assert np.isnan(result[..., 5, :].astype(np.float32)).all()


@pytest.mark.parametrize("empty", ["B", "T", "D", "E"])
def test_empty_axes(empty: str) -> None:
    f = program("full").configured(options=SMALL)
    given = arrays("full", SIZES | {"T": 5, "S": 5} | {empty: 0}, "bf16")
    checked(f, given)
    assert f(*given).size == 0 or empty == "D"


def test_no_keys() -> None:
    """The maximum of an empty row has no value, as in numpy: an error before anything runs."""
    for f in (program("full"), program("full").configured(options=SMALL)):
        with pytest.raises(mt.CompileError, match="MT0209"):
            f(*arrays("full", SIZES | {"S": 0}, "bf16"))


KINDS = ("full", "causal", "padding", "lengths", "alibi", "logsumexp")


@pytest.mark.parametrize("name, dtype", every_second(KINDS, list(DTYPES)))
def test_any_scores(name: str, dtype: str) -> None:
    """Scores of 1e4 and more, infinities and nan in queries and keys, and keys of another width than values."""
    sizes = SIZES | {"D": 24, "E": 40, "S": 33, "T": 20}
    f = program(name, dtype).configured(options=SMALL)
    given = arrays(name, sizes, dtype, seed=1, scale=100)
    scores = given[0].astype(np.float64) @ np.swapaxes(given[1].astype(np.float64), -1, -2) * 24**-0.5
    assert scores.max() > 1e4 and scores.min() < -1e4
    checked(f, given)
    rng = np.random.default_rng(2)
    for x in given[:2]:
        x[rng.random(x.shape[:-1]) < 0.05] = rng.choice([np.inf, -np.inf, np.nan])
    checked(f, given)


def test_infinite_values() -> None:
    """Infinite values of masked keys do not matter if their block is left out. Infinite values of other keys count."""
    f = program("causal").configured(options=SMALL)
    q, k, v = arrays("causal", SIZES, "bf16")
    v[0, 0, 45], v[0, 0, 3], v[0, 1, 20] = np.inf, np.nan, -np.inf
    checked(f, [q, k, v])
    assert np.isnan(f(q, k, v).astype(np.float32)[0, 0, 3:]).all()


def test_a_row_whose_scores_are_all_masked_is_nan() -> None:
    f = program("lengths").configured(options=SMALL)
    given = arrays("lengths", SIZES, "bf16")
    given[-1][:] = (0, 7)
    result = f(*given).astype(np.float32)
    assert np.isnan(result[0]).all() and np.isfinite(result[1]).all()


def test_statistics_of_rows_beside_the_product() -> None:
    """One program has all columns of the product and stores the statistic once, also for a row of -inf alone."""
    text = f"softmax(where(arange(S) < n, {SCORES}, -inf), axis=-1) @ v, logsumexp(where(arange(S) < n, {SCORES}, -inf), axis=-1)"
    f = mt.compile(f"def f({QKV.format(t='f32')}, n: i32[]):\n    return {text}\n").configured(options=SMALL)
    low = f.lower(**SIZES)
    (tiles,) = low.compilation.value("tile.masked").programs
    stores = [op for op in tiles.ops() if isinstance(op, Store)]
    assert sorted(len(op.value.axes) for op in stores) == [2, 3]
    q, k, v = arrays("full", SIZES, "f32")
    for n in (0, 1, 33, 50):
        given = [q, k, v, np.int32(n)]
        checked(f, given)
        assert (f(*given)[1] == -np.inf).all() == (n == 0)


ROWS = ("max(q @ k.mT, axis=-1)", "logsumexp(q @ k.mT, axis=-1)", "var(q @ k.mT, axis=-1)")


@pytest.mark.parametrize("text", ROWS)
def test_reductions_of_scores_alone(text: str) -> None:
    """Without a second product, the scores are reduced as soon as they are computed."""
    f = mt.compile(text, q="f32[T, D]", k="f32[S, D]").configured(options=SMALL)
    assert len(f.lower(T=37, S=50, D=16).kernels) == 1
    rng = np.random.default_rng(0)
    checked(f, [rng.normal(size=s).astype(np.float32) for s in ((37, 16), (50, 16))])


# ---- blocks that are left out ----------------------------------------------------------

LOOPS = {"full": 1, "causal": 2, "window": 3, "two sided": 3, "alibi": 1, "padding": 1, "lengths": 1}


def visited_blocks(low: Any) -> list[tuple[int, bool]]:
    """For each loop: how many blocks of keys all programs of one head visit, and whether the loop evaluates the mask."""
    (program,) = low.compilation.value("tile.masked").programs
    rows = next(a for a in program.grid if a.block > 1)
    found: list[tuple[int, bool]] = []
    for loop in (s for s in program.body if isinstance(s, Loop)):
        axis = program.axis(loop.axes[0])
        tested = any(isinstance(op, Compute) and op.dtype.kind == "b" and axis.name in op.axes for op in loop.body)
        count = 0
        for start in range(0, int(rows.extent), rows.block):
            env = {Symbol(f"{rows.name}_start", "axis"): start}
            ends = [
                int(d.substitute(env)) if d is not None else e
                for d, e in ((loop.first, 0), (loop.last, int(axis.extent)))
            ]
            count += len(range(*ends, axis.block))
        found.append((count, tested))
    return found


@pytest.mark.parametrize("name", list(LOOPS))
def test_loops(name: str) -> None:
    f = program(name)
    low = f.lower(**sizes_of(f, {"B": 2, "H": 2, "T": 4096, "S": 4096, "D": 64, "E": 64}))
    assert len(visited_blocks(low)) == LOOPS[name]


def test_blocks_that_a_mask_empties_are_not_visited() -> None:
    """64 blocks of rows, 64 of keys. A causal mask leaves half of the pairs; one block of each row needs the mask."""

    def blocks(name: str) -> list[tuple[int, bool]]:
        f = program(name).configured(options=mt.Options({"k": 64, "r": 64}))
        return visited_blocks(f.lower(B=2, H=2, T=4096, S=4096, D=64, E=64))

    assert blocks("full") == [(64 * 64, False)]
    assert blocks("causal") == [(64, True), (sum(range(64)), False)]
    assert sum(count for count, _ in blocks("window")) <= 3 * 64


BLOCK_SIZES = {  # the blocks of rows and keys, and whether tensor descriptors load them
    "full": ("full", {}, (128, 128, True)), "rows that blocks do not divide": ("full", {"T": 4000}, (128, 128, True)),
    "with a bias": ("bias", {}, (64, 128, True)), "masked keys": ("padding", {}, (128, 128, True)),
    "capped": ("capped", {}, (128, 128, True)), "causal": ("causal", {}, (128, 128, True)), "a window": ("window", {}, (64, 64, False)),
    "gathered heads": ("grouped", {}, (128, 64, False)), "keys that blocks do not divide": ("full", {"S": 4000}, (128, 64, False)),
    "keys that large blocks do not divide": ("full", {"S": 4032}, (64, 64, True)),
    "wider": ("full", {"D": 128, "E": 128}, (128, 64, True)), "wider, with a bias": ("bias", {"D": 128, "E": 128}, (64, 64, False)),
    "narrower": ("full", {"D": 32, "E": 32}, (128, 64, False)), "one batch": ("full", {"B": 1, "H": 32}, (128, 128, True)),
    "keys and values of different width": ("full", {"E": 32}, (128, 64, False)), "few rows": ("full", {"B": 1, "T": 2048, "S": 1024}, (64, 64, False)),
    "fewer programs than multiprocessors": ("full", {"B": 3, "H": 3}, (64, 128, True)),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BLOCK_SIZES))
def test_block_sizes_of_attention(case: str) -> None:
    name, sizes, wanted = BLOCK_SIZES[case]
    known = {"B": 4, "H": 8, "T": 4096, "S": 4096, "D": 64, "E": 64} | sizes
    compilation = program(name).lower(**sizes_of(program(name), known), target="cuda:90").compilation
    (tiles,), (kernel,) = compilation.value("tile").programs, compilation.value("triton")
    (keys,) = {a.block for a in tiles.axes if a.role == "loop"}
    assert (max(a.block for a in tiles.grid), keys, tiles.descriptors) == wanted
    assert (len(kernel.descriptors) >= 3) == tiles.descriptors


PARTS = {  # rows, keys, warps, and whether the maximum of a row is computed in parts
    "long rows": ("full", 64, 128, 4, True), "longer": ("capped", 128, 256, 8, True), "masked": ("padding", 64, 128, 4, True),
    "short rows": ("full", 64, 64, 4, False), "several warps for each row": ("full", 64, 128, 8, False),
}  # fmt: skip


@pytest.mark.parametrize("case", list(PARTS))
def test_maxima_of_long_rows_are_computed_in_parts(case: str) -> None:
    name, rows, keys, warps, parts = PARTS[case]
    f = program(name, "f16").configured(options=mt.Options({"k": rows, "r": keys}, warps))
    text = f.lower(target="cuda:90", D=16, E=16)["triton"]
    assert ("rt.reduce_max_in_parts(" in text) == parts and ("rt.reduce_max(" in text) != parts
    given = arrays(name, SIZES | {"T": 70, "S": 300}, "f16", seed=3, scale=30)
    checked(f, given)
    given[0][0, 1, 3], given[1][1, 0, 290], given[1][1, 1, 7] = np.nan, np.inf, -np.inf
    checked(f, given)


@pytest.mark.parametrize(("text", "parts"), [("logsumexp(exp(x @ w), axis=1)", True), ("logsumexp(exp(w), axis=1)", False)])  # fmt: skip
def test_only_maxima_of_products_are_computed_in_parts(text: str, parts: bool) -> None:
    f = mt.compile(f"def f(x: f16[640, 32], w: f16[32, 1280]):\n    return {text}\n")
    blocks = mt.Options({"i": 64 if parts else 16, "r": 128}, 4 if parts else 1)
    emitted = f.configured(options=blocks).lower(target="cuda:90")["triton"]
    assert ("reduce_max_in_parts" in emitted, "reduce_max(" in emitted) == (parts, not parts)


SCORE_LOADS = {  # arrays with an element for each score; their blocks must fit in shared memory
    "bias of 16 bits": ("s + b", {"b": "bf16[H, T, S]"}), "bias": ("s + b", {"b": "f32[H, T, S]"}),
    "two": ("s + b + c", {"b": "f32[H, T, S]", "c": "f32[B, H, T, S]"}),
    "six": ("s + b + c + d + e + f + g", {n: "f32[B, H, T, S]" for n in "bcdefg"}),
    "two products": ("s + q2 @ k2.mT", {"q2": "bf16[B, H, T, D]", "k2": "bf16[B, H, S, D]"}),
    "nothing": ("s", {}), "a mask": ("where(m, s, -inf)", {"m": "bool[T, S]"}),
}  # fmt: skip


@pytest.mark.parametrize("target", ["cuda:80", "cuda:89", "cuda:90"])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("name", list(SCORE_LOADS))
def test_blocks_of_arrays_with_an_element_for_each_score_fit(name: str, d: int, target: str) -> None:
    """The sizes are those of AttentionTile.bytes; test_compiled_attention_fits_in_shared_memory compares them with
    Triton's.
    """
    tiles = attention_with(name, d, target).compilation.value("tile").programs
    most = shared_bytes(Target.parse(target))
    for tile in tiles:
        blocks = {a.name: a.block for a in tile.axes}
        loads = {
            op
            for op in tile.ops()
            if isinstance(op, Load) and any(a.role == "loop" for a in tile.axes if a.name in op.axes)
        }
        sizes = [math.prod(blocks[a] for a in op.axes) * op.dtype.bytes for op in loads]
        assert most is not None and tile.stages * sum(sizes) <= most


@pytest.mark.parametrize(("name", "d"), [("bias", 128), ("two", 64), ("two products", 128)])
def test_compiled_attention_fits_in_shared_memory(name: str, d: int) -> None:
    low = attention_with(name, d, "cuda:90")
    most = shared_bytes(Target.parse("cuda:90"))
    kernels = low.compilation.value("triton")
    built = compiled_stages.build(low.compilation.module_text, kernels, low.compilation.context.target)
    assert most is not None and all(b.metadata.shared <= most for b in built)


def attention_with(name: str, d: int, target: str) -> Any:
    scores, more = SCORE_LOADS[name]
    given = {x: f"bf16[B, H, {n}, D]" for x, n in (("q", "T"), ("k", "S"), ("v", "S"))} | more
    parameters = ", ".join(f"{x}: {t}" for x, t in given.items())
    text = f"def f({parameters}):\n    s = q @ k.mT\n    return softmax({scores}, axis=-1).astype(bf16) @ v\n"
    return mt.compile(text).lower(B=4, H=16, T=4096, S=4096, D=d, target=target)


def test_narrow_rows_of_f32_have_no_descriptors() -> None:
    known = {"B": 4, "H": 8, "T": 4096, "S": 4096, "D": 64, "E": 64}
    (tiles,) = program("full", "f32").lower(**known, target="cuda:90").compilation.value("tile").programs
    assert not tiles.descriptors


REFUSED = {
    "(softmax(q @ k.mT, axis=-1) + 1) @ v": "not one loop",
    "softmax(q @ k.mT, axis=-1) @ v, softmax(q @ k.mT, axis=-1)": "its results lie along the axis",
    "sigmoid(q @ k.mT - mean(q @ k.mT, axis=-1, keepdims=True)) @ v": "",
}


@pytest.mark.parametrize("text", list(REFUSED))
def test_scores_that_are_needed_twice_are_stored(text: str) -> None:
    """The ledger gives the reason, and the results are right."""
    f = mt.compile(text, q="f32[T, D]", k="f32[S, D]", v="f32[S, E]").configured(options=SMALL)
    low = f.lower(T=37, S=50, D=16, E=16)
    assert len(low.kernels) > 1
    assert any(REFUSED[text] in d.rule for d in low.compilation.value("kernels").ledger if not d.fused)
    rng = np.random.default_rng(0)
    checked(f, [rng.normal(size=s).astype(np.float32) for s in ((37, 16), (50, 16), (50, 16))])


def test_an_axis_is_kept_in_registers_only_if_its_size_is_known() -> None:
    assert len(program("full").lower().kernels) > 1
    assert len(program("full").lower(B=1, H=1, T=64, S=64, D=512, E=64).kernels) > 1


@pytest.mark.parametrize("name", list(VARIANTS))
def test_one_kernel_for_symbolic_lengths(name: str) -> None:
    """One kernel runs for any lengths, batch and heads. Only the axes that a program keeps in registers have known
    sizes.
    """
    f = program(name)
    low = f.lower(**sizes_of(f, {"D": 64, "E": 64}))
    assert len(low.kernels) == 1 and not low.compilation.plan.temporaries


def test_only_the_last_block_of_keys_has_bounds_checks() -> None:
    """The blocks do not divide the number of keys, so the last block is peeled."""
    for known in ({"S": 4000}, {}):
        low = program("full").lower(B=2, H=2, T=4096, D=64, E=64, **known)
        (tiles,) = low.compilation.value("tile.masked").programs
        tests = [sum(isinstance(op, Inside) for op in s.body) for s in tiles.body if isinstance(s, Loop)]
        assert len(tests) == 2 and tests[1] == 0 < tests[0]


@pytest.mark.parametrize("s", [1, 15, 16, 17, 31, 32, 33, 48])
def test_any_number_of_keys(s: int) -> None:
    for name in ("full", "causal", "window"):
        checked(program(name).configured(options=SMALL), arrays(name, SIZES | {"S": s, "T": 20}, "bf16"))


def test_operations_of_an_element_are_counted() -> None:
    """A product with a constant and a difference are one instruction. A power and a conversion are counted apart."""
    low = program("full").lower(B=2, H=2, T=4096, S=4096, D=64, E=64)
    (tiles,) = low.compilation.value("tile").programs
    (loop,) = (s for s in tiles.body if isinstance(s, Loop))
    held = [op.op for op in loop.body if isinstance(op, Compute) and set(loop.axes) & set(op.axes)]
    assert held == ["multiply", "subtract", "exp2", "cast"]


LENGTHS = {"B": 4, "H": 16, "T": 4096, "S": 4096}


def in_loops(sass: str) -> list[str]:
    """The lines between a label and a jump back to it."""
    lines = sass.splitlines()
    labels = {m[1]: k for k, line in enumerate(lines) if (m := re.match(r"\s*(LBB\d+):", line))}
    jumps = [(labels[m[1]], k) for k, line in enumerate(lines) if (m := re.search(r"BRA (LBB\d+);", line))]
    inside = {k for first, last in jumps for k in range(first, last)}
    return [lines[k] for k in sorted(inside)]


@pytest.mark.parametrize(("d", "known"), [(64, LENGTHS), (128, LENGTHS), (128, {}), (80, LENGTHS), (256, LENGTHS)])
def test_products_are_of_tensor_cores(d: int, known: dict[str, int]) -> None:
    """No loop spills registers, a program fits an H100, and a power is one instruction."""
    pytest.importorskip("triton")
    low = program("causal").lower(**known, D=d, E=d, target="cuda:90")
    assert "wgmma.mma_async" in low["ptx"] and "ex2.approx.ftz" in low["ptx"] and "ex2.approx.f32" not in low["ptx"]
    (taken,) = resources(MachineCode(low.compilation))
    assert taken.shared <= 227 * 1024 and taken.blocks
    loops = in_loops(low["sass"])
    assert any("HGMMA" in line for line in loops) and not any("STL" in line or "LDL" in line for line in loops)
