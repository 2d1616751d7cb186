"""A program as a small card for a notebook: its text, its kernels, and how to see more.

In: what a program is called and what it takes, and its stages if they can be had. Out: HTML without
scripts. It takes milliseconds: Triton is not asked. Left out: the page that shows everything (page.py).
"""

from __future__ import annotations

from minitri.base.diagnostics import CompileError, printable
from minitri.explore.page import template
from minitri.pipeline import Compilation

SHOWN = ("graph.simplified", "kernels")
LONGEST = 4000  # characters of a text


def card(name: str, parameters: str, source: str, compiled: Compilation | None) -> str:
    """The card; without stages where the types of the parameters come with a call."""
    facts, stages = _stages(compiled) if compiled is not None else ("", [])
    parts = {"name": name, "parameters": parameters, "source": _shown(source), "facts": facts, "stages": stages}
    return template("card.html").render(parts)


def _stages(compiled: Compilation) -> tuple[str, list[tuple[str, str]]]:
    try:
        count = len(compiled.value("kernels").kernels)
        texts = [(s, _shown(compiled[s])) for s in SHOWN if s in compiled.stages]
    except (CompileError, KeyError):
        return "", []
    return f"{count} kernel{'' if count == 1 else 's'}", texts


def _shown(text: str) -> str:
    """Without what a browser would not show as it is; cut where it is long."""
    kept = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return "\n".join(printable(line.expandtabs(4)) for line in kept.rstrip("\n").split("\n"))
