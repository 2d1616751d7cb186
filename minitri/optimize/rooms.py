"""The table of passes with every optimisation: each room of the house is a row of it.

    fusion: graph.simplified → kernels.fused, by `fuse` of minitri/optimize/fusion

A room stands between rows of the core (minitri/pipeline.py), or takes the place of one: `simplify` that of `legalise`,
and `fusion` that of `partition`. `--without NAME` leaves a room out. The rooms of `PARTS` have no row of their own:
they happen while the pass `split`, `lower` or `mask` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.limits import check_time
from minitri.graph.ir import Graph
from minitri.graph.rewrite import legalise
from minitri.hardware.chips import chip_of
from minitri.hardware.targets import Target
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.partition import partition
from minitri.optimize import (
    boundary_peeling,
    cache_hints,
    collapse_axes,
    early_start,
    f16_products,
    flatten_loops,
    hoist_loads,
    mask_elision,
    maxima_in_parts,
    narrow_integers,
    pack_operands,
    program_order,
    simplify,
    software_pipelining,
    split_reduction,
    tensor_descriptors,
)
from minitri.optimize.fast_math import fast_operators, relax
from minitri.optimize.fusion import fuse
from minitri.optimize.index_width import fits_32_bits
from minitri.optimize.online_reductions import kernels as online_reductions
from minitri.optimize.online_reductions.lower import OnlineLowering
from minitri.optimize.schedules.request import Request
from minitri.optimize.schedules.rules import RULES, schedule
from minitri.optimize.skip_blocks import skip
from minitri.pipeline import (  # fmt: skip
    CORE,
    Compilation,
    Context,
    Pass,
    graph_pass,
    lower_each,
    plan_pass,
    simple_schedule,
    tile_pass,
)
from minitri.tiles import mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import Options, Schedule, check_axes
from minitri.triton.workarounds import narrow_factors

LONG, SHORT, BOTH = 1 << 22, 4, 1 << 11  # sizes for which axes are in parts
T = TypeVar("T")


def same(value: T, context: Context) -> T:
    """Stands in for a pass that is left out."""
    return value


# ---- graphs and kernels --------------------------------------------------------------------


def pack(graph: Graph, context: Context) -> Graph:
    """No copies for the interpreter, which has no tensor cores to feed."""
    return graph if context.target.kind == "interpreter" else pack_operands.pack(graph, context.layouts)


def split(graph: Graph, context: Context) -> Graph:
    """No parts for the interpreter, which runs one program after another."""
    if context.target.kind == "interpreter":
        return graph
    return split_reduction.split(graph, chip_of(context.target), context.layouts, context.without)


def online(plan: Plan, context: Context) -> Plan:
    """Reductions share a loop where the schedule of their kernel loops over an axis."""

    def looped(kernel: Kernel) -> list[str]:
        chosen = schedule_of(kernel, context)
        return [] if chosen.near else chosen.looped

    return online_reductions.online(plan, looped)


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """How a kernel runs on the target of a context; without optimisations by its simple schedule.

    Only kernels with 32-bit offsets, on a target that has tensor descriptors, use them. Schedules that Triton compiles
    wrongly are avoided.
    """
    if "all" in context.without:
        return simple_schedule(kernel, context)
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, Request(chip_of(target), target.kind == "interpreter", wanted), context.without)
    if len(kernel.dots) > 1 and (target.kind, target.arch) == ("cuda", "90"):
        chosen = narrow_factors.avoided(kernel, chosen)
    return chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Whether the offsets of a kernel need 64 bits."""
    return context.wide and not fits_32_bits(kernel)


# ---- tile programs -------------------------------------------------------------------------


def lower(plan: Plan, context: Context) -> Programs:
    """One program for each kernel."""
    check_axes(context.options, plan, lambda: _plans_of_other_sizes(context))

    def lowered(kernel: Kernel) -> tuple[Program, bool]:
        return OnlineLowering.lower(kernel, schedule_of(kernel, context)), is_wide(kernel, context)

    return lower_each(plan, lowered)


def each(change: Callable[[Program], Program]) -> Callable[[Programs, Context], Programs]:
    """A pass over every program."""

    def changed(program: Program) -> Program:
        check_time()
        return change(program)

    return lambda programs, context: programs.map(changed)


def masked(programs: Programs, context: Context) -> Programs:
    return programs.map(mask.mask if "mask-elision" in context.without else mask_elision.mask)


def order(programs: Programs, context: Context) -> Programs:
    chip = chip_of(context.target)
    return programs.map(lambda p: program_order.order(p, chip, context.options.group))


def descriptors(programs: Programs, context: Context) -> Programs:
    """Tensor descriptors, unless the options or the arrays of the call rule them out."""
    no = context.options.descriptors is False  # a text that was loaded may have some
    return programs.map(Program.without_descriptors if no else tensor_descriptors.describe)


def early(programs: Programs, context: Context) -> Programs:
    return early_start.start_early(programs) if context.target.has_early_starts else programs


