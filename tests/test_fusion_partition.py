"""The limits of the fusion partition: for each limit, one program on either side of it.

tests/test_passes.py tests the fusion of usual programs. Both decisions at a limit are right; one of them is faster.
"""

from __future__ import annotations

import pytest

import minitri as mt
from minitri.kernels.ir import Plan

MN = {"x": "f32[M, N]", "y": "f32[M, N]", "z": "f32[M, N]"}
PRODUCT = {"x": "f32[M, K]", "y": "f32[M, K]", "z": "f32[M, K]", "w": "f32[K, N]"}


def operations(count: int) -> str:
    """A chain of `count` cheap operations that no rule simplifies."""
    text = "x"
    for k in range(count):
        text = f"maximum({text}, {k + 2})" if k % 2 else f"minimum({text}, {-k - 2})"
    return text


def both_sums(text: str) -> str:
    return f"sum({text}, axis=0), sum({text}, axis=1)"


def shifted(count: int) -> str:
    return " + ".join(f"exp(abs(x))[{k}:{k + 9}]" for k in range(count))


LOSS = "log(sum(exp(x), axis=1)) + max(x, axis=1)"

# text, types, how many kernels, how many temporaries
LIMITS: dict[str, tuple[str, dict[str, str], int, int]] = {
    "as many as may be repeated": (both_sums(operations(16)), {"x": "f32[M, N]"}, 2, 0),
    "one more is stored by one of the two": (both_sums(operations(17)), {"x": "f32[M, N]"}, 2, 1),
    "two arrays are read again": (both_sums("(x + y)"), MN, 2, 0),
    "three are as much as to store the result": (both_sums("(x + y + z)"), MN, 2, 1),
    "two of 64 bits are more": (both_sums("astype(a + b, f32)"), {"a": "f64[M, N]", "b": "f64[M, N]"}, 2, 1),
    "operations on an operand": (f"{operations(8)} @ w", PRODUCT, 1, 0),
    "one more is another kernel": (f"{operations(9)} @ w", PRODUCT, 2, 1),
    "two arrays make an operand": ("(x + y) @ w", PRODUCT, 1, 0),
    "three are too many": ("(x + y + z) @ w", PRODUCT, 2, 1),
    "what is dear is not done for every tile": ("exp(x) @ w", PRODUCT, 2, 1),
    "but what is cheap is, after it": ("(exp(x) + 1) @ w", PRODUCT, 2, 1),
    "an operand of 64 bits": ("(x + 1) @ w", {"x": "f64[M, K]", "w": "f64[K, N]"}, 1, 0),
    "one that was 32 bits": ("(astype(x, f64) + 1) @ w", {"x": "f32[M, K]", "w": "f64[K, N]"}, 1, 0),
    "one that was 16 bits": ("(astype(x, f64) + 1) @ w", {"x": "f16[M, K]", "w": "f64[K, N]"}, 2, 1),
    "an epilogue of 64 bits": ("exp(x @ w + 1)", {"x": "f64[M, K]", "w": "f64[K, N]"}, 1, 0),
    "three that share two arrays": ("sum(x + y, axis=1), max(x, axis=1), sum(x * y, axis=1)", MN, 1, 0),
    "needed at eight places": (shifted(8), {"x": "f32[60]"}, 1, 0),
    "at nine it is stored": (shifted(9), {"x": "f32[60]"}, 2, 1),
    "two of which one needs the other by way of a third": (
        "(exp(a) * b) @ c @ c, a - b", dict.fromkeys("abc", "f32[N, N]"), 3, 2,
    ),
    "some of each of two arrays": (
        "sum(x * z, axis=1), max(x, axis=1), min(x * z, axis=1), sum(a, axis=1), a * 2", MN | {"a": "f32[K, L]"}, 2, 0,
    ),
    "what a mean does first is done before": (f"mean({LOSS} - x[:, 0])", MN, 2, 1),
    "beside products too": (f"w @ w @ w, mean({LOSS} - x[:, 0])", MN | {"w": "f32[K, K]"}, 4, 2),
    "with what a third one makes": (f"mean({LOSS} - (x @ w)[:, 0])", MN | {"w": "f32[N, K]"}, 3, 2),
    "not if that is no kernel": ("mean(log(sum(exp(x), axis=1))[::-1] + max(x, axis=1))", MN, 2, 2),
    "many operations and few reductions": (
        f"sum({operations(14)} * y, axis=1) + max({operations(15)} + z, axis=1)", MN, 1, 0,
    ),
}  # fmt: skip


def plan(text: str, types: dict[str, str]) -> Plan:
    return mt.compile(text, **types).lower().compilation.value("kernels.fused")


@pytest.mark.parametrize("name", list(LIMITS))
def test_programs_on_either_side_of_a_limit(name: str) -> None:
    text, types, kernels, temporaries = LIMITS[name]
    found = plan(text, types)
    assert (len(found.kernels), len(found.temporaries)) == (kernels, temporaries)


@pytest.mark.parametrize("count, kernels", [(12, 1), (13, 2)])
def test_a_kernel_has_at_most_12_reductions(count: int, kernels: int) -> None:
    text = " + ".join(f"sum(x * {k + 2}.5 + abs(x - {k}), axis=1) * {k + 2}" for k in range(count))
    assert len(plan(text, {"x": "f32[M, N]"}).kernels) == kernels


def test_without_fusion_each_operation_is_a_kernel() -> None:
    low = mt.compile("exp(x) + 1", x="f32[M, N]").configured(without=("fusion",)).lower()
    assert len(low.compilation.value("kernels.fused").kernels) == 2
