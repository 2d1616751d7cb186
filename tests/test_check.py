"""`Program.check` names the wrong pass and shows the smallest call that gives a wrong result.

Each planted pass is a real pass whose result is changed afterwards. The changed result is wrong but well
formed. So the verifier of the IR accepts it, and only the values of results show the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import minitri as mt
from minitri import pipeline
from minitri.base import dims
from minitri.cli.main import main
from minitri.graph.ir import Apply, Const, Graph, Node, View
from minitri.graph.rewrite import copy, rebuild
from minitri.hardware.targets import Target
from minitri.kernels import ir
from minitri.kernels.ir import Compute, Load, Mask, Op, Reduce, Store
from minitri.optimize import pass_table
from minitri.runtime.array_interop import view
from minitri.runtime.call_binding import bind
from minitri.runtime.interpreter import BAND, Guarded
from minitri.tiles.ir import Loop, Program, Programs
from minitri.trust import shrink_arguments
from minitri.trust.check_passes import USUAL
from minitri.trust.check_report import CheckReport
from minitri.trust.sanitizer import AccessError

pytest.importorskip("triton")

X = {"x": "f32[M, N]"}
Change = Callable[[Any, Any], Any]  # (result of the pass, its context) → the changed result


# ---- changing the result of a pass -----------------------------------------------------------


def nodes(change: Callable[[Any, Node], Node | None]) -> Change:
    """Replaces every node for which `change` returns another one."""

    def wrong(graph: Graph, context: Any) -> Graph:
        return rebuild(graph, lambda i, node, args: change(i, made := copy(i, node, args)) or made)

    return wrong


def ops(change: Callable[[Any], Op]) -> Change:
    """Applies `change` to every op of every kernel or tile program."""

    def body(statements: Any, new: dict[Op, Op]) -> Any:
        made: list[Any] = []
        for s in statements:
            if isinstance(s, Loop):
                inside = body(s.body, new)
                carries = tuple((new[c], new[n]) for c, n in s.carries)
                made.append(Loop(s.axes, carries, inside))  # type: ignore[arg-type]
            else:
                new[s] = change(ir.with_children(s, new.__getitem__))
                made.append(new[s])
        return tuple(made)

    def wrong(value: Any, context: Any) -> Any:
        if isinstance(value, Programs):
            return value.map(lambda p: replace(p, body=body(p.body, {})))
        return replace(value, kernels=tuple(replace(k, body=body(k.body, {})) for k in value.kernels))

    return wrong


def only(target: str, change: Change) -> Change:
    return lambda value, context: change(value, context) if context.target.kind == target else value


def source(old: str, new: str) -> Change:
    """Replaces a piece of the generated text."""
    return lambda kernels, _: [replace(k, source=k.source.replace(old, new)) for k in kernels]


def a_third(i: Any, node: Node) -> Node | None:
    return i.const(1 / 3, node.dtype) if isinstance(node, Const) and node.value == 0.5 else None


def other_way(i: Any, node: Node) -> Node | None:
    match node:
        case Apply(op="subtract", args=(a, b)):
            return i.apply("subtract", node.dtype, node.shape, (b, a))
    return None


def transposed(i: Any, node: Node) -> Node | None:
    match node:
        case View(index=(a, b)) if node.x.rank == 2 and node.x.shape == node.shape:
            return i.view(node.x, node.shape, (b, a))
    return None


def min_for_max(op: Any) -> Op:
    return replace(op, op="min") if isinstance(op, Reduce) and op.op == "max" else op


def first_column(op: Any) -> Op:
    """Loads of the last column read the column before it."""
    if isinstance(op, Load) and len(op.index) == 2:
        return replace(op, index=(op.index[0], op.index[1] * 0))
    return op


def unmasked(op: Any) -> Op:
    return replace(op, mask=Mask(())) if isinstance(op, Load) else op


def ones_outside(op: Any) -> Op:
    return replace(op, other=1) if isinstance(op, Load) else op


def without_rescale(op: Any) -> Op:
    """Masked elements keep their value instead of getting the neutral element."""
    if isinstance(op, Compute) and op.op == "where" and isinstance(op.args[0], ir.Inside):
        return op.args[1]
    return op


def larger(programs: Any, context: Any) -> Any:
    """Grid axes get one element too many."""

    def one_more(p: Program) -> Program:
        return replace(p, axes=tuple(replace(a, extent=a.extent + 1) if a.role == "grid" else a for a in p.axes))

    return programs.map(one_more)


def raises(value: Any, context: Any) -> Any:
    raise KeyError("no such axis")


def broken(plan: Any, context: Any) -> Any:
    return replace(plan, kernels=tuple(replace(k, body=k.body[::-1]) for k in plan.kernels))


@dataclass(frozen=True)
class Planted:
    guilty: str
    change: Change
    text: str = "exp(x - max(x, axis=1, keepdims=True)) * 0.5"
    types: dict[str, str] = field(default_factory=lambda: X)
    sizes: tuple[int, ...] = (5, 37)
    note: str = ""


PLANTED: dict[str, Planted] = {
    "a constant is wrong": Planted("build", nodes(a_third)),
    "operands swapped by build": Planted("build", nodes(other_way), "x - 1"),
    "operands swapped by specialise": Planted("specialise", nodes(other_way), "x - 1"),
    "a constant folded wrongly": Planted("simplify", nodes(a_third)),
    "a reversed view": Planted("simplify", nodes(transposed), "x[::-1] + 1", sizes=(5, 5)),
    "another reduction": Planted("fusion", ops(min_for_max)),
    "the first column for every column": Planted("fusion", ops(first_column)),
    "a pass that raises": Planted("fusion", raises, note="KeyError"),
    "rules of the IR are broken": Planted("collapse-axes", broken, note="broke a rule"),
    "fused wrongly": Planted("collapse-axes", ops(min_for_max)),
    "split for the GPU alone": Planted(
        "split-reduction", only("cuda", nodes(lambda i, n: replace_sum(i, n))), "sum(x)", sizes=(128, 260)
    ),
    "lowered wrongly for the GPU alone": Planted("lower", only("cuda", ops(min_for_max))),
    "one tile too many": Planted("lower", larger, note="out of bounds"),
    "a mask dropped": Planted("mask", ops(unmasked), note="out of bounds"),
    "masked elements are 1": Planted("mask", ops(ones_outside), "sum(x, axis=1)"),
    "masked elements are not neutral": Planted("mask", ops(without_rescale), "sum(exp(x), axis=1)"),
    "an operator spelt wrongly": Planted("emit", source(" - ", " + ")),
    "no source at all": Planted("emit", source("def", "dfe"), note="SyntaxError"),
    "an undefined name": Planted("emit", source("rt.reduce_max", "rt.reduce_most"), note="reduce_most"),
    "stores past the end": Planted("emit", source("tl.store(p1", "tl.store(p1 + 1"), note="outside of an output"),
    "writes to an input": Planted("emit", source("tl.store(p1", "tl.store(p0"), "x + 1", note="the input x"),
}


def replace_sum(i: Any, node: Node) -> Node | None:
    """Partial results are combined by max."""
    match node:
        case View(x=x) if node.rank == 2:
            return i.view(x, node.shape, tuple(d * 0 for d in node.index))
    return None


def planted(monkeypatch: pytest.MonkeyPatch, case: Planted) -> None:
    def changed(p: pipeline.Pass) -> pipeline.Pass:
        return replace(p, run=lambda v, c: case.change(p.run(v, c), c)) if p.name == case.guilty else p

    monkeypatch.setattr(pass_table, "PASSES", tuple(map(changed, pass_table.PASSES)))


def arrays(types: dict[str, str], shape: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(np.float32) for _ in types]


@pytest.mark.parametrize("name", list(PLANTED))
def test_the_wrong_pass_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = PLANTED[name]
    given = arrays(case.types, case.sizes)
    assert mt.compile(case.text, **case.types).check(*given).ok
    planted(monkeypatch, case)
    report = mt.compile(case.text, **case.types).check(*given)
    assert report.guilty == case.guilty, report
    assert report.first is not None and case.note in report.first.note
    smallest = report.smallest
    assert smallest is not None and smallest.row.by == case.guilty
    assert all(n <= size for n, size in zip(smallest.arguments["x"].shape, case.sizes))
    assert f"the pass `{case.guilty}` is wrong" in str(report)


# ---- the text of a report ----------------------------------------------------------------------


def wrong_report(monkeypatch: pytest.MonkeyPatch, case: str = "lowered wrongly for the GPU alone") -> CheckReport:
    planted(monkeypatch, PLANTED[case])
    text, types = PLANTED[case].text, PLANTED[case].types
    return mt.compile(text, **types).check(*arrays(types, PLANTED[case].sizes))


def test_a_right_program_has_no_findings() -> None:
    report = mt.compile("softmax(x)", **X).check(*arrays(X, (3, 5)))
    assert report.ok and report.guilty is report.first_bad is report.smallest is None
    made = [(r.variant, r.by) for r in report.rows]
    passes = [p.name for p in pass_table.PASSES[2:]]
    assert made[0] == ("", "build") and made[-1] == ("gpu", "emit")
    assert made[1:-1] == [(v, p) for v in USUAL if v != "gpu" for p in passes]


def test_the_variant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report = wrong_report(monkeypatch)
    assert report.first is not None and report.first.variant == "cuda"
    assert all(r.ok for r in report.rows if r.variant == "interpreter")


def test_the_smallest_call_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = wrong_report(monkeypatch).smallest
    assert smallest is not None and smallest.got is not None
    assert smallest.sizes == {"M": 1, "N": 2}  # the minimum and the maximum of one element are equal
    assert sorted(smallest.arguments["x"].tolist()[0]) == [0, 1] or smallest.arguments["x"].tolist() == [[0, 1]]
    assert not np.array_equal(smallest.got[0], smallest.expected[0])
    assert "reduce.max" in smallest.before and "reduce.min" in smallest.after


def test_the_report_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(wrong_report(monkeypatch))
    for part in (
        "lower                  tile.lowered",
        "WRONG",
        "sizes     M = 1, N = 2",
        "x         float32[1, 2] [[0",
        "expected ",
        "got ",
    ):
        assert part in text, text


def test_the_report_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, PLANTED["a mask dropped"])
    result = CliRunner().invoke(main, ["check", "-e", "exp(x)", "-t", "x=f32[N]", "-D", "N=7", "--json"])
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)["rounds"]
    assert (found["guilty"], found["first_bad"]) == ("mask", "tile.masked")
    assert found["smallest"]["sizes"] == {"N": 3}  # tiles have powers of two as sizes


def test_stages_after_a_wrong_pass_do_not_run_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy finds an access out of bounds. The interpreter has no bounds checks, so it must not make this access."""
    rows = wrong_report(monkeypatch, "a mask dropped").rows
    first = next(r for r in rows if not r.ok)
    assert not [r for r in rows if r.variant == first.variant and r.by == "emit"]


