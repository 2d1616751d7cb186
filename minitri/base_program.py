"""Compiles a minitri program to its stages, for the arrays or sizes of a call, but runs no kernel.

The class `BaseProgram` takes a module, and the name of the function to compile. The method `context` returns the
`Context` of a call, which has everything that decides what is compiled. The method `compilation` takes a `Context` and
returns the stages of the program. The graph has symbolic sizes, so one graph serves arrays of all sizes. The same
graph also serves all targets, such as `cuda:90` and the interpreter.

The file runtime/variants.py runs kernels. The file program.py has the methods that users call. Modules that run,
measure and check programs must not import program.py, because program.py imports these modules. Modules that program.py
imports use the class `BaseProgram` instead of `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from minitri.base.diagnostics import CompileError, ensure, listed, misspelt, printable
from minitri.base.lru_cache import Recent
from minitri.base.resource_limits import current
from minitri.graph.index_width import LIMIT, needs_64_bits, numbers_fit
from minitri.graph.ir import Condition, Graph, check_conditions
from minitri.graph.parameter_binding import Instance
from minitri.hardware.targets import ALIGNMENT, Target
from minitri.language import ast
from minitri.language.linking import Read
from minitri.pipeline import Compilation, Context, Start
from minitri.runtime.array_interop import ArrayView
from minitri.runtime.call_binding import Call, bind
from minitri.runtime.launch import Bound, Executable
from minitri.tiles.schedule import Options

MAX_CHOICES = 64  # measured options kept for one program
MAX_GRAPHS = 64  # graphs kept for one program: one for each rank, and for each value of an int or a bool


class BaseProgram:
    """One function of a module, and the stages that the function is compiled to. The docstring of the class `Program`
    explains the settings `without`, `options` and `effort`.

    `limits`: the limits on the time and memory of compilations. The limits were in force when the program was made.
    `start`: the first stage of a program that `mt.load` made from the text of this stage. For other programs, `start`
        is None.
    `against`: the program with which `check` compares this program. None if the user gave no program to compare with.
    `watched`: the functions and constants that the program's Python function uses, with their values at the
        compilation.
    `choices`: schedule options that were measured or read from the disk cache, for each compilation context.
    """

    start: Start | None = None
    against: BaseProgram | None = None
    watched: Sequence[Read] = ()

    # Methods of `Program`
    __call__: Callable[..., Any]
    bind: Callable[..., Bound]
    prepare: Callable[..., tuple[Executable, Call]]
    evaluate: Callable[[str, Call], tuple[Any, ...]]
    configured: Callable[..., BaseProgram]

    def __init__(
        self, module: ast.Module, entry: str | None = None, *, without: Sequence[str] = (),
        options: Options = Options(), effort: str = "none",
    ) -> None:  # fmt: skip
        self.module, self.function = module, _entry(module, entry)
        self.name = self.function.name
        self.without, self.options, self.effort = names(without), checked(options), check_effort(effort)
        self.limits = current()
        self.choices: Recent[Any, Options] = Recent(MAX_CHOICES)
        self._graphs: Recent[Any, Compilation] = Recent(MAX_GRAPHS)
        self._conditions: Recent[Any, tuple[Condition, ...]] = Recent(MAX_GRAPHS)

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The name and the annotation of each parameter. The annotation is "" if the parameter has none."""
        return tuple((p.name, printable(p.annotation.span.text) if p.annotation else "") for p in self.function.params)

    # ---- for any sizes ---------------------------------------------------------------

    def graph(self, instance: Instance) -> Graph:
        """The graph of the program, with symbolic sizes."""
        return self._built(instance).value("graph")

    def _built(self, instance: Instance) -> Compilation:
        """Returns the compilation that built the graph of the program."""

        def built() -> Compilation:
            made = Compilation(Context(self.module, self.name, instance, without=self.without, limits=self.limits))
            made.value("graph")
            return made

        return self._graphs.made(instance.key, built)

    def conditions(self, instance: Instance) -> tuple[Condition, ...]:
        """Returns the conditions that the sizes of a call must meet."""
        return self._conditions.made(instance.key, lambda: (g := self.graph(instance)).conditions + numbers_fit(g))

    # ---- for one call ----------------------------------------------------------------

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
        """Checks the arguments of a call, and returns the call."""
        self.refresh()
        # Parameters without annotation get the array's type with sizes named `n0`, `n1`, ..., so that calls share one
        # graph. A call that does not fit raises CompileError MT03xx.
        call = bind(self.function, args, keywords)
        with suppress(CompileError) if call.instance.types else nullcontext():
            check_conditions(self.conditions(call.instance), call.sizes)
            return call
        # Some programs are right for certain sizes only, which the graph then contains as numbers: for x and y of the
        # shape (N,), numpy broadcasts `reshape(x, (2, -1)) * y` for N = 2 only.
        call = call.with_known_sizes()
        check_conditions(self.conditions(call.instance), call.sizes)
        return call

    def refresh(self) -> None:
        """A hook, called before each use of the program. If a Python value that the program uses has changed, a
        subclass's `refresh` can compile the program again.
        """

    def fitted(self, call: Call) -> Call:
        """Returns the call with arrays in the layout that the program needs.

        Only a program from `mt.load` needs its arrays in a certain layout.
        """
        return call

    def context(self, call: Call, target: Target, known: bool = True, wide: bool = False) -> Context:
        """Returns the compilation context of a call: all settings and facts that determine the compiled code.

        `known`: if true, sizes and strides are constants in the kernels. If `known` is false, the kernels work for any
            sizes and strides.
        `wide`: if true, memory offsets have 64 bits, even if 32 bits are enough.
        """
        wide = wide or self._wide(call.instance, call.sizes, call.arrays.values())
        settings = (self.without, for_arrays(self.options, call.arrays), self.limits, self.start)
        about = (call.instance, call.sizes if known else {}, call.layouts(known), target, wide)
        return Context(self.module, self.name, *about, *settings)

    def compilation(self, context: Context) -> Compilation:
        """Returns the `Compilation` of the program for the sizes, types and target in `context`.

        Compilations for equal parameter types share one graph.
        """
        built = self._built(context.instance)
        made = Compilation(context, built.values)
        made.seconds |= built.seconds
        return made

    def _wide(self, instance: Instance, sizes: Mapping[str, int], arrays: Iterable[ArrayView] = ()) -> bool:
        """Checks whether a memory offset or an index of the program needs more than 32 bits."""
        return any(a.last_offset >= LIMIT for a in arrays) or needs_64_bits(self.graph(instance), sizes)


