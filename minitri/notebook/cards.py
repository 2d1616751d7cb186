"""Makes cards (small pieces of HTML for a notebook) that show a program or its stages.

The HTML of a program or a stage is made in a few milliseconds, because Triton's compiler does not run.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from minitri.base.diagnostics import CompileError
from minitri.notebook.card_html import card, counted
from minitri.pipeline import Compilation

SHOWN = ("graph.simplified", "kernels")  # stages on the card of a program


def program_card(name: str, signature: str, source: str, compilation: Compilation | None) -> str:
    """Returns the HTML of a card that shows the source of a program and the program's kernels.

    `compilation` is None if only a call determines the types of the parameters.
    """
    facts, stages = "", []
    if compilation is not None:
        with suppress(CompileError, KeyError):
            facts = counted(len(compilation.value("kernels").kernels), "kernel")
            stages = list(_tabs(compilation, [stage for stage in SHOWN if stage in compilation.stages]))
    note = f"{name}.lower() has every stage, {name}.explore() shows them side by side"
    return card(name, f"({signature})", facts=facts, tabs=[("source", source), *stages], note=note, longest=4000)


def stages_card(compilation: Compilation) -> str:
    """Returns the HTML of a card, in which each stage has a tab.

    The card leaves out the stages that Triton's compiler makes, unless the program is already compiled.
    """
    context, made = compilation.context, "compiled" in vars(compilation)
    later = [] if made else [stage for stage in compilation.stages if stage in context.target.stages]
    sizes = [f"{name} = {size}" for name, size in context.sizes.items()]
    tabs = list(_tabs(compilation, [stage for stage in compilation.stages if stage not in later]))
    note = f"made when asked for: {', '.join(later)}" if later else ""
    return card(context.entry, facts=f"for {', '.join([str(context.target), *sizes])}", tabs=tabs, note=note)


def _tabs(compilation: Compilation, stages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the name and the text (or error message) of each stage."""
    for stage in stages:
        try:
            yield stage, compilation[stage]
        except CompileError as error:
            yield stage, str(error)
