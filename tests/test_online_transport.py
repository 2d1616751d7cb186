"""The pass online-reductions: the formulas that it writes for a sum that depends on another reduction.

In a formula, `sum(e)` is a reduction over the columns, and `old` is its value before the latest block. Braces
behind a sum hold the correction: what the sum is multiplied by, or what is added to it, before a block is added.
tests/test_online_reductions.py tests the results.
"""

from __future__ import annotations

import pytest
from stages import SPLITS

import minitri as mt
from minitri.graph.text import format_number
from minitri.kernels.ir import Compute, Constant, Count, Dot, Load, Old, Op, Plan, Position, Reduce, Spread, Store
from minitri.kernels.parse import parse_plan
from minitri.optimize.online_reductions.lower import only_subtracted
from minitri.optimize.online_reductions.merge_loops import one_loop, online

HEAD = """
def f(x: f32[M, N], y: f32[M, N], row: f32[M, 1], v: f32[N, 16]):
    m = max(x, axis=1, keepdims=True)
    e = exp(x - m)
    l = sum(e, axis=1, keepdims=True)
    {}
"""
SIZES = {"M": 4096, "N": 100_000}
INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
KNOWN = {"exp((x - max(x)))": "e"}


def followed(text: str) -> Plan:
    low = mt.compile(HEAD.format(text)).lower(**SIZES, without=(*SPLITS, "f32-products"))
    return low.compilation.value("kernels.online")


def formula(op: Op) -> str:
    match op:
        case Load():
            return op.buffer.name
        case Constant():
            return format_number(op.value)
        case Position():
            return str(op.expr)
        case Count():
            return "count"
        case Old():
            return f"old {formula(op.x)}"
        case Spread():
            return formula(op.x)
        case Reduce():
            more = [f"{sign} {formula(o)}" for sign, o in (("*", op.rescale), ("+", op.shift)) if o is not None]
            return f"{op.op}({formula(op.x)})" + (f"{{{', '.join(more)}}}" if more else "")
        case Dot():
            return f"dot({formula(op.a)}, {formula(op.b)})" + (f"{{* {formula(op.rescale)}}}" if op.rescale else "")
        case Compute():
            args = list(map(formula, op.args))
            said = f"({args[0]} {INFIX[op.op]} {args[1]})" if op.op in INFIX else f"{op.op}({', '.join(args)})"
            return KNOWN.get(said, said)
        case _:
            raise AssertionError(op)


def stored(plan: Plan) -> str:
    """The formula that the kernel stores. It omits the corrections of sums of `e`, which are all the same."""
    (kernel,) = plan.kernels
    (store,) = (op for op in kernel.body if isinstance(op, Store))
    return formula(store.value).replace("{* exp((old max(x) - max(x)))}", "'")


# ---- factors that are moved out of a sum -----------------------------------------------
# e = exp(x - max(x)) and l = sum(e), so that l is at least 1. A prime: times exp(old max - max).

TAKEN_OUT = {
    "sum(e / l, axis=1)": "(sum(e)' / sum(e)')",
    "sum(e * y / l, axis=1)": "(sum((e * y))' / sum(e)')",
    "sum(e / l / l, axis=1)": "((sum(e)' / sum(e)') / sum(e)')",
    "sum(e * (1 / l), axis=1)": "(sum(e)' * (1.0 / sum(e)'))",
    "sum(e * reciprocal(l), axis=1)": "(sum(e)' * reciprocal(sum(e)'))",
    "(e / l) @ v": "(dot(e, v)' / sum(e)')",
    "(e * (1 / l)) @ v": "(dot(e, v)' * (1.0 / sum(e)'))",
}
LEFT_IN = {
    "sum(e / row, axis=1)": "sum((e / row))'",  # row may be 0
    "sum(e / y, axis=1)": "sum((e / y))'",  # y differs between the elements
    "sum(e * (1 / y), axis=1)": "sum((e * (1.0 / y)))'",
    "sum(e * (2 / l), axis=1)": "sum((e * (2.0 / sum(e)')))",  # the factor may be more than 1
    "sum(e * (m / l), axis=1)": "sum((e * (max(x) / sum(e)')))",
    "sum(e * (0 / l), axis=1)": "sum((e * (0.0 / sum(e)')))",
    "sum(e / sum(y, axis=1, keepdims=True), axis=1)": "sum((e / sum(y)))",  # the sum may be 0
    "sum(astype(astype(e / l, i32), f32), axis=1)": "sum(cast(cast((e / sum(e)'))))",  # a jump lies in between
    "sum(e - l, axis=1)": "sum((e - sum(e)'))",
}


