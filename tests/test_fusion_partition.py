"""The limits of the fusion partition: for each limit, one program on either side of it.

tests/test_passes.py tests the fusion of usual programs. Both decisions at a limit are right; one of them is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest

import minitri as mt
from minitri.graph.ir import Reduce
from minitri.kernels.demand import NotOneKernel
from minitri.kernels.ir import Compute, Load, Plan, Store
from minitri.optimize.fusion.partition import Partition, _chains, connected

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


def arrays(count: int) -> tuple[str, dict[str, str]]:
    names = [f"x{k}" for k in range(count)]
    return " + ".join(names), dict.fromkeys(names, "f32[N]")


# text, types, how many kernels, how many temporaries
LIMITS: dict[str, tuple[str, dict[str, str], int, int]] = {
    "the most operations that are recomputed": (both_sums(operations(16)), {"x": "f32[M, N]"}, 2, 0),
    "one operation more is stored": (both_sums(operations(17)), {"x": "f32[M, N]"}, 2, 1),
    "two arrays are read twice": (both_sums("(x + y)"), MN, 2, 0),
    "three arrays are not read twice": (both_sums("(x + y + z)"), MN, 2, 1),
    "two 64-bit arrays are not read twice": (both_sums("astype(a + b, f32)"), {"a": "f64[M, N]", "b": "f64[M, N]"}, 2, 1),
    "the most operations on a factor": (f"{operations(8)} @ w", PRODUCT, 1, 0),
    "one operation more on a factor": (f"{operations(9)} @ w", PRODUCT, 2, 1),
    "a factor from two arrays": ("(x + y) @ w", PRODUCT, 1, 0),
    "a factor from three arrays": ("(x + y + z) @ w", PRODUCT, 2, 1),
    "an expensive operation on a factor": ("exp(x) @ w", PRODUCT, 2, 1),
    "a cheap operation after an expensive one": ("(exp(x) + 1) @ w", PRODUCT, 2, 1),
    "a 64-bit factor": ("(x + 1) @ w", {"x": "f64[M, K]", "w": "f64[K, N]"}, 1, 0),
    "a 64-bit factor from 32 bits": ("(astype(x, f64) + 1) @ w", {"x": "f32[M, K]", "w": "f64[K, N]"}, 1, 0),
    "a 64-bit factor from 16 bits": ("(astype(x, f64) + 1) @ w", {"x": "f16[M, K]", "w": "f64[K, N]"}, 2, 1),
    "a 64-bit epilogue": ("exp(x @ w + 1)", {"x": "f64[M, K]", "w": "f64[K, N]"}, 1, 0),
    "three reductions of two arrays": ("sum(x + y, axis=1), max(x, axis=1), sum(x * y, axis=1)", MN, 1, 0),
    "a value needed at eight indices": (shifted(8), {"x": "f32[60]"}, 1, 0),
    "a value needed at nine indices": (shifted(9), {"x": "f32[60]"}, 2, 1),
    "two that depend on each other through a third": (
        "(exp(a) * b) @ c @ c, a - b", dict.fromkeys("abc", "f32[N, N]"), 3, 2,
    ),
    "around two products": ("x * y + z + (x * y + z) @ w @ w", dict.fromkeys("xyzw", "f32[N, N]"), 3, 2),
    "two results of a batch times one matrix": (
        "relu(x @ w) * y, y - x @ w",
        {"x": "bf16[300, 8, 64]", "w": "bf16[64, 512]", "y": "bf16[300, 8, 512]"}, 1, 0,
    ),
    "reductions of two unrelated arrays": (
        "sum(x * z, axis=1), max(x, axis=1), min(x * z, axis=1), sum(a, axis=1), a * 2", MN | {"a": "f32[K, L]"}, 2, 0,
    ),
    "operations before a mean": (f"mean({LOSS} - x[:, 0])", MN, 2, 1),
    "operations before a mean, next to products": (f"w @ w @ w, mean({LOSS} - x[:, 0])", MN | {"w": "f32[K, K]"}, 4, 2),
    "operations before a mean that need a product": (f"mean({LOSS} - (x @ w)[:, 0])", MN | {"w": "f32[N, K]"}, 3, 2),
    "operations before a mean that are no kernel": ("mean(log(sum(exp(x), axis=1))[::-1] + max(x, axis=1))", MN, 2, 2),
    "as many arrays as a kernel reads": (*arrays(95), 1, 0),
    "many more arrays": (*arrays(120), 2, 1),
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


def test_independent_reductions_fill_a_kernel() -> None:
    """The partition merges 2, 4 and 8 of them, fails with all 13, and then adds fewer to the 8."""
    text = ", ".join(f"sum(abs(x - {k}), axis=1)" for k in range(13))
    stored = [sum(isinstance(op, Store) for op in k.body) for k in plan(text, {"x": "f32[M, N]"}).kernels]
    assert sorted(stored) == [1, 12]


def merged_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The reductions of each attempt to merge independent parts."""
    found, merge = list[list[str]](), Partition._merge_independent

    def spy(self: Partition, homes: Sequence[int], graph: Any) -> bool:
        found.append([n.op for h in homes for n in self.roots(self.homes[self.order[h]][0]) if isinstance(n, Reduce)])
        return merge(self, homes, graph)

    monkeypatch.setattr(Partition, "_merge_independent", spy)
    plan(text, {"x": "f32[M, N]", "y": "f32[M, N]"})
    return found


