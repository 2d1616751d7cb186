"""Conditions on indices let loops skip blocks: past wrong results, proofs that z3 confirms, and a part of
tests/sweep_conditions.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lowered_thresholds import lowered
from sweep_conditions import REDUCTIONS, array, question, sweep, wanted
from test_proofs import smt

import minitri as mt
from minitri.tiles.ir import Loop, block_start
from minitri.tiles.schedule import Options

SMALL = Options(blocks={"i": 4, "r": 8})
BAND = "(arange(N) > arange(M)[:, None] + 5) & (arange(N) <= 60)"
FEW = "(arange(N) < 76) & (arange(N) >= arange(M)[:, None] + 8)"
DIAGONAL = "(arange(N) <= arange(M)[:, None]) & (arange(N) > arange(M)[:, None] - 7)"
CORNER = "(arange(M)[:, None] < 4) & (arange(N) <= arange(M)[:, None] + 6)"
CASES = [  # cases that were wrong on a GPU, or with small blocks
    *(f"{name}(where({c}, x, 0), axis=0)" for name in ("sum", "mean") for c in (BAND, FEW)),
    *(f"{name}(where({c}, x, -inf), axis=0)" for name in ("max", "softmax") for c in (BAND, FEW)),
    *(f"prod(where({c}, abs(x), 0), axis=0)" for c in (DIAGONAL, CORNER)),
    "mean(where((arange(N) > arange(M)[:, None] + 5) & (arange(N) <= 60), x + b, 0), axis=0)",
    "mean(where((arange(N) > arange(M)[:, None] - 5) & (arange(M)[:, None] >= 1), x + b, 0), axis=1)",
]  # fmt: skip
SIZES = ((40, 100), (8, 30))


def compiled(text: str) -> mt.Program:
    types = {"x": "f32[M, N]"} | ({"b": "f32[N]"} if "x + b" in text else {})
    return mt.compile(text, **types)


def arrays(f: mt.Program, m: int, n: int) -> list[Any]:
    shapes = {"x": (m, n), "b": (n,)}
    rng = np.random.default_rng(m)
    return [rng.standard_normal(shapes[p.name]).astype(np.float32) for p in f.function.params]


def numpy(text: str, x: Any, b: Any = 0) -> Any:
    """numpy's result for a program, in f64."""

    def softmax(x: Any, axis: int) -> Any:
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    names = {n: getattr(np, n) for n in ("sum", "mean", "max", "prod", "where", "arange", "abs", "inf")}
    names |= {"softmax": softmax, "M": x.shape[0], "N": x.shape[1], "x": x.astype(np.float64), "b": np.float64(b)}
    with np.errstate(all="ignore"):
        return eval(text, names)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("options", [Options(), SMALL], ids=["default", "small blocks"])
def test_cases_that_were_wrong_with_small_blocks(text: str, options: Options) -> None:
    f = compiled(text)
    f = f.configured(options=Options(blocks={a: b for a, b in options.blocks.items() if a in _axes(f)}))
    for m, n in SIZES:
        given = arrays(f, m, n)
        assert f.check(*given).ok
        np.testing.assert_allclose(f(*given), numpy(text, *given), rtol=2e-4, atol=1e-5)


def _axes(f: mt.Program) -> set[str]:
    plan = f.lower(target="cuda:90", M=8, N=8).compilation.value("kernels")
    return {a.name for k in plan.kernels for a in k.axes}


@pytest.mark.gpu
@pytest.mark.parametrize("text", CASES)
def test_cases_that_were_wrong_on_a_gpu(text: str) -> None:
    import torch

    f = compiled(text)
    given = arrays(f, 300, 9000)
    found = f(*(torch.asarray(a, device="cuda") for a in given)).cpu().numpy()
    np.testing.assert_allclose(found, numpy(text, *given), rtol=2e-4, atol=1e-5)


# ---- smaller bugs ----------------------------------------------------------------------------


def test_a_value_and_its_reverse_are_written_once_each() -> None:
    """[N, 1] and [1, N] have equal strides, and one output is the reverse of the other."""
    text = "def f(z: f32[N, 1]):\n    v = where(arange(N)[:, None] < 3, z, 0)\n    return sum(v, axis=0), v, v[::-1]\n"
    for n in (0, 1, 2, 7, 40):
        assert mt.compile(text).check(np.arange(n, dtype=np.float32)[:, None]).ok


def test_or_of_integers_is_not_a_condition() -> None:
    text = "sum(where((arange(N) | (arange(M)[:, None] & 3)) > 5, x, 0), axis=1)"
    for m, n in SIZES:
        f = compiled(text).configured(options=Options(blocks={"i": 4, "r": 8}))
        assert f.check(*arrays(f, m, n)).ok


@pytest.mark.parametrize("part", [2, 3, 8])
def test_scans_are_split_at_any_threshold(part: int) -> None:
    f = mt.compile("cumulative_sum(x, axis=1)", x="f32[M, N]")
    with lowered({"optimize.split_scan.SHORTEST": 1, "optimize.split_scan.PART": part}):
        for n in (1, 2, 3, 17, 100):
            assert f.check(np.ones((2, n), np.float32)).ok


