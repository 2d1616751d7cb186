"""Each rewrite alone: random programs in which it fires, with it and without it.

    python tests/each_rewrite.py --programs 2000 --jobs 2 [NAME ...]

A row of `REWRITES` says which statements a rewrite is about, and which thresholds must be lower so that it fires at
small sizes. A program counts if the stage that the rewrite makes is another one without it. Then both stages are run by
numpy (or Triton's interpreter) and compared, bit for bit where the rewrite promises that, and `check` compares every
stage with the reference. A rewrite that never fires fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from lowered import lowered

from minitri.base.diagnostics import CompileError
from minitri.hardware.targets import INTERPRETER, Target
from minitri.kernels.ir import Dot
from minitri.language.parser import parse_module
from minitri.program import Program
from minitri.runtime.binding import bind
from minitri.testing.generator import RandomProgram
from minitri.testing.reductions import SIDES
from minitri.testing.statement_kinds import Statements
from minitri.testing.values import Axis
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check import check, enclosures, worst

CUDA = Target("cuda", "90")
TRIES = 60  # programs for each one in which a rewrite fires, at most


class Blocks(dict[str, int]):
    """A block for whatever axes a program has; as a mapping it is empty, so that none is missing."""

    def __init__(self, rows: int, rest: int) -> None:
        super().__init__()
        self.rows, self.rest = rows, rest

    def get(self, name: str, default: int | None = None) -> int:  # type: ignore[override]
        return self.rows if name in "ijr" else self.rest


SMALL, SIXTEEN = Options(blocks=Blocks(8, 2)), Options(blocks=Blocks(16, 16), descriptors=True)


@dataclass(frozen=True)
class Rewrite:
    """`stage`: what it changes. `kinds`: statements of random programs, with axes of `sides`. `lowered`: thresholds, by
    module and name. `exact`: it changes no bit, but for signs of zeros (and the order in which products are added)."""

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
PARTS = {  # products of TF32 parts, of small arrays too
    "optimize.pack_operands.WORTH_OF_PARTS": 1, "optimize.pack_operands.SIDE_OF_PARTS": 1, "optimize.pack_operands.LEAST_DEPTH": 1,
}  # fmt: skip
REWRITES: dict[str, Rewrite] = {
    "simplify": Rewrite("graph.folded", ANY, exact=False),
    "strength-reduction": Rewrite("graph.strength", ("unary", "unary", "binary", "reduce", "cast"), exact=False),
    "batch-into-rows": Rewrite("graph.rows", ("matmul", "matmul", "binary", "broadcast"), exact=False),
    "pack-operands": Rewrite("graph.packed", ("layer", "dequantised", "matmul"), {
        "optimize.pack_operands.DEPTH": 1, "optimize.pack_operands.REUSE": 2, "optimize.pack_operands.REUSE_OF_ASYNC": 3, "optimize.pack_operands.REUSE_OF_COMPUTED": 2,
        "optimize.pack_operands.REUSE_OF_CONVERTED": 2, "optimize.pack_operands.WORTH": 1, "optimize.pack_operands.WORTH_COMPUTED": 1,
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
        "optimize.split_k.SHORTEST": 8, "optimize.split_k.SHORTEST_STREAM": 8, "optimize.split_k.PART": 4,
        "optimize.mixed_input_products.PART": 4, "optimize.mixed_input_products.UNIT": 2,
    }, exact=False),
    "split-kv": Rewrite("graph.loops", ("heads", "heads", "unary"), {
        "optimize.split_kv.SHORTEST": 8, "optimize.split_kv.PART": 4, "optimize.split_kv.STEP": 2,
    }, exact=False),
    "fusion": Rewrite("kernels.fused", ANY),
    "collapse-axes": Rewrite("kernels.flat", ANY, exact=False),
    "online-reductions": Rewrite("kernels.online", ("normalise", "normalise", "masked_reduction", "heads", "reduce", "unary"), exact=False),
    "f32-products": Rewrite("kernels.products", ("matmul", "matmul", "layer"), PARTS, SIXTEEN, exact=False, sides=(16, 32, 48)),
    "fast-math": Rewrite("kernels", ("normalise", "unary", "unary", "layer", "binary", "cast"), exact=False),
    "skip-blocks": Rewrite("tile", ("masked_reduction", "masked_reduction", "heads", "pad", "concat", "reduce")),
    "software-pipelining": Rewrite("tile", ("heads",), {"optimize.software_pipelining.MIN_BLOCKS": 2}, SIXTEEN, sides=(16, 32, 48)),
    "program-order": Rewrite("tile", ("masked_reduction", "heads", "normalise", "reduce")),
    "boundary-peeling": Rewrite("tile", ("long", "long", "unary", "slice"), {"optimize.boundary_peeling.MANY": 1}, Options(blocks=Blocks(128, 16), warps=1)),
    "mask-elision": Rewrite("tile.masked", ("reduce", "normalise", "pad", "concat", "slice", "long", "masked_reduction", "layer")),
    "narrow-integers": Rewrite("tile.target", ("masked", "masked_reduction", "make", "integer", "one_hot", "heads", "where")),
    "f16-products": Rewrite("tile.target", ("dequantised", "dequantised", "unary"), {}, SIXTEEN),
    "tensor-descriptors": Rewrite("tile.target", ("layer", "dequantised", "heads"), {}, SIXTEEN, sides=(16, 32, 48, 17)),
    "early-start": Rewrite("tile.target", ANY),
    "fast-operators": Rewrite("tile.target", ("normalise", "normalise", "unary", "unary", "layer", "cast"), exact=False),
    "maxima-in-parts": Rewrite("tile.target", ("heads",), {
        "optimize.maxima_in_parts.COLUMNS": 16, "optimize.maxima_in_parts.CARRIED_COLUMNS": 16,
    }, Options(blocks=Blocks(64, 64), warps=1), sides=(64, 128)),
    "flatten-loops": Rewrite("tile.target", ("layer", "matmul"), {}, Options(blocks=Blocks(16, 16), persistent=2), sides=(16, 32, 48)),
    "deferred-checks": Rewrite("tile.target", ("matmul", "matmul", "layer"), PARTS, SIXTEEN, exact=False, sides=(16, 32, 48)),
    "elementwise-schedules": Rewrite("tile", ("unary", "unary", "binary", "transpose", "cast"), {}, Options()),
    "interpreter-schedules": Rewrite("tile", (*ROWS, "matmul"), {}, Options(), exact=False, target=INTERPRETER),
    "attention-schedules": Rewrite("tile", ("heads",), {}, Options(), exact=False),
    "product-schedules": Rewrite("tile", ("layer", "matmul", "unary"), {}, Options(), exact=False),
    "reduction-schedules": Rewrite("tile", ROWS, {}, Options(), exact=False),
}  # fmt: skip


class Focused(Statements):
    """Random programs of some kinds of statements."""

    focus: tuple[str, ...] = ()
    sides: tuple[int, ...] = SIDES

    def kinds(self) -> list[Callable[[], Any]]:
        return [getattr(self, f"_{name}") for name in self.focus]

    def end(self) -> None:
        pass

    def _side(self) -> Axis:
        size = self.choose(self.sides)
        return Axis(str(size), size)

    def _several(self) -> Any:
        """A reduction over neighbouring axes."""
        axes = [Axis(str(n), n) for n in (self.choose((2, 3, 5, 8, 13)) for _ in range(self.choose((2, 3, 3, 4))))]
        x = self.array(self.choose(("f32", "f16", "i32")), tuple(axes), -1, 1)
        first = self.choose(range(len(axes) - 1))
        last = self.choose(range(first + 1, len(axes)))
        name, form = self.choose(("sum", "max", "mean")), self.choose(("{}", "abs({})", "{} * 2"))
        over = ", ".join(map(str, range(first, last + 1)))
        kept = tuple(a for k, a in enumerate(axes) if not first <= k <= last)
        dtype = {"i32": {"sum": "i64", "mean": "f32"}}.get(x.dtype, {}).get(name, x.dtype)
        return self.add(f"{name}({form.format(x.name)}, axis=({over}))", dtype, kept, False, 4000)

    def _long(self) -> Any:
        """Arithmetic on arrays whose length no power of two divides."""
        n = self.choose((257, 777, 1001, 1030, 2050))
        x, y = (self.array(self.choose(("f32", "f16", "bf16", "i8")), (Axis(str(n), n),), -1, 1) for _ in range(2))
        return self.add(f"{x.name} * 2.0 + {y.name}", "f32", x.axes, False, 4)


def written(rewrite: Rewrite, seed: int) -> RandomProgram:
    rng = random.Random(seed)
    writer = Focused(rng.choice)
    writer.focus, writer.sides = rewrite.kinds, rewrite.sides
    return writer.program(1 if len(rewrite.kinds) == 1 else rng.randint(1, 4))


# ---- one program -------------------------------------------------------------------------------


def tried(name: str, seed: int) -> str | None:
    """None: the rewrite does not fire. Else what is wrong, or "" if nothing is."""
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
    """What the stage computes with the rewrite and without it."""
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
    """Tries programs in several processes until the rewrite has fired in so many."""
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
