"""Each pass alone: its changes (goldens), that results stay equal, and what its verifier refuses.

Most tests iterate over the programs of the table `PROGRAMS`. For each one, every IR is evaluated by its own
evaluator before and after each pass, at ragged sizes, with a GPU's schedules and with the interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import GOLDENS

import minitri as mt
from minitri import pipeline
from minitri.base import dims, numpy_array_operations as numpy_arrays
from minitri.base.diagnostics import CompileError
from minitri.base.dims import ONE, ZERO, Dim, size
from minitri.base.symbolic_minmax import largest, smallest
from minitri.base.types import bool_, dtype, f16, f32, f64, i8, i32, i64, u8
from minitri.cli.inputs import make_inputs
from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.graph.ir import (  # fmt: skip
    Apply,
    Concat,
    Const,
    Contract,
    Gather,
    Graph,
    Index,
    Input,
    Interner,
    Node,
    Reduce,
    Scan,
    View,
    axis,
    pick,
)
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.kernels import ir
from minitri.kernels.evaluate import evaluate as evaluate_kernels
from minitri.kernels.memory_traffic import traffic
from minitri.kernels.verify import verify as verify_plan
from minitri.optimize import pass_table, simplify
from minitri.optimize.pass_table import OPTIONAL, PASSES
from minitri.pipeline import Compilation
from minitri.tiles.evaluate import evaluate as evaluate_tile
from minitri.tiles.ir import Loop, Program
from minitri.tiles.rewrite import exchange
from minitri.tiles.verify import verify as verify_tile
from minitri.trust.check_passes import compare
from minitri.trust.error_bounds import enclosures
from minitri.trust.sanitizer import AccessError

# ---- programs and their fusion ------------------------------------------------------------------

REPEATED = "a reduction would be repeated for every element of another axis"
TILE = "it would be computed again for every tile of the product"
PRODUCT = "a reduction and a matrix product share no iteration space"
AGAIN = "computed again: its operands are cheaper to read than the value is to store"


@dataclass(frozen=True)
class Case:
    """A program, the numbers of its kernels and temporaries, and the values that are not fused (with the rule)."""

    text: str
    types: dict[str, str] = field(default_factory=dict)
    kernels: int = 1
    temporaries: int = 0
    apart: tuple[tuple[str, str], ...] = ()
    again: bool = False


MN = {"x": "f32[M, N]"}
MK_KN = {"x": "f32[M, K]", "w": "f32[K, N]"}
PROGRAMS: dict[str, Case] = {
    "identity": Case("x", MN),
    "elementwise": Case("gelu(x) * y + 1", MN | {"y": "f32[N]"}),
    "outer": Case("x[:, None] * y", {"x": "f32[M]", "y": "f32[N]"}),
    "transpose": Case("x.mT + y", MN | {"y": "f32[N, M]"}),
    "stencil": Case("x[:, :-2] * a + x[:, 1:-1] + x[:, 2:] * a", MN | {"a": "float"}),
    "concat": Case("concat((exp(x), y * 2), axis=1) + 1", MN | {"y": "f32[M, K]"}),
    "reshape": Case("sum(reshape(x, (M, 2, N)), axis=1)", {"x": "f32[M, 2 * N]"}),
    "halves": Case("astype(x, f32) * 2 + astype(y, f32)", {"x": "f16[M, N]", "y": "bf16[N]"}),
    "softmax": Case("softmax(x, axis=-1)", MN),
    "softmax over columns": Case("softmax(x, axis=0)", MN),
    "layer_norm": Case("layer_norm(x, g, b)", MN | {"g": "f32[N]", "b": "f32[N]"}),
    "rms_norm": Case("rms_norm(x, g)", MN | {"g": "f32[N]"}),
    "logsumexp": Case("logsumexp(x, axis=-1)", MN),
    "variance": Case("var(x, axis=-1)", MN),
    "argmax": Case("take_along_axis(x, argmax(x, axis=-1)[:, None], axis=-1)", MN),
    "mean of means": Case("mean(mean(x, axis=-1))", MN, 2, 1, (("sum", REPEATED),)),
    "rows and columns": Case("sum(x, axis=0) + sum(x, axis=1)", {"x": "f32[N, N]"}),
    "siblings": Case("def f(x: f32[M, N]):\n    return sum(x, axis=1), max(x, axis=1), x * 2\n"),
    "two outputs": Case("def f(x: f32[M, N]):\n    y = exp(x)\n    return y, y + 1\n"),
    "unrelated": Case("def f(x: f32[M], y: f32[N]):\n    return x + 1, y + 1\n", {}, 2),
    "recomputed": Case("def f(x: f32[M, N]):\n    y = x * 2 + 1\n    return sum(y, axis=0), sum(y, axis=1)\n", {}, 2, again=True),
    "stored": Case(
        "def f(a: f32[M, N], b: f32[M, N], c: f32[M, N]):\n    y = a * b + c\n    return sum(y, axis=0), sum(y, axis=1)\n",
        {}, 2, 1, (("add", REPEATED),),
    ),
    "diamond": Case(
        "def f(x: f32[M, N]):\n    a = exp(x)\n    b = cumulative_sum(a, axis=0)\n    return a * sum(b, axis=1)[:, None]\n",
        {}, 2, 1, (("sum", REPEATED),), again=True,
    ),
    "cumsum": Case("cumulative_sum(x * 2, axis=-1) + 1", MN),
    "cumsum of softmax": Case("cumulative_sum(softmax(x, axis=-1), axis=-1)", MN),
    "gather": Case("w[idx] * 2", {"w": "f32[V, D]", "idx": "i64[N]"}),
    "gather of computed": Case("exp(w)[idx]", {"w": "f32[V, D]", "idx": "i64[N]"}),
    "cross_entropy": Case("cross_entropy(z, y)", {"z": "f32[N, C]", "y": "i64[N]"}, 2, 1, (("subtract", REPEATED),)),
    "matmul": Case("x @ w", MK_KN),
    "batched matmul": Case("x @ w", {"x": "f16[B, M, K]", "w": "f16[B, K, N]"}),
    "prologue": Case("relu(x) @ w", MK_KN),
    "cast prologue": Case("astype(x, f16) @ w", {"x": "f32[M, K]", "w": "f16[K, N]"}),
    "epilogue": Case("relu(x @ w + b) * 2", MK_KN | {"b": "f32[N]"}),
    "residual": Case("x @ w + y", MK_KN | {"y": "f32[M, N]"}),
    "two products": Case("(x @ w) * (x @ v)", MK_KN | {"v": "f32[K, N]"}),
    "product of a product": Case("x @ w @ v", MK_KN | {"v": "f32[N, P]"}, 2, 1, (("contract", TILE),)),
    "mlp": Case("gelu(x @ w + b) @ v", MK_KN | {"b": "f32[N]", "v": "f32[N, P]"}, 2, 1, (("multiply", TILE),)),
    "softmax then matmul": Case("softmax(x, axis=-1) @ w", MK_KN, 2, 1, (("divide", TILE),)),
    "matmul then softmax": Case("softmax(x @ w, axis=-1)", MK_KN, 2, 1, (("contract", PRODUCT),)),
    "attention": Case(
        "attention(q, k, v)", {"q": "f32[T, D]", "k": "f32[S, D]", "v": "f32[S, D]"}, 3, 2,
        (("contract", PRODUCT), ("divide", TILE)),
    ),
}  # fmt: skip
RAGGED = {"M": 5, "N": 7, "K": 4, "P": 3, "V": 9, "D": 6, "C": 10, "T": 5, "S": 7, "B": 2}
TARGETS = ("cuda:90", "interpreter")


@cache
def program(name: str) -> mt.Program:
    return mt.compile(PROGRAMS[name].text, **PROGRAMS[name].types)


def sizes_of(f: mt.Program, sizes: dict[str, int] = RAGGED) -> dict[str, int]:
    known = {n for p in f.function.params for n in _words(p.annotation.span.text if p.annotation else "")}
    return {n: sizes[n] for n in sorted(known & set(sizes))}


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.partition("[")[2]).split()


def compiled(f: mt.Program, target: str = "cuda:90", **options: Any) -> Compilation:
    return f.lower(target=target, **{**sizes_of(f), **options}).compilation


@cache
def inputs_of(name: str) -> dict[str, Any]:
    f = program(name)
    made = make_inputs(f.function, {}, sizes_of(f), seed=3).arrays
    return {p.name: a for p, a in zip(f.function.params, made)}


def stages(c: Compilation, inputs: dict[str, Any], sizes: dict[str, int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(stage, results) of every IR of a compilation, computed by the evaluator of that IR."""
    for stage in ("graph", "graph.specialised", "graph.folded", "graph.simplified"):
        yield stage, evaluate_graph(c.value(stage), inputs, sizes)
    for stage in ("kernels.fused", "kernels"):
        yield stage, evaluate_kernels(c.value(stage), inputs, sizes)
    for stage in ("tile", "tile.masked", "tile.target"):
        yield stage, evaluate_tile(c.value("kernels"), c.value(stage), inputs, sizes, stage != "tile")