# ---- random conditions -----------------------------------------------------------------------


class Condition:
    """A condition of comparisons of i and j, as minitri text and as a z3 term."""

    def __init__(self, rng: random.Random, comparisons: int) -> None:
        self.inverted, self.parts = rng.random() < 0.2, ()
        if comparisons > 1:
            first = rng.randint(1, comparisons - 1)
            self.parts = (Condition(rng, first), Condition(rng, comparisons - first))
            self.name = rng.choice("&|")
        else:
            self.left, self.right = rng.choice(
                (("i", "j"), ("j", "i"), ("i", ""), ("j", ""), ("i + j", ""), ("2 * j", "i"))
            )
            self.offset, self.name = rng.randint(-9, 9), rng.choice(("<", "<=", ">", ">=", "==", "!="))

    @property
    def text(self) -> str:
        if self.parts:
            inner = f"({self.parts[0].text} {self.name} {self.parts[1].text})"
        else:
            inner = f"({self.left} {self.name} {self.right or 0} + {self.offset})"
        return ("~" if self.inverted else "") + inner

    def term(self, i: Any, j: Any, z3: Any) -> Any:
        if self.parts:
            inner = (z3.And if self.name == "&" else z3.Or)(*(p.term(i, j, z3) for p in self.parts))
        else:
            inner = eval(f"{self.left} {self.name} {self.right or 0} + {self.offset}", {"i": i, "j": j})
        return z3.Not(inner) if self.inverted else inner


def conditions(count: int) -> Iterator[Condition]:
    rng = random.Random(24)
    for _ in range(count):
        yield Condition(rng, rng.choice((1, 2, 2, 3)))


def test_z3_confirms_what_loops_leave_out() -> None:
    """For all sizes and blocks: exactly one loop visits each index at which the condition holds. In a loop that does
    not
    evaluate the condition, the condition holds."""
    z3 = pytest.importorskip("z3")
    bounded = untested = 0
    for condition in conditions(60):
        text = condition.text.replace("i", "arange(M)[:, None]").replace("j", "arange(N)")
        f = mt.compile(f"sum(where({text}, x, 0), axis=1)", x="f32[M, N]").configured(options=SMALL)
        (program,) = f.lower(target="cuda:90").compilation.value("tile.skipped")
        loops = [s for s in program.body if isinstance(s, Loop)]
        if not any(s.because for s in loops):
            continue
        bounded += 1
        start, lane, j, m, n = (z3.Int(name) for name in ("start", "lane", "j", "M", "N"))
        env: dict[Any, Any] = {block_start("i").atom: start}
        spans = [(_bound(s.first, 0, env, z3), _bound(s.last, n, env, z3)) for s in loops]
        sizes = [v for s, v in env.items() if s.kind == "size"]
        known = [
            start >= 0,
            start % 4 == 0,
            lane >= 0,
            lane < 4,
            start + lane < m,
            j >= 0,
            j < n,
            *(v >= 0 for v in sizes),
        ]
        known += [v == {"M": m, "N": n}[s.name] for s, v in env.items() if s.kind == "size"]
        holds = condition.term(start + lane, j, z3)
        walked = [z3.And(first <= j, j < last) for first, last in spans]
        _confirm(z3, known, z3.Implies(holds, z3.Or(*walked)), condition.text)
        _confirm(z3, known, z3.Sum([z3.If(w, 1, 0) for w in walked]) <= 1, condition.text)
        for s, w in zip(loops, walked):
            if not any(getattr(op, "op", "") == "where" for op in s.body):
                untested += 1
                _confirm(z3, [*known, w], holds, condition.text)
    assert bounded > 20 and untested > 10, (bounded, untested)


def _bound(d: Any, otherwise: Any, env: dict[Any, Any], z3: Any) -> Any:
    return z3.IntVal(0) + otherwise if d is None else smt(d, env, z3)


def _confirm(z3: Any, known: list[Any], goal: Any, text: str) -> None:
    solver = z3.Solver()
    solver.set("rlimit", 20_000_000)
    solver.add(*known, z3.Not(goal))
    assert solver.check() == z3.unsat, (text, solver.model())


def test_a_part_of_the_sweep() -> None:
    found, wrong = sweep(500, seed=10**6)
    assert not wrong, wrong[:3]
    assert found["configurations"] >= 500 and found["with a block left out"] > 100


def test_the_sweep_covers_every_reduction_and_agrees_with_numpy() -> None:
    drawn = [question(seed) for seed in range(600)]
    assert {q.reduction for q in drawn} == {*REDUCTIONS} and {q.axis for q in drawn} == {0, 1}
    assert any(q.inverted for q in drawn) and any(q.known for q in drawn)
    x = array(np.random.default_rng(0), 3, 5)
    assert all(np.shape(w) for q in drawn[:40] for w in wanted(q, np.nan_to_num(x)))
