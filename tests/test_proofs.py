"""Proofs about masks: accesses are in bounds, checks are necessary, elements are written once. Mutants are refuted.

The programs of `accesses()` have every kind of index. If z3 is installed, it confirms the proofs for affine indices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_calls import LIBRARY

import minitri as mt
from minitri.base.dims import ZERO, Dim, Symbol, sign
from minitri.base.inequalities import Proof, in_cases
from minitri.graph.index_width import LIMIT, needs_64_bits
from minitri.kernels.ir import Load, Mask, Plan, Store
from minitri.pipeline import Compilation
from minitri.tiles.evaluate import evaluate
from minitri.tiles.ir import Program, TileAxis
from minitri.tiles.mask import overhangs
from minitri.tiles.rewrite import exchange
from minitri.trust.memory_proofs import BOUNDS, NEEDED, ONCE, Verdict, prove
from minitri.trust.sanitizer import AccessError

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
VIEWS = {
    "transpose": ("x.mT + y", {"x": "f32[M, N]", "y": "f32[N, M]"}),
    "slice": ("x[1:, :3] * 2", {"x": "f32[M, N]"}),
    "every second element": ("x[::2] + 1", {"x": "f32[M, N]"}),
    "from the end": ("x[-3:] + 1", {"x": "f32[M, N]"}),
    "flip": ("flip(x, axis=1) + x", {"x": "f32[M, N]"}),
    "roll": ("roll(x, 2, axis=1) + x", {"x": "f32[M, N]"}),
    "concat": ("concat([x, y, x], axis=0) * 2", {"x": "f32[M, N]", "y": "f32[K, N]"}),
    "stack": ("stack([x, y], axis=1)", {"x": "f32[M, N]", "y": "f32[M, N]"}),
    "reshape": ("reshape(x, (M * N,)) + y", {"x": "f32[M, N]", "y": "f32[M * N]"}),
    "split": ("reshape(x, (M, N)) + y", {"x": "f32[M * N]", "y": "f32[M, N]"}),
    "pairs": ("reshape(x, (M, 2, N)) @ w", {"x": "f32[2 * M, N]", "w": "f32[N, K]"}),
    "flattened transpose": ("reshape(x.mT, (M * N,)) * y", {"x": "f32[M, N]", "y": "f32[M * N]"}),
    "repeat": ("reshape(broadcast_to(x[:, None], (N, 3)), (3 * N,)) + y", {"x": "f32[N]", "y": "f32[3 * N]"}),
    "gather": ("w[i]", {"w": "f32[M, N]", "i": "i32[K]"}),
    "along": ("take_along_axis(x, i, axis=1)", {"x": "f32[M, N]", "i": "i64[M, K]"}),
    "scan": ("cumulative_sum(x, axis=1)", {"x": "f32[M, N]"}),
    "argmax": ("argmax(x, axis=1), argmin(x, axis=0)", {"x": "f32[M, N]"}),
    "product": ("x @ w + b", {"x": "f16[M, K]", "w": "f16[K, N]", "b": "f16[N]"}),
    "means": ("x - mean(x, axis=0, keepdims=True)", {"x": "f32[M, N]"}),
    "triangle": ("tril(x) + triu(x, 1)", {"x": "f32[M, N]"}),
    "diagonal": ("x * eye(4, dtype=f32)", {"x": "f32[4, 4]"}),
    "one row": ("x[0] + x[-1:]", {"x": "f32[M, N]"}),
}
TARGETS = ("cuda:90", "interpreter")
SIZES = {"M": 130, "N": 300, "K": 77, "B": 2, "B0": 33, "T": 65, "S": 40, "D": 24, "V": 50, "C": 100, "S0": 70}
SHORT = {"i": 3, "j": 5, "k": 3, "r": 4}


@cache
def programs() -> dict[str, mt.Program]:
    found = {path.stem: mt.compile(path) for path in EXAMPLES}
    return found | {
        f"{name}: {text}": mt.compile(text, **types) for name, (text, types) in {**LIBRARY, **VIEWS}.items()
    }


def lowered(
    f: mt.Program, target: str = "cuda:90", known: bool = False, short: bool = False
) -> tuple[Plan, list[Program]]:
    graph = f.lower().compilation.value("graph")
    names = {s.name for node in graph.nodes() for e in node.shape for s in e.symbols()}
    packs = {"B0": "B", "S0": "S"}
    sizes = {packs.get(n, n): v for n, v in SIZES.items() if n in names and known}
    c = f.lower(target=target, **sizes).compilation
    if short:
        axes = {a.name for k in c.value("kernels").kernels for a in k.axes}
        options = mt.Options(blocks={n: b for n, b in SHORT.items() if n in axes})
        c = f.lower(target=target, options=options, **sizes).compilation
    return c.value("tile.masked").plan, list(c.value("tile.masked"))


def verdicts(f: mt.Program, target: str, known: bool, short: bool = False) -> Iterator[tuple[Program, list[Verdict]]]:
    plan, tiles = lowered(f, target, known, short)
    for p in tiles:
        yield p, prove(p, plan.conditions)


def is_valid(proof: Proof) -> bool:
    """Checks a proof. The check compares polynomials and needs no search."""
    if proof.atom is not None:
        goals = [proof.goal.replace_atoms({proof.atom: value}) for value, _ in in_cases(proof.atom)]
        return [p.goal for p in proof.cases] == goals and all(map(is_valid, proof.cases))
    if proof.never is not None:
        return proof.never.goal == -1 and is_valid(proof.never)
    if proof.wider is not None:  # divisor * goal + divisor - 1 >= 0 and divisor >= 1, so goal > -1
        n = proof.divisor.expr + 1 if proof.divisor else ZERO
        return proof.wider.goal == proof.goal * n + n - 1 and is_valid(proof.wider)
    total = ZERO
    for s in proof.steps:
        if s.weight < 0 or sign(s.multiplier) not in (0, 1) or not (s.fact.proof is None or is_valid(s.fact.proof)):
            return False
        total = total + s.multiplier * s.fact.expr * s.weight
    return 0 <= proof.room < proof.scale and proof.goal * proof.scale + proof.room == total


@pytest.mark.parametrize("known", [False, True], ids=["symbolic", "known"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(programs()))
def test_all_claims_about_accesses_are_proven(name: str, target: str, known: bool) -> None:
    """Each access is in bounds, with a valid proof. Each check has an example that needs it. Each store writes once."""
    for p, found in verdicts(programs()[name], target, known):
        for v in found:
            assert v.ok, v
            assert all(map(is_valid, v.proofs))
        for op in p.ops():
            if isinstance(op, (Load, Store)):
                assert op.mask is not None
                claims = [v.claim for v in found if v.op is op]
                assert claims.count(BOUNDS) == 1 and claims.count(NEEDED) == len(op.mask.conditions)
        written = {op.buffer.name for op in p.ops() if isinstance(op, Store)}
        assert {v.subject for v in found if v.claim == ONCE} == written


@pytest.mark.parametrize(
    "name", [n for n in programs() if n.split(":")[0] in ("softmax", "transpose", "concat", "gather", "product")]
)
def test_blocks_that_are_smaller_than_their_tiles(name: str) -> None:
    for _, found in verdicts(programs()[name], "cuda:90", False, True):
        assert all(v.ok for v in found), [str(v) for v in found if not v.ok]


# ---- mutants ---------------------------------------------------------------------------------


class Short(TileAxis):
    """An axis that lacks its last block."""

    @property
    def tiles(self) -> Dim:
        return self.extent // self.block


class Long(TileAxis):
    """An axis with one block too many."""

    @property
    def tiles(self) -> Dim:
        return self.extent // self.block + 2


def mutants(p: Program) -> Iterator[tuple[str, Program]]:
    """Programs with an error: a check dropped, moved by one or on another axis; a block too many or too few; a moved
    index.
    """
    for op in p.ops():
        if not isinstance(op, (Load, Store)) or op.mask is None:
            continue
        tests = op.mask.conditions
        for k, c in enumerate(tests):
            rest = [*tests[:k], *tests[k + 1 :]]
            yield f"{comparison(op)} without {c}", exchange(p, op, replace(op, mask=Mask(tuple(rest))))
            yield f"{comparison(op)} {c} + 1", exchange(p, op, replace(op, mask=Mask((*rest, c + 1))))
        if len(op.index) == 2 and op.index[0] != op.index[1]:
            yield f"{comparison(op)} turned", exchange(p, op, replace(op, index=op.index[::-1]))
        if op.index:
            moved = (op.index[0] + 1, *op.index[1:])
            yield f"{comparison(op)} moved", exchange(p, op, replace(op, index=moved))
    for kind in (Short, Long):
        axes = tuple(kind(a.name, a.extent, a.role, a.block) for a in p.axes)
        if any(a.block > 1 and a.role == "grid" for a in axes):
            yield kind.__name__, replace(p, axes=axes)


def comparison(op: Load | Store) -> str:
    return f"{type(op).__name__} {op.buffer.name}{list(op.index)}"


def refuted(p: Program, plan: Plan) -> Verdict | None:
    """The first claim about a program that is refuted. No claim may remain undecided."""
    found = prove(p, plan.conditions, needed=False)
    return next((v for v in found if v.status == "refuted"), None)


def test_a_dropped_mask_is_refuted_with_sizes_and_index() -> None:
    plan, (p,) = lowered(mt.compile("exp(x) + y", x="f32[M, N]", y="f32[N]"))
    load = next(op for op in p.ops() if isinstance(op, Load) and op.buffer.name == "y")
    found = refuted(exchange(p, load, replace(load, mask=Mask(()))), plan)
    assert found is not None and found.example is not None
    assert (found.claim, found.example.sizes, found.example.at) == (BOUNDS, {"M": 1, "N": 1}, {"j": 1})
    assert str(found).splitlines()[1] == "  in bounds y[j]: refuted, M = 1, N = 1: j = 1 reads y[1] of [1]"


HEAVY = [pytest.param(n, marks=pytest.mark.slow) for n in ("concat", "softmax", "product", "slice", "gather", "flip")]


@pytest.mark.parametrize("short", [False, True], ids=["own blocks", "short blocks"])
@pytest.mark.parametrize("name", ["transpose", "reshape", *HEAVY])
def test_mutants_of_masks_are_refuted(name: str, short: bool) -> None:
    """Some mutants are right, and then all claims are proven. Example: a block too many is masked, so it does no
    harm.
    """
    text, types = {**LIBRARY, **VIEWS}[name]
    plan, tiles = lowered(mt.compile(text, **types), short=short)
    for p in tiles:
        for v in prove(p, plan.conditions):
            if v.claim == NEEDED and v.example is not None:
                assert v.op.mask is not None
                rest = tuple(c for c in v.op.mask.conditions if c != v.test)
                assert refuted(exchange(p, v.op, replace(v.op, mask=Mask(rest))), plan) is not None, v
        for what, mutant in mutants(p):
            found = prove(mutant, plan.conditions, needed=False)
            wrong, right = any(v.status == "refuted" for v in found), all(v.ok for v in found)
            covered = all(overhangs(a) or a.role != "grid" for a in p.axes)  # a block too many is then masked
            assert (not wrong) if what == "Long" and covered else (wrong or right), (what, [str(v) for v in found])


# ---- every small size: the prover against the sanitizer --------------------------------------

TEMPLATES = {
    "elementwise": ("exp(x)", {"x": "f32[N]"}),
    "one reduced axis": ("x[1:] * 2", {"x": "f32[N]"}),
    "joined": ("concat([x, y]) * 2", {"x": "f32[N]", "y": "f32[M]"}),
    "turned": ("x.mT + 1", {"x": "f32[M, N]"}),
    "rows": ("x - max(x, axis=1, keepdims=True)", {"x": "f32[M, N]"}),
    "columns": ("sum(x, axis=0)", {"x": "f32[M, N]"}),
    "flat": ("reshape(x, (M * N,)) + y", {"x": "f32[M, N]", "y": "f32[M * N]"}),
}


def at_sizes(p: Program, sizes: Mapping[str, int]) -> Program:
    """A masked program with symbolic sizes, after its sizes are replaced by numbers, check by check."""
    env = {Symbol(n): v for n, v in sizes.items()}

    def put(ds: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(d.substitute(env) for d in ds)

    buffers = {b: replace(b, shape=put(b.shape), strides=put(b.strides)) for b in p.buffers}
    for k in range(len(list(p.ops()))):
        op = list(p.ops())[k]
        if isinstance(op, (Load, Store)) and op.mask is not None:
            mask = replace(op.mask, conditions=put(op.mask.conditions))
            new = replace(op, buffer=buffers[op.buffer], index=put(op.index), mask=mask)
            p = exchange(p, op, replace(new, guards=put(new.guards)) if isinstance(new, Load) else new)
    axes = tuple(replace(a, extent=a.extent.substitute(env)) for a in p.axes)
    return replace(p, axes=axes, buffers=tuple(buffers.values()))


def sanitizer_accepts(plan: Plan, p: Program, sizes: Mapping[str, int]) -> bool:
    shapes = {b.name: [e.evaluate(sizes) for e in b.shape] for b in plan.inputs}
    inputs = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    try:
        evaluate(plan, [p], inputs, sizes, True)
    except AccessError as error:
        return error.kind == "not neutral"  # the read itself is in bounds; the use of its value is another question
    return True


def count_agreements(name: str, step: int) -> int:
    """Asserts that prover and sanitizer agree on a template and its mutants, at sizes 0 … 2*block + 1. Returns the
    count.
    """
    text, types = TEMPLATES[name]
    plan, (p,) = lowered(mt.compile(text, **types), short=True)
    names = sorted({s.name for b in plan.inputs for e in b.shape for s in e.symbols()})
    largest = min(2 * max(a.block for a in p.axes) + 1, 11)
    count = 0
    for what, mutant in [("itself", p), *mutants(p)]:
        for row in itertools.product(range(0, largest + 1, step), repeat=len(names)):
            sizes = dict(zip(names, row))
            if what in ("Short", "Long") or not all(_runs(c, sizes) for c in plan.conditions):
                continue
            known = at_sizes(mutant, sizes)
            verdicts = prove(known, (), needed=False)
            left = [str(v) for v in verdicts if v.status == "not proven"]
            assert not left, (what, sizes, left)
            expected = sanitizer_accepts(plan, mutant, sizes)
            proven = all(v.ok for v in verdicts)
            assert proven == expected, (what, sizes, expected, [str(v) for v in verdicts if not v.ok])
            count += 1
    return count


def _runs(c: Any, sizes: Mapping[str, int]) -> bool:
    a, b = c.left.evaluate(sizes), c.right.evaluate(sizes)
    return a == b if c.relation == "==" else a != b if c.relation == "!=" else a >= b


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_the_prover_and_the_sanitizer_agree(name: str) -> None:
    assert count_agreements(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TEMPLATES))
def test_prover_and_sanitizer_agree_at_every_small_size(name: str) -> None:
    count = count_agreements(name, 1)
    print(f"{name}: {count} configurations")


# ---- z3 -------------------------------------------------------------------------------------

AFFINE = (
    "transpose",
    "slice",
    "flip",
    "concat",
    "stack",
    "softmax",
    "layer_norm",
    "product",
    "means",
    "scan",
    "triangle",
)


def smt(d: Dim, env: dict[Any, Any], z3: Any) -> Any:
    """A Dim as a z3 term. For quotients by positive divisors, z3's `/` rounds like Python's `//`."""
    total: Any = z3.IntVal(0)
    for monomial, c in d.terms:
        term: Any = z3.IntVal(c)
        for atom in monomial:
            term = term * atom_term(atom, env, z3)
        total = total + term
    return total


def atom_term(atom: Any, env: dict[Any, Any], z3: Any) -> Any:
    if isinstance(atom, Symbol):
        return env.setdefault(atom, z3.Int(f"{atom.kind}.{atom.name}"))
    a, b = smt(atom.a, env, z3), smt(atom.b, env, z3)
    match type(atom).__name__:
        case "Largest":
            return z3.If(a >= b, a, b)
        case "Smallest":
            return z3.If(a <= b, a, b)
        case "Quotient":
            return a / b
        case _:
            return a % b


def facts_and_goals(p: Program, op: Load | Store, z3: Any) -> tuple[list[Any], list[Any]]:
    """(facts about every element of a tile, goals). The facts follow from the definition of blocks, not from the
    prover.
    """
    env: dict[Any, Any] = {}
    held: list[Any] = []
    for a in p.axes:
        tile, lane, index = z3.Int(f"tile.{a.name}"), z3.Int(f"lane.{a.name}"), z3.Int(f"axis.{a.name}")
        env[a.symbol], env[Symbol(f"{a.name}_lane", "axis")] = index, lane
        held += [index == tile * a.block + lane, lane >= 0, lane < a.lanes, tile >= 0]
        held.append(tile == 0 if a.role == "whole" else tile * a.block < smt(a.extent, env, z3))
    assert op.mask is not None
    held += [smt(c, env, z3) >= 0 for c in op.mask.conditions]
    goals = [g for d, e in zip(op.index, op.buffer.shape) for g in (smt(d, env, z3), smt(e - 1 - d, env, z3))]
    return held + [term >= 0 for s, term in env.items() if s.kind == "size"], goals


@pytest.mark.parametrize("name", AFFINE)
def test_z3_confirms_proofs_and_refutations(name: str) -> None:
    """For all sizes at once: a proven claim has no counterexample, and a refuted one has one."""
    z3 = pytest.importorskip("z3")
    text, types = {**LIBRARY, **VIEWS}[name]
    plan, tiles = lowered(mt.compile(text, **types))
    looked = 0
    for p in tiles:
        for what, mutant in [("itself", p), *((w, m) for w, m in mutants(p) if w not in ("Short", "Long"))]:
            for v in prove(mutant, plan.conditions, needed=False):
                if v.claim != BOUNDS:
                    continue
                held, goals = facts_and_goals(mutant, v.op, z3)
                solver = z3.Solver()
                solver.set("rlimit", 10_000_000)  # a number of steps, not of seconds: about 2,000 are used
                solver.add(*held, z3.Or([g < 0 for g in goals]) if goals else z3.BoolVal(False))
                assert solver.check() == (z3.unsat if v.ok else z3.sat), (what, str(v))
                looked += 1
            if looked > 60:
                return
    assert looked


def test_offsets_below_the_limit_do_not_wrap() -> None:
    """Below the limit, an offset computed in 32 bits equals the one in 64 bits. Above the limit it may differ."""
    z3 = pytest.importorskip("z3")
    i, j = z3.BitVecs("i j", 32)

    def wraps(rows: int, columns: int) -> bool:
        solver = z3.Solver()
        solver.add(z3.ULT(i, rows), z3.ULT(j, columns))
        narrow = i * z3.BitVecVal(columns, 32) + j
        wide = z3.ZeroExt(32, i) * z3.BitVecVal(columns, 64) + z3.ZeroExt(32, j)
        solver.add(z3.SignExt(32, narrow) != wide)
        return solver.check() == z3.sat

    f = mt.compile("x + 1", x="f32[M, N]")
    for columns in (1 << 10, 46337, 3 * 5 * 7 * 11):
        rows = (LIMIT - 1) // columns
        assert not needs_64_bits(f.lower().compilation.value("graph"), {"M": rows, "N": columns})
        assert not wraps(rows, columns)
        more = (1 << 31) // columns + 1
        assert needs_64_bits(f.lower().compilation.value("graph"), {"M": more, "N": columns})
        assert wraps(more, columns)


M = 65536
WIDE = {  # programs with more than 2**31 elements: whether their kernels compute in 64 bits
    "scores that are not stored": ("softmax(q @ k.mT) @ v", {n: "f16[B, T, D]" for n in "qkv"}, {"B": 64, "T": 8192, "D": 64}, [False]),
    "scores that are stored": ("q @ k.mT", {n: "f16[B, T, D]" for n in "qk"}, {"B": 64, "T": 8192, "D": 64}, [True]),
    "an array that is read": ("sum(x, axis=1)", {"x": "u8[M, N]"}, {"M": M, "N": M}, [True]),
    "an index that is compared in 64 bits": (
        "sum(where(arange(M)[:, None] * M + arange(M) < n, x, 0), axis=1)", {"x": "f32[M]", "n": "i64"}, {"M": M}, [False],
    ),
    "a reshaped index": ("sum(where(reshape(arange(M * M), (M, M)) < n, x, 0), axis=1)", {"x": "f32[M]", "n": "i64"}, {"M": M}, [True]),
    "a gathered array": ("x[t]", {"x": "f32[M, N]", "t": "i64[T]"}, {"M": M, "N": M, "T": 8}, [True]),
    "a gather of rows": ("sum(x[t][:, None] * y, axis=1)", {"x": "f32[M]", "t": "i64[M]", "y": "f32[M]"}, {"M": M}, [True]),
    "a long broadcast axis": ("argmax(broadcast_to(x[:, None], (M, 4294967301)), axis=1)", {"x": "f32[M]"}, {"M": 8}, [True, True]),
    "a large dividend": ("sum(reshape(x[:, None] * y, (49000, 100000)), axis=-1)", {"x": "f32[M]", "y": "f32[M]"}, {"M": 70000}, [True]),
    "a large divisor": ("argmax(reshape(z[:, None, None] * x[:, None] * y, (N, 4 * M)), axis=-1)", {"x": "f32[M]", "y": "f32[N]", "z": "f32[4]"}, {"M": 65537, "N": 65539}, [True]),
    "a large count": ("var(z[:, None, None] * x[:, None] * y, axis=(1, 2))", {"x": "f32[M]", "y": "f32[M]", "z": "f32[K]"}, {"M": M, "K": 4096}, [True]),
    "a sum of products": ("sum(x[:, None] * y, axis=1)", {"x": "f32[M]", "y": "f32[M]"}, {"M": M}, [False]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WIDE))
def test_kernels_that_need_64_bits(name: str) -> None:
    text, types, sizes, wanted = WIDE[name]
    compilation = mt.compile(text, **types).lower(target="cuda:90", **sizes).compilation
    assert compilation.context.wide
    assert [p.wide for p in compilation.value("tile")] == wanted


def test_literal_sizes_decide_the_index_width() -> None:
    f = mt.compile("x + y.mT", x=f"f32[{M}, 1]", y=f"f32[{M}, 1]")
    assert all(p.wide for p in f.lower(target="cuda:90").compilation.value("tile"))


def test_kernels_of_symbolic_sizes_have_64_bit_indices() -> None:
    f = mt.compile("x + 1", x="f32[M, N]")
    low = replace(f.lower().compilation.context, wide=True)
    assert all(p.wide for p in Compilation(low).value("tile"))
    assert not any(p.wide for p in Compilation(replace(low, sizes={"M": 8, "N": 8})).value("tile"))
