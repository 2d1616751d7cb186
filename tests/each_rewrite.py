"""Tests each rewrite alone: random programs in which it fires, compiled with it and without it.

    python tests/each_rewrite.py --programs 2000 --jobs 2 [NAME ...]

A row of `REWRITES` names the statements that a rewrite applies to. It also names the thresholds that must be lower so
that the rewrite fires at small sizes. A program counts if its stage after the rewrite differs from the stage without
it. Then numpy (or Triton's interpreter) runs both stages, and the results are compared. They must be equal bit for
bit if the rewrite promises that. `check` compares every stage with the reference. A rewrite that never fires fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from lowered_thresholds import lowered

from minitri.base.diagnostics import CompileError
from minitri.hardware.targets import INTERPRETER, Target
from minitri.kernels.ir import Dot
from minitri.language.parser import parse_module
from minitri.program import Program
from minitri.runtime.call_binding import bind
from minitri.testing.small_random_programs import RandomProgram, SmallWriter
from minitri.testing.statement_placeholders import SIDES
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check_passes import check, enclosures, worst

CUDA = Target("cuda", "90")
TRIES = 60  # the most programs to try for each program in which a rewrite fires


class Blocks(dict[str, int]):
    """One block size for every axis name. As a mapping it is empty, so no name counts as unknown."""

    def __init__(self, rows: int, rest: int) -> None:
        super().__init__()
        self.rows, self.rest = rows, rest

    def get(self, name: str, default: int | None = None) -> int:  # type: ignore[override]
        return self.rows if name in "ijr" else self.rest


SMALL, SIXTEEN = Options(blocks=Blocks(8, 2)), Options(blocks=Blocks(16, 16), descriptors=True)


@dataclass(frozen=True)
class Rewrite:
    """A rewrite and the programs in which it fires.

    stage      the stage that it changes
    kinds      the statements of its random programs
    sides      the sizes of their axes
    lowered    thresholds, by module and name
    exact      it changes no bit, except the signs of zeros (and the order in which products are added)
    """

    stage: str
    kinds: tuple[str, ...]
    lowered: Mapping[str, int] = field(default_factory=dict)
    options: Options = SMALL
    exact: bool = True
    sides: tuple[int, ...] = SIDES
    target: Target = CUDA


ROWS = ("reduce", "reduce", "normalise", "scan", "unary", "binary", "loss")
PRODUCTS = ("layer", "layer", "dequantised", "matmul", "heads", "unary")
ANY = (*ROWS, "transpose", "reshape", "pad", "concat", "gather", "broadcast", "slice", "where", "cast")
PARTS = {  # products of TF32 parts, also for small arrays
    "optimize.pack_operands.WORTH_OF_PARTS": 1, "optimize.pack_operands.SIDE_OF_PARTS": 1, "optimize.pack_operands.LEAST_DEPTH": 1,
    "optimize.pack_operands.COLUMNS_OF_PARTS": 1, "optimize.pack_operands.WORTH_OF_COPY": 1,
}  # fmt: skip
REWRITES: dict[str, Rewrite] = {
    "simplify": Rewrite("graph.folded", ANY, exact=False),
    "strength-reduction": Rewrite("graph.strength", ("unary", "unary", "binary", "reduce", "cast"), exact=False),
    "round-products": Rewrite("graph.rounded", ("layer", "matmul", "normalise", "reduce"), exact=False),
    "batch-into-rows": Rewrite("graph.rows", ("matmul", "matmul", "binary", "broadcast"), exact=False),
    "pack-operands": Rewrite("graph.packed", ("layer", "dequantised", "matmul"), {
        "optimize.factor_layouts.LONG_ROW": 1, "optimize.pack_operands.DEPTH": 1, "optimize.pack_operands.REUSE": 2, "optimize.pack_operands.REUSE_OF_ASYNC": 3, "optimize.pack_operands.REUSE_OF_COMPUTED": 2,
        "optimize.pack_operands.REUSE_OF_CONVERTED": 2, "optimize.pack_operands.WORTH": 1, "optimize.pack_operands.WORTH_COMPUTED": 1,
        "optimize.pack_operands.REUSE_OF_SINGLE": 2, "optimize.pack_operands.DEPTH_OF_SINGLE": 1, "optimize.pack_operands.WORTH_OF_SINGLE": 1,
    }, exact=False),
    "collapse-reduced-axes": Rewrite("graph.collapsed", ("several", "several", "unary"), {
        "optimize.split_reduction.SHORTEST": 8, "optimize.split_reduction.SHORTEST_COLUMN": 8, "optimize.split_reduction.SHORTEST_PART": 2, "optimize.split_reduction.LEAST": 2,
    }, exact=False),
    "split-reduction": Rewrite("graph.reductions", ("reduce", "masked_reduction", "normalise", "unary"), {
        "optimize.split_reduction.SHORTEST": 8, "optimize.split_reduction.SHORTEST_COLUMN": 8, "optimize.split_reduction.SHORTEST_PART": 2, "optimize.split_reduction.LEAST": 2,
    }, exact=False),
    "split-scan": Rewrite("graph.simplified", ("scan", "scan", "unary", "reduce"), {
        "optimize.split_scan.SHORTEST": 4, "optimize.split_scan.PART": 2,
    }, exact=False),
    "split-k": Rewrite("graph.products", PRODUCTS, {
        "optimize.split_k.SHORTEST": 8, "optimize.split_k.SHORTEST_STREAM": 8, "optimize.split_k.SHORTEST_OF_FEW": 8, "optimize.split_k.PART": 4,
        "optimize.dequantised_product_cost.PART": 4, "optimize.dequantised_product_cost.UNIT": 2,
    }, exact=False),
    "split-kv": Rewrite("graph.loops", ("heads", "heads", "unary"), {
        "optimize.split_kv.SHORTEST": 8, "optimize.split_kv.PART": 4, "optimize.split_kv.STEP": 2,
    }, exact=False),
    "fusion": Rewrite("kernels.fused", ANY),
    "output-slices": Rewrite("kernels.fused", ("concat", "concat", "unary", "binary", "normalise", "reduce", "transpose")),
    "output-layouts": Rewrite("kernels.laid", ("transpose", "unary", "normalise", "matmul")),
    "divide-axes": Rewrite("kernels.divided", ("reshape", "transpose", "reshape", "unary", "reduce"), exact=False),
    "collapse-axes": Rewrite("kernels.flat", ANY, exact=False),
    "online-reductions": Rewrite("kernels.online", ("normalise", "normalise", "masked_reduction", "heads", "reduce", "unary"), exact=False),
    "f32-products": Rewrite("graph.precise", ("matmul", "matmul", "layer", "heads"), PARTS, SIXTEEN, exact=False, sides=(16, 32, 48)),
    "fast-math": Rewrite("kernels", ("normalise", "unary", "unary", "layer", "binary", "cast"), exact=False),
    "hoist-loads": Rewrite("tile", ("layer", "layer", "heads", "matmul", "along")),
    "skip-blocks": Rewrite("tile", ("masked_reduction", "masked_reduction", "heads", "pad", "concat", "reduce")),
    "software-pipelining": Rewrite("tile", ("heads",), {"optimize.software_pipelining.MIN_BLOCKS": 2}, SIXTEEN, sides=(16, 32, 48)),
    "program-order": Rewrite("tile", ("masked_reduction", "heads", "normalise", "reduce")),
    "boundary-peeling": Rewrite("tile", ("long", "long", "unary", "slice"), {"optimize.boundary_peeling.MANY": 1}, Options(blocks=Blocks(128, 16), warps=1), sides=(257, 777, 1001, 1030, 2050)),
    "mask-elision": Rewrite("tile.masked", ("reduce", "normalise", "pad", "concat", "slice", "long", "masked_reduction", "layer")),
    "narrow-integers": Rewrite("tile.target", ("masked", "masked_reduction", "make", "integer", "one_hot", "heads", "where")),
    "f16-multiplication": Rewrite("tile.target", ("dequantised", "dequantised", "unary"), {}, SIXTEEN),
    "tensor-descriptors": Rewrite("tile.target", ("layer", "dequantised", "heads"), {}, SIXTEEN, sides=(16, 32, 48, 17)),
    "cache-hints": Rewrite("tile.target", ("reduce", "reduce", "matmul"), {}, Options(blocks=Blocks(16, 16))),
    "early-start": Rewrite("tile.target", ANY),
    "fast-operators": Rewrite("tile.target", ("normalise", "normalise", "unary", "unary", "layer", "cast"), exact=False),
    "row-maximum-tree": Rewrite("tile.target", ("heads",), {
        "optimize.row_maximum_tree.COLUMNS": 16, "optimize.row_maximum_tree.CARRIED_COLUMNS": 16,
    }, Options(blocks=Blocks(64, 64), warps=1), sides=(64, 128)),
    "flatten-loops": Rewrite("tile.target", ("layer", "matmul"), {}, Options(blocks=Blocks(16, 16), persistent=2), sides=(16, 32, 48)),
    "deferred-tf32-checks": Rewrite("tile.target", ("matmul", "matmul", "layer"), PARTS, SIXTEEN, exact=False, sides=(16, 32, 48)),
    "elementwise-schedules": Rewrite("tile", ("unary", "unary", "binary", "transpose", "cast"), {}, Options()),
    "interpreter-schedules": Rewrite("tile", (*ROWS, "matmul"), {}, Options(), exact=False, target=INTERPRETER),
    "attention-schedules": Rewrite("tile", ("heads",), {}, Options(), exact=False),
    "product-schedules": Rewrite("tile", ("layer", "matmul", "unary"), {}, Options(), exact=False),
    "reduction-schedules": Rewrite("tile", ROWS, {}, Options(), exact=False),
}  # fmt: skip


def written(rewrite: Rewrite, seed: int) -> RandomProgram:
    rng = random.Random(seed)
    writer = SmallWriter(rng.choice, rewrite.kinds, rewrite.sides)
    return writer.program(1 if len(rewrite.kinds) == 1 else rng.randint(1, 4))


# ---- one program -------------------------------------------------------------------------------


def tried(name: str, seed: int) -> str | None:
    """None if the rewrite does not fire. Otherwise the error, or "" if there is none."""
    rewrite = REWRITES[name]
    example = written(rewrite, seed)
    with lowered(rewrite.lowered), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            said = _compared(name, rewrite, example, seed)
        except CompileError as error:
            if error.code != "MT0404":  # the blocks of `rewrite.options` are too large for this program
                raise
            return None
    return f"seed {seed}: {said}\n{example!r}" if said else said


def _compared(name: str, rewrite: Rewrite, example: RandomProgram, seed: int) -> str | None:
    program = Program(parse_module(example.text, "<random>"), options=rewrite.options)
    call = bind(program.function, example.arguments(seed), {})
    first, second = (
        p.compilation(p.context(call, rewrite.target)) for p in (program, program.configured(without=(name,)))
    )
    if _text(first, rewrite.stage) == _text(second, rewrite.stage):
        return None
    said = _differ(rewrite, program, call, first, second)
    report = None if said else check(program, call, (rewrite.target.kind,), shrinking=False)
    return said or (
        "" if report is None or report.ok else f"check: {report.first}: {report.first and report.first.note}"
    )


def _text(compiled: Any, stage: str) -> str:
    return "".join(k.source for k in compiled.value("triton")) if stage == "triton" else compiled.text(stage)


def _differ(rewrite: Rewrite, program: Program, call: Any, first: Any, second: Any) -> str:
    """How the results of the stage with the rewrite and without it differ; "" if they are equal."""
    stage = rewrite.stage
    if run_stage.programs(first, call) > 3000 or run_stage.programs(second, call) > 3000:
        return ""
    got = run_stage.results(first, stage, call)
    if not rewrite.exact or any(isinstance(op, Dot) for p in first.value("tile") for op in p.ops()):
        ok, error, bound, note = worst(got, enclosures(program, call))
        return "" if ok else f"{note}, error {error:.3g} of {bound:.3g}"
    for a, b, wanted in zip(got, run_stage.results(second, stage, call), enclosures(program, call)):
        different = ~((a == b) | (a != a) & (b != b)) & ~np.isinf(wanted.radius)
        if different.any():
            where = tuple(int(k[0]) for k in np.nonzero(different))
            return f"{a[where]} is not {b[where]} at {where}, {different.sum()} of {a.size}"
    return ""


def firings(name: str, wanted: int, seed: int) -> tuple[Counter[str], list[str]]:
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for k in range(seed, seed + wanted * TRIES):
        if found["fired"] >= wanted:
            break
        try:
            said = tried(name, k)
        except Exception as error:
            said = f"seed {k}: {type(error).__name__}: {str(error)[:400]}\n{written(REWRITES[name], k)!r}"
        found["programs"] += 1
        found["fired"] += said is not None
        wrong += [said] if said else []
    return found, wrong


def fired(name: str, programs: int, jobs: int, seed: int = 0) -> dict[str, Any]:
    """Tries programs in several processes until the rewrite has fired in `programs` of them."""
    start, share = time.perf_counter(), -(-programs // (jobs * 4))
    seeds = [seed + k * 10_000_000 for k in range(jobs * 4)]
    found, wrong = Counter[str](), list[str]()
    with ProcessPoolExecutor(jobs) as pool:
        for counts, failures in pool.map(firings, [name] * len(seeds), [share] * len(seeds), seeds):
            found += counts
            wrong += failures
    return {
        "programs": found["programs"],
        "fired": found["fired"],
        "wrong": wrong,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(REWRITES))
    parser.add_argument("--programs", type=int, default=2000, help="in which each rewrite fires")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for name in options.names:
        f = fired(name, options.programs, options.jobs, options.seed)
        counts = f"fired in {f['fired']:,} of {f['programs']:,} programs, {len(f['wrong'])} wrong"
        print(f"{name:16} {counts}; {f['seconds']:.0f} s", *f["wrong"][:3], sep="\n", flush=True)
        failed = failed or bool(f["wrong"]) or f["fired"] < options.programs
    sys.exit(failed)


if __name__ == "__main__":
    main()