def check_stages(c: Compilation, inputs: dict[str, Any], sizes: dict[str, int]) -> None:
    """Asserts that every pass keeps the results of the graph, apart from rounding errors."""
    wanted = enclosures(c.value("graph"), inputs, sizes)
    for stage, results in stages(c, inputs, sizes):
        for got, want in zip(results, wanted, strict=True):
            ok, error, limit, note = compare(got, want)
            assert ok, f"{stage}: {error} > {limit} {note}\n{c[stage] if stage in pipeline.OUR_STAGES else ''}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_every_pass_keeps_the_results(name: str, target: str) -> None:
    f = program(name)
    check_stages(compiled(f, target), inputs_of(name), sizes_of(f))


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_passes_keep_the_results_for_unknown_sizes(name: str) -> None:
    c = program(name).lower().compilation
    check_stages(c, inputs_of(name), sizes_of(program(name)))


@pytest.mark.parametrize("left_out", OPTIONAL)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_optional_passes_are_optional(name: str, left_out: str) -> None:
    c = compiled(program(name), without=(left_out,))
    check_stages(c, inputs_of(name), sizes_of(program(name)))
    if left_out == "fusion":
        assert not any(d.verdict == "fused" for d in c.value("kernels.fused").ledger)
        assert len(c.value("kernels").kernels) >= PROGRAMS[name].kernels


def test_without_any_optional_pass() -> None:
    for name in PROGRAMS:
        c = compiled(program(name), without=OPTIONAL)
        check_stages(c, inputs_of(name), sizes_of(program(name)))


@pytest.mark.parametrize("name", ["softmax", "mlp", "cross_entropy", "concat"])
def test_passes_never_mutate(name: str) -> None:
    """The text of each stage is the same before and after all later passes."""
    c = compiled(program(name))
    texts: dict[str, str] = {}
    for p in PASSES:
        texts[p.stage] = p.text(c.value(p.stage))
    for p in PASSES:
        assert p.text(c.values[p.stage]) == texts[p.stage], p.name


def test_passes_are_deterministic() -> None:
    for name in ("attention", "cross_entropy", "layer_norm"):
        texts = {
            mt.compile(PROGRAMS[name].text, **PROGRAMS[name].types).lower(**sizes_of(program(name)))["triton"]
            for _ in range(3)
        }
        assert len(texts) == 1


# ---- fusion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_fusion(name: str) -> None:
    """The numbers of kernels and temporaries, and the values that are stored in memory, each with its reason."""
    case, plan = PROGRAMS[name], program(name).lower().compilation.value("kernels")
    apart = {(d.value.split(":")[0], d.rule) for d in plan.ledger if not d.fused}
    assert (len(plan.kernels), len(plan.temporaries)) == (case.kernels, case.temporaries)
    assert apart == set(case.apart)
    assert any(d.rule == AGAIN for d in plan.ledger) == case.again


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_ledger(name: str) -> None:
    """Each line names a producer and a consumer. The kernels exist, and fused means one kernel."""
    plan = program(name).lower().compilation.value("kernels")
    order = [k.name for k in plan.kernels]
    for d in plan.ledger:
        assert d.producer in order and d.consumer in order and d.rule
        assert (d.producer == d.consumer) == d.fused and not (d.again and not d.fused), d
        assert d.fused or order.index(d.producer) < order.index(d.consumer)
        sizes = dict.fromkeys((s.name for s in d.bytes.symbols()), 3)
        assert d.bytes.evaluate(sizes) > 0
    written = [op.buffer.name for k in plan.kernels for op in k.body if isinstance(op, ir.Store)]
    assert sorted(written) == sorted(b.name for b in (*plan.outputs, *plan.temporaries))


def test_ledger_bytes() -> None:
    """A fused f32[M, N] saves one write and one read of four bytes an element."""
    plan = program("softmax").lower(M=10, N=20).compilation.value("kernels")
    rows = [(d.value, int(d.bytes)) for d in plan.ledger]
    assert ("max: f32[10]", 2 * 4 * 10) in rows


@pytest.mark.parametrize("without", [{"fusion"}, {}])
def test_a_write_counts_once_in_the_ledger(without: set[str]) -> None:
    """exp has two readers: one write and two reads, whether they are saved or not."""
    plan = program("softmax").lower(M=10, N=20, without=without).compilation.value("kernels")
    assert [int(d.bytes) for d in plan.ledger if d.value.startswith("exp")] == [2 * 4 * 200, 4 * 200]


@pytest.mark.parametrize("name", ["softmax", "diamond"])
def test_the_ledger_without_fusion_adds_up_to_the_traffic_of_temporaries(name: str) -> None:
    plan = program(name).lower(without={"fusion"}).compilation.value("kernels")
    sizes = dict.fromkeys((s.name for b in (*plan.inputs, *plan.outputs) for d in b.shape for s in d.symbols()), 64)
    between = {b.name for b in plan.temporaries}
    moved = [n for t in traffic(plan, sizes) for part in (t.reads, t.writes) for b, n in part.items() if b in between]
    assert sum(d.bytes.evaluate(sizes) for d in plan.ledger) == sum(moved)


def test_a_kernel_loads_a_value_once_in_the_ledger() -> None:
    """The multiplication and exp of the second kernel read the running sum: one write and one read."""
    text = "def f(x: f32[M, N]):\n    y = cumulative_sum(x, axis=0)\n    return sum(y * exp(y), axis=1)\n"
    plan = mt.compile(text).lower(M=10, N=20).compilation.value("kernels")
    assert [int(d.bytes) for d in plan.ledger if not d.fused] == [2 * 4 * 200]


def test_an_output_that_is_read_saves_only_the_read() -> None:
    text = "def f(x: f32[N]):\n    y = exp(x)\n    return y, y * y + 1\n"
    plan = mt.compile(text).lower(N=100).compilation.value("kernels")
    assert [(d.verdict, int(d.bytes)) for d in plan.ledger if d.value.startswith("exp")] == [("fused", 4 * 100)]


def test_a_diamond_does_not_become_a_cycle() -> None:
    """a feeds b and the result; the result needs b. So a and the result cannot be one kernel if b is another."""
    plan = program("diamond").lower().compilation.value("kernels")
    first, last = plan.kernels
    reads = {op.buffer.name for op in last.body if isinstance(op, ir.Load)}
    writes = {op.buffer.name for op in first.body if isinstance(op, ir.Store)}
    assert writes <= reads and not {op.buffer.name for op in first.body if isinstance(op, ir.Load)} & {"out", "t1"}
    verify_plan(plan)


@pytest.mark.parametrize("name", ["matmul", "batched matmul", "two products", "attention"])
def test_blocks_of_a_product(name: str) -> None:
    """For any requested blocks: a batch has one index for each program, since a product has two axes."""
    f = program(name)
    axes = {a.name for kernel in f.lower().compilation.value("kernels.fused").kernels for a in kernel.axes}
    f = f.configured(options=mt.Options(blocks=dict.fromkeys(axes, 8)))
    for target in TARGETS:
        check_stages(compiled(f, target), inputs_of(name), sizes_of(f))
    inputs = inputs_of(name)
    report = f.check(*inputs.values())
    assert report.ok, report


def test_strided_inputs_keep_their_layout() -> None:
    f = mt.compile("x + 1", x="f32[M, N]")
    buffer = f.lower(np.ones((6, 4), np.float32).T).compilation.value("kernels").inputs[0]
    assert buffer.strides == (1, 4)


# ---- rules of simplify -----------------------------------------------------------------------

M, N, K = size("M"), size("N"), size("K")
SIX = Dim.of(6)
SIZES = {"M": 3, "N": 4, "K": 5}
d0, d1, d2 = axis(0), axis(1), axis(2)


class Make:
    """Short names for nodes over f32[M, N]. One interner makes all nodes of a test."""

    def __init__(self) -> None:
        self.i = Interner()

    def x(self, name: str = "x", type: Any = f32, shape: tuple[Any, ...] = (M, N)) -> Node:
        return self.i.input(name, type, tuple(map(Dim.of, shape)))

    def cast(self, x: Node, type: Any) -> Node:
        return self.i.apply("cast", type, x.shape, (x,))

    def op(self, op: str, *args: Node, type: Any = None) -> Node:
        return self.i.apply(op, type or args[-1].dtype, args[-1].shape, args)

    def const(self, value: Any, type: Any = f32, shape: tuple[Any, ...] = (M, N)) -> Node:
        c = self.i.const(value, type)
        return self.i.view(c, tuple(map(Dim.of, shape)), ()) if shape else c

    def view(self, x: Node, shape: tuple[Any, ...], *index: Any) -> Node:
        return self.i.view(x, tuple(map(Dim.of, shape)), tuple(map(Dim.of, index)))

    def t(self, x: Node) -> Node:
        """The transposed node."""
        return self.view(x, (x.shape[1], x.shape[0]), d1, d0)

    def index(self, expr: Any, shape: tuple[Any, ...] = (M, N)) -> Node:
        return self.i.index(i64, tuple(map(Dim.of, shape)), Dim.of(expr))

    def rows(self, x: Node) -> Node:
        """x[k], for k: i64[K]."""
        k = self.view(self.x("k", i64, (K,)), (K, x.shape[1]), d0)
        return self.i.gather(x, (K, x.shape[1]), (pick(0), d1), (k,))

    def reduce(self, op: str, x: Node, *axes: int) -> Node:
        return self.i.reduce(op, x, axes)

    def matmul(self, a: Node, b: Node) -> Node:
        return self.i.contract(a, b)


