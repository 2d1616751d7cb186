"""The table of all passes, with every optimisation.

    fusion: graph.simplified → kernels.fused, by `fuse` of minitri/optimize/fusion

minitri/pipeline.py has the core: the passes that every program needs. This table adds the optimisations, called
*rooms*. Most rooms are rows between the rows of the core. Two rooms replace a row of the core: `simplify` replaces
`legalise`, and `fusion` replaces `partition`. `--without NAME` leaves out a room. The rooms in `PARTS` have no row
of their own, because they are part of the pass `lower` or `mask`.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from minitri import pipeline
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.resource_limits import check_time
from minitri.graph.ir import Graph
from minitri.graph.rewrite import legalise
from minitri.hardware.chips import Chip, chip_of, has_fast_tf32
from minitri.hardware.targets import Target
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.lower_graph import partition
from minitri.optimize import (
    batch_into_rows,
    boundary_peeling,
    collapse_axes,
    collapse_reduced_axes,
    deferred_checks,
    early_start,
    f16_products,
    f32_products,
    flatten_loops,
    mask_elision,
    maxima_in_parts,
    narrow_integers,
    pack_operands,
    program_order,
    simplify,
    software_pipelining,
    split_k,
    split_kv,
    split_reduction,
    split_scan,
    strength_reduction,
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
from minitri.pipeline import CORE, Compilation, Context, Pass, graph_pass, plan_pass, tile_pass
from minitri.tiles import mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import Options, Schedule, check_axes
from minitri.triton.workarounds import narrow_wgmma_operands

# Sizes to try: one long size among short ones, or all sizes equally long. Both make the passes split axes into parts.
LONG, SHORT, BOTH = 1 << 22, 4, 1 << 11


def same(value: Any, context: Context) -> Any:
    """Returns its input. It replaces a pass that is left out."""
    return value


# ---- graphs and kernels --------------------------------------------------------------------


def on_gpu(name: str, stage: str, change: Callable[[Graph, Context], Graph], function: Callable[..., Graph]) -> Pass:
    """A row for a pass over the graph that is for GPUs alone.

    The interpreter has no tensor cores and runs one program at a time, so its graph stays unchanged.
    """
    return graph_pass(name, stage, lambda g, c: g if c.target.kind == "interpreter" else change(g, c), function, same)


def _with_parts(context: Context) -> bool:
    """Whether tensor cores compute products of f32 arrays that leave their precision to the compiler."""
    return "f32-products" not in context.without and has_fast_tf32(context.target)


def split(name: str, stage: str, function: Callable[[Graph, Chip], Graph]) -> Pass:
    """A row for a pass that computes some nodes in parts, to fill the chip."""
    return on_gpu(name, stage, lambda g, c: function(g, chip_of(c.target)), function)


def online(plan: Plan, context: Context) -> Plan:
    """Puts reductions into one loop if the schedule of their kernel loops over an axis."""

    def looped(kernel: Kernel) -> list[str]:
        chosen = schedule_of(kernel, context)
        return [] if chosen.near else chosen.looped

    return online_reductions.online(plan, looped)


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """The schedule of a kernel for the target of a context. Without optimisations this is the simple schedule.

    Only kernels with 32-bit offsets use tensor descriptors, and only on targets that have them. The result is never a
    schedule that Triton is known to compile wrongly.
    """
    if "all" in context.without:
        return pipeline.simple_schedule(kernel, context)
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, Request(chip_of(target), target.kind == "interpreter", wanted), context.without)
    miscompiled = len(kernel.dots) > 1 and (target.kind, target.arch) == ("cuda", "90")
    return narrow_wgmma_operands.avoided(kernel, chosen) if miscompiled else chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Whether the offsets of a kernel need 64 bits."""
    return context.wide and not fits_32_bits(kernel)


# ---- tile programs -------------------------------------------------------------------------


