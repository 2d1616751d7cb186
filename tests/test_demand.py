"""Demands (minitri/kernels/demand.py): which elements of its inputs a kernel needs. numpy evaluates them.

In most tests a graph, one small program, is a single part. Its demands are evaluated for all values of its
axes at once: an array has one coordinate for each axis. The result must equal numpy's result for the same
text. Other tests look at the axes that nodes share, the indices of reads, programs that need more than one
kernel, and values that are better stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from stages import SPLITS

import minitri as mt
from minitri.base import dims, numpy_array_operations
from minitri.base.dims import Dim, Symbol
from minitri.base.operators import OPERATORS
from minitri.base.symbolic_minmax import smallest
from minitri.graph.evaluate import value as evaluated
from minitri.graph.ir import Apply, Concat, Const, Contract, Gather, Graph, Index, Input, Node, Reduce, Scan, View
from minitri.kernels.demand import COMPUTE, AxisRanges, Demand, Indexing, NotOneKernel, about, plain_axis
from minitri.optimize.fusion.one_kernel import one_kernel

SIZES = {"M": 5, "N": 7, "K": 3, "B": 2}
TYPES = {
    "x": "f32[M, N]", "y": "f32[M, N]", "z": "f32[N, K]", "w": "f32[K, N]", "s": "f32[N, N]", "t": "f32[N, N]",
    "b": "f32[B, M, N]", "g": "f32[B, M]", "m": "f32[M, 1]", "c": "f32[N, N, N]", "d": "f32[N, N, N]", "u": "f32[N]", "v": "f32[M]", "k": "i64[K]",
}  # fmt: skip


def graph(text: str, sizes: dict[str, int] | None = None, **types: str) -> Graph:
    low = mt.compile(text, **(types or TYPES)).lower(
        **(SIZES if sizes is None else sizes), without=("batch-into-rows", *SPLITS)
    )
    return low.compilation.value("graph.simplified")


def indexing(g: Graph) -> Indexing:
    """A whole graph as one part. The last result is demanded first."""
    inside = frozenset(n for n in g.nodes() if isinstance(n, COMPUTE))
    return one_kernel(inside, list(dict.fromkeys(g.outputs[::-1])), lambda symbol, n: True)


# ---- against numpy ---------------------------------------------------------------------


class Grid:
    """The demands of a part, evaluated for all values of its axes: every array has an axis for each of them."""

    def __init__(self, found: Indexing, inputs: dict[str, Any]) -> None:
        self.found, self.inputs, self.axes = found, inputs, list(found.axes)
        self.shape = [int(found.axes[a]) for a in self.axes]
        places = np.meshgrid(*map(np.arange, self.shape), indexing="ij")
        self.env: dict[Symbol, Any] = {Symbol(a, "axis"): p for a, p in zip(self.axes, places)}

    def number(self, d: Dim) -> Any:
        for symbol in d.symbols() - self.env.keys():  # indices from index arrays
            self.env[symbol] = self.value(*self.found.picked[symbol])
        return np.broadcast_to(d.compute(self.env), self.shape)

    def inside(self, demand: Demand) -> Any:
        return np.all([np.ones(self.shape, bool), *(self.number(g) >= 0 for g in demand.guards)], axis=0)

    def read(self, array: Any, demand: Demand) -> Any:
        """The elements of an array, with 0 where none is needed. Needed elements must be inside the array."""
        inside, index = self.inside(demand), [self.number(d) for d in demand.index]
        for place, extent in zip(index, array.shape):
            assert ((place >= 0) & (place < extent))[inside].all(), "an element beside its array"
        return np.where(inside, array[tuple(np.where(inside, p, 0) for p in index)], 0)

    def value(self, node: Node, demand: Demand) -> Any:
        below = self.found.pull(node, demand)
        match node:
            case Input():
                return self.read(self.inputs[node.name], demand)
            case Const() | Index():
                return self.read(np.broadcast_to(evaluated(node, {}, {}, SIZES), tuple(map(int, node.shape))), demand)
            case Concat():
                within = [self.inside(d) & self.inside(demand) for _, d in below]
                assert (np.sum(within, axis=0) == self.inside(demand)).all(), "one part of a concat has each element"
                return sum(np.where(i, self.value(*b), 0) for i, b in zip(within, below))
            case Gather():
                return self.value(*below[-1])
            case Reduce():
                return getattr(np, node.op)(self.value(*below[0]), axis=self.over(node, demand), keepdims=True)
            case Scan():
                started = self.number(demand.index[node.axis]) >= 0
                along, _ = self.found.scan_axis(node, demand)
                return np.cumsum(np.where(started, self.value(*below[0]), 0), axis=self.axes.index(along))
            case Contract():
                return np.sum(
                    np.prod([self.value(*b) for b in below], axis=0), axis=self.over(node, demand), keepdims=True
                )
            case _:
                return self.computed(node, [self.value(*b) for b in below])

    def over(self, node: Node, demand: Demand) -> tuple[int, ...]:
        return tuple(map(self.axes.index, self.found.over[node, demand]))

    def computed(self, node: Node, operands: Sequence[Any]) -> Any:
        if isinstance(node, View):
            return operands[0]
        assert isinstance(node, Apply)
        if node.op == "cast":
            return numpy_array_operations.cast(operands[0], node.dtype)
        return OPERATORS[node.op].numpy(*operands)


MOVES = (
    "x", "x.mT", "x[::-1]", "x[:, ::2]", "x[:, ::-3]", "x[1:-1, 2:]", "x[:, 3]", "x[:, :, None] * 2", "flip(x)", "roll(x, 2, axis=1)",
    "roll(x, -1, axis=0)", "reshape(x, (7, 5))", "reshape(x, (35,))", "reshape(b, (5, 14))", "reshape(b, (2, 35))",
    "permute_dims(b, (2, 0, 1))", "permute_dims(b, (1, 2, 0))[::-1]", "reshape(x.mT, (5, 7))", "broadcast_to(u, (5, 7))",
    "concat((x, y))", "concat((x, y), axis=1)", "concat((x, y, x[:, :1]), axis=1)", "concat((z, w.mT, z))", "concat((s, b[0], t))[2:-2]",
    "concat((x, y), axis=1)[:, ::-1]", "concat((concat((x, y)), x))", "concat((b, b[:1]))", "concat((x, y), axis=1)[:, 5:9]",
    "stack((x, y), axis=1)", "x[k]", "x[:, k]", "x[k - 3]", "x[:, k][:, ::-1]", "b[:, k, 2]",
    "pad(reshape(x, (7, 5)), 1)", "pad(reshape(x, (35,)), 2)[::3]", "pad(reshape(b[:, :, :4], (10, 4)), 1)[:, ::2]", "pad(reshape(b, (70,)), 1)[k + 3]",
    "b[1, k]", "x[k, k + 1]", "u[k[::-1]]", "concat((x, y))[k + 4]", "tril(s)", "x + arange(7)",
)  # fmt: skip
SHARED = (
    "x + y * u", "x * v[:, None] - u", "s + s.mT", "x[:, 1:] - x[:, :-1]", "max(x, axis=1)", "sum(x, axis=0)", "sum(x)", "sum(b, axis=(0, 2))",
    "sum(b, axis=1)", "sum(x * v[:, None], axis=0)", "sum(s * t.mT, axis=1)", "x - max(x, axis=1, keepdims=True)",
    "exp(x - max(x, axis=1, keepdims=True))", "sum(s, axis=0) + sum(s, axis=1)", "sum(s, axis=0) - sum(t.mT, axis=1)",
    "max(abs(x), axis=1) * sum(x, axis=1)", "cumulative_sum(x, axis=1)", "cumulative_sum(x, axis=0) * 2",
    "cumulative_sum(exp(x), axis=1)[:, :-1]", "concat((y, cumulative_sum(exp(x), axis=1)), axis=1)", "concat((cumulative_sum(x, axis=1), y, y)) * 2",
    "concat((y, cumulative_sum(exp(x), axis=0)))[3:]", "x @ z", "(x @ z) * 2 + w[:, 0]",
    "b @ z", "(x * u) @ (z * 2)", "s @ t", "s @ t.mT", "s.mT @ s", "b @ b.mT", "x @ z * sum(x, axis=1, keepdims=True)", "sum(x @ z, axis=1)",
    "sum(x[k], axis=1)", "sum(concat((x, y), axis=1), axis=1)", "max(concat((x, y * 2)), axis=0)", "x[:, k] @ z[k]",
    "concat((s, t), axis=1) @ concat((t, s))", "mean(x, axis=0) * 2", "sum(x, axis=1), x * 2", "x.mT, exp(x)", "s * 2, s.mT - t",
    "sum(s, axis=1), sum(s, axis=0)", "sum(s * t, axis=1), max(s, axis=1), t.mT", "x[:1] + u", "x[:, :1] * v[:, None]", "s, t.mT, sum(s, axis=0)", "concat((exp(u)[:3], u[3:])), exp(u)",
)  # fmt: skip


def inputs() -> dict[str, Any]:
    shapes = {
        n: [SIZES[d] if d in SIZES else int(d) for d in t.partition("[")[2][:-1].split(", ")] for n, t in TYPES.items()
    }
    rng = np.random.default_rng(0)
    drawn = {n: rng.integers(1, 9, shape).astype(np.float32) for n, shape in shapes.items()}
    return drawn | {"k": np.array([2, 0, 1])}


@pytest.mark.parametrize("text", [*MOVES, *SHARED])
def test_demands_read_the_elements_that_numpy_reads(text: str) -> None:
    found = indexing(graph(text))
    grid = Grid(found, inputs())
    want = eval(text, vars(np) | inputs() | {"cumulative_sum": np.cumsum})
    wants = dict(zip(reversed(found.roots), want if isinstance(want, tuple) else (want,)))
    for node, demand in found.stores:
        assert not demand.guards, "all of a result is stored"
        got = np.broadcast_to(grid.value(node, demand), grid.shape)
        np.testing.assert_allclose(got, grid.read(wants[node], demand), 1e-6)


# ---- axes ------------------------------------------------------------------------------


def notation(found: Indexing) -> str:
    """`i | r: s[i, r], t[r, i]`: the axes, the reduced ones behind a bar, and the accesses of arrays."""
    axes = ", ".join(found.parallel) + "".join(f" | {a}" for a in found.axes if a in found.reduced)
    leaves = {n: ds for n, ds in found.demands.items() if isinstance(n, Input)}
    reads = [f"{n.name}[{', '.join([*map(str, d.index), *guards(d)])}]" for n, ds in leaves.items() for d in ds]
    return f"{axes}: {', '.join(sorted(reads))}"


def guards(demand: Demand) -> list[str]:
    return [f"{g} >= 0" for g in demand.guards]


AXES = {
    "x": "i, j: x[i, j]",
    "x[:, :1] * v[:, None]": "i: v[i], x[i, 0]",  # an axis of one element is no axis of the kernel
    "x[:1] + u": "i: u[i], x[0, i]",
    "max(x, axis=1)": "i | r: x[i, r]",
    "max(x, axis=0)": "i | r: x[r, i]",
    "sum(b, axis=(0, 2))": "i | r | s: b[r, i, s]",
    "sum(b)": " | r | s | t: b[r, s, t]",
    "x - max(x, axis=1, keepdims=True)": "i | j: x[i, j]",  # the maximum runs over the axis that the difference has
    "x - max(x, axis=0, keepdims=True)": "j | i: x[i, j]",
    "s - max(s, axis=1, keepdims=True)": "i | j: s[i, j]",  # two axes fit; it is the one that is reduced
    "s - max(s, axis=0, keepdims=True)": "j | i: s[i, j]",
    "sum(s, axis=1) + sum(t, axis=1)": "i | r: s[i, r], t[i, r]",
    "sum(s, axis=1) + sum(s, axis=0)": "i | r: s[i, r], s[r, i]",
    "sum(s) + sum(s * t)": " | r | s: s[r, s], t[r, s]",
    # other reductions have two axes; it is the one that s already uses
    "sum(s, axis=1) + sum(c * s[:, None, :], axis=(1, 2))": "i | r | s: c[i, r, s], s[i, s]",
    "sum(s, axis=1) + sum(c * s[:, :, None], axis=(1, 2))": "i | r | s: c[i, r, s], s[i, r]",
    "x @ z": "i, j | r: x[i, r], z[r, j]",
    "s @ t": "i, j | r: s[i, r], t[r, j]",  # no reduction over rows or columns of a product
    "s @ t * sum(s, axis=1, keepdims=True)": "i, j | r: s[i, r], t[r, j]",
    "b @ z": "i, j, k | r: b[i, j, r], z[r, k]",
    "(b @ z)[0]": "i, j | r: b[0, i, r], z[r, j]",
    "sum(x @ z, axis=1)": "i | r | s: x[i, s], z[s, r]",
    "cumulative_sum(x, axis=0)": "j | i: x[i, j]",
    "cumulative_sum(x, axis=1)[:, :-1]": "i | j: x[i, j]",
    "pad(cumulative_sum(x[:, :-1], axis=1), ((0, 0), (1, 0)))": "i | j: x[i, j - 1, j - 1 >= 0]",  # an exclusive sum
    "pad(cumulative_sum(x, axis=1), ((0, 1), (2, 3)))": "i | j: x[i, j - 2, j - 2 >= 0, 8 - j >= 0, 4 - i >= 0]",
    "cumulative_sum(x, axis=1) - max(x, axis=1, keepdims=True)": "i | j: x[i, j]",
    # a further result takes the axes at which its inputs are already read
    "exp(s), exp(s)[::-1]": "i, j: s[6 - i, j], s[i, j]",  # results are stored at plain axes only
    "s * 2, s + 1": "i, j: s[i, j]",
    "s * 2, s.mT + t": "i, j: s[i, j], t[j, i]",
    "exp(s) * t, s.mT + 1": "i, j: s[i, j], t[i, j]",
    "t * 3, s * t.mT, s": "i, j: s[j, i], t[i, j]",
    "c * 2, permute_dims(c, (2, 0, 1)) + d": "i, j, k: c[i, j, k], d[k, i, j]",
    "c * 2, permute_dims(c, (1, 0, 2)) + d": "i, j, k: c[i, j, k], d[j, i, k]",
    "c * 2, permute_dims(c, (0, 2, 1)) + d": "i, j, k: c[i, j, k], d[i, k, j]",
    "c[:, :1] * 2, permute_dims(c[:, :1], (2, 1, 0)) + d[:, :1]": "i, j: c[i, 0, j], d[j, 0, i]",
    "sum(s, axis=0), s * 2": "i | r: s[r, i]",
    "sum(x, axis=1), x * 2": "i | r: x[i, r]",
    "x[:, :1] * 2, v": "i: v[i], x[i, 0]",
    "roll(x, 2, axis=1)": "i, j: x[i, (j + 5)%7]",
    "reshape(x, (7, 5))": "i, j: x[(5*i + j)//7, (5*i + j)%7]",
    # parts of a concatenation: the conditions under which an element is needed follow its index
    "concat((x, y), axis=1)": "i, j: x[i, j, 6 - j >= 0], y[i, j - 7, j - 7 >= 0]",
    "concat((x, y, x), axis=1)[:, 8:12]": "i, j: y[i, j + 1]",  # all elements come from one part
    "concat((x, y, x), axis=1)[:, 8:16]": "i, j: x[i, j - 6, j - 6 >= 0], y[i, j + 1, 5 - j >= 0]",
    "concat((x * v[:, None], y), axis=1)": "i, j: v[i], x[i, j, 6 - j >= 0], y[i, j - 7, j - 7 >= 0]",  # v always
    "concat((b * g[:, :, None], b), axis=2)": "i, j, k: b[i, j, k - 7, k - 7 >= 0], b[i, j, k, 6 - k >= 0], g[i, j]",
    "concat((x * m, y), axis=1)": "i, j: m[i, 0], x[i, j, 6 - j >= 0], y[i, j - 7, j - 7 >= 0]",
    "concat((x * u, y), axis=1)": "i, j: u[j, 6 - j >= 0], x[i, j, 6 - j >= 0], y[i, j - 7, j - 7 >= 0]",
    "stack((x, y), axis=0)": "i, j, k: x[j, k, -i >= 0], y[j, k, i - 1 >= 0]",
    "u[None, :] * 2": "i: u[i]",
    "stack((exp(x), y), axis=1)": "i, j, k: x[i, k, -j >= 0], y[i, k, j - 1 >= 0]",
    "pad(u[None, :], ((0, 7), (0, 0)))": "i, j: u[j, -i >= 0]",  # 8 rows: a program has one of them
    "pad(u[None, :], ((0, 8), (0, 0)))": "i, j: u[j]",  # 9 rows: a program has several
    "stack((exp(x), y), axis=2)": "i, j, k: x[i, j], y[i, j]",  # each program has elements of both
    "x[:, k]": "i, j: k[j], x[i, p0, p0 >= 0, 6 - p0 >= 0]",
    "x[:, k] + y[:, k]": "i, j: k[j], x[i, p0, p0 >= 0, 6 - p0 >= 0], y[i, p0, p0 >= 0, 6 - p0 >= 0]",
    "pad(reshape(exp(reshape(s[:6], (3, 14))), (6, 7)), 1)[:, ::2]": "i, j: s[i - 1, 2*j - 1, 2*j - 1 >= 0, 7 - 2*j >= 0, i - 1 >= 0, 6 - i >= 0]",
    "concat((u[k], u))": "i: k[i, 2 - i >= 0], u[i - 3, i - 3 >= 0], u[p0, 2 - i >= 0, p0 >= 0, 6 - p0 >= 0]",
}


@pytest.mark.parametrize("text", list(AXES))
def test_nodes_share_axes(text: str) -> None:
    assert notation(indexing(graph(text))) == AXES[text]


def test_a_dimension_of_size_1_needs_no_axis() -> None:
    (node,) = graph("m + v[:, None]").outputs
    (_, demand), *_ = Indexing(frozenset({node}), [node], lambda symbol, n: True).stores
    assert demand.index == (dims.axis("i"), 0)


def test_axes_have_letters_and_then_numbers() -> None:
    types = {"x": f"f32[{', '.join('2' * 11)}]"}
    assert list(indexing(graph("x * 2", {}, **types)).axes) == [*"ijklhgfe", "e8", "e9", "e10"]
    assert list(indexing(graph("sum(x)", {}, **types)).axes) == [*"rstuvw", "w6", "w7", "w8", "w9", "w10"]


# ---- programs that need several kernels ------------------------------------------------

REPEATED = "a reduction would be repeated for every element of another axis"
PLACES = "a reduction is needed at permuted or partial places"
SCANNED = "a running sum is needed at permuted places"
WRITTEN = "a result would be written once for every element of another axis"
SPACE = "a reduction and a matrix product share no iteration space"
LINE = "a single row or column of a matrix product is needed"
TWICE = "a running sum is needed along two loops"
REFUSED = {  # the reason, and the nodes to store so that the rest may be one kernel
    "sum(x, axis=1)[::-1] * v": (PLACES, "sum[5]"),
    "sum(x, axis=1)[1:] * v[1:]": (PLACES, "sum[5]"),
    "sum(s, axis=1) + sum(s, axis=1)[:, None]": (REPEATED, "sum[7]"),
    "concat((sum(x, axis=1), v))": (PLACES, "sum[5]"),
    "cumulative_sum(x, axis=1)[::-1]": (PLACES, "sum[5, 7]"),
    "cumulative_sum(x, axis=1)[:, ::-1]": (SCANNED, "sum[5, 7]"),
    "cumulative_sum(x, axis=1)[:, 1:]": (SCANNED, "sum[5, 7]"),
    "cumulative_sum(x, axis=1)[:, 0]": (SCANNED, "sum[5, 7]"),
    "cumulative_sum(s, axis=0) + cumulative_sum(s, axis=1)": (REPEATED, "sum[7, 7]"),
    "cumulative_sum(x, axis=1) * sum(x)": (REPEATED, "sum[5, 7]"),
    "sum(x), sum(x, axis=0)": (REPEATED, "sum[7]"),
    "max(x, axis=1), max(x, axis=0)": (REPEATED, "max[5]"),
    "x @ z @ w": (REPEATED, "contract[5, 3]"),
    "(x @ z)[0]": (LINE, "contract[5, 3]"),
    "(x @ z)[:, 0]": (LINE, "contract[5, 3]"),
    "(x @ z)[::-1]": (PLACES, "contract[5, 3]"),
    "(x @ z)[:, 0] * sum(x, axis=1)": (LINE, "contract[5, 3]"),
    "exp(x), exp(v)": (WRITTEN, "exp[5]"),
    "exp(v), exp(x)": (WRITTEN, "exp[5, 7]"),
    "v * 2, v * 3, exp(x) * v[:, None]": (WRITTEN, "multiply[5, 7]"),
    "s @ t * sum(t, axis=0)": (SPACE, "sum[7]"),
    "sum(x @ z, axis=1), sum(x, axis=1)": (SPACE, "sum[5]"),
    "x @ z / max(x @ z, axis=1, keepdims=True)": (SPACE, "contract[5, 3]"),
    "sum(c * cumulative_sum(s, axis=1)[:, :, None], axis=(1, 2))": (TWICE, "sum[7, 7]"),
}


@pytest.mark.parametrize("text", list(REFUSED))
def test_programs_that_need_several_kernels(text: str) -> None:
    with pytest.raises(NotOneKernel) as found:
        indexing(graph(text))
    stored = [
        f"{getattr(n, 'op', type(n).__name__.lower())}[{', '.join(map(str, n.shape))}]" for n in found.value.nodes
    ]
    assert (found.value.reason, *stored) == REFUSED[text]


# ---- ranges of axes --------------------------------------------------------------------


def test_indices_and_guards_are_simplified_by_the_ranges_of_the_axes() -> None:
    i, j, n = dims.axis("i"), dims.axis("j"), dims.size("N")
    ranges = AxisRanges({"i": Dim.of(8), "j": n - 2}, lambda symbol, size: True)
    assert ranges.simplify((4 * i + 1) // 4) == i
    assert ranges.simplify(smallest(n, Dim.of(3)) + j) == j + 3  # j has an element, so N is at least 3
    unrelated = smallest(n, Dim.of(3)) + dims.size("j")  # a size that has the name of an axis
    assert ranges.simplify(unrelated) == unrelated
    assert ranges.open_guards([i, i - 2, 7 - i]) == (i - 2,)
    assert ranges.narrowed((i - 2,), [i - 1]) == (i - 2,) and ranges.narrowed((i - 1,), [i - 2]) == (i - 1, i - 2)
    assert ranges.narrowed((i - 2,), [1 - i]) is None and ranges.narrowed((i - 2,), [2 - i]) == (i - 2, 2 - i)
    assert ranges.narrowed((), [-1 - i]) is None and ranges.narrowed((), [-i]) == (-i,)


# ---- limits ----------------------------------------------------------------------------


def shifted(value: str, times: int, width: int) -> str:
    """A sum of `times` slices of one value, each with another start."""
    return " + ".join(f"{value}[{k}:{k + width}]" for k in range(times))


@pytest.mark.parametrize("of, most, width, kind", [("exp(abs(u))", 8, 9, Apply), ("concat((u, v))", 32, 61, Concat)])
def test_a_value_needed_at_many_indices_is_stored(of: str, most: int, width: int, kind: type[Node]) -> None:
    """A view may be needed at more indices than a computed value. Its operands are not stored as well."""
    found = indexing(graph(shifted(of, most, width), {}, u="f32[60]", v="f32[60]"))
    assert max(len(ds) for n, ds in found.demands.items() if isinstance(n, kind)) == most
    with pytest.raises(NotOneKernel, match="more than 8 times") as refused:
        indexing(graph(shifted(of, most + 1, width), {}, u="f32[60]", v="f32[60]"))
    (node,) = refused.value.nodes
    assert isinstance(node, kind) and getattr(node, "op", "exp") == "exp"


def test_a_value_needed_under_many_conditions_is_stored() -> None:
    """Each padded side is a condition: eight axes have 16."""
    x = {"x": f"f32[{', '.join('2' * 9)}]"}
    sides = ["(1, 1)"] * 8
    found = indexing(graph(f"pad(x * 2, ({', '.join(sides)}, (0, 0)))", {}, **x))
    assert max(len(d.guards) for n, ds in found.demands.items() if isinstance(n, Apply) for d in ds) == 16
    with pytest.raises(NotOneKernel, match="under 16 conditions") as refused:
        indexing(graph(f"pad(x * 2, ({', '.join(sides)}, (0, 1)))", {}, **x))
    assert [n.op for n in refused.value.nodes if isinstance(n, Apply)] == ["multiply"]


def many(count: int) -> Graph:
    names = [f"x{k}" for k in range(count)]
    return graph(" + ".join(names), {}, **dict.fromkeys(names, "f32[9]"))


def test_a_kernel_has_96_arrays_at_most() -> None:
    assert len(indexing(many(95)).axes) == 1
    with pytest.raises(NotOneKernel, match="it would read 96 arrays") as refused:
        indexing(many(96))
    (middle,) = refused.value.nodes
    assert len({n for n in Graph("", (), (middle,)).nodes() if isinstance(n, Input)}) == 49  # half of all


def test_a_single_operation_of_too_many_arrays_stays_one() -> None:
    names = [f"x{k}" for k in range(97)]
    assert len(indexing(graph(f"concat(({', '.join(names)}))", {}, **dict.fromkeys(names, "f32[9]"))).axes) == 1


# ---- products and reductions in one loop -----------------------------------------------

ATTENTION = "softmax(q @ k.mT) @ v"
QKV = {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, E]"}


def attention(text: str = ATTENTION, dtype: str = "f32", **sizes: int) -> Indexing:
    types = {n: t.replace("f32", dtype) for n, t in QKV.items()}
    return indexing(graph(text, {"T": 50, "S": 60, "D": 16, "E": 24} | sizes, **types))


def loops(found: Indexing) -> tuple[list[str], Dim | None, list[Dim], list[Dim]]:
    """The parallel axes, and the extents of the loop, of the axes in registers, and of the axes inside the loop."""
    within = found.reduced - {found.loop} if found.loop else set[str]()
    held, inner = ([found.axes[a] for a in sorted(names)] for names in (found.held, within))
    return found.parallel, found.axes[found.loop] if found.loop else None, held, inner


def test_products_and_reductions_share_a_loop() -> None:
    assert loops(attention()) == (["i", "j"], Dim.of(60), [Dim.of(24)], [Dim.of(16)])
    assert loops(attention(D=24)) == (["i", "j"], Dim.of(60), [Dim.of(24)], [Dim.of(24)])
    assert loops(attention("max(q @ k.mT, axis=1)")) == (["i"], Dim.of(60), [], [Dim.of(16)])
    assert loops(attention("q @ k.mT * sum(q, axis=1, keepdims=True)", S=60)) == (
        ["i", "j"],
        Dim.of(16),
        [Dim.of(60)],
        [],
    )
    assert loops(attention("max((q @ k.mT)[:, 16:], axis=1)")) == (
        ["i"],
        Dim.of(44),
        [],
        [Dim.of(16)],
    )  # statistic and product
    both = attention("softmax(q @ k.mT) @ v, max(q @ k.mT, axis=1)")  # a statistic of rows, and a product with columns
    assert loops(both) == (["i", "j"], Dim.of(60), [Dim.of(24)], [Dim.of(16)]) and len(both.stores) == 2
    assert loops(attention("q @ k.mT")) == (["i", "j"], None, [], [])


@pytest.mark.parametrize("sizes", [{"D": 256}, {"E": 256}, {"D": 256, "E": 256}, {"T": 257, "S": 257}])
def test_axes_in_registers_are_short(sizes: dict[str, int]) -> None:
    assert attention(**sizes).loop is not None
    for name in sizes.keys() - {"T", "S"}:
        with pytest.raises(NotOneKernel, match=f"{SPACE}|{REPEATED}"):
            attention(**sizes | {name: 257})


def test_axes_in_registers_have_known_sizes() -> None:
    with pytest.raises(NotOneKernel):
        indexing(graph(ATTENTION, {"T": 50, "S": 60, "E": 24}, **QKV))
    assert indexing(graph(ATTENTION, {"D": 16, "E": 24}, **QKV)).loop is not None


def test_only_products_that_are_f32_share_a_loop() -> None:
    assert attention(dtype="f16").loop is not None
    with pytest.raises(NotOneKernel):
        attention(dtype="f64")


NOT_IN_ONE_LOOP = (
    "q @ k.mT @ v @ v.mT",  # two products outside
    "softmax(q @ k.mT, axis=0) @ v",  # along the rows
    "(q @ k.mT).mT @ q",  # the first product is needed transposed
    "softmax(q @ k.mT) @ v - max(v, axis=0)",  # a reduction of columns alone
    "sum(q @ k.mT)",
    "sum((q @ k.mT)[:, 1::2], axis=1)",  # every second key
    "max(q @ k.mT, axis=1) * sum(q, axis=0)[:1]",
    "sum((q @ k.mT)[:, ::-1] * k[:, 0], axis=1)",
)


@pytest.mark.parametrize("text", NOT_IN_ONE_LOOP)
def test_programs_without_a_common_loop(text: str) -> None:
    with pytest.raises(NotOneKernel):
        attention(text)


def test_a_plain_axis_is_one_symbol_alone() -> None:
    i, n = Dim({(Symbol("i", "axis"),): 1}), Dim({(Symbol("N"),): 1})
    assert [plain_axis(d) for d in (i, n, i + 1, i * 2, i // 2, Dim.of(0))] == ["i", *[None] * 5]


def test_a_guard_on_another_axis_is_not_about_an_index() -> None:
    i, j = dims.axis("i"), dims.axis("j")
    assert about((i - 1, j - 2, i - j), (i, dims.ZERO)) == (i - 1, i - j)


def test_a_scan_has_no_element_past_its_end() -> None:
    g = graph("cumulative_sum(u)")
    found, (scan,) = indexing(g), g.outputs
    assert isinstance(scan, Scan)
    for more, name in ((0, "e"), (1, "f"), (2, "g")):
        found.axes[name] = scan.shape[0] + more
        demand = Demand((dims.axis(name),))
        if more:
            with pytest.raises(NotOneKernel, match="permuted places"):
                found.scan_axis(scan, demand)
        else:
            assert found.scan_axis(scan, demand) == (name, dims.ZERO)