Pair = tuple[Node, Node]
# Nodes that a rule changes, with their replacements.
FIRES: dict[str, tuple[Callable[[Make], Pair], ...]] = {
    "cast_of_same": (lambda m: (m.cast(m.x(), f32), m.x()),),
    "cast_of_widening": (
        lambda m: (m.cast(m.cast(m.x(type=f16), f32), f16), m.x(type=f16)),
        lambda m: (m.cast(m.cast(m.x(type=i8), i32), i64), m.cast(m.x(type=i8), i64)),
        lambda m: (m.cast(m.cast(m.x(type=bool_), i32), f32), m.cast(m.x(type=bool_), f32)),
        lambda m: (m.cast(m.cast(m.x(type=u8), f16), f32), m.cast(m.x(type=u8), f32)),
        lambda m: (m.cast(m.cast(m.x(type=f16), f32), i8), m.cast(m.x(type=f16), i8)),
    ),
    "cast_of_view": (lambda m: (m.cast(m.t(m.x()), f16), m.t(m.cast(m.x(), f16))),),
    "fold_constants": (
        lambda m: (m.op("add", m.const(2.0), m.const(0.5)), m.const(2.5)),
        lambda m: (m.op("add", m.const(2.0, shape=()), m.const(0.5, shape=())), m.const(2.5, shape=())),
        lambda m: (m.cast(m.const(300, i64), i8), m.const(44, i8)),
        lambda m: (m.op("floor_divide", m.const(-7, i64), m.const(2, i64)), m.const(-4, i64)),
        lambda m: (m.op("less", m.const(1.0), m.const(2.0), type=bool_), m.const(True, bool_)),
    ),
    "identity_operand": (
        lambda m: (m.op("multiply", m.x(), m.const(1.0)), m.x()),
        lambda m: (m.op("multiply", m.const(1.0), m.x()), m.x()),
        lambda m: (m.op("divide", m.x(), m.const(1.0)), m.x()),
        lambda m: (m.op("subtract", m.x(), m.const(0.0)), m.x()),
        lambda m: (m.op("subtract", m.x(type=i32), m.const(0, i32)), m.x(type=i32)),
        lambda m: (m.op("power", m.x(), m.const(1.0)), m.x()),
    ),
    "known_where": (
        lambda m: (m.op("where", m.const(True, bool_), m.x(), m.x("y")), m.x()),
        lambda m: (m.op("where", m.const(False, bool_), m.x(), m.x("y")), m.x("y")),
    ),
    "known_index": (
        lambda m: (m.index(7), m.const(7, i64)),
        lambda m: (m.index(d0, (1, N)), m.const(0, i64, (1, N))),
        lambda m: (m.index((d0 * N + d1) // N), m.index(d0)),
    ),
    "compose_views": (
        lambda m: (m.t(m.t(m.x())), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (m.view(m.view(m.x(), (M, N - 1), d0, d1 + 1), (M, N - 2), d0, d1 + 1), m.view(m.x(), (M, N - 2), d0, d1 + 2)),
        lambda m: (m.t(m.index(d0 * 3 + d1)), m.index(d1 * 3 + d0, (N, M))),
        lambda m: (
            m.view(m.rows(m.x()), (N, K), d1, d0),
            m.i.gather(m.x(), (N, K), (pick(0), d0), (m.view(m.x("k", i64, (K,)), (N, K), d1),)),
        ),
    ),
    "decided_view": (
        lambda m: (m.view(m.x(), (M, N), (d0 * N + d1) // N, (d0 * N + d1) % N), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (m.view(m.x(shape=(1, N)), (1, N), d0, d1), m.view(m.x(shape=(1, N)), (1, N), 0, d1)),
        lambda m: (m.view(m.x(), (1, N), d0 + 2, d1), m.view(m.x(), (1, N), 2, d1)),
    ),
    "identity_view": (
        lambda m: (m.view(m.x(), (M, N), d0, d1), m.x()),
        lambda m: (m.view(m.x(shape=(1, N)), (1, N), 0, d1), m.x(shape=(1, N))),
        lambda m: (m.view(m.const(1.0, shape=()), ()), m.const(1.0, shape=())),
    ),
    "gather_of_view": (
        lambda m: (
            m.rows(m.t(m.x())),
            m.i.gather(m.x(), (K, M), (d1, pick(0)), (m.view(m.x("k", i64, (K,)), (K, M), d0),)),
        ),
    ),
    "gather_of_cast": (lambda m: (m.rows(m.cast(m.x(type=f16), f32)), m.cast(m.rows(m.x(type=f16)), f32)),),
    "single_concat": (
        lambda m: (m.i.concat((M, N), (m.x(),), 1), m.x()),
        lambda m: (m.i.concat((M, N), (m.x(shape=(M, 0)), m.x("y")), 1), m.x("y")),
        lambda m: (
            m.i.concat((M, N * 2), (m.x(), m.x("z", shape=(M, 0)), m.x("y")), 1),
            m.i.concat((M, N * 2), (m.x(), m.x("y")), 1),
        ),
        lambda m: (m.i.concat((M, ZERO), (m.x(shape=(M, 0)), m.x("y", shape=(M, 0))), 1), m.x(shape=(M, 0))),
    ),
    "rotated_halves": (
        lambda m: (rotated(m, 2, lambda x: x), m.view(m.x(shape=(M, SIX)), (M, SIX), d0, (d1 + 2) % 6)),
        lambda m: (rotated(m, 2, lambda x: m.op("negative", x)), chosen(m, 4, m.view(m.x(shape=(M, SIX)), (M, SIX), d0, (d1 + 2) % 6))),
    ),
    "affine_gather": (
        lambda m: (gathered(m, m.index(d0)), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (gathered(m, m.index(M - 1 - d0)), m.view(m.x(), (M, N), M - 1 - d0, d1)),
        lambda m: (gathered(m, from_the_end(m, d0)), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (gathered(m, from_the_end(m, d0 - M)), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (gathered(m, m.view(from_the_end(m, -1 - d1, (N, M)), (M, N), d1, d0)), m.view(m.x(), (M, N), M - 1 - d0, d1)),
        lambda m: (gathered(m, m.op("subtract", m.index(2 * d0), m.index(d0))), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (gathered(m, m.op("negative", m.index(-d0))), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (gathered(m, m.op("multiply", m.index(d0), m.const(1, i64))), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (  # one of two; the other one takes its index
            m.i.gather(m.x(), (M, N), (pick(0), pick(1)), (m.index(d0), m.x("k", i64))),
            m.i.gather(m.x(), (M, N), (d0, pick(0)), (m.x("k", i64),)),
        ),
    ),
    "view_of_concat": (
        lambda m: (m.view(halves(m), (M, N), d0, d1), m.view(m.x(), (M, N), d0, d1)),
        lambda m: (m.view(halves(m), (M, N), d0, d1 + N), m.view(m.x("y"), (M, N), d0, d1)),
        lambda m: (m.view(halves(m), (N, M), d1, 2 * N - 1 - d0), m.view(m.x("y"), (N, M), d1, N - 1 - d0)),
        lambda m: (m.view(ends(m), (smallest(N, 1),), d0), m.view(m.x(shape=(smallest(N, 1),)), (smallest(N, 1),), d0)),
        lambda m: (  # if the axis has elements, N is at least 3
            m.view(ends(m), (largest(N - 2, 0),), d0 + 1),
            m.view(m.x("y", shape=(largest(N - 2, 0),)), (largest(N - 2, 0),), d0 + 1 - smallest(N, 1)),
        ),
    ),
    "trivial_reduction": (
        lambda m: (m.reduce("sum", m.x(shape=(M, 1)), 1), m.view(m.x(shape=(M, 1)), (M,), d0, 0)),
        lambda m: (m.reduce("max", m.x(shape=(M, 1)), 0, 1), m.reduce("max", m.view(m.x(shape=(M, 1)), (M,), d0, 0), 0)),
        lambda m: (m.reduce("argmin", m.x(shape=(M, 1)), 1), m.const(0, i64, (M,))),
        lambda m: (m.i.scan("sum", m.x(shape=(1, N)), 0), m.x(shape=(1, N))),
    ),
    "thin_contract": (
        lambda m: (m.matmul(m.x(), m.x("w", shape=(N, 1))), thin(m, m.x(), m.x("w", shape=(N, 1)))),
        lambda m: (m.matmul(m.x(shape=(1, N)), m.x("w", shape=(N, K))), thin(m, m.x(shape=(1, N)), m.x("w", shape=(N, K)))),
        lambda m: (m.matmul(m.x(shape=(M, 1)), m.x("w", shape=(1, K))), thin(m, m.x(shape=(M, 1)), m.x("w", shape=(1, K)))),
        lambda m: (
            m.matmul(m.x(type=f16), m.x("w", f16, (N, 1))),
            thin(m, m.cast(m.x(type=f16), f32), m.cast(m.x("w", f16, (N, 1)), f32)),
        ),
    ),
}  # fmt: skip


def gathered(m: Make, rows: Node) -> Node:
    """Elements of x at these rows, each at its own column."""
    return m.i.gather(m.x(), rows.shape, (pick(0), d1), (rows,))


def from_the_end(m: Make, expr: Dim, shape: tuple[Any, ...] = (M, N), size: Dim = M) -> Node:
    """Indices of an axis of this size. Negative ones count from its end."""
    at = m.index(expr, shape)
    below = m.op("less", at, m.const(0, i64, shape), type=bool_)
    return m.op("where", below, m.op("add", at, m.index(size, shape)), at)


def halves(m: Make) -> Node:
    return m.i.concat((M, 2 * N), (m.x(), m.x("y")), 1)


def rotated(m: Make, first: int, change: Callable[[Node], Node], ends: int | None = None) -> Node:
    """The elements of rows of 6 from `first` on, changed, and after them the first `ends` elements."""
    x, ends = m.x(shape=(M, SIX)), ends or first
    parts = change(m.view(x, (M, SIX - first), d0, d1 + first)), m.view(x, (M, Dim.of(ends)), d0, d1)
    return m.i.concat((M, SIX - first + ends), parts, 1)


def unknown_halves(m: Make, x: Node) -> Node:
    return m.i.concat((M, N + K), (m.view(x, (M, N), d0, d1 + K), m.view(x, (M, K), d0, d1)), 1)


def chosen(m: Make, last: int, x: Node) -> Node:
    """The first `last` elements of each row with the other sign, and the other elements of x."""
    place = m.index(d1, x.shape)
    test = m.i.apply("less", bool_, x.shape, (place, m.const(last, i64, x.shape)))
    return m.op("where", test, m.op("negative", x), x)


def ends(m: Make) -> Node:
    """Parts with the lengths of x[:1] and x[1:-1]."""
    parts = smallest(N, 1), largest(N - 2, 0)
    return m.i.concat((sum(parts, ZERO),), (m.x(shape=parts[:1]), m.x("y", shape=parts[1:])), 0)


def thin(m: Make, a: Node, b: Node) -> Node:
    shape = (a.shape[0], b.shape[1], a.shape[1])

    def at(x: Node, *index: Any) -> Node:
        view = m.view(x, shape, *(0 if e == 1 else k for e, k in zip(x.shape, index)))
        return simplify._normal(m.i, view)

    return m.reduce("sum", m.op("multiply", at(a, d0, d2), at(b, d2, d1)), 2)


# Nodes that a rule must not change, because a change would change a result.
KEEPS: dict[str, tuple[Callable[[Make], Node], ...]] = {
    "cast_of_same": (lambda m: m.cast(m.x(), f16), lambda m: m.op("exp", m.x())),
    "cast_of_widening": (
        lambda m: m.cast(m.cast(m.x(), f16), f32),  # the cast rounds
        lambda m: m.cast(m.cast(m.x(type=i32), f32), i32),  # 2**24 + 1
        lambda m: m.cast(m.cast(m.x(type=i32), i8), i32),
        lambda m: m.cast(m.cast(m.x(type=u8), i8), i32),
        lambda m: m.cast(m.cast(m.x(type=i8), u8), i32),
        lambda m: m.cast(m.cast(m.x(type=f16), dtype("bf16")), f32),
        lambda m: m.cast(m.cast(m.x(), bool_), f32),
        lambda m: m.cast(m.cast(m.x(type=i64), f64), i64),
    ),
    "cast_of_view": (lambda m: m.cast(m.x(), f16),),
    "fold_constants": (lambda m: m.op("add", m.x(), m.const(1.0)), lambda m: m.const(1.0)),
    "identity_operand": (
        lambda m: m.op("add", m.x(), m.const(0.0)),  # -0.0 + 0.0 is 0.0
        lambda m: m.op("subtract", m.x(), m.const(-0.0)),  # the same sum
        lambda m: m.op("subtract", m.const(0.0), m.x()),
        lambda m: m.op("multiply", m.x(), m.const(0.0)),  # nan, inf and -0.0
        lambda m: m.op("multiply", m.x(), m.const(-1.0)),
        lambda m: m.op("divide", m.const(1.0), m.x()),
        lambda m: m.op("power", m.const(1.0), m.x()),
        lambda m: m.op("equal", m.x(), m.const(1.0), type=bool_),
        lambda m: m.op("floor_divide", m.x(), m.const(1.0)),
    ),
    "known_where": (lambda m: m.op("where", m.x("c", bool_), m.x(), m.x("y")),),
    "known_index": (lambda m: m.index(d0), lambda m: m.index(M), lambda m: m.index(d0 * N + d1)),
    "compose_views": (lambda m: m.t(m.x()), lambda m: m.t(m.op("exp", m.x()))),
    "decided_view": (lambda m: m.t(m.x()), lambda m: m.view(m.x(shape=(M * N,)), (M, N), d0 * N + d1)),
    "identity_view": (
        lambda m: m.view(m.x(shape=(N, N)), (N, N), d1, d0),
        lambda m: m.view(m.x(), (M, N), d0, N - 1 - d1),
        lambda m: m.view(m.x(shape=(1, N)), (M, N), 0, d1),
        lambda m: m.view(m.x(), (M, N - 1), d0, d1),
    ),
    "gather_of_view": (
        lambda m: m.rows(m.x()),
        lambda m: m.rows(m.view(m.x(), (M - 1, N), d0 + 1, d1)),  # row -1 of the slice is a row of x, which must not be read
        lambda m: m.rows(m.view(m.x(), (M, N), M - 1 - d0, d1)),
        lambda m: m.rows(m.view(m.x(shape=(N,)), (M, N), d1)),
        lambda m: m.rows(m.view(m.x(shape=(M * N,)), (M, N), d0 * N + d1)),
    ),
    "gather_of_cast": (
        lambda m: m.rows(m.cast(m.x(type=i32), f32)),  # an integer out of range reads 0, not nan
        lambda m: m.rows(m.x()),
    ),
    "single_concat": (lambda m: m.i.concat((M, N * 2), (m.x(), m.x("y")), 1), lambda m: m.i.concat((M, N * 2), (m.x(), m.x()), 1)),
    "rotated_halves": (
        lambda m: halves(m),  # of two arrays
        lambda m: rotated(m, 3, lambda x: x, 2),  # one element is missing
        lambda m: rotated(m, 2, lambda x: m.op("exp", x)),  # is computed of few elements only
        lambda m: unknown_halves(m, m.x(shape=(M, N + K))),
    ),
    "affine_gather": (
        lambda m: m.rows(m.x()),
        lambda m: gathered(m, m.index(d0 + 1)),
        lambda m: gathered(m, m.index(d0 - 1)),
        lambda m: gathered(m, m.index(d1)),  # N may be more than M
        lambda m: gathered(m, from_the_end(m, d0 - M - 1)),
        lambda m: gathered(m, from_the_end(m, d0 - 1)),  # the index may have either sign
        lambda m: gathered(m, from_the_end(m, d0 - M, size=M + 1)),
        lambda m: gathered(m, m.op("add", m.index(d0), m.x("k", i64))),
        lambda m: gathered(m, m.op("floor_divide", m.index(d0), m.const(2, i64))),
    ),
    "view_of_concat": (
        lambda m: m.view(m.x(), (M, N), d0, d1),
        lambda m: m.view(halves(m), (M, N), d0, d1 + 1),  # elements of both parts
        lambda m: m.view(halves(m), (M, 2 * N), d0, 2 * N - 1 - d1),
        lambda m: m.view(ends(m), (largest(N - 1, 0),), d0),
    ),
    "trivial_reduction": (
        lambda m: m.reduce("sum", m.x(), 1), lambda m: m.reduce("max", m.x(shape=(1, N)), 1), lambda m: m.i.scan("sum", m.x(), 1),
        lambda m: m.i.scan("sum", m.x(shape=(1, N)), 1),
    ),
    "thin_contract": (lambda m: m.matmul(m.x(), m.x("w", shape=(N, K))),),
}  # fmt: skip


def test_every_rule_is_tested() -> None:
    names = [rule.__name__ for rule in simplify.RULES]
    assert sorted(names) == sorted(FIRES) == sorted(KEEPS) and len(set(names)) == len(names)


def rule_of(name: str) -> simplify.Rule:
    return next(r for r in simplify.RULES if r.__name__ == name)


def rows(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(name, make, id=f"{name}-{k}") for name, makes in table.items() for k, make in enumerate(makes)]


def values_of(node: Node) -> dict[str, Any]:
    """Inputs with some special values, and indices of which some are out of range."""
    rng = np.random.default_rng(5)
    out: dict[str, Any] = {}
    for n in Graph("f", (), (node,)).nodes():
        if isinstance(n, Input):
            shape = tuple(e.evaluate(SIZES) for e in n.shape)
            x = rng.integers(-3, 5, shape).astype(np.float64)
            if n.dtype.is_float:
                x = np.where(
                    rng.random(shape) < 0.3, rng.choice([np.nan, -0.0, 0.0, np.inf, -np.inf, 0.1], shape), x + 0.25
                )
            out[n.name] = numpy_arrays.cast(x, n.dtype)
    return out


def evaluated(node: Node, inputs: dict[str, Any]) -> Any:
    used = tuple(n for n in Graph("f", (), (node,)).nodes() if isinstance(n, Input))
    verify_graph(Graph("f", used, (node,)))
    return evaluate_graph(Graph("f", used, (node,)), inputs, SIZES)[0]


@pytest.mark.parametrize("name, make", rows(FIRES))
def test_rule_fires(name: str, make: Callable[[Make], Pair]) -> None:
    m = Make()
    node, wanted = make(m)
    result = rule_of(name)(m.i, node)
    assert result is wanted, f"{shown(node)}\nbecame\n{shown(result)}\nnot\n{shown(wanted)}"
    inputs = values_of(node)
    before, after = evaluated(node, inputs), evaluated(wanted, inputs)
    assert before.dtype == after.dtype and before.shape == after.shape
    if name == "thin_contract":
        np.testing.assert_allclose(after, before, rtol=1e-6)
    else:
        np.testing.assert_array_equal(after, before)
        if after.dtype.kind == "f" and "sum" not in shown(node):  # a sum of -0.0 alone: numpy gives 0.0
            known = ~np.isnan(after)
            assert (np.signbit(after) == np.signbit(before))[known].all()


@pytest.mark.parametrize("name, make", rows(KEEPS))
def test_rule_does_not_fire(name: str, make: Callable[[Make], Node]) -> None:
    m = Make()
    node = make(m)
    result = rule_of(name)(m.i, node)
    assert result is None or result is node, f"{shown(node)}\nbecame\n{shown(result)}"
    evaluated(node, values_of(node))


def shown(node: Node | None) -> str:
    if node is None:
        return "nothing"
    return format_graph(Graph("f", tuple(n for n in Graph("f", (), (node,)).nodes() if isinstance(n, Input)), (node,)))


@pytest.mark.parametrize(
    "make",
    [m for makes in KEEPS.values() for m in makes] + [lambda m, f=f: f(m)[0] for fs in FIRES.values() for f in fs],
)
def test_simplify_keeps_results_and_ends(make: Callable[[Make], Node]) -> None:
    """All rules together. Running them a second time changes nothing."""
    node = make(Make())
    used = tuple(n for n in Graph("f", (), (node,)).nodes() if isinstance(n, Input))
    graph = Graph("f", used, (node,))
    once = simplify.simplify(graph)
    verify_graph(once)
    assert format_graph(simplify.simplify(once)) == format_graph(once)
    inputs = values_of(node)
    before, after = evaluate_graph(graph, inputs, SIZES)[0], evaluate_graph(once, inputs, SIZES)[0]
    np.testing.assert_allclose(after.astype(np.float64), before.astype(np.float64), rtol=1e-6)


# ---- split -----------------------------------------------------------------------------------

SPLIT = {
    "sum": ("sum(x)", {"x": "f32[M]"}, {"M": 20_000}),
    "padded": ("max(x, axis=0)", {"x": "f32[M, N]"}, {"M": 9_001, "N": 3}),
    "any": ("any(x > 4)", {"x": "f32[M]"}, {"M": 17_000}),
    "product": ("prod(x * 0 + 1.0001, axis=1)", {"x": "f32[N, M]"}, {"M": 20_007, "N": 2}),
    "integers": ("min(x, axis=(0, 1))", {"x": "i32[M, N]"}, {"M": 170, "N": 181}),
    "mean": ("mean(x)", {"x": "f32[M, N]"}, {"M": 300, "N": 70}),
}


@pytest.mark.parametrize("name", list(SPLIT))
def test_split(name: str) -> None:
    """A long reduction with few results becomes two kernels with the same results. Its neutral elements are harmless."""
    text, types, sizes = SPLIT[name]
    f = mt.compile(text, **types)
    c = f.lower(**sizes).compilation
    assert len(c.value("kernels").kernels) == 2 and c["graph.simplified"].count("reduce.") == 2
    arrays = make_inputs(f.function, {}, sizes, seed=1).arrays
    arrays = tuple(-abs(a) if name in ("padded", "integers") else a for a in arrays)
    check_stages(c, {p.name: a for p, a in zip(f.function.params, arrays)}, sizes)
    assert f.lower(**sizes, target="interpreter")["graph.simplified"].count("reduce.") == 1


@pytest.mark.parametrize(
    "text, types, sizes",
    [
        ("sum(x)", "f32[M]", {"M": 1000}), ("argmax(x, axis=0)", "f32[M]", {"M": 1000}), ("sum(x)", "f32[M]", {}),
        ("sum(x, axis=1)", "f32[N, M]", {"M": 5000, "N": 5000}), ("sum(x, axis=1)", "f32[N, M]", {"M": 16384, "N": 4}),
        ("sum(x, axis=1)", "f32[N, M]", {"M": 32768, "N": 100}), ("sum(x, axis=0)", "f32[M, N]", {"M": 5000, "N": 0}),
    ],
)  # fmt: skip
def test_reductions_that_are_not_split(text: str, types: str, sizes: dict[str, int]) -> None:
    c = mt.compile(text, x=types).lower(**sizes).compilation
    assert len(c.value("kernels").kernels) == 1


# ---- masks -----------------------------------------------------------------------------------

REDUCED = {
    "sum": "f32",
    "prod": "f32",
    "max": "f32",
    "min": "f32",
    "any": "bool",
    "all": "bool",
    "argmax": "f32",
    "argmin": "f32",
}


@pytest.mark.parametrize("blocks", [{}, {"r": 4}, {"i": 3, "r": 2}], ids=["own", "loops", "short"])
@pytest.mark.parametrize("extents", [(3, 5), (4, 8), (1, 1), (5, 9)])
@pytest.mark.parametrize("op", list(REDUCED))
def test_masked_elements_are_neutral(op: str, extents: tuple[int, int], blocks: dict[str, int]) -> None:
    """With these values, one element too many or another filler would change the result."""
    kind = REDUCED[op]
    f = mt.compile(f"{op}(x, axis=1), {op}(x, axis=0), {op}(y, axis=0)", x=f"{kind}[M, N]", y=f"{kind}[N]")
    f = f.configured(options=mt.Options(blocks=blocks))
    sizes = {"M": extents[0], "N": extents[1]}
    inputs: dict[str, Any] = {}
    for name, shape in (("x", extents), ("y", extents[1:])):
        plain = np.random.default_rng(1).uniform(1, 2, shape).astype(np.float32)
        inputs[name] = np.full(shape, op == "all") if kind == "bool" else -plain if op in ("max", "argmax") else plain
    for target in TARGETS:
        check_stages(f.lower(**sizes, target=target).compilation, inputs, sizes)
    for name in inputs:
        if kind != "bool" and op not in ("sum", "prod"):
            inputs[name] = np.full_like(inputs[name], -np.inf if op in ("max", "argmax") else np.inf)
    check_stages(f.lower(**sizes).compilation, inputs, sizes)


@pytest.mark.parametrize(
    "text, types, other",
    [
        ("max(x, axis=1)", "f32[3, 5]", "-inf"), ("min(x, axis=1)", "f32[3, 5]", "inf"), ("sum(x, axis=1)", "f32[3, 5]", "0"),
        ("prod(x, axis=1)", "f32[3, 5]", "1"), ("max(x, axis=1)", "i8[3, 5]", "-128"), ("min(x, axis=1)", "u8[3, 5]", "255"),
        ("any(x, axis=1)", "bool[3, 5]", "false"), ("all(x, axis=1)", "bool[3, 5]", "true"), ("max(x, axis=1)", "f16[3, 5]", "-inf"),
    ],
)  # fmt: skip
def test_loads_fill_masked_elements_with_the_neutral_element(text: str, types: str, other: str) -> None:
    """If a load is only used by a reduction, its `other` is enough."""
    masked = mt.compile(text, x=types).lower()["tile.masked"]
    assert f"other = {other}" in masked.replace(f"other = {other}.0", f"other = {other}") and "where" not in masked


def accesses(p: Program) -> list[Any]:
    return [op for op in p.ops() if isinstance(op, (ir.Load, ir.Store))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name",
    [
        "softmax",
        "layer_norm",
        "rms_norm",
        "variance",
        "elementwise",
        "transpose",
        "matmul",
        "mlp",
        "cumsum",
        "siblings",
    ],
)
def test_no_masks_if_blocks_divide_the_sizes(name: str, target: str) -> None:
    """Every block divides its size: there is no check and no `where`, and each axis gives the reason."""
    sizes = dict.fromkeys(RAGGED, 256)
    f = program(name)
    c = f.lower(target=target, **sizes_of(f, sizes)).compilation
    for p in c.value("tile.masked"):
        assert not any(isinstance(op, ir.Inside) for op in p.ops())
        for op in accesses(p):
            assert op.mask.conditions == () and all("no test" in r and "divides" in r for r in op.mask.reasons)
    assert "mask=" not in c["triton"]


def test_masks_have_reasons() -> None:
    masked = program("softmax").lower(M=5, N=7)["tile.masked"]
    assert "does not divide 7" in masked and "is reached" in masked
    assert "need not divide N" in program("softmax").lower()["tile.masked"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_dropping_a_mask_is_noticed(name: str, target: str) -> None:
    """The tile evaluator runs every program of the grid. Without checks an access is out of bounds, or an element is
    written twice.
    """
    f = program(name)
    c = compiled(f, target)
    programs = list(c.value("tile.masked"))
    for k, p in enumerate(programs):
        for op in accesses(p):
            if not op.mask.conditions:
                continue
            broken = exchange(p, op, replace(op, mask=replace(op.mask, conditions=())))
            changed = [*programs[:k], broken, *programs[k + 1 :]]
            with pytest.raises(AccessError):
                evaluate_tile(c.value("kernels"), changed, inputs_of(name), sizes_of(f), True)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mlp", "epilogue", "stencil"])
def test_each_single_bounds_check_is_needed(name: str) -> None:
    """Removes one condition of several: for loads the checks of extents, for stores all of them."""
    f = program(name)
    c = compiled(f)
    programs = list(c.value("tile.masked"))
    for k, p in enumerate(programs):
        for op in accesses(p):
            for condition in op.mask.conditions:
                if isinstance(op, ir.Load) and any(s.name.endswith("_lane") for s in condition.symbols()):
                    continue
                rest = tuple(other for other in op.mask.conditions if other != condition)
                broken = exchange(p, op, replace(op, mask=replace(op.mask, conditions=rest)))
                with pytest.raises(AccessError):
                    evaluate_tile(
                        c.value("kernels"),
                        [*programs[:k], broken, *programs[k + 1 :]],
                        inputs_of(name),
                        sizes_of(f),
                        True,
                    )


@pytest.mark.parametrize("name", ["variance", "layer_norm"])
def test_each_where_is_needed(name: str) -> None:
    """Without the neutral element before a reduction, an element past the end would count."""
    f = program(name)
    c = compiled(f)
    programs, found = list(c.value("tile.masked")), 0
    for k, p in enumerate(programs):
        for op in list(p.ops()):
            if (
                isinstance(op, ir.Compute)
                and op.op == "where"
                and isinstance(op.args[0], ir.Inside)
                and isinstance(op.args[2], ir.Constant)
            ):
                broken = without(p, op, op.args[1])
                changed = [*programs[:k], broken, *programs[k + 1 :]]
                with pytest.raises(AccessError) as raised:
                    evaluate_tile(c.value("kernels"), changed, inputs_of(name), sizes_of(f), True)
                assert raised.value.kind == "not neutral"
                found += 1
    assert found


def without(p: Program, op: ir.Op, stand_in: ir.Op) -> Program:
    """The program with one op replaced by another."""
    return exchange(p, op, ir.Compute(dtype=op.dtype, axes=op.axes, op="cast", args=(stand_in,)))


# ---- verifiers -------------------------------------------------------------------------------


def _broken_graphs() -> dict[str, Callable[[Make], Node]]:
    return {
        "an operand of another shape": lambda m: Apply(f32, (M, N), "exp", (m.x(shape=(N, M)),)),
        "an operand of another dtype": lambda m: Apply(f32, (M, N), "add", (m.x(), m.x("y", f64))),
        "a result of another dtype": lambda m: Apply(f64, (M, N), "exp", (m.x(),)),
        "an operator that gives booleans": lambda m: Apply(f32, (M, N), "less", (m.x(), m.x())),
        "too many operands": lambda m: Apply(f32, (M, N), "exp", (m.x(), m.x())),
        "arithmetic in f16": lambda m: Apply(f16, (M, N), "exp", (m.x(type=f16),)),
        "an operator of floats on integers": lambda m: Apply(i32, (M, N), "exp", (m.x(type=i32),)),
        "a cast to another shape": lambda m: Apply(f16, (N, M), "cast", (m.x(),)),
        "a view with too few indices": lambda m: View(f32, (M,), m.x(), (d0,)),
        "a view with an unknown axis": lambda m: View(f32, (M,), m.x(), (d0, d1)),
        "a view of another dtype": lambda m: View(f64, (M, N), m.x(), (d0, d1)),
        "a pick that is not there": lambda m: Gather(f32, (K, N), m.x(), (pick(1), d1), (m.x("k", i64, (K, N)),)),
        "a pick of floats": lambda m: Gather(f32, (K, N), m.x(), (pick(0), d1), (m.x("k", f32, (K, N)),)),
        "a pick of another shape": lambda m: Gather(f32, (K, N), m.x(), (pick(0), d1), (m.x("k", i64, (K,)),)),
        "a reduction with another shape": lambda m: Reduce(f32, (M, N), "sum", m.x(), (1,)),
        "a reduction over an axis that is not there": lambda m: Reduce(f32, (M,), "sum", m.x(), (2,)),
        "a reduction over one axis twice": lambda m: Reduce(f32, (M,), "sum", m.x(), (1, 1)),
        "an unknown reduction": lambda m: Reduce(f32, (M,), "median", m.x(), (1,)),
        "argmax as a float": lambda m: Reduce(f32, (M,), "argmax", m.x(), (1,)),
        "argmax over two axes": lambda m: Reduce(i64, (), "argmax", m.x(), (0, 1)),
        "any of floats": lambda m: Reduce(f32, (M,), "any", m.x(), (1,)),
        "a sum of booleans": lambda m: Reduce(bool_, (M,), "sum", m.x(type=bool_), (1,)),
        "a scan along nothing": lambda m: Scan(f32, (M, N), "sum", m.x(), 2),
        "a scan of another shape": lambda m: Scan(f32, (N, M), "sum", m.x(), 1),
        "a running position": lambda m: Scan(f32, (M, N), "argmax", m.x(), 1),
        "a product that does not fit": lambda m: Contract(f32, (M, N), m.x(), m.x("y")),
        "a product of unlike dtypes": lambda m: Contract(f32, (M, M), m.x(), m.x("y", f16, (N, M))),
        "a product in f16": lambda m: Contract(f16, (M, M), m.x(type=f16), m.x("y", f16, (N, M))),
        "a product of integers": lambda m: Contract(f32, (M, M), m.x(type=i32), m.x("y", i32, (N, M))),
        "a concat that is too short": lambda m: Concat(f32, (M, N), (m.x(), m.x("y")), 1),
        "a concat of unlike rows": lambda m: Concat(f32, (M, N + K), (m.x(), m.x("y", shape=(N, K))), 1),
        "a constant with axes": lambda m: Const(f32, (M,), 1.0),
        "an index in i32": lambda m: Index(i32, (M,), d0),
        "an index of an unknown axis": lambda m: Index(i64, (M,), d1),
        "an input that is not declared": lambda m: Apply(f32, (M, N), "exp", (m.x("stranger"),)),
    }


@pytest.mark.parametrize("name", list(_broken_graphs()))
def test_the_graph_verifier_refuses(name: str) -> None:
    m = Make()
    node = _broken_graphs()[name](m)
    used = tuple(n for n in Graph("f", (), (node,)).nodes() if isinstance(n, Input) and n.name != "stranger")
    with pytest.raises(ValueError):
        verify_graph(Graph("f", used, (node,)))


@cache
def plan_of(name: str) -> Any:
    return compiled(program(name)).value("kernels")


def edited(plan: Any, change: Callable[[ir.Op], ir.Op | None]) -> Any:
    """The plan with changed ops (None: removed). Operands are updated."""
    kernels = []
    for kernel in plan.kernels:
        made: dict[ir.Op, ir.Op] = {}
        body = []
        for op in kernel.body:
            new = change(op)
            if new is not None:
                made[op] = ir.with_children(new, lambda o, made=made: made.get(o, o))
                body.append(made[op])
        kernels.append(replace(kernel, body=tuple(body)))
    return replace(plan, kernels=tuple(kernels))


def only(cls: type, change: Callable[[Any], Any]) -> Callable[[ir.Op], ir.Op | None]:
    return lambda op: change(op) if isinstance(op, cls) else op


BROKEN_PLANS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "an op before its operands": (
        "softmax",
        lambda p: replace(p, kernels=tuple(replace(k, body=k.body[::-1]) for k in p.kernels)),
    ),
    "a load left out": ("softmax", lambda p: edited(p, only(ir.Load, lambda op: None))),
    "a load of an axis that is not there": (
        "softmax",
        lambda p: edited(p, only(ir.Load, lambda op: replace(op, axes=("i", "q")))),
    ),
    "a compute without an axis": (
        "softmax",
        lambda p: edited(p, only(ir.Compute, lambda op: replace(op, axes=op.axes[:1]))),
    ),
    "a compute of another dtype": ("softmax", lambda p: edited(p, only(ir.Compute, lambda op: replace(op, dtype=f64)))),
    "an operator with one operand less": (
        "softmax",
        lambda p: edited(p, only(ir.Compute, lambda op: replace(op, args=op.args[:1]))),
    ),
    "a load of another dtype": ("identity", lambda p: edited(p, only(ir.Load, lambda op: replace(op, dtype=i32)))),
    "a reduction of another dtype": (
        "softmax",
        lambda p: edited(p, only(ir.Reduce, lambda op: replace(op, dtype=f64))),
    ),
    "a reduction that keeps its axis": (
        "softmax",
        lambda p: edited(p, only(ir.Reduce, lambda op: replace(op, axes=op.x.axes))),
    ),
    "a reduction over a parallel axis": (
        "softmax",
        lambda p: edited(p, only(ir.Reduce, lambda op: replace(op, over=("i",), axes=("j",)))),
    ),
    "a scan along a parallel axis": ("cumsum", lambda p: edited(p, only(ir.Scan, lambda op: replace(op, along="i")))),
    "a product over a parallel axis": ("matmul", lambda p: edited(p, only(ir.Dot, lambda op: replace(op, over="i")))),
    "a load with one index": (
        "softmax",
        lambda p: edited(p, only(ir.Load, lambda op: replace(op, index=op.index[:1]))),
    ),
    "a store at one place": (
        "siblings",
        lambda p: edited(p, only(ir.Store, lambda op: replace(op, index=tuple(ZERO for _ in op.index)))),
    ),
    "an output that nothing writes": ("softmax", lambda p: edited(p, only(ir.Store, lambda op: None))),
    "kernels in the wrong order": ("mlp", lambda p: replace(p, kernels=p.kernels[::-1])),
    "a kernel left out": ("mlp", lambda p: replace(p, kernels=p.kernels[1:])),
    "two buffers of one name": (
        "mlp",
        lambda p: replace(p, temporaries=tuple(replace(t, name="x") for t in p.temporaries)),
    ),
}


@pytest.mark.parametrize("name", list(BROKEN_PLANS))
def test_the_plan_verifier_refuses(name: str) -> None:
    of, change = BROKEN_PLANS[name]
    verify_plan(plan_of(of))
    with pytest.raises(ValueError):
        verify_plan(change(plan_of(of)))


def tile_of(name: str, masked: bool = True) -> Program:
    sizes = {} if "loop" in name else sizes_of(program(name))
    c = program(name.removesuffix(" loop")).lower(**sizes).compilation
    return c.value("tile.masked" if masked else "tile").programs[0]


def first(p: Program, cls: type) -> Any:
    return next(op for op in p.ops() if isinstance(op, cls))


def in_loop(p: Program, change: Callable[[Loop], Loop]) -> Program:
    return replace(p, body=tuple(change(s) if isinstance(s, Loop) else s for s in p.body))


def stranger() -> ir.Op:
    return ir.Constant(dtype=f32, axes=(), value=1.0)


BROKEN_TILES: dict[str, tuple[str, Callable[[Program], Program]]] = {
    "an op before its operands": ("softmax", lambda p: replace(p, body=p.body[::-1])),
    "an op twice": ("softmax", lambda p: replace(p, body=(*p.body, p.body[0]))),
    "an access without a mask": ("softmax", lambda p: exchange(p, first(p, ir.Load), replace(first(p, ir.Load), mask=None))),
    "a store without a mask": ("softmax", lambda p: exchange(p, first(p, ir.Store), replace(first(p, ir.Store), mask=None))),
    "an axis that is not there": ("softmax", lambda p: exchange(p, first(p, ir.Load), replace(first(p, ir.Load), axes=("i", "q")))),
    "a compute without an axis": ("softmax", lambda p: exchange(p, first(p, ir.Compute), replace(first(p, ir.Compute), axes=()))),
    "a compute of another dtype": ("softmax", lambda p: exchange(p, first(p, ir.Compute), replace(first(p, ir.Compute), dtype=i64))),
    "a reduction that keeps its axis": (
        "softmax", lambda p: exchange(p, first(p, ir.Reduce), replace(first(p, ir.Reduce), axes=first(p, ir.Reduce).x.axes)),
    ),
    "a foreign operand": ("softmax", lambda p: exchange(p, first(p, ir.Reduce), replace(first(p, ir.Reduce), x=stranger()))),
    "a carry that is not there": (
        "softmax loop", lambda p: in_loop(p, lambda s: replace(s, carries=tuple((c, stranger()) for c, _ in s.carries))),
    ),
    "a carry from nowhere": (
        "softmax loop",
        lambda p: in_loop(p, lambda s: replace(s, carries=tuple(
            (ir.Carry(dtype=f32, axes=(), initial=stranger()), n) for _, n in s.carries))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BROKEN_TILES))
def test_the_tile_verifier_refuses(name: str) -> None:
    of, change = BROKEN_TILES[name]
    p = tile_of(of)
    verify_tile(p, True)
    with pytest.raises(ValueError):
        verify_tile(change(p), True)


def test_the_verifier_needs_no_masks_before_masking() -> None:
    p = tile_of("softmax", masked=False)
    verify_tile(p, False)
    with pytest.raises(ValueError, match="mask"):
        verify_tile(p, True)


def test_the_pipeline_names_the_pass_that_broke_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier runs after each pass. The error shows the result of the pass."""

    def breaks(graph: Graph, _: Any) -> Graph:
        return replace(graph, outputs=(Apply(f64, graph.outputs[0].shape, "exp", (graph.outputs[0],)),))

    passes = tuple(replace(p, run=breaks) if p.name == "simplify" else p for p in PASSES)
    monkeypatch.setattr(pass_table, "PASSES", passes)
    f = mt.compile("x + 1", x="f32[M, N]")
    for stage in ("graph.simplified", "kernels", "triton"):
        with pytest.raises(CompileError) as raised:
            f.lower()[stage]
        assert raised.value.code == "MT0403" and "`simplify`" in raised.value.message and "%0" in raised.value.message
    assert f.lower()["graph"]


# ---- goldens ---------------------------------------------------------------------------------

# name of the file → (pass, program or a text with its types, sizes)
PRODUCT = Case("x @ w", {"x": "f16[M, K]", "w": "f16[K, N]"})
WEIGHTS = Case("x @ (w.astype(f16) * s)", {"x": "f16[M, K]", "w": "i8[K, N]", "s": "f16[N]"})
SIDES = {"M": 4096, "N": 4096, "K": 4096}
GOLDEN: dict[str, tuple[str, Case, dict[str, int]]] = {
    "build_linear": ("build", PROGRAMS["epilogue"], {}),
    "build_promotion": ("build", Case("x / y + mean(z) * 2", {"x": "i32[N]", "y": "i8[N]", "z": "f16[N]"}), {}),
    "build_condition": ("build", Case("reshape(x, (N // 2, 2 * M))", MN), {}),
    "specialise_softmax": ("specialise", PROGRAMS["softmax"], {"M": 5}),
    "simplify_softmax": ("simplify", PROGRAMS["softmax"], {}),
    "simplify_views": (
        "simplify",
        Case("flip(flip(x.mT, axis=0).mT[:, 1:], axis=1) + reshape(reshape(x, (M * N,)), (M, N))[:, 1:]", MN),
        {},
    ),
    "simplify_casts": ("simplify", Case("astype(astype(x, f32).mT, f16)", {"x": "f16[M, N]"}), {}),
    "simplify_constants": ("simplify", Case("x * 1 + where(1 < 2, exp(x * 0 + pi), x) ** 2", MN), {}),
    "strength_reduction_powers": ("strength-reduction", Case("x ** 3 + x ** -0.5 + x / 8", {"x": "f32[N]"}), {}),
    "simplify_matvec": ("simplify", Case("(w @ x[:, None])[:, 0]", {"w": "f16[M, N]", "x": "f16[N]"}), {}),
    "round_products_mean": (
        "round-products",
        Case("mean(x @ w, axis=1)", {"x": "bf16[M, K]", "w": "bf16[K, N]"}),
        {"M": 20, "K": 64, "N": 48},
    ),
    "batch_into_rows_product": (
        "batch-into-rows",
        Case("x @ w", {"x": "f32[B, M, K]", "w": "f32[K, N]"}),
        {"B": 6, "M": 20, "K": 64, "N": 48},
    ),
    "pack_operands_ragged": (
        "pack-operands",
        Case("relu(x @ w + b)", {"x": "bf16[M, K]", "w": "bf16[K, N]", "b": "bf16[N]"}),
        {"M": 4100, "N": 777, "K": 4090},
    ),
    "pack_operands_swapped": (
        "pack-operands",
        Case("x @ w", {"x": "f32[M, K]", "w": "f32[K, N]"}),
        {"M": 128, "N": 8192, "K": 4096},
    ),
    "collapse_reduced_axes_sum": ("collapse-reduced-axes", Case("sum(x)", MN), {"M": 1001, "N": 999}),
    "split_reduction_sum": ("split-reduction", Case("sum(x)", MN), {"M": 1001, "N": 999}),
    "split_reduction_logsumexp": ("split-reduction", Case("logsumexp(x, axis=1)", MN), {"M": 8, "N": 100_000}),
    "split_reduction_variance": ("split-reduction", PROGRAMS["variance"], {"M": 8, "N": 100_001}),
    "split_kv_decoding": (
        "split-kv",
        Case("softmax(q @ k.mT) @ v", {"q": "f16[M, D]", "k": "f16[N, D]", "v": "f16[N, D]"}),
        {"M": 16, "N": 16384, "D": 64},
    ),
    "split_k_product": ("split-k", PRODUCT, {"M": 16, "K": 16384, "N": 256}),
    "split_scan_sum": ("split-scan", Case("cumulative_sum(x)", {"x": "f32[N]"}), {"N": 100_001}),
    "fusion_layer_norm": ("fusion", PROGRAMS["layer_norm"], {}),
    "fusion_attention": ("fusion", PROGRAMS["attention"], {}),
    "fusion_cross_entropy": ("fusion", PROGRAMS["cross_entropy"], {}),
    "fusion_siblings": ("fusion", PROGRAMS["siblings"], {}),
    "output_slices_softmax": (
        "fusion",
        Case("concat((softmax(x), y), axis=1)", {"x": "f32[M, N]", "y": "f32[M, N]"}),
        {},
    ),
    "output_layouts_softmax": ("output-layouts", Case("softmax(x).T * 2", {"x": "f32[M, N]"}), {}),
    "divide_axes_sum": ("divide-axes", Case("sum(reshape(x.mT, (48, 128)), axis=1)", {"x": "f32[64, 96]"}), {}),
    "divide_axes_elementwise": ("divide-axes", Case("reshape(x.mT, (48, 128)) * 2", {"x": "f32[64, 96]"}), {}),
    "collapse_axes_elementwise": ("collapse-axes", Case("x * 2 + y", {"x": "f32[B, M, N]", "y": "f32[B, M, N]"}), {}),
    "collapse_axes_bias": ("collapse-axes", Case("x * 2 + y", {"x": "f32[B, M, N]", "y": "f32[N]"}), {}),
    "online_reductions_softmax": ("online-reductions", PROGRAMS["softmax"], {}),
    "online_reductions_logsumexp": ("online-reductions", Case("logsumexp(x * 2, axis=0)", MN), {"M": 100000}),
    "online_reductions_variance": ("online-reductions", PROGRAMS["variance"], {}),
    "online_reductions_refused": (
        "online-reductions",
        Case("sum(abs(x - mean(x, axis=1, keepdims=True)), axis=1)", MN),
        {},
    ),
    "f32_products": ("f32-products", Case("x @ w.mT", {"x": "f32[M, K]", "w": "f32[N, K]"}), SIDES),
    "fast_math_gelu": ("fast-math", Case('gelu(x, approximate="tanh")', {"x": "bf16[M, N]"}), {}),
    "fast_math_softmax": ("fast-math", Case("softmax(x)", {"x": "bf16[M, 4096]"}), {}),
    "fast_math_refused": ("fast-math", Case("floor(exp(x))", {"x": "f16[N]"}), {}),
    "lower_softmax_whole": ("lower", PROGRAMS["softmax"], {"M": 100, "N": 1000}),
    "lower_softmax_loop": ("lower", PROGRAMS["softmax"], {}),
    "lower_variance_loop": ("lower", PROGRAMS["variance"], {}),
    "lower_matmul": ("lower", PROGRAMS["matmul"], {"M": 512, "N": 256, "K": 100}),
    "lower_argmax_loop": ("lower", Case("argmax(x, axis=1)", MN), {}),
    "lower_cumsum_loop": ("lower", PROGRAMS["cumsum"], {}),
    "skip_blocks_triangle": (
        "skip-blocks",
        Case("sum(where(arange(N) <= arange(M)[:, None], x, 0), axis=1)", MN),
        {"N": 100_000},
    ),
    "skip_blocks_refused": (
        "skip-blocks",
        Case("prod(where(arange(N) <= arange(M)[:, None], x, 0), axis=1)", MN),
        {"N": 100_000},
    ),
    "hoist_loads_bias": ("hoist-loads", PROGRAMS["epilogue"], {"M": 64, "N": 64, "K": 300}),
    "skip_blocks_softmax": (
        "skip-blocks",
        Case("softmax(where(arange(N) <= arange(M)[:, None], x, -inf))", MN),
        {"N": 100_000},
    ),
    "software_pipelining_attention": (
        "software-pipelining",
        Case("softmax(q @ k.mT, axis=-1) @ v", dict.fromkeys("qkv", "f16[B, T, D]")),
        {"B": 64, "T": 4096, "D": 64},
    ),
    "program_order_triangle": (
        "program-order",
        Case("sum(where(arange(N) <= arange(M)[:, None], x, 0), axis=1)", MN),
        {"N": 100_000},
    ),
    "boundary_peeling_odd": ("boundary-peeling", Case("x + y", {"x": "bf16[N]", "y": "bf16[N]"}), {"N": 1_000_001}),
    "mask_ragged": ("mask", PROGRAMS["variance"], {"M": 5, "N": 7}),
    "mask_divided": ("mask", PROGRAMS["variance"], {"M": 256, "N": 256}),
    "mask_gather": ("mask", PROGRAMS["gather"], {"V": 9, "D": 6, "N": 7}),
    "narrow_integers_triangle": (
        "narrow-integers",
        Case("where(arange(M)[:, None] >= arange(N), x, 0)", MN),
        {"M": 64, "N": 64},
    ),
    "f16_multiplication_weights": ("f16-multiplication", WEIGHTS, dict.fromkeys("MNK", 512)),
    "tensor_descriptors_product": ("tensor-descriptors", PRODUCT, SIDES),
    "cache_hints_columns": ("cache-hints", Case("sum(x, axis=0)", MN), {"M": 4096, "N": 4096}),
    "fast_operators_softmax": ("fast-operators", Case("softmax(x)", {"x": "bf16[M, N]"}), {"M": 100, "N": 1000}),
    "maxima_in_parts_attention": (
        "row-maximum-tree",
        Case("softmax(q @ k.mT, axis=-1) @ v", dict.fromkeys("qkv", "f16[B, T, D]")),
        {"B": 64, "T": 4096, "D": 64},
    ),
    "flatten_loops_product": ("flatten-loops", PRODUCT, SIDES),
    "deferred_tf32_checks": (
        "deferred-tf32-checks",
        Case("x @ w.mT", {"x": "f32[M, K]", "w": "f32[N, K]"}),
        SIDES | {"K": 100},
    ),
    "early_start_two": ("early-start", Case("sum(x)", MN), {"M": 1001, "N": 999}),
    "target_wait": (
        "target",
        Case("relu(x) @ w", {"x": "f16[M, K]", "w": "f16[K, N]"}),
        dict.fromkeys("MNK", 256),
    ),
    "target_unknown_starts": (
        "target",
        Case(
            "max(where(~(arange(N) == arange(M)[:, None] + 33), -inf, maximum(z, log_softmax(x, axis=1))), axis=1)",
            {**MN, "z": "f16[N]"},
        ),
        {},
    ),
    "emit_softmax": ("emit", PROGRAMS["softmax"], {"M": 100, "N": 1000}),
    "emit_matmul": ("emit", PROGRAMS["epilogue"], {}),
}


@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    wanted, case, sizes = GOLDEN[name]
    record = next(r for r in mt.compile(case.text, **case.types).lower(**sizes).passes if r.name == wanted)
    types = ", ".join(f"{n}: {t}" for n, t in case.types.items())
    head = [f"program  {case.text.strip()}", f"types    {types}", f"sizes    {sizes}"]
    shown = [line for line in head if not line.endswith(("    ", "    {}"))]
    golden(name, "\n".join([*shown, "", f"---- before {wanted}", record.before, f"---- after {wanted}", record.after]))


def test_every_golden_is_read() -> None:
    assert {p.stem for p in GOLDENS.glob("*.txt")} == {*GOLDEN, "schedules"}  # tests/test_schedules.py


def test_every_pass_has_a_golden() -> None:
    assert {p.name for p in PASSES} - {"parse"} == {wanted for wanted, _, _ in GOLDEN.values()}


def test_recorded_passes() -> None:
    """Each pass starts with the result of the pass before."""
    records = mt.compile("softmax(x)", x="f32[M, N]").lower().passes
    assert [r.name for r in records] == [p.name for p in PASSES]
    assert all(later.before == earlier.after for earlier, later in zip(records, records[1:]))
    assert all(r.seconds >= 0 for r in records) and ONE == dims.ONE