def test_shrinking_keeps_the_conditions_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Planted("fusion", ops(min_for_max)))
    report = mt.compile("max(x[2:5], axis=0)", x="f32[N]").check(np.arange(9, dtype=np.float32))
    assert report.smallest is not None and report.smallest.sizes == {"N": 4}


# ---- shrinking -----------------------------------------------------------------------------


M, N = dims.size("M"), dims.size("N")


def test_shrinking_keeps_the_failure() -> None:
    given = {"x": np.asfortranarray(np.random.default_rng(0).normal(size=(40, 70))), "y": np.arange(71)}
    tries = 0

    def fails(arguments: dict[str, Any]) -> bool:
        nonlocal tries
        tries += 1
        return arguments["x"].shape[0] > 16 and bool((arguments["y"] == 3).any())

    found = shrink_arguments.smallest(given, {"x": (M, N), "y": (N + 1,)}, {"M": 40, "N": 70}, fails)
    assert found["x"].shape == (17, 3) and not found["x"].any() and found["x"].flags.c_contiguous
    assert found["y"].tolist() == [0, 1, 2, 3]  # the first simple array that still fails, tried from 3 ... 0 on
    assert tries <= 150


def test_shrinking_stops() -> None:
    tries = 0

    def fails(arguments: Any) -> bool:
        nonlocal tries
        tries += 1
        return len(arguments["x"]) > 50

    assert len(shrink_arguments.smallest({"x": np.ones(99)}, {"x": (N,)}, {"N": 99}, fails, tries=3)["x"]) == 99
    assert tries == 3


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["plain", "transposed", "reversed", "strided", "repeated", "empty"])
def test_guarded_copies_have_the_layout_of_their_originals(layout: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    made = {
        "plain": x, "transposed": x.T, "reversed": x[::-1, ::-2], "strided": x[:, 1::3],
        "repeated": np.broadcast_to(x[:1], (5, 6)), "empty": x[:0],
    }[layout]  # fmt: skip
    f = mt.compile("x + 1", **X)
    call = bind(f.function, (made,), {})
    memory = Guarded()
    copied = memory.call(call).arrays["x"]
    assert copied.strides == view(made, "x").strides and np.array_equal(copied.numpy(), made)
    assert layout == "empty" or copied.address != view(made, "x").address
    memory.verify()


def test_guard_bands_show_writes_outside_arrays() -> None:
    memory = Guarded()
    out = memory.empty(None, mt.base.types.f32, (3,), (1,))
    np.lib.stride_tricks.as_strided(out.numpy(), (4,), (4,))[3] = 1
    with pytest.raises(AccessError, match="outside of an output"):
        memory.verify()
    assert BAND % 128 == 0


# ---- public parts ----------------------------------------------------------------------------


def test_contexts_of_a_call() -> None:
    f = mt.compile("x * 2", **X)
    call = bind(f.function, (np.ones((4, 6), np.float32).T,), {})
    known = f.context(call, Target("cuda", "90"))
    general = f.context(call, Target("cuda", "90"), known=False, wide=True)
    assert known.sizes == {"M": 6, "N": 4} and [int(d) for d in known.layouts["x"]] == [1, 6]
    assert not general.sizes and general.wide and str(general.layouts["x"][1]) == "x.stride1"
    assert call.numbers == {"M": 6, "N": 4, "x.stride1": 6} and call.sizes == {"M": 6, "N": 4}


def test_only_stores_and_loads_are_masked() -> None:
    """`stages.results` recognises masked programs by this."""
    low = mt.compile("exp(x)", **X).lower(M=3, N=5).compilation
    for stage, masked in (("tile", False), ("tile.masked", True)):
        stores = [op for p in low.value(stage) for op in p.ops() if isinstance(op, Store)]
        assert stores and all((op.mask is not None) == masked for op in stores)