@pytest.mark.parametrize("text", [*TAKEN_OUT, *LEFT_IN])
def test_a_common_divisor_is_moved_out_of_a_sum(text: str) -> None:
    """The divisor is the same for all terms, and it is at least 1: a sum of exponentials of which one is 1. A
    quotient of
    sums needs one loop, a sum of quotients two."""
    assert stored(followed(f"return {text}")) == (TAKEN_OUT | LEFT_IN)[text]


def test_a_rounding_stays_in_the_sum() -> None:
    """An exponential and its quotient are at most 1, so the exponential is rounded. Of larger terms the quotient is."""
    assert (
        stored(followed("return astype(e / l, bf16) @ astype(v, bf16)")) == "cast((dot(cast(e), cast(v))' / sum(e)'))"
    )
    assert len(followed("return astype(y / l, bf16) @ astype(v, bf16)").kernels) == 3  # the second rounds v


# ---- corrections, and the ledger -------------------------------------------------------

WHOLE = 4 * SIZES["M"] * SIZES["N"]  # the bytes of x
MEAN, MEAN_Y = "(old sum(x) / old count) - (sum(x) / count)", "(old sum(y) / old count) - (sum(y) / count)"
CORRECTED = {
    "sum(e * y, axis=1)": ("sum((e * y))'", "one loop with the max, times exp(old max - max)", WHOLE),
    "sum(e * e, axis=1)": (
        "sum((e * e)){* (exp((old max(x) - max(x))) * exp((old max(x) - max(x))))}",
        "one loop with the max, times exp(old max - max) * exp(old max - max)", WHOLE,
    ),
    "sum(exp(x + row - max(x + row, axis=1, keepdims=True)), axis=1)": (
        "sum(exp(((x + row) - max((x + row))))){* exp((old max((x + row)) - max((x + row))))}",
        "one loop with the max, times exp(old max - max)", WHOLE,  # a row is read once in any case
    ),
    "sum(exp(x + y - max(x + y, axis=1, keepdims=True)), axis=1)": (
        "sum(exp(((x + y) - max((x + y))))){* exp((old max((x + y)) - max((x + y))))}",
        "one loop with the max, times exp(old max - max)", 2 * WHOLE,
    ),
    "sum((x - mean(x, axis=1, keepdims=True)) ** 2, axis=1)": (
        f"sum(square((x - (sum(x) / count)))){{+ ((({MEAN}) * ({MEAN})) * old count)}}",
        "one loop with the sum, plus old count * (old mean - mean)^2", WHOLE,
    ),
    "sum((x - mean(x, axis=1, keepdims=True)) * (y - mean(y, axis=1, keepdims=True)), axis=1)": (
        f"sum(((x - (sum(x) / count)) * (y - (sum(y) / count)))){{+ ((({MEAN}) * ({MEAN_Y})) * old count)}}",
        "one loop with the sum, plus old count * (old mean - mean) * (the same of the other mean)", 2 * WHOLE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", list(CORRECTED))
def test_the_corrections_of_a_sum(text: str) -> None:
    plan = followed(f"return {text}")
    (line,) = (d for d in plan.ledger if "one loop" in d.rule)
    assert (stored(plan), line.rule, line.bytes, line.verdict) == (*CORRECTED[text], "fused")


NO_SUMS = {"max(e * y, axis=1)": "max((e * y))", "sum(astype(e * 9, i32), axis=1)": "sum(cast(cast((e * 9.0))))"}


@pytest.mark.parametrize("text", list(NO_SUMS))
def test_only_sums_of_floats_share_the_loop(text: str) -> None:
    plan = followed(f"return {text}")
    assert stored(plan) == NO_SUMS[text] and not any("loop" in d.rule for d in plan.ledger)


OTHER = "the exponent subtracts something else than the maximum"


@pytest.mark.parametrize(
    "h",
    [
        "2 * m",
        "abs(m)",
        "maximum(m, row)",
        "where(m > 5, m, 0)",
        "where(isfinite(exp(m)), m, 0)",
        "where(isfinite(m), m, 1)",
        "where(y > 0, m, 0)",
        "where(x == inf, 0, m)",
    ],
)
def test_an_exponent_subtracts_the_maximum_itself(h: str) -> None:
    """With 2 * m, the exponential of a negative block would overflow before a larger maximum is known."""
    (line,) = (d for d in followed(f"return sum(exp(x - {h}), axis=1)").ledger if d.again)
    assert line.rule == f"a loop of its own: {OTHER}"


@pytest.mark.parametrize(
    "h", ["where(isfinite(m), m, 0)", "where(m == -inf, 0, m)", "where(m > -inf, m, 0)", "where(isinf(m), 0, m)"]
)
def test_zero_in_place_of_an_infinite_maximum(h: str) -> None:
    (line,) = (d for d in followed(f"return sum(exp(x - {h}), axis=1)").ledger if "loop" in d.rule)
    assert line.rule.startswith("one loop with the max")


def test_a_sum_cannot_depend_on_both_a_maximum_and_a_sum() -> None:
    (line,) = (d for d in followed("return sum(e / sum(y, axis=1, keepdims=True), axis=1)").ledger if d.again)
    assert line.rule == "a loop of its own: it follows a maximum and a sum" and line.bytes == 2 * WHOLE


@pytest.mark.parametrize(
    "by, rule", [("N", "one loop with the sum"), ("M", "not a deviation from a mean of the same elements")]
)
def test_a_mean_is_recognised_by_the_size_of_the_summed_axis(by: str, rule: str) -> None:
    f = mt.compile(f"sum((x - sum(x, axis=1, keepdims=True) / {by}) ** 2, axis=1)", x="f32[M, N]")
    ledger = f.lower(without=SPLITS).compilation.value("kernels.online").ledger
    assert [rule in d.rule for d in ledger if "loop" in d.rule] == [True]


@pytest.mark.parametrize("power, one", [(2, True), (1, False), (3, False)])
def test_a_power_that_was_not_simplified_may_be_a_square(power: int, one: bool) -> None:
    f = mt.compile(f"sum((x - mean(x, axis=1, keepdims=True)) ** {power}, axis=1)", x="f32[M, N]")
    plan = f.lower(without=(*SPLITS, "simplify")).compilation.value("kernels.online")
    assert any("one loop with the sum" in d.rule for d in plan.ledger) == one


# ---- kernels written by hand -----------------------------------------------------------


def kernel(body: str, axes: str = "i: 4, reduce r: 99, reduce s: 8", out: str = "f32[4]", dtype: str = "f32") -> Plan:
    types = f"input x: f32[4, 99], input z: f32[4, 8], output out: {out}"
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    head = f"plan f(x: f32[4, 99], z: f32[4, 8]) -> out: {out}"
    return parse_plan(f"{head}\n\nkernel k0({types}) over {axes} {{\n{lines}\n}}\n".replace("f32", dtype))


def test_a_sum_without_a_loop_is_like_other_operations() -> None:
    """A program keeps the axis `s` in registers. The sum over it is computed again from the old maximum."""
    plan = kernel("""
        %0: f32[i, r] = load x[i, r]
        %1: f32[i] = reduce.max %0 {over = [r]}
        %2: f32[i, s] = load z[i, s]
        %3: f32[i, s] = multiply %2, %1
        %4: f32[i] = reduce.sum %3 {over = [s]}
        %5: f32[i, r] = subtract %0, %4
        %6: f32[i, r] = exp %5
        %7: f32[i] = reduce.sum %6 {over = [r]}
        store out[i] %7""")
    both = "it follows a reduce.max over other axes", "it follows a reduce.sum over other axes"
    assert [d.rule for d in online(plan, lambda _: "r").ledger] == [f"a loop of its own: {OTHER}"]
    assert [d.rule for d in online(plan, lambda _: "rs").ledger] == [f"a loop of its own: {b}" for b in both]
    assert online(plan, lambda _: "").kernels == plan.kernels


def test_a_schedule_without_a_shared_loop_ignores_corrections() -> None:
    """The text of a kernel has the corrections for a loop. Another schedule keeps the rows in registers or has a loop
    for each reduction.
    """
    f = mt.compile("sum(exp(x - max(x, axis=1, keepdims=True)), axis=1)", x="f32[M, N]")
    looped = f.lower(M=4, N=64, options=mt.Options(blocks={"r": 16}))
    assert "rescale" in looped["kernels"] and "rescale" not in looped["tile"]
    loaded = mt.load(looped["kernels"], "kernels")
    whole = loaded.configured(options=mt.Options(blocks={"r": 64}))
    apart = loaded.configured(options=mt.Options(blocks={"r": 16}), without=("all",))
    for g, loops in ((whole, 0), (apart, 2)):
        tiles = g.lower()["tile"]
        assert "rescale" not in tiles and tiles.count("for r {") == loops


@pytest.mark.parametrize(
    "power, rule", [("2.0", "one loop with the sum"), ("1.0", "no transport"), ("3.0", "no transport")]
)
def test_a_power_of_2_is_a_square(power: str, rule: str) -> None:
    plan = kernel(f"""
        %0: f32[i, r] = load x[i, r]
        %1: f32[i] = reduce.sum %0 {{over = [r]}}
        %2: f32[] = const 99.0
        %3: f32[i] = divide %1, %2
        %4: f32[i, r] = subtract %0, %3
        %5: f32[] = const {power}
        %6: f32[i, r] = power %4, %5
        %7: f32[i] = reduce.sum %6 {{over = [r]}}
        store out[i] %7""")
    (decision,) = online(plan, lambda _: "r").ledger
    assert rule in decision.rule


def test_the_first_unsafe_reduction_is_named() -> None:
    (line,) = (
        d
        for d in followed(
            "return sum(x * min(x, axis=1, keepdims=True) * prod(x, axis=1, keepdims=True), axis=1)"
        ).ledger
        if d.again
    )
    assert "reduce.min" in line.rule


EXPONENTIALS = """
    %0: f32[i, r] = load x[i, r]
    %1: f32[i] = reduce.max %0 {over = [r]}
    %2: f32[i, r] = subtract %0, %1
    %3: f32[i, r] = exp %2
"""
LOOPS = {
    "%4: f32[i] = reduce.sum %3 {over = [r]}\nstore out[i] %4": None,
    "%4: f32[i] = reduce.max %3 {over = [r]}\nstore out[i] %4": "a reduction that is no sum follows another one",
    "%4: f32[i, r] = abs %2\n%5: f32[i] = reduce.sum %4 {over = [r]}\nstore out[i] %5":
        "a loop of its own: abs of a running maximum has no transport",
}  # fmt: skip


@pytest.mark.parametrize("rest", list(LOOPS))
def test_the_reason_for_a_second_loop(rest: str) -> None:
    assert one_loop(kernel(EXPONENTIALS + rest).kernels[0], "r") == LOOPS[rest]


def test_results_along_the_reduced_axis_need_a_second_loop() -> None:
    plan = kernel(f"{EXPONENTIALS}store out[i, r] %3", out="f32[4, 99]")
    assert one_loop(plan.kernels[0], "r") == "its results lie along the axis that is reduced"


def test_two_dependent_factors_of_a_product_need_a_second_loop() -> None:
    body = f"""{EXPONENTIALS}
        %4: f32[r, j] = load x[j, r]
        %5: f32[j] = reduce.max %4 {{over = [r]}}
        %6: f32[r, j] = subtract %4, %5
        %7: f32[r, j] = exp %6
        %8: f32[i, j] = dot %3, %7 {{over = r, precision = ieee}}
        store out[i, j] %8"""
    (product,) = kernel(body, "i: 4, reduce r: 99, j: 4", "f32[4, 4]").kernels
    assert one_loop(product, "r") == "a loop of its own: both factors of the product follow a reduction"


def test_products_with_the_same_rows_share_a_loop() -> None:
    body = """
        %0: f32[i, r] = load x[i, r]
        %1: f32[r, j] = load x[j, r]
        %2: f32[r, k] = load x[k, r]
        %3: f32[i, j] = dot %0, %1 {over = r, precision = ieee, tile = [i, j]}
        %4: f32[i, k] = dot %0, %2 {over = r, precision = ieee, tile = [i, k]}
        store out[i, j] %3
        store out[i, k] %4"""
    (products,) = kernel(body, "i: 4, reduce r: 99, j: 4, k: 4", "f32[4, 4]").kernels
    assert one_loop(products, "r") is None


@pytest.mark.parametrize("tile, one", [("i, j", True), ("j, i", False)])
def test_products_with_different_rows_need_a_second_loop(tile: str, one: bool) -> None:
    body = f"""
        %0: f32[i, r] = load x[i, r]
        %1: f32[r, j] = load x[j, r]
        %2: f32[i, j] = dot %0, %1 {{over = r, precision = ieee, tile = [i, j]}}
        %3: f32[i, j] = dot {"%0, %1" if one else "%1, %0"} {{over = r, precision = ieee, tile = [{tile}]}}
        %4: f32[i, j] = add %2, %3
        store out[i, j] %4"""
    (products,) = kernel(body, "i: 4, reduce r: 99, j: 4", "f32[4, 4]").kernels
    assert one_loop(products, "r") == (None if one else "its products have different rows")


# ---- maxima that may start at the lowest number ----------------------------------------

FOLLOWED = """
    %0: f32[i, r] = load x[i, r]
    %1: f32[i] = reduce.max %0 {{over = [r]}}
    %2: f32[] = const {scale}
    %3: f32[i] = multiply %1, %2
    %4: f32[i, r] = subtract %0, %3
    %5: f32[i, r] = exp %4
    %6: f32[i] = old %1
    %7: f32[i] = subtract %6, %1
    %8: f32[] = const {power}
    %9: f32[i] = multiply %7, %8
    %10: f32[i] = exp2 %9
    %11: f32[i] = reduce.sum %5 {{over = [r], rescale = %10}}
    %12: f32[i] = {result}
    store out[i] %12
"""
SUM = "negative %11"
LOW = [
    (1.0, 1.5, SUM, True),
    (0.5, 1.5, SUM, True),
    (1.5, 1.5, SUM, False),  # the lowest number times 1.5 is -inf
    (-1.0, 1.5, SUM, False),
    (0.0, 1.5, SUM, False),
    (1.0, -1.5, SUM, False),  # the correction would overflow
    (1.0, 0.0, SUM, False),
    (1.0, 1.5, "add %11, %1", False),  # the maximum is a result, too
    (1.0, 1.5, "add %11, %3", False),
    (1.0, 1.5, "subtract %1, %11", False),
    (1.0, 1.5, "subtract %11, %3", True),
    (1.0, 1.5, "add %11, %7", False),  # the difference to the old maximum is visible
    (1.0, 1.5, "add %11, %9", False),
    (1.0, 1.5, "add %11, %6", False),
]


def test_only_a_difference_may_start_at_the_lowest_number() -> None:
    """Here the negative of the old maximum is used instead, although only an exponential reads it."""
    text = FOLLOWED.format(scale=1.0, power=1.5, result="exp %13")
    (made,) = kernel(text.replace("    %12", "    %13: f32[i] = negative %6\n    %12")).kernels
    assert not only_subtracted(made.body[1], made.body)


def test_a_maximum_in_16_bits_never_starts_at_the_lowest_number() -> None:
    (made,) = kernel(FOLLOWED.format(scale=1.0, power=1.5, result=SUM).replace("f32", "f16"), dtype="f16").kernels
    assert not only_subtracted(made.body[1], made.body)


@pytest.mark.parametrize("scale, power, result, low", LOW)
def test_a_maximum_that_is_only_subtracted_starts_at_the_lowest_number(
    scale: float, power: float, result: str, low: bool
) -> None:
    """A start at -inf would give -inf - -inf = nan. The lowest number must not be visible in any result."""
    (made,) = kernel(FOLLOWED.format(scale=scale, power=power, result=result)).kernels
    assert only_subtracted(made.body[1], made.body) == low
