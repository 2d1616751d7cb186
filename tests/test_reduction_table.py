"""The table of reductions and scans: every row is right at every stage, and an unknown name is refused at every
stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import minitri as mt
from minitri.base.numpy_array_operations import reduce, scan
from minitri.base.operators import OPERATORS, POSITIONS, REDUCTIONS, SCANS, neutral
from minitri.base.types import DTYPES, DType, bool_, f32
from minitri.graph import evaluate as graph_evaluate, ir
from minitri.graph.ir import Graph, Interner, Node
from minitri.graph.rewrite import copy, rebuild
from minitri.graph.text import parse_graph
from minitri.graph.verify import verify as verify_graph
from minitri.kernels import evaluate as kernels_evaluate
from minitri.kernels.ir import Kernel, Op, Plan, Reduce, Scan, with_children
from minitri.kernels.parse import parse_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.tiles import evaluate as tiles_evaluate
from minitri.tiles.ir import Program, Programs
from minitri.tiles.lower import lower
from minitri.tiles.rewrite import exchange
from minitri.tiles.schedule import Schedule
from minitri.tiles.text import parse_programs
from minitri.tiles.verify import verify_all
from minitri.triton import rt, rt_interpreter
from minitri.triton.emit import emit
from minitri.trust.error_bounds import enclosures
from minitri.trust.first_order_error import magnitude

CALLS = [(name, name) for name in REDUCTIONS] + [(f"cumulative_{name}", name) for name in SCANS]
DTYPES_OF = [(call, name, d) for call, name in CALLS for d in DTYPES.values() if d.kind in REDUCTIONS[name].accepts]


def elements(d: DType, shape: tuple[int, ...]) -> Any:
    """Small numbers. In half of the rows most bools are equal."""
    rng = np.random.default_rng(len(d.name))
    if d == bool_:
        return rng.random(shape) < np.where(np.arange(shape[0]) % 2, 0.95, 0.05)[:, None]
    return rng.integers(0 if d.kind == "u" else -3, 4, shape).astype(d.numpy)


# ---- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REDUCTIONS)
def test_neutral_elements_and_combinations(name: str) -> None:
    row = REDUCTIONS[name]
    for d in (d for d in DTYPES.values() if d == d.compute and d.kind in row.accepts):
        x = elements(d, (6, 40))
        assert (row.ufunc(x, np.asarray(neutral(name, d), d.numpy)) == x).all()
        if name not in POSITIONS:
            parts = (row.ufunc.reduce(part, axis=1, dtype=d.numpy) for part in (x[:, :13], x[:, 13:]))
            whole = OPERATORS[row.combine].numpy(*parts)
            np.testing.assert_array_equal(whole, reduce(name, x, (1,)))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_kernels_can_call_every_row(name: str) -> None:
    for function in (f"reduce_{name}", *([f"scan_{name}"] if name in SCANS else [])):
        assert hasattr(rt, function) and hasattr(rt_interpreter.rt, function)


@pytest.mark.parametrize("call, name, d", DTYPES_OF, ids=lambda v: str(v) if isinstance(v, DType) else None)
def test_rows_at_every_stage(call: str, name: str, d: DType) -> None:
    program = mt.compile(f"{call}(x, axis=1)", x=f"{d}[M, N]")
    report = program.check(elements(d, (5, 77)))
    assert report.ok, str(report)


@pytest.mark.parametrize("call, name", CALLS)
@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_rows_compile(call: str, name: str, target: str) -> None:
    kinds = REDUCTIONS[name].accepts
    d = "f32" if "f" in kinds else "i32" if "i" in kinds else "bool"
    low = mt.compile(f"{call}(x, axis=1)", x=f"{d}[M, N]").lower(target=target, M=64, N=300)
    assert low["ptx" if target.startswith("cuda") else "amdgcn"]


# ---- names that have no row -----------------------------------------------------------------------

X = {"x": np.ones((3, 5), np.float32)}
UNKNOWN = "median"


def compiled(call: str) -> Any:
    return mt.compile(f"{call}(x, axis=1)", x="f32[3, 5]").lower().compilation


def broken_graph(call: str) -> Graph:
    def make(i: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        match node:
            case ir.Reduce():
                return i.reduce(UNKNOWN, args[0], node.axes)
            case ir.Scan():
                return i.scan(UNKNOWN, args[0], node.axis)
            case _:
                return copy(i, node, args)

    return rebuild(compiled(call).value("graph.simplified"), make)


def broken(op: Op) -> Op:
    return replace(op, op=UNKNOWN) if isinstance(op, (Reduce, Scan)) else op


def broken_plan(call: str) -> Plan:
    plan: Plan = compiled(call).value("kernels")
    made: dict[Op, Op] = {}
    for op in plan.kernels[0].body:
        made[op] = broken(with_children(op, made.__getitem__))
    return replace(plan, kernels=(replace(plan.kernels[0], body=tuple(made.values())),))


def broken_programs(call: str) -> Programs:
    programs: Programs = compiled(call).value("tile.masked")
    (old,) = [op for op in programs.programs[0].ops() if isinstance(op, (Reduce, Scan))]
    return replace(programs, programs=(exchange(programs.programs[0], old, broken(old)),))


def run_tiles(call: str) -> Any:
    programs = broken_programs(call)
    return tiles_evaluate.evaluate(programs.plan, programs.programs, X, {}, masked=True)


STAGES: dict[str, Callable[[str], Any]] = {
    "verify graph": lambda call: verify_graph(broken_graph(call)),
    "evaluate graph": lambda call: graph_evaluate.evaluate(broken_graph(call), X, {}),
    "error bounds": lambda call: enclosures(broken_graph(call), X, {}),
    "magnitudes": lambda call: magnitude(broken_graph(call)),
    "verify kernels": lambda call: verify_plan(broken_plan(call)),
    "evaluate kernels": lambda call: kernels_evaluate.evaluate(broken_plan(call), X, {}),
    "lower kernels": lambda call: [lowered(k) for k in broken_plan(call).kernels],
    "verify tiles": lambda call: verify_all(broken_programs(call), masked=True),
    "evaluate tiles": run_tiles,
    "emit": lambda call: emit(broken_programs(call).programs[0]),
    "numpy": lambda call: (scan if "_" in call else reduce)(UNKNOWN, X["x"], 1),
    "neutral": lambda call: neutral(UNKNOWN, f32),
}


def lowered(kernel: Kernel) -> Program:
    """The reduction is in a loop, because the verifier of tiles refuses a reduction of a complete block earlier."""
    roles = {a.name: ("loop", 4) if a.role == "reduced" else ("grid", 1) for a in kernel.axes}
    return lower(kernel, Schedule(axes=roles))


@pytest.mark.parametrize("call", ["sum", "cumulative_sum"])
@pytest.mark.parametrize("stage", STAGES)
def test_unknown_names_are_refused(stage: str, call: str) -> None:
    with pytest.raises(ValueError, match=UNKNOWN):
        STAGES[stage](call)


@pytest.mark.parametrize("stage, parse", [("graph", parse_graph), ("kernels", parse_plan), ("tile", partial(parse_programs, masked=False))])  # fmt: skip
@pytest.mark.parametrize("call, kind", [("sum", "reduce"), ("cumulative_sum", "scan")])
def test_unknown_names_in_texts_are_refused(stage: str, parse: Callable[[str], Any], call: str, kind: str) -> None:
    text = compiled(call).text(stage)
    assert f"{kind}.sum" in text
    with pytest.raises(mt.CompileError, match=f"there is no {kind} `{UNKNOWN}`"):
        parse(text.replace(f"{kind}.sum", f"{kind}.{UNKNOWN}"))


def test_a_reduction_without_a_scan_is_refused_as_a_scan() -> None:
    with pytest.raises(ValueError, match="there is no scan any"):
        scan("any", np.ones(3, bool), 0)
