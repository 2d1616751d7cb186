"""Runs the experiments of docs/log/reliability.md: a function for each section, from options to figures.

In: a time limit and a number of processes. Out: a dictionary that JSON can hold. It lists every failure
by name. tests/reliability.py lists the sections and writes them as Markdown.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from program_coverage import CONSTRUCTS, coverage

import minitri as mt
from minitri.base.operators import OPERATORS, Operator
from minitri.cli.main import main as minitri
from minitri.fuzz.session import Session, Summary, fuzz, machine
from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.testing import random_program
from minitri.tiles.evaluate import evaluate as evaluate_tile
from minitri.trust.error_bounds import NUMPY_ULP

ROOT = Path(__file__).parent.parent
Figures = dict[str, Any]


@dataclass(frozen=True)
class Options:
    seconds: float
    jobs: int


def fuzzed(on: str, seed: int) -> Callable[[Options], Figures]:
    def run(options: Options) -> Figures:
        def tell(s: Summary) -> None:
            done = f"{s.seconds:6.0f} s, {s.counts['programs']} programs, {len(s.found)} disagreements"
            print(f"\r{done}", end="", file=sys.stderr)

        summary = fuzz(Session(options.seconds, seed, options.jobs, on, ROOT / "build" / "fuzz"), tell)
        print(file=sys.stderr)
        return summary.as_dict()

    return run


def covered(options: Options) -> Figures:
    """How often each construct occurs in 2,000 random programs."""
    found = coverage(random_program(seed) for seed in range(2000))
    return {group: {name: found[name] for name in names} for group, names in CONSTRUCTS.items()}


def checked(options: Options) -> Figures:
    """`minitri check` of every example and every library function, at ragged sizes."""
    from library_calls import LIBRARY

    calls = {path.name: [str(path)] for path in sorted((ROOT / "examples").glob("*.mt"))}
    for name, (text, types) in LIBRARY.items():
        calls[name] = ["-e", text, *(word for n, t in types.items() for word in ("-t", f"{n}={t}"))]
    rows, wrong = 0, list[str]()
    for name, words in calls.items():
        answer = json.loads(CliRunner().invoke(minitri, ["check", *words, "--json"]).stdout)
        rows += sum(len(r["rows"]) for r in answer["rounds"])
        wrong += [] if answer["ok"] else [name]
        print(f"{name:30} {'ok' if answer['ok'] else 'WRONG'}", file=sys.stderr)
    return {"programs": len(calls), "rows": rows, "wrong": wrong}


def planted(options: Options) -> Figures:
    """The gallery of planted bugs, in a process that has not imported minitri yet."""
    from mutants import GALLERY

    command = [sys.executable, str(ROOT / "tests" / "mutants.py"), "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {row["name"]: row for row in map(json.loads, lines)}
    named = [m.name for m in GALLERY if found[m.name]["named"] == m.guilty]
    return {"planted": len(found), "noticed": sum(f["noticed"] for f in found.values()), "named": len(named)}


def mutated(options: Options) -> Figures:
    """The scores of tests/mutation.py, which takes hours and keeps its results."""
    from mutation import figures

    return {
        file: {k: row[k] for k in ("mutants", "run", "killed", "equivalent", "score", "survivors", "same")}
        for file, row in figures().items()
    }


def conditioned(options: Options) -> Figures:
    """tests/sweep_conditions.py: conditions on indices at small sizes, run by numpy."""
    from sweep_conditions import sweep

    start = time.monotonic()
    counts, wrong = sweep(200_000, options.jobs)
    return {**counts, "wrong": wrong[:10], "seconds": time.monotonic() - start, "where": machine("cpu")["hardware"]}


def conditioned_on_gpu(options: Options) -> Figures:
    """tests/grid_conditions.py: conditions on indices at many sizes, run on a GPU."""
    from grid_conditions import grid

    start = time.monotonic()
    counts, wrong = grid(5400, options.jobs)
    return {"cases": counts["cases"], "wrong": wrong[:10], "seconds": time.monotonic() - start, "where": _where("gpu")}


def rewritten(options: Options) -> Figures:
    """tests/each_rewrite.py: each rewrite alone, in random programs in which it fires."""
    from each_rewrite import REWRITES, fired

    return {name: fired(name, 2000, options.jobs) for name in REWRITES}


def hostile(options: Options) -> Figures:
    from hostile import tried

    counts, faults = tried(100_000, 0, None, keep_going=True)
    outcomes: dict[str, int] = {}
    for (_, outcome), n in counts.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + n
    return {"inputs": sum(outcomes.values()), "outcomes": outcomes, "faults": len(faults), "found": faults[:10]}


# ---- the text of every Triton stage ----------------------------------------------------------

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")


def compiled(options: Options) -> Figures:
    """Examples, library and views for any sizes, compiled to machine code for GPUs that this machine need not have."""
    from test_proofs import programs

    kernels, failed = 0, list[str]()
    for (name, f), target in itertools.product(programs().items(), TARGETS):
        low = f.lower(target=target)
        try:
            low["amdgcn" if target.startswith("hip") else "ptx"]
            kernels += len(low.kernels)
        except Exception as error:
            failed.append(f"{name} for {target}: {type(error).__name__}")
        print(f"\r{kernels} kernels, {len(failed)} failed", end="", file=sys.stderr)
    print(file=sys.stderr)
    return {"programs": len(programs()), "targets": TARGETS, "kernels": kernels, "failed": failed}


# ---- proofs, and runs that test them -----------------------------------------------------------


def proven(options: Options) -> Figures:
    """Every claim about every access of examples, library and views: both kinds of schedules, known and symbolic
    sizes.
    """
    import test_proofs

    claims, open_, left_out = Counter[str](), list[str](), 0
    for f, target, known in itertools.product(test_proofs.programs().values(), test_proofs.TARGETS, (False, True)):
        for program, found in test_proofs.verdicts(f, target, known):
            claims.update(v.claim for v in found)
            open_ += [str(v) for v in found if not v.ok]
            masks = [op.mask for op in program.ops() if getattr(op, "mask", None) is not None]
            left_out += sum(reason.count("no test") for m in masks for reason in m.reasons)
    return {"programs": len(test_proofs.programs()), "claims": dict(claims), "left out": left_out, "open": open_}


ENUMERATED: dict[str, tuple[str, dict[str, str]]] = {
    "elementwise": ("x * 2 + b", {"x": "f32[M, N]", "b": "f32[N]"}),
    "transposed": ("x.mT + y", {"x": "f32[M, N]", "y": "f32[N, M]"}),
    "sum of rows": ("sum(x + 1, axis=1)", {"x": "f32[M, N]"}),
    "sum of columns": ("sum(x + 1, axis=0)", {"x": "f32[M, N]"}),
    "sums that follow": ("x - sum(x, axis=1, keepdims=True)", {"x": "f32[M, N]"}),
    "running sum": ("cumulative_sum(x + 1, axis=1)", {"x": "f32[M, N]"}),
    "joined": ("concat((x, y, x), axis=1) * 2", {"x": "f32[M, N]", "y": "f32[M, K]"}),
    "backwards": ("x[::-1, ::-2] + 1", {"x": "f32[M, N]"}),
    "reshaped": ("reshape(x, (N, M)) + y", {"x": "f32[M, N]", "y": "f32[N, M]"}),
    "product": ("(x + 1) @ (w - 1)", {"x": "f32[M, K]", "w": "f32[K, N]"}),
}
BLOCKS = ({"i": 4, "j": 4, "k": 4, "r": 4}, {"i": 3, "j": 4, "k": 3, "r": 2})  # tiles full, and with unused elements


def enumerated(options: Options, last: int = 9) -> Figures:
    """Each template at all sizes from 0 to twice its block plus one. The sanitizer checks accesses, numpy the values."""
    tried, wrong = 0, list[str]()
    for (name, (text, types)), blocks in itertools.product(ENUMERATED.items(), BLOCKS):
        f = mt.compile(text, **types)
        axes = {a.name for k in f.lower().compilation.value("kernels").kernels for a in k.axes}
        low = f.lower(target="interpreter", options=mt.Options(blocks={a: b for a, b in blocks.items() if a in axes}))
        graph, tiles = low.compilation.value("graph"), low.compilation.value("tile.masked")
        names = sorted({s.name for i in graph.inputs for e in i.shape for s in e.symbols()})
        for numbers in itertools.product(range(last + 1), repeat=len(names)):
            sizes = dict(zip(names, numbers))
            tried += 1
            if problem := _problem(graph, tiles, sizes):
                wrong.append(f"{name} {sizes} {blocks}: {problem}")
    return {"templates": len(ENUMERATED), "schedules": len(BLOCKS), "configurations": tried, "wrong": wrong}


def _problem(graph: Any, tiles: Any, sizes: dict[str, int]) -> str:
    """The failure at some sizes, or "". Inputs are whole numbers, so results must be exact."""
    inputs = {}
    for k, i in enumerate(graph.inputs):
        shape = tuple(e.evaluate(sizes) for e in i.shape)
        inputs[i.name] = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) * (k + 3)) % 7 - 3
    try:
        results = evaluate_tile(tiles.plan, tiles.programs, inputs, sizes, True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    wanted = evaluate_graph(graph, inputs, sizes)
    return "" if all(map(np.array_equal, results, wanted)) else "another result"


# ---- traps, branches ---------------------------------------------------------------------------


def trapped(options: Options) -> Figures:
    """tests/test_triton_traps.py: each row of the table of Triton's traps, at every stage."""
    from test_triton_traps import TRAPS

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not gpu",
        "tests/test_triton_traps.py",
    ]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", said)}
    return {
        "rows": len(TRAPS),
        "passed": found.get("passed", 0),
        "failed": found.get("failed", 0) + found.get("error", 0),
    }


