"""The explorer's data: which nodes of the graph each line of each stage comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

import minitri as mt
from minitri.explore.trace import Trace

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
LINEAR = """\
def linear(x: f16[M, K], w: f16[N, K], b: f16[N]) -> f16[M, N]:
    h = x @ w.mT + b
    return relu(h)
"""


def traced(text: str, **sizes: int) -> Trace:
    return Trace(mt.compile(text).lower(**sizes).compilation)


def places(trace: Trace, stage: str, line: str) -> set[str]:
    """The source texts of the nodes of the first line that holds `line`."""
    shown = trace[stage]
    texts = shown.text.split("\n")
    (number, *_) = [k for k, text in enumerate(texts) if line in text]
    return {s.text for k in shown.lines[number] for s in trace.nodes[k].spans if s.source is trace.source}


def test_every_node_has_a_place_in_the_program() -> None:
    for path in EXAMPLES:
        trace = Trace(mt.compile(path).lower().compilation)
        for node in trace.nodes:
            assert any(s.source is trace.source for s in node.spans), f"{path.name}: {node.text}"
            assert all(s.node == trace.nodes.index(node) for s in node.spans)


def test_a_transpose_is_part_of_the_load_it_became() -> None:
    trace = traced(LINEAR, M=64, N=64, K=64)
    for stage, line in (("kernels", "load w"), ("tile.masked", "load w"), ("triton", "tl.load(p1")):
        assert "w.mT" in places(trace, stage, line), stage
    assert "w.mT" not in places(trace, "triton", "tl.load(p0")


def test_a_product_and_what_follows_it_have_their_own_lines() -> None:
    trace = traced(LINEAR, M=64, N=64, K=64)
    assert places(trace, "triton", "rt.dot") == {"x @ w.mT"}
    assert places(trace, "triton", "rt.maximum") == {"relu(h)"}
    assert places(trace, "triton", "tl.store") == {"return relu(h)"}
    assert places(trace, "triton", "tl.load(p2") == {"b: f16[N]"}


def test_what_a_library_function_made_belongs_to_its_call_too() -> None:
    trace = traced("def f(x: f32[M, N]):\n    return softmax(x) + 1\n", M=64, N=64)
    node = next(n for n in trace.nodes if n.op == "reduce.max")
    assert [s.source.name.rpartition("/")[2] for s in node.spans] == ["normalization.mt", "<module>"]
    assert node.spans[1].text == "softmax(x)"


def test_a_second_occurrence_leads_to_the_same_node() -> None:
    text = "def f(x: f32[N]):\n    return exp(x) * 2 + exp(x)\n"
    trace = traced(text)
    first, second = (text.index("exp"), text.rindex("exp"))
    assert trace.at(trace.source, first) == trace.at(trace.source, second) != frozenset()


def test_what_a_rule_removed_is_part_of_what_it_became() -> None:
    trace = traced("def f(x: f32[A, B]):\n    return exp((x * 1).mT.mT)\n")
    shown = trace["graph.simplified"]
    assert set().union(*shown.lines) == set(range(len(trace.nodes)))


def test_the_lines_of_an_axis_serve_the_accesses_along_it() -> None:
    trace = traced("def f(x: f32[M, N], y: f32[N]):\n    return x + y\n", M=100, N=300)
    assert places(trace, "triton", "i = i_tile") >= {"x: f32[M, N]", "x + y"}
    assert "y" not in places(trace, "triton", "i = i_tile")
    assert "y" in places(trace, "triton", "j = ")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_there_is_a_row_for_each_line(path: Path) -> None:
    trace = Trace(mt.compile(path).lower().compilation)
    for stage in trace.stages[:7]:
        shown = trace[stage]
        assert len(shown.lines) == shown.text.count("\n"), stage
        assert set().union(*shown.lines) <= set(range(len(trace.nodes)))


@pytest.mark.parametrize("stage", ["graph", "graph.simplified", "kernels", "tile", "tile.masked"])
def test_a_program_that_begins_at_a_stage_has_its_lines_for_nodes(stage: str) -> None:
    low = mt.compile(LINEAR).lower(M=64, N=64, K=64)
    trace = Trace(mt.load(low[stage], stage).lower().compilation)
    shown = trace["triton"]
    (line,) = [k for k, text in enumerate(shown.text.split("\n")) if "rt.dot" in text]
    ops = {trace.nodes[k].op for k in shown.lines[line]}
    assert ops & {"contract", "dot"} and not ops & {"load", "store"}, ops
