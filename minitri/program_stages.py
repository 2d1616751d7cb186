"""The stages of a program for whatever it is called with; nothing runs here.

In: a module and its entry. Out: for a call, or for sizes, the `Context` to compile for and its
`Compilation`. The graph has symbolic sizes, so all sizes and targets share it.

Left out: the kernels that calls run (runtime/variants.py), and the methods that users call (program.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from minitri.base.diagnostics import CompileError, listed, printable, suggest
from minitri.base.limits import current
from minitri.base.lru_cache import Recent
from minitri.graph.index_width import LIMIT, needs_64_bits, numbers_fit
from minitri.graph.ir import Condition, Graph
from minitri.graph.parameters import Instance
from minitri.hardware.targets import ALIGNMENT, Target
from minitri.language import ast
from minitri.pipeline import Compilation, Context, Start
from minitri.runtime.arguments import ArrayView
from minitri.runtime.binding import Call, bind, check_conditions
from minitri.tiles.schedule import Options

MAX_GRAPHS = 64  # kept for one program: one for each rank, and for each value of an int or a bool


class ProgramStages:
    """One function of a module, and what it compiles to.

    without   optimisations that are left out; "all" stands for every one
    options   what is decided about schedules
    limits    how much the program may ask for: those under which it was made
    start     the stage at which it begins, if that is not the syntax tree
    """

    start: Start | None = None

    def __init__(self, module: ast.Module, entry: str | None, without: Sequence[str], options: Options) -> None:
        self.module = module
        self.function = _entry(module, entry)
        self.name = self.function.name
        self.without, self.options, self.limits = names(without), checked(options), current()
        self._graphs: Recent[Any, Compilation] = Recent(MAX_GRAPHS)
        self._conditions: Recent[Any, tuple[Condition, ...]] = Recent(MAX_GRAPHS)

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, type as written) of each parameter; "" where it has no annotation."""
        return tuple((p.name, printable(p.annotation.span.text) if p.annotation else "") for p in self.function.params)

    # ---- for any sizes ---------------------------------------------------------------

    def graph(self, instance: Instance) -> Graph:
        """The graph with symbolic sizes."""
        return self._built(instance).value("graph")

    def _built(self, instance: Instance) -> Compilation:
        """The compilation that the graph was built by."""

        def built() -> Compilation:
            made = Compilation(Context(self.module, self.name, instance, without=self.without, limits=self.limits))
            made.value("graph")
            return made

        return self._graphs.made(instance.key, built)

    def conditions(self, instance: Instance) -> tuple[Condition, ...]:
        """What must hold for the sizes of a call."""
        return self._conditions.made(instance.key, lambda: _conditions(self.graph(instance)))

    # ---- for one call ----------------------------------------------------------------

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
        """The call with these arguments; CompileError MT03xx if they do not fit.

        Types that are taken from the call have named sizes, so that calls with other sizes share the graph. If the
        program is not right for all sizes, it may still be for these: `reshape(x, (2, -1)) * y` repeats x of size 2.
        """
        call = bind(self.function, args, keywords)
        if not call.instance.types:
            return call
        with suppress(CompileError):
            check_conditions(self.conditions(call.instance), call.sizes)
            return call
        call = call.with_known_sizes()
        check_conditions(self.conditions(call.instance), call.sizes)
        return call

    def fitted(self, call: Call) -> Call:
        """The call with arrays that lie in memory as the program needs them: any way at all."""
        return call

    def context(self, call: Call, target: Target, known: bool = True, wide: bool = False) -> Context:
        """What is compiled for a call.

        known   for its sizes and strides (they become literals), else for any
        wide    with 64-bit offsets, even if 32 bits are enough
        """
        wide = wide or self._wide(call.instance, call.sizes, call.arrays.values())
        sizes, layouts = call.sizes if known else {}, call.layouts(known)
        return Context(
            self.module, self.name, call.instance, sizes, layouts, target, wide, self.without,
            for_arrays(self.options, call.arrays), self.limits, self.start,
        )  # fmt: skip

    def compilation(self, context: Context) -> Compilation:
        """The stages for a context; the graph is built once for all of them."""
        built = self._built(context.instance)
        made = Compilation(context, {"graph": built.value("graph")})
        made.seconds |= built.seconds
        return made

    def _wide(self, instance: Instance, sizes: Mapping[str, int], arrays: Iterable[ArrayView] = ()) -> bool:
        """Whether offsets into the arguments, or indices within the program, need 64 bits."""
        return any(a.last_offset >= LIMIT for a in arrays) or needs_64_bits(self.graph(instance), sizes)


def _conditions(graph: Graph) -> tuple[Condition, ...]:
    return graph.conditions + numbers_fit(graph)


# ---- settings --------------------------------------------------------------------------


def _entry(module: ast.Module, entry: str | None) -> ast.Function:
    if entry is None:
        return module.functions[-1]
    names = [f.name for f in module.functions]
    if entry not in names:
        help = suggest(str(entry), names) or f"it has {listed([f'`{n}`' for n in names[:8]])}"
        raise CompileError("MT0101", f"the module has no function `{str(entry)[:40]}`", help=help)
    return module.functions[names.index(entry)]


def names(without: Sequence[str]) -> frozenset[str]:
    """The names of optimisations. One name alone is one name, not its letters."""
    return frozenset([without] if isinstance(without, str) else without)


def checked(options: Options) -> Options:
    """The options; CompileError MT0404 for anything else."""
    if not isinstance(options, Options):
        help = 'write `mt.Options(blocks={"i": 64}, warps=8)`'
        raise CompileError("MT0404", f"options are `mt.Options`, not {type(options).__name__}", help=help)
    return options


def for_arrays(options: Options, arrays: Mapping[str, ArrayView]) -> Options:
    """The options for these arrays: a tensor descriptor reads only arrays that begin at a multiple of 16 bytes."""
    return replace(options, descriptors=False) if unaligned(arrays) else options


def unaligned(arrays: Mapping[str, ArrayView]) -> tuple[str, ...]:
    """The names of arrays that do not begin at a multiple of 16 bytes."""
    return tuple(name for name, a in arrays.items() if a.address % ALIGNMENT)
