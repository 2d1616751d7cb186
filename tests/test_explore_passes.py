"""The explorer's pass by pass view: the rules that fired, their place in the source, and the changes of Triton's
passes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from stages import SPLITS

import minitri as mt
from minitri.base.pass_logs import fired, recorded
from minitri.explore.machine_code import MachineCode
from minitri.explore.pass_changes import Step, first_sentence, our_steps, plain, triton_steps
from minitri.graph import rewrite
from minitri.hardware.targets import StageUnavailable
from minitri.optimize import collapse_axes, simplify, strength_reduction
from minitri.optimize.fast_math import relax
from minitri.optimize.mask_elision import Masking
from minitri.optimize.pass_table import PASSES
from minitri.pipeline import Compilation

ROOT = Path(__file__).parent.parent


def lowered(text: str, **sizes: int) -> Compilation:
    return mt.compile(text).lower(**sizes).compilation


def step(steps: Iterable[Step], name: str) -> Step:
    return next(s for s in steps if s.name == name)


def line_of(place: str) -> str:
    name, _, number = place.rpartition(":")
    return (ROOT / name).read_text().split("\n")[int(number) - 1]


def test_each_pass_starts_with_the_text_of_the_pass_before() -> None:
    compiled = lowered("def f(x: f32[M, N]):\n    return softmax(x)\n")
    steps = list(our_steps(compiled))
    assert [s.name for s in steps] == [p.name for p in PASSES]
    assert all(a.after == b.before for a, b in zip(steps, steps[1:]))
    assert steps[-1].after in compiled["triton"].replace("\n\n@triton.jit\n", "")
    for s in steps:
        assert line_of(s.where).startswith("def "), s.where


def test_rules_that_fired_have_their_nodes() -> None:
    text = "def f(x: f32[M, N]):\n    return (x.mT.mT * 1) ** 2\n"
    compiled = lowered(text)
    steps = our_steps(compiled)
    rules = {r["name"]: r for r in step(steps, "simplify").rules}
    assert {"compose_views", "identity_view", "identity_operand"} <= set(rules)
    (square,) = step(steps, "strength-reduction").rules
    assert line_of(square["where"]) == "def power_of_constant(i: Interner, node: Node) -> Node | None:"
    assert square["about"] == inspect.getdoc(strength_reduction.power_of_constant)
    assert square["cases"] == [("power(x, view(2.0)): f32[M, N]", "square(x): f32[M, N]")]


def test_a_rule_that_fired_knows_its_place_in_the_source() -> None:
    compiled = lowered("def f(x: f32[M, N]):\n    return x.mT ** 2\n")
    row = next(p for p in compiled.steps if p.name == "strength-reduction")
    with recorded() as firings:
        row.made(compiled.value("graph.specialised"), compiled.context)
    (square,) = [f for f in firings if f.rule is strength_reduction.power_of_constant]
    assert [s.text for s in square.spans] == ["x.mT ** 2"]


RULES = (*simplify.RULES, *strength_reduction.RULES, *rewrite.RULES, *relax.RULES, collapse_axes.flatten, Masking.where)
MODULES = [inspect.getmodule(p.function) for p in PASSES]


@pytest.mark.parametrize("documented", [*RULES, *MODULES], ids=lambda d: d.__name__)
def test_the_text_of_a_rule_or_a_pass_ends_as_a_sentence(documented: Any) -> None:
    text, whole = first_sentence(documented), " ".join(inspect.getdoc(documented).split())
    assert len(text.split()) > 3 and text.endswith(".") and text.count("`") % 2 == 0
    assert text.count("(") == text.count(")") and whole.startswith(text[:-1])
    assert re.fullmatch(r"|\.|:|[.:] .*", whole[len(text) - 1 :])  # the sentence ends here


def test_rules_of_kernels_and_tiles() -> None:
    flat = step(our_steps(lowered("def f(x: f32[64, 64]):\n    return x + 1\n")), "collapse-axes")
    assert [(r["name"], r["cases"]) for r in flat.rules] == [("flatten", [("i: 64, j: 64", "i: 4096")])]
    steps = our_steps(
        lowered("def f(x: f16[M, N]) -> f16[M, N]:\n    return x / sum(x, axis=1, keepdims=True)\n", M=64, N=300)
    )
    (divided,) = step(steps, "fast-math").rules
    assert divided["name"] == "divide_by_fewer" and divided["cases"][0][0].startswith("divide(")
    steps = our_steps(lowered("def f(x: f32[M, N]):\n    return softmax(x)\n", M=64, N=300))
    assert [(r["name"], len(r["cases"])) for r in step(steps, "mask").rules] == [("where", 1)]
    assert (
        step(our_steps(lowered("def f(x: f32[1000000]):\n    return sum(x)\n")), "split-reduction").rules[0]["name"]
        == "split_reductions"
    )


def test_a_pass_that_fires_nothing_changes_nothing() -> None:
    for path in sorted((ROOT / "examples").glob("*.mt")):
        for s in our_steps(mt.compile(path).lower().compilation):
            if s.name in ("simplify", *SPLITS, "collapse-axes", "fast-math"):
                assert s.rules or s.before == s.after or s.name == "fast-math", f"{path.name}: {s.name}"


def test_rules_are_recorded_only_on_demand() -> None:
    fired(simplify.simplify, 1, 2)
    with recorded() as found:
        fired(simplify.simplify, 1, 2)
    assert len(found) == 1 and found[0].after == 2


# ---- Triton's passes -----------------------------------------------------------------------


def test_passes_of_triton() -> None:
    low = mt.compile("x @ w", x="f16[64, 64]", w="f16[64, 64]").lower()
    steps = triton_steps(MachineCode(low.compilation))
    names = [s.name for s in steps]
    assert {"canonicalize", "cse", "convert-triton-to-tritongpu", "tritongpu-accelerate-matmul"} <= set(names)
    assert all(a.after == b.before for a, b in zip(steps, steps[1:]) if a.stage == b.stage)
    assert {s.group for s in steps} == {"triton k0"}
    stages = {s.stage: s.after for s in steps}
    assert stages == {stage: plain(low[stage].partition("\n")[2]) for stage in ("ttir", "ttgir")}
    product = step(steps, "tritongpu-accelerate-matmul")
    assert "tt.dot" in product.before and "warp_group_dot" in product.after
    assert "loc(" not in product.before


def test_passes_of_triton_know_the_divisibility_of_sizes() -> None:
    low = mt.compile("softmax(x)", x="f32[M, N]").lower()
    last = triton_steps(MachineCode(low.compilation))[-1].after
    assert last == plain(low["ttgir"].partition("\n")[2]) and "%s1: i32 {tt.divisibility = 16 : i32}" in last


def test_passes_of_triton_have_a_time_limit() -> None:
    low = mt.compile("x + 1", x="f32[64]").lower()
    with pytest.raises(StageUnavailable, match="TimeoutExpired"):
        triton_steps(MachineCode(low.compilation), seconds=0.01)
    assert triton_steps(MachineCode(mt.compile("x + 1", x="f32[64]").lower(target="interpreter").compilation)) == ()


def test_locations_are_left_out() -> None:
    text = '#loc = loc(unknown)\n  %a = x.y %b : f32 loc(callsite(#loc1 at "v"(#loc2)))\n  tt.return loc("f(x":3:1)\n'
    assert plain(text) == "%a = x.y %b : f32\n  tt.return\n"
