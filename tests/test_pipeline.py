"""The pipeline and `check` report wrong passes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitri as mt
from minitri.kernels.ir import Load, Mask
from minitri.optimize import pass_table
from minitri.tiles.ir import Program, Programs


def instead(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """Replaces the pass `name` by one whose result is changed."""
    wrong = [replace(p, run=lambda v, c, p=p: change(p.run(v, c))) if p.name == name else p for p in pass_table.PASSES]
    monkeypatch.setattr(pass_table, "PASSES", tuple(wrong))


def test_a_broken_ir_that_cannot_be_printed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_bodies(plan: Any) -> Any:
        return replace(plan, kernels=tuple(replace(k, body=k.body[::-1]) for k in plan.kernels))

    instead(monkeypatch, "collapse-axes", reversed_bodies)
    with pytest.raises(mt.CompileError) as raised:
        mt.compile("x + 1", x="f32[7]").lower()["kernels"]
    message = raised.value.message
    assert raised.value.code == "MT0403" and "the pass `collapse-axes`" in message
    assert "before:\nplan main(" in message and "after:\n(it cannot be printed" in message


def test_check_names_the_stage_that_reads_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmasked(programs: Programs) -> Programs:
        def bare(op: Any) -> Any:
            return replace(op, mask=Mask(())) if isinstance(op, Load) else op

        def rebuilt(program: Program) -> Program:
            load, *rest = program.body
            new = bare(load)
            body = [new, *(replace(s, args=(new, *s.args[1:])) if hasattr(s, "args") else s for s in rest)]
            compute = next(s for s in body if hasattr(s, "args"))
            body = [replace(s, value=compute) if hasattr(s, "value") and hasattr(s, "buffer") else s for s in body]
            return replace(program, body=tuple(body))

        return programs.map(rebuilt)

    instead(monkeypatch, "mask", unmasked)
    report = mt.compile("exp(x)", x="f32[7]").check(np.ones(7, np.float32))
    row = next(r for r in report.rows if r.stage == "tile.masked")
    assert report.first_bad == "tile.masked" and "out of bounds" in row.note


def test_types_for_a_module_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.mt"
    path.write_text("def f(x: f32[N]):\n    return x + 1\n", encoding="utf-8")
    with pytest.raises(mt.CompileError) as raised:
        mt.compile(path, x="f16[N]")
    assert raised.value.code == "MT0102"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_graph_of_a_product_has_no_casts_that_undo_each_other(dtype: str) -> None:
    low = mt.compile("astype(q @ k, q.dtype) @ k", q=f"{dtype}[M, N]", k=f"{dtype}[N, N]").lower()
    casts = dict(re.findall(r"(%\d+): \S+\[[^]]*\] = cast (\S+)", low["graph"]))
    assert "contract q, k " in low["graph"]
    assert not [value for value, operand in casts.items() if operand in casts]