# ---- settings --------------------------------------------------------------------------


EFFORTS = ("none", "quick", "full")  # how many schedules a program measures


def _entry(module: ast.Module, entry: str | None) -> ast.Function:
    if entry is None:
        return module.functions[-1]
    names = [f.name for f in module.functions]
    if entry not in names:
        known = f"it has {listed([f'`{n}`' for n in names[:8]])}"
        raise misspelt("MT0101", "the module has no function", entry, names, known)
    return module.functions[names.index(entry)]


def names(without: Sequence[str]) -> frozenset[str]:
    """Returns the names of the optimisations to leave out, as a set. If `without` is a single str, it counts as one
    name.
    """
    return frozenset([without] if isinstance(without, str) else without)


def checked(options: Options) -> Options:
    """Returns the given options unchanged. Raises CompileError MT0404 if the given options are not an object of the
    class `Options`.
    """
    message = f"options are `mt.Options`, not {type(options).__name__}"
    ensure(isinstance(options, Options), "MT0404", message, 'write `mt.Options(blocks={"i": 64}, warps=8)`')
    return options


def check_effort(effort: str) -> str:
    """Returns the given effort unchanged. Raises CompileError MT0404 if the text is not the name of an effort, such as
    "quick".
    """
    help = f"write one of {', '.join(EFFORTS)}"
    ensure(effort in EFFORTS, "MT0404", f"effort cannot be {str(effort)[:40]!r}", help)
    return effort


def for_arrays(options: Options, arrays: Mapping[str, ArrayView]) -> Options:
    """Returns the given options, but without tensor descriptors if the address of an array is not a multiple of 16
    bytes.

    A tensor descriptor can only be used for an array whose address is a multiple of 16 bytes.
    """
    return replace(options, descriptors=False) if unaligned(arrays) else options


def with_measured(context: Context, options: Options) -> Context:
    """Returns the context of a call, with options that were chosen by measuring schedules.

    If `context` sets the option `descriptors`, the option `descriptors` of `options` is ignored.
    """
    own = context.options.descriptors
    return replace(context, options=options if own is None else replace(options, descriptors=own))


def unaligned(arrays: Mapping[str, ArrayView]) -> tuple[str, ...]:
    """Returns the names of the arrays whose address is not a multiple of 16 bytes."""
    return tuple(name for name, a in arrays.items() if a.address % ALIGNMENT)
