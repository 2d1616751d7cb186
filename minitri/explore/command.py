"""The command that makes a page again, or the Python for it.

In: a compilation. Out: one line for a shell,

    minitri explore examples/linear.mt -D M=512 --target cuda:80 -o linear.html

or, where the text of the program is in no file, lines of Python. What the page shows besides the program is part
of it: what it is compared with, which panes are open. Left out: options of schedules of the first program, which
the command line does not have; they are Python's too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minitri.base.diagnostics import printable
from minitri.explore.instance import function_of
from minitri.pipeline import Compilation, Context
from minitri.tiles.schedule import Options

DEFAULT_TARGET = "cuda:90"


def command(compiled: Compilation, compare: Mapping[str, Any] | None = None, panes: Sequence[str] = ()) -> str:
    """How to make the page of a compilation again; `compare`: what the second program has otherwise."""
    context = compiled.context
    name = context.module.span.source.name
    if context.start is None and context.options == Options() and (name.endswith(".mt") or name == "<expression>"):
        words = [*_words(context), *_shown(compare or {}, panes), "-o", f"{context.entry}.html"]
        return printable(" ".join(["minitri", "explore", *map(shlex.quote, words)]))
    return _python(context, compare, panes)


def _words(context: Context) -> Iterator[str]:
    source = context.module.span.source
    if source.name == "<expression>":
        yield from ("-e", source.text)
        for p in function_of(context).params:
            if p.annotation is not None:
                yield from ("-t", f"{p.name}={p.annotation.span.text}")
    else:
        yield source.name
        if context.entry != context.module.functions[-1].name:
            yield from ("--entry", context.entry)
    for size, value in _sizes(context).items():
        yield from ("-D", f"{size}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    for left_out in sorted(context.without):
        yield from ("--without", left_out)
    if str(context.target) != DEFAULT_TARGET:
        yield from ("--target", str(context.target))


def _shown(compare: Mapping[str, Any], panes: Sequence[str]) -> Iterator[str]:
    for name, value in compare.items():
        yield from ("--compare", f"{name}={value}")
    if panes:
        yield from ("--panes", ",".join(panes))


def _sizes(context: Context) -> dict[str, int | tuple[int, ...]]:
    """The sizes as a call of `lower` has them: the axes of a pack together."""
    sizes: dict[str, Any] = dict(context.sizes)
    for pack, rank in context.instance.packs.items():
        axes = [sizes.pop(f"{pack}{k}", None) for k in range(rank)]
        if None not in axes:
            sizes[pack] = tuple(axes)
    return sizes


def _python(context: Context, compare: Mapping[str, Any] | None, panes: Sequence[str]) -> str:
    """For texts that are in no file: a program of a cell, of a string, of a stage."""
    usual = {"target": DEFAULT_TARGET, "without": [], "options": Options(), "compare": {}, "panes": []}
    asked = (str(context.target), sorted(context.without), context.options, dict(compare or {}), list(panes))
    unusual = {name: value for name, value in zip(usual, asked) if value != usual[name]}
    given = ", ".join(f"{name}={value!r}" for name, value in {**_sizes(context), **unusual}.items())
    return f"{context.entry}.explore({given}).save('{context.entry}.html')"