def lower(plan: Plan, context: Context) -> Programs:
    """Lowers each kernel to one tile program."""
    check_axes(context.options, plan, lambda: _plans_of_other_sizes(context))

    def lowered(kernel: Kernel) -> tuple[Program, bool]:
        return OnlineLowering.lower(kernel, schedule_of(kernel, context)), is_wide(kernel, context)

    return pipeline.lower_each(plan, lowered)


def each(change: Callable[[Program], Program]) -> Callable[[Programs, Context], Programs]:
    """A pass that applies `change` to every tile program."""

    def changed(program: Program) -> Program:
        check_time()
        return change(program)

    return lambda programs, context: programs.map(changed)


def descriptors(programs: Programs, context: Context) -> Programs:
    """Assigns tensor descriptors, unless the options or the arrays of the call rule them out."""
    no = context.options.descriptors is False  # a tile program that was loaded as text may have descriptors
    return programs.map(Program.without_descriptors if no else tensor_descriptors.describe)


def _plans_of_other_sizes(context: Context) -> list[Plan]:
    """Plans for several sets of sizes. Together they contain every axis that a kernel of the program can have.

    Two plans have symbolic sizes: one before and one after neighbouring axes are merged. The other plans have one long
    size, or only long sizes, on a GPU. Long reductions are split into parts, which adds axes.
    """
    compiled = Compilation(replace(context, sizes={}, layouts={}, options=Options()))
    plans = [compiled.value("kernels.fused"), compiled.value("kernels")]
    graph = compiled.value("graph") if context.start is None else None
    names = sorted({s.name for x in graph.inputs for d in x.shape for s in d.symbols()}) if graph else []
    one_long = [{name: LONG if name == long else SHORT for name in names} for long in names]
    on_gpu = replace(context, layouts={}, target=Target("cuda", "90"), options=Options())
    for sizes in (*one_long, dict.fromkeys(names, BOTH)):
        with suppress(CompileError):  # the program may not allow these made-up sizes
            plans.append(Compilation(replace(on_gpu, sizes=sizes)).value("kernels"))
    return plans


# ---- the table -----------------------------------------------------------------------------


def each_pass(name: str, stage: str, change: Callable[[Program], Program], masked: bool = True) -> Pass:
    """A row of the pass table: an optional pass that runs on every tile program. `masked` says whether the pass runs after `mask`."""
    return tile_pass(name, stage, each(change), change, same, masked=masked)


def _core(name: str, **changes: Any) -> Pass:
    """A row of the core. `changes` replaces some of its fields."""
    return replace(next(p for p in CORE if p.name == name), **changes)