def test_ever_more_parts_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt has the parts that are merged already as its first part."""
    sums = ", ".join(f"sum(abs(x - {k}), axis=1)" for k in range(12))
    assert list(map(len, merged_at_once(sums, monkeypatch))) == [1 + 1, 2 + 2, 4 + 4, 8 + 4]


def test_parts_that_share_the_most_are_merged_first(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "sum(x, axis=1), prod(x * y, axis=1), max(y * x, axis=1)"
    assert merged_at_once(text, monkeypatch)[0] == ["prod", "max"]


def test_consecutive_pairs_are_one_chain() -> None:
    assert _chains([(1, 2), (2, 3), (5, 6), (5, 7)]) == [[1, 2, 3], [5, 6], [5, 7]]
    assert _chains([(1, 2), (5, 6), (6, 7)]) == [[1, 2], [5, 6, 7]]


@pytest.mark.parametrize("more", [[], range(20, 24)])
def test_a_path_is_found_from_both_sides(more: Sequence[int]) -> None:
    """With many starts, the search goes on from the end."""
    graph: Any = nx.path_graph(9, create_using=nx.DiGraph)
    nx.add_path(graph, [4, 10, 11])
    graph.add_edges_from((k, k + 10) for k in more)
    assert connected(graph, [0, *more], [8]) and connected(graph, [0, *more], [11]) and connected(graph, [3], [3])
    assert not connected(graph, [*more, 8], [0]) and not connected(graph, [10, *more], [8])


def test_a_part_that_reads_too_many_arrays_is_divided_before_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    found, run = list[tuple[str, int]](), Partition.run

    def spy(self: Partition) -> Any:
        try:
            return run(self)
        except NotOneKernel as refusal:
            found.append((refusal.reason, len(refusal.nodes)))
            raise

    monkeypatch.setattr(Partition, "run", spy)
    plan(*arrays(120))
    assert found == [("it would read too many arrays", 1)]


def test_without_fusion_each_operation_is_a_kernel() -> None:
    low = mt.compile("exp(x) + 1", x="f32[M, N]").configured(without=("fusion",)).lower()
    assert len(low.compilation.value("kernels.fused").kernels) == 2


@pytest.mark.parametrize("text", ["x / (std(x, axis=0) + 0.1)", "x / (std(x) + 0.1) + y, x - 1 / (std(x) + 0.1)"])
def test_values_of_few_elements_are_computed_where_their_operands_are(text: str) -> None:
    """The kernels that read x do not compute the square root again for each row."""
    kernels = mt.compile(text, **MN).lower(M=4096, N=4096, target="cuda:90").compilation.value("kernels").kernels
    roots = [any(isinstance(op, Compute) and op.op == "sqrt" for op in k.body) for k in kernels]
    assert roots.count(True) == 1 and not roots[-1]


@pytest.mark.parametrize("rows", [63, 64])
def test_a_value_moves_only_if_it_has_at_most_a_64th_of_the_bytes(rows: int) -> None:
    """For 63 rows, each program of the last kernel takes the root again."""
    f = mt.compile("x / sqrt(sum(y, axis=0))", x=f"f32[{rows}, 1000]", y="f32[20000, 1000]")
    kernels = f.lower(target="cuda:90").compilation.value("kernels.fused").kernels
    assert [[op.op for op in k.body if isinstance(op, Compute)] for k in kernels[1:]] == (
        [["sqrt"], ["divide"]] if rows >= 64 else [[], ["sqrt", "divide"]]
    )


def test_a_value_is_not_stored_for_parts_that_load_its_operands_anyway() -> None:
    """Both kernels load x, so loading the bytes of `x > 0` would only add traffic."""
    plan: Plan = (
        mt.compile("where(x > 0, x, exp(x)) - max(where(x > 0, x, exp(x)), axis=0)", **MN)
        .lower(M=4096, N=4096, target="cuda:90")
        .compilation.value("kernels")
    )
    assert not [b for b in plan.temporaries if b.dtype.name == "bool"]


def test_a_condition_of_computed_values_is_not_stored_for_parts_that_compute_them_anyway() -> None:
    """Each pass over x divides again, so the bytes of `y > 0` would only add traffic."""
    text = "def f(x: bf16[16777216]):\n    y = x / sum(abs(x))\n    z = where(y > 0, y, 0.01 * y)\n    v = z / sum(z * z)\n    return v / sum(v * v)\n"
    made = mt.compile(text).lower(target="h200").compilation.value("kernels")
    assert not [b for b in made.temporaries if b.dtype.name == "bool"]


def test_a_costly_factor_is_stored_as_the_product_needs_it() -> None:
    """The exponential is not stored alone: it has f32 elements, and the factor has 16 bits."""
    factor = "where(x > 0, x, exp(minimum(x, 0)) - 1)"
    f = mt.compile(f"{factor}.mT @ x, x[..., 1:] * 2", x="bf16[430, 4095]").configured(without=["pack-operands"])
    made = f.lower(target="h200").compilation.value("kernels.fused")
    assert {b.dtype.name for b in made.temporaries} == {"bf16"}


@pytest.mark.parametrize("order", ["v, w", "w, v"])
def test_a_total_and_a_result_load_each_element_once(order: str) -> None:
    """1023 parts of 2048 elements have the lengths of the columns and rows, but other elements."""
    text = f"def f(x: bf16[2048, 1023]):\n    v = where(x > 0, x, exp(minimum(x, 0)) - 1)\n    w = max(abs(x))\n    return {order}\n"
    first = mt.compile(text).lower(target="h200").compilation.value("kernels").kernels[0]
    (load,) = [op for op in first.body if isinstance(op, Load)]
    assert len(load.axes) == 2 and sum(isinstance(op, Store) for op in first.body) == 2


def test_one_kernel_stores_a_padded_scan_and_another_result_of_its_array() -> None:
    """A scan that is moved must be stored. Its kernel also computes other values of the rows that it reads."""
    text = (
        "def f(x: f32[M, 768]):\n    return pad(cumulative_sum(x[:, :-1], axis=1), ((0, 0), (1, 0))), x * sigmoid(x)\n"
    )
    f = mt.compile(text)
    assert len(f.lower(M=53949, target="h200").kernels) == 1
    report = f.check(np.random.default_rng(0).normal(size=(5, 768)).astype(np.float32))
    assert report.ok, report


def test_copies_of_different_arrays_keep_their_kernels() -> None:
    """One copy is transposed and the other is not: no schedule suits both."""
    f = mt.compile('matmul(x, w.T, precision="tf32")', x="f32[4096, 4096]", w="f32[4096, 4096]")
    g = mt.compile('matmul(x, w, precision="tf32")', x="f32[4096, 4096]", w="f32[4096, 4096]")
    assert [len(p.lower(target="h200").kernels) for p in (f, g)] == [3, 3]
