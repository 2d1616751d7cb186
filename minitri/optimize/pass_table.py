"""The table of all passes, with every optimisation.

    fusion: graph.simplified → kernels.fused, by `fuse` of minitri/optimize/fusion

The table `CORE` in minitri/pipeline.py has the passes that every program needs. The table `PASSES` in this module adds
the optimisations to the passes of `CORE`. This project calls an optimisation a *room*. Most optimisations are extra
passes between the passes of `CORE`. Two optimisations replace a row of `CORE`: `simplify` replaces `legalise`, and
`fusion` replaces `one-kernel-each`. The table `CORE` has versions of the passes `lower` and `mask` without
optimisations. The table `PASSES` has versions of `lower` and `mask` with optimisations: for example, `mask` omits
needless bounds checks. The table `PASSES` has no rows for the optimisations in `PARTS`, because they are parts of the
passes `fusion`, `lower` and `mask`. The option `--without NAME` removes an optimisation.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import Any

from minitri import pipeline
from minitri.base.diagnostics import CompileError, misspelt
from minitri.base.nodes import Record
from minitri.base.resource_limits import check_time
from minitri.base.toml_tables import table_beside
from minitri.graph.rewrite import legalise
from minitri.hardware.chips import Chip, chip_of, has_fast_tf32
from minitri.hardware.targets import Target
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.lower_graph import one_kernel_each
from minitri.optimize import mask_elision
from minitri.optimize.index_width import fits_32_bits
from minitri.optimize.online_reductions.lower import OnlineLowering
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.schedules.rule_table import RULES, schedule
from minitri.pipeline import CORE, Compilation, Context, Pass, graph_pass, plan_pass, tile_pass
from minitri.tiles import mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import Options, Schedule, check_axes
from minitri.triton.workarounds import ptxas_uninitialised_address

# Sizes to try: one long size among short ones, or all sizes equally long. Both make the passes split axes into parts.
LONG, SHORT, BOTH = 1 << 22, 4, 1 << 11


def same(value: Any, context: Context) -> Any:
    """Returns `value` unchanged. If the option `--without` removes a pass, the function `same` runs instead of the
    pass.
    """
    return value


# ---- what rooms need to know of a context ------------------------------------------------------


def chip(context: Context) -> Chip:
    return chip_of(context.target)


def tf32_parts(context: Context) -> bool:
    """Checks whether f32 products without a precision from the user become sums of TF32 products on tensor cores."""
    return "f32-products" not in context.without and has_fast_tf32(context.target)


def looped(kernel: Kernel, context: Context) -> list[str]:
    """Returns the axes over which a kernel loops, according to its schedule."""
    chosen = schedule_of(kernel, context)
    return [] if chosen.near else chosen.looped


def schedule_of(kernel: Kernel, context: Context) -> Schedule:
    """Returns the schedule of a kernel for the target of a compilation context. If the option `--without all` is given,
    returns the unoptimised schedule of minitri/pipeline.py.

    If the caller's options do not mention tensor descriptors, a schedule uses them only under two conditions. The
    target must support tensor descriptors, and all offsets of the kernel must fit into 32 bits. If the caller's options
    demand tensor descriptors, neither the target nor the offsets are checked. The result is never a schedule that
    Triton is known to compile wrongly.
    """
    if "all" in context.without:
        return pipeline.simple_schedule(kernel, context)
    target, wanted = context.target, context.options
    if is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, Request(chip_of(target), target.kind == "interpreter", wanted), context.without)
    miscompiled = len(kernel.dots) > 1 and (target.kind, target.arch) == ("cuda", "90")
    return ptxas_uninitialised_address.avoided(kernel, chosen) if miscompiled else chosen


def is_wide(kernel: Kernel, context: Context) -> bool:
    """Checks whether the offsets of a kernel need 64-bit integers."""
    return context.wide and not fits_32_bits(kernel)


# ---- tile programs -------------------------------------------------------------------------


def lower(plan: Plan, context: Context) -> Programs:
    """Lowers each kernel to one tile program."""
    check_axes(context.options, plan, lambda: _plans_of_other_sizes(context))

    def lowered(kernel: Kernel) -> tuple[Program, bool]:
        return OnlineLowering.lower(kernel, schedule_of(kernel, context)), is_wide(kernel, context)

    return pipeline.lower_each(plan, lowered)


def _plans_of_other_sizes(context: Context) -> list[Plan]:
    """Compiles the program for several sets of sizes, and returns the plans."""
    # together, the plans contain every axis that a kernel of the program can have
    compiled = Compilation(replace(context, sizes={}, layouts={}, options=Options()))
    # with symbolic sizes: before and after neighbouring axes are merged
    plans = [compiled.value("kernels.fused"), compiled.value("kernels")]
    graph = compiled.value("graph") if context.start is None else None
    names = sorted({s.name for x in graph.inputs for d in x.shape for s in d.symbols()}) if graph else []
    one_long = [{name: LONG if name == long else SHORT for name in names} for long in names]
    on_gpu = replace(context, layouts={}, target=Target("cuda", "90"), options=Options())
    # The sizes M and N give plans with a long M, with a long N, and with both sizes long. Long reductions are split
    # into parts, and each split adds an axis.
    for sizes in (*one_long, dict.fromkeys(names, BOTH)):
        with suppress(CompileError):  # the program may not allow these made-up sizes
            plans.append(Compilation(replace(on_gpu, sizes=sizes)).value("kernels"))
    return plans


# ---- the table -----------------------------------------------------------------------------


masked_pass = partial(tile_pass, masked=True)


def room(
    kind: Callable[..., Pass], name: str, stage: str, place: str, *facts: Callable[[Context], Any],
    instead: Callable[[Any, Context], Any] = same, gpu: bool = False, together: bool = False,
) -> Pass:  # fmt: skip
    """Makes the entry of an optimisation in the table of passes. The argument `place` names the function that optimises
    the program. The first argument of this function is the result of the previous stage. Each function in `facts` gets
    the compilation context, and returns one further argument for the optimisation, for example the chip.

    `kind`: the function that makes the `Pass`, for example `graph_pass`.
    `place`: the module in minitri/optimize and its function, such as "pack_operands:pack".
    `instead`: the function that runs in place of the optimisation if `--without` leaves the optimisation out.
    `gpu`: whether the optimisation runs for GPUs only. Triton's interpreter has no tensor cores and runs one program at
        a time. Optimisations for GPUs would not make the interpreter faster.
    `together`: whether the optimisation is called once, with all tile programs. If `together` is false, each tile
        program has a call of its own.
    """
    function = resolve_name(f"minitri.optimize.{place}")

    def run(value: Any, context: Context) -> Any:
        if gpu and context.target.kind == "interpreter":
            return value
        known = [fact(context) for fact in facts]

        def changed(ir: Any) -> Any:
            check_time()
            return function(ir, *known)

        return value.map(changed) if isinstance(value, Programs) and not together else changed(value)

    return kind(name, stage, run, function, instead)


def _core(name: str, **changes: Any) -> Pass:
    """Returns the pass `name` of the table `CORE`, with some fields of the pass replaced."""
    return replace(next(p for p in CORE if p.name == name), **changes)


# Columns: name, stage that it makes, place of the function that does the work, further facts that this function needs.
PASSES: tuple[Pass, ...] = (
    *map(_core, ("parse", "build", "specialise")),
    room(graph_pass, "simplify", "graph.folded", "simplify:simplify", instead=lambda g, c: legalise(g)),
    room(graph_pass, "strength-reduction", "graph.strength", "strength_reduction:reduce_strength"),
    room(graph_pass, "round-products", "graph.rounded", "round_products:round_products", gpu=True),
    room(graph_pass, "batch-into-rows", "graph.rows", "batch_into_rows:fold", tf32_parts, gpu=True),
    room(graph_pass, "pack-operands", "graph.packed", "pack_operands:pack", lambda c: c.layouts, chip, tf32_parts, gpu=True),
    room(graph_pass, "f32-products", "graph.precise", "f32_products:on_tensor_cores", lambda c: c.layouts, lambda c: has_fast_tf32(c.target)),
    room(graph_pass, "collapse-reduced-axes", "graph.collapsed", "collapse_reduced_axes:collapse", chip, lambda c: c.layouts, gpu=True),
    room(graph_pass, "split-reduction", "graph.reductions", "split_reduction:split_reductions", chip, lambda c: c.layouts, gpu=True),
    room(graph_pass, "split-kv", "graph.loops", "split_kv:split_loops", chip, gpu=True),
    room(graph_pass, "split-k", "graph.products", "split_k:split_products", chip, gpu=True),
    room(graph_pass, "split-scan", "graph.simplified", "split_scan:split_scans", chip, lambda c: c.layouts, gpu=True),
    room(plan_pass, "fusion", "kernels.fused", "fusion.fuse:fuse", lambda c: c.layouts, lambda c: (), lambda c: "output-slices" not in c.without, instead=lambda g, c: one_kernel_each(g, c.layouts)),
    room(plan_pass, "output-layouts", "kernels.laid", "output_layouts:lay_out"),
    room(plan_pass, "divide-axes", "kernels.divided", "divide_axes:divide", gpu=True),
    room(plan_pass, "collapse-axes", "kernels.flat", "collapse_axes:flatten"),
    room(plan_pass, "online-reductions", "kernels.online", "online_reductions.merge_loops:online", lambda c: partial(looped, context=c)),
    room(plan_pass, "fast-math", "kernels", "fast_math.relax:relax"),
    _core("lower", stage="tile.lowered", run=lower),
    room(tile_pass, "hoist-loads", "tile.hoisted", "hoist_loads:hoist"),
    room(tile_pass, "skip-blocks", "tile.skipped", "skip_blocks.skip:skip"),
    room(tile_pass, "software-pipelining", "tile.rotated", "software_pipelining:rotate"),
    room(tile_pass, "program-order", "tile.ordered", "program_order:order", chip, lambda c: c.options.group),
    room(tile_pass, "boundary-peeling", "tile", "boundary_peeling:peel"),
    _core("mask", run=lambda p, c: p.map(mask.mask if "mask-elision" in c.without else mask_elision.mask)),
    room(masked_pass, "narrow-integers", "tile.narrowed", "narrow_integers:narrow"),
    room(masked_pass, "f16-multiplication", "tile.halved", "f16_multiplication:halve"),
    room(masked_pass, "tensor-descriptors", "tile.described", "tensor_descriptors:describe",
         lambda c: c.options.descriptors is not False,  # a tile program that was loaded as text may have descriptors
         instead=lambda programs, c: programs.map(Program.without_descriptors)),
    room(masked_pass, "cache-hints", "tile.cached", "cache_hints:mark"),
    room(masked_pass, "fast-operators", "tile.fast", "fast_math.fast_operators:hasten"),
    room(masked_pass, "row-maximum-tree", "tile.parted", "row_maximum_tree:part"),
    room(masked_pass, "flatten-loops", "tile.flattened", "flatten_loops:flatten_loops"),
    room(masked_pass, "deferred-tf32-checks", "tile.deferred", "deferred_tf32_checks:defer"),
    room(masked_pass, "early-start", "tile.early", "early_start:start_early", lambda c: c.target.has_early_starts, together=True),
    *map(_core, ("target", "emit")),
)  # fmt: skip


class Room(Record):
    """An optimisation that `--without` can remove: its name, the stage that it changes, and the module that implements
    it.
    """

    name: str
    stage: str
    module: str


# Rooms that are part of another pass, with the stage that shows their effect.
PARTS = (
    Room("output-slices", "kernels.fused", "minitri.optimize.output_slices"),
    Room("mask-elision", "tile.masked", "minitri.optimize.mask_elision"),
    *(Room(name, "tile", rule.__module__) for name, rule in RULES.items()),
)  # fmt: skip
ROOMS = (*(Room(p.name, p.stage, p.function.__module__) for p in PASSES if p.instead), *PARTS)
OPTIONAL = tuple(room.name for room in ROOMS)


# ---- names ---------------------------------------------------------------------------------

OLD_NAMES: dict[str, str] = table_beside(__file__, "old_pass_names.toml")


def check_names(without: Collection[str]) -> None:
    """Raises CompileError MT0402 if a name in `without` is not the name of an optimisation. For the old name of a
    renamed optimisation, the help text of the error gives the new name.
    """
    for name in sorted({*without} - {"all", *OPTIONAL}):
        known = f"passes that can be left out: {', '.join(OPTIONAL)}"
        error = misspelt("MT0402", "there is no optional pass", name, OPTIONAL, known)
        raise error.correct(help=f"it is called `{OLD_NAMES[name]}` now" if name in OLD_NAMES else "")