# Columns: name, stage that it makes, how it runs, function that does the work, replacement if it is left out.
PASSES: tuple[Pass, ...] = (
    *map(_core, ("parse", "build", "specialise")),
    graph_pass("simplify", "graph.folded", lambda g, c: simplify.simplify(g), simplify.simplify,
               lambda g, c: legalise(g)),
    graph_pass("strength-reduction", "graph.strength", lambda g, c: strength_reduction.reduce_strength(g),
               strength_reduction.reduce_strength, same),
    on_gpu("batch-into-rows", "graph.rows", lambda g, c: batch_into_rows.fold(g), batch_into_rows.fold),
    on_gpu("pack-operands", "graph.packed", lambda g, c: pack_operands.pack(g, c.layouts, _with_parts(c)), pack_operands.pack),
    on_gpu("collapse-reduced-axes", "graph.collapsed",
           lambda g, c: collapse_reduced_axes.collapse(g, chip_of(c.target), c.layouts), collapse_reduced_axes.collapse),
    on_gpu("split-reduction", "graph.reductions",
           lambda g, c: split_reduction.split_reductions(g, chip_of(c.target), c.layouts), split_reduction.split_reductions),
    split("split-kv", "graph.loops", split_kv.split_loops),
    split("split-k", "graph.products", split_k.split_products),
    split("split-scan", "graph.simplified", split_scan.split_scans),
    plan_pass("fusion", "kernels.fused", lambda g, c: fuse.fuse(g, c.layouts), fuse.fuse,
              lambda g, c: partition(g, c.layouts)),
    plan_pass("collapse-axes", "kernels.flat", lambda p, c: collapse_axes.flatten(p), collapse_axes.flatten, same),
    plan_pass("online-reductions", "kernels.online", online, online_reductions.online, same),
    plan_pass("f32-products", "kernels.products", lambda p, c: f32_products.on_tensor_cores(p, has_fast_tf32(c.target)),
              f32_products.on_tensor_cores, same),
    plan_pass("fast-math", "kernels", lambda p, c: relax.relax(p), relax.relax, same),
    _core("lower", stage="tile.lowered", run=lower),
    each_pass("skip-blocks", "tile.skipped", skip.skip, masked=False),
    each_pass("software-pipelining", "tile.rotated", software_pipelining.rotate, masked=False),
    tile_pass("program-order", "tile.ordered",
              lambda ps, c: ps.map(lambda p: program_order.order(p, chip_of(c.target), c.options.group)),
              program_order.order, same),
    each_pass("boundary-peeling", "tile", boundary_peeling.peel, masked=False),
    _core("mask", run=lambda p, c: p.map(mask.mask if "mask-elision" in c.without else mask_elision.mask)),
    each_pass("narrow-integers", "tile.narrowed", narrow_integers.narrow),
    each_pass("f16-products", "tile.halved", f16_products.halve),
    tile_pass("tensor-descriptors", "tile.described", descriptors, tensor_descriptors.describe,
              each(Program.without_descriptors), masked=True),
    each_pass("fast-operators", "tile.fast", fast_operators.hasten),
    each_pass("maxima-in-parts", "tile.parted", maxima_in_parts.part),
    each_pass("flatten-loops", "tile.flattened", flatten_loops.flatten_loops),
    each_pass("deferred-checks", "tile.deferred", deferred_checks.defer),
    tile_pass("early-start", "tile.early", lambda p, c: early_start.start_early(p) if c.target.has_early_starts else p,
              early_start.start_early, same, masked=True),
    *map(_core, ("target", "emit")),
)  # fmt: skip


@dataclass(frozen=True)
class Room:
    """An optimisation that can be left out: its name, the stage that it changes, and the module that implements it."""

    name: str
    stage: str
    module: str


# Rooms that are part of another pass, with the stage that shows their effect.
PARTS = (
    Room("mask-elision", "tile.masked", "minitri.optimize.mask_elision"),
    *(Room(name, "tile", rule.__module__) for name, rule in RULES.items()),
)  # fmt: skip
ROOMS = (*(Room(p.name, p.stage, p.function.__module__) for p in PASSES if p.without and p.function), *PARTS)
OPTIONAL = tuple(room.name for room in ROOMS)


# ---- names ---------------------------------------------------------------------------------

OLD_NAMES = {
    "pack": "pack-operands", "fuse": "fusion", "flatten": "collapse-axes", "online": "online-reductions",
    "relax": "fast-math", "skip": "skip-blocks", "rotate": "software-pipelining",
    "order": "program-order", "peel": "boundary-peeling", "narrow": "narrow-integers", "halve": "f16-products",
    "descriptors": "tensor-descriptors", "join": "collapse-reduced-axes",
    "split": "split-reduction,split-kv,split-k,split-scan",
}  # fmt: skip


def check_names(without: Collection[str]) -> None:
    """Raises CompileError MT0402 if a name is not an optimisation. For an old name the help gives the new one."""
    unknown = sorted({*without} - {"all", *OPTIONAL})
    if not unknown:
        return
    name = unknown[0]
    help = suggest(name, OPTIONAL) or f"passes that can be left out: {', '.join(OPTIONAL)}"
    help = f"it is called `{OLD_NAMES[name]}` now" if name in OLD_NAMES else help
    raise CompileError("MT0402", f"there is no optional pass `{name[:40]}`", help=help)