CORE = (
    "base",
    "language",
    "graph",
    "kernels",
    "tiles",
    "triton",
    "optimize",
    "runtime",
    "trust",
    "pipeline.py",
    "program",
)


def branched(options: Options) -> Figures:
    """The branches of the core that tests without a GPU take, by coverage.py. Forked children do not count."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COVERAGE_FILE": f"{folder}/data"}
        measure = [sys.executable, "-m", "coverage", "run", "--branch", "--source=minitri", "-m", "pytest", "-q"]
        measure += ["-p", "no:cacheprovider", "-m", "not gpu and not slow", "--deselect", "tests/test_mutants.py"]
        subprocess.run(measure, cwd=ROOT, env=environment, check=False)
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-o", f"{folder}/json"], cwd=ROOT, env=environment, check=True
        )
        files = json.loads(Path(folder, "json").read_text(encoding="utf-8"))["files"]
    parts = {part: [f["summary"] for name, f in files.items() if name.startswith(f"minitri/{part}")] for part in CORE}
    counts = {
        part: [sum(s[key] for s in rows) for key in ("num_branches", "covered_branches")]
        for part, rows in parts.items()
    }
    return {part: {"branches": total, "taken": taken} for part, (total, taken) in counts.items()}


# ---- rounding ----------------------------------------------------------------------------------

SWEEP = 4099  # the step between tested f32 values, in both directions from zero


def swept(on: str) -> Callable[[Options], Figures]:
    """The largest error of each inexact f32 operator, in ulps."""

    def run(options: Options) -> Figures:
        inexact = [r for r in OPERATORS.values() if r.ulp > 0.5 and r.result == "operand"]
        rows = {r.name: {"found": _largest_error(r, on), "bound": _bound(r, on)} for r in inexact}
        return {"where": _where(on), "values": len(_floats()), "rows": rows}

    return run


def _bound(row: Operator, on: str) -> float:
    """The error bound: the operator table's plus numpy's, plus half an ulp because the exact result is rounded."""
    return (row.ulp if on == "gpu" else max(row.ulp, NUMPY_ULP)) + 0.5


def _where(on: str) -> str:
    return machine(on)["hardware"].partition(",")[0] if on == "gpu" else "Triton's interpreter (numpy's functions)"


def _floats() -> Any:
    """Floats from the whole range, denormals included."""
    up = np.arange(0, 0x7F800000, SWEEP, dtype=np.uint32).view(np.float32)
    return np.concatenate((up, -up))


def _largest_error(row: Operator, on: str) -> float:
    x = _floats()
    args = [x, np.random.default_rng(0).permutation(x)][: row.arity]
    text = f"{row.name}({', '.join('xy'[: row.arity])})"
    f = mt.compile(text, **dict.fromkeys("xy"[: row.arity], "f32[N]"))
    got = f.run("gpu", *args) if on == "gpu" else f(*args)
    with np.errstate(all="ignore"):
        want = row.numpy(*[a.astype(np.float64) for a in args])
        rounded = want.astype(np.float32)
        error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded)).astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(want)), row.name
    return round(float(error[np.isfinite(rounded) & np.isfinite(got)].max()), 3)