def _plans_of_other_sizes(context: Context) -> list[Plan]:
    """Plans whose kernels have, together, every axis that the program has for some sizes.

    Two are for any sizes, before and after neighbouring axes are merged. The others are for a GPU where one
    size is long, or all are: reductions are in parts there.
    """
    compiled = Compilation(replace(context, sizes={}, layouts={}, options=Options()))
    plans = [compiled.value("kernels.fused"), compiled.value("kernels")]
    graph = compiled.value("graph") if context.start is None else None
    names = sorted({s.name for x in graph.inputs for d in x.shape for s in d.symbols()}) if graph else []
    for long in names:
        with suppress(CompileError):  # sizes that cannot be: they are made up
            sizes = {name: LONG if name == long else SHORT for name in names}
            plans.append(Compilation(_for_gpu(context, sizes)).value("kernels"))
    with suppress(CompileError):
        plans.append(Compilation(_for_gpu(context, dict.fromkeys(names, BOTH))).value("kernels"))
    return plans


def _for_gpu(context: Context, sizes: Mapping[str, int]) -> Context:
    return replace(context, sizes=sizes, layouts={}, target=Target("cuda", "90"), options=Options())


# ---- the table -----------------------------------------------------------------------------


def each_pass(name: str, stage: str, change: Callable[[Program], Program], masked: bool = True) -> Pass:
    """A pass over every tile program, which can be left out. `masked`: it comes after `mask`."""
    return tile_pass(name, stage, each(change), change, same, masked=masked)


def _core(name: str, **changes: Any) -> Pass:
    """A row of the core, with what changes where optimisations stand around it."""
    return replace(next(p for p in CORE if p.name == name), **changes)


# name, the stage it makes, how it runs, the function that does the work, its stand-in where it is left out
PASSES: tuple[Pass, ...] = (
    *map(_core, ("parse", "build", "specialise")),
    graph_pass("simplify", "graph.folded", lambda g, c: simplify.simplify(g), simplify.simplify,
               lambda g, c: legalise(g)),
    graph_pass("pack-operands", "graph.packed", pack, pack_operands.pack, same),
    graph_pass("split", "graph.simplified", split, split_reduction.split, same),
    plan_pass("fusion", "kernels.fused", lambda g, c: fuse.fuse(g, c.layouts), fuse.fuse,
              lambda g, c: partition(g, c.layouts)),
    plan_pass("collapse-axes", "kernels.flat", lambda p, c: collapse_axes.flatten(p), collapse_axes.flatten, same),
    plan_pass("online-reductions", "kernels.online", online, online_reductions.online, same),
    plan_pass("fast-math", "kernels", lambda p, c: relax.relax(p), relax.relax, same),
    _core("lower", stage="tile.lowered", run=lower),
    each_pass("hoist-loads", "tile.hoisted", hoist_loads.early, masked=False),
    each_pass("skip-blocks", "tile.skipped", skip.skip, masked=False),
    each_pass("software-pipelining", "tile.rotated", software_pipelining.rotate, masked=False),
    tile_pass("program-order", "tile.ordered", order, program_order.order, same),
    each_pass("boundary-peeling", "tile", boundary_peeling.peel, masked=False),
    _core("mask", run=masked),
    each_pass("narrow-integers", "tile.narrowed", narrow_integers.narrow),
    each_pass("f16-products", "tile.halved", f16_products.halve),
    tile_pass("tensor-descriptors", "tile.described", descriptors, tensor_descriptors.describe,
              each(Program.without_descriptors), masked=True),
    each_pass("cache-hints", "tile.cached", cache_hints.hint),
    each_pass("fast-operators", "tile.fast", fast_operators.hasten),
    each_pass("maxima-in-parts", "tile.parted", maxima_in_parts.part),
    each_pass("flatten-loops", "tile.flattened", flatten_loops.flatten_loops),
    tile_pass("early-start", "tile.early", early, early_start.start_early, same, masked=True),
    *map(_core, ("target", "emit")),
)  # fmt: skip


@dataclass(frozen=True)
class Room:
    """An optimisation that can be left out: its name, the stage it changes, and the module that makes it."""

    name: str
    stage: str
    module: str


# What other passes do on the way, by the stage that shows it.
PARTS = (
    *(Room(name, "graph.simplified", f"minitri.optimize.{name.replace('-', '_')}")
      for name in ("collapse-reduced-axes", "split-reduction", "split-scan", "split-k", "split-kv")),
    Room("mask-elision", "tile.masked", "minitri.optimize.mask_elision"),
    *(Room(name, "tile", rule.__module__) for name, rule in RULES.items()),
)  # fmt: skip
ROOMS = (*(Room(p.name, p.stage, p.function.__module__) for p in PASSES if p.without and p.function), *PARTS)
OPTIONAL = tuple(room.name for room in ROOMS)


# ---- names ---------------------------------------------------------------------------------

OLD_NAMES = {
    "pack": "pack-operands", "fuse": "fusion", "flatten": "collapse-axes", "online": "online-reductions",
    "relax": "fast-math", "hoist": "hoist-loads", "skip": "skip-blocks", "rotate": "software-pipelining",
    "order": "program-order", "peel": "boundary-peeling", "narrow": "narrow-integers", "halve": "f16-products",
    "descriptors": "tensor-descriptors", "join": "collapse-reduced-axes",
}  # fmt: skip


def check_names(without: Collection[str]) -> None:
    """CompileError MT0402 for a name that is no optimisation. For an old name the help says the new one."""
    unknown = sorted({*without} - {"all", *OPTIONAL})
    if not unknown:
        return
    name = unknown[0]
    help = suggest(name, OPTIONAL) or f"passes that can be left out: {', '.join(OPTIONAL)}"
    help = f"it is called `{OLD_NAMES[name]}` now" if name in OLD_NAMES else help
    raise CompileError("MT0402", f"there is no optional pass `{name[:40]}`", help=help)
