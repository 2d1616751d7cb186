"""The passes one after another: what each of them changed, and by which rule.

In: a compilation. Out: plain data, a list:

    {name, group, stage, about, where, patch, rules, fresh}

`patch` turns the text before a pass into the text after it: [[start, end, new lines, renumbered], …]. So texts are not
repeated, and the page shows a patch as the difference that it is. Lines that differ only in the numbers of values are
in it too, as renumbered. If `fresh` is true there is no text before: for the first of our passes, and for the input of
Triton's passes of each kernel. `rules` are the rules that fired, each with its definition, its count and its cases
(passes.py). The page hides passes that changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from minitri.explore.passes import Rule, Step, our_steps
from minitri.explore.triton_passes import triton_steps
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import Compilation

MAX_CASES = 6  # of a rule that are shown
MAX_COMPARED = 4000  # lines of a text that are compared one by one

# The name of a value or of a layout, whose number moves with every line above it: %3, v3, %v1_21, #blocked6.
VALUE = re.compile(r"(?<![\w.])(v|%(?:[A-Za-z]\w*?_)?|#[a-z]+)\d+\b")

Patch = list[tuple[int, int, list[str], bool]]


def passes(compiled: Compilation, ours: bool = False) -> list[dict[str, Any]]:
    """Every pass in order; `ours`: none of Triton's."""
    steps = [_record(s, s.name == "parse") for s in our_steps(compiled)]
    return steps if ours else [*steps, *_triton(compiled)]


def _triton(compiled: Compilation) -> Iterator[dict[str, Any]]:
    """Triton's passes; none where it cannot be asked for them."""
    try:
        steps = triton_steps(compiled)
    except StageUnavailable:
        return
    kernel = ""
    for s in steps:
        if s.kernel != kernel:
            kernel = s.kernel
            yield _record(replace(s, name="(source)", doc="what Triton reads", before="", after=s.before), True)
        yield _record(s, False)


def _record(s: Step, fresh: bool) -> dict[str, Any]:
    return {
        "name": s.name, "group": f"{s.owner} {s.kernel}".strip(), "stage": s.stage, "about": s.doc,
        "where": s.defined if s.owner == "minitri" else "", "patch": patch(s.before, s.after),
        "rules": [_rule(r) for r in s.rules], "fresh": fresh,
    }  # fmt: skip


def _rule(r: Rule) -> dict[str, Any]:
    return {"name": r.name, "about": r.doc, "where": r.defined, "count": r.count, "cases": r.cases[:MAX_CASES]}


def patch(before: str, after: str) -> Patch:
    """What makes one text of the other, by lines."""
    old, new = lines(before), lines(after)
    if max(len(old), len(new)) > MAX_COMPARED:
        return [(0, len(old), new, False)]
    return list(_differences(old, new))


def _differences(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, list[str], bool]]:
    without_numbers = [[VALUE.sub(r"\1", line) for line in text] for text in (old, new)]
    for tag, a, b, c, d in SequenceMatcher(None, *without_numbers, autojunk=False).get_opcodes():
        if tag != "equal" or old[a:b] != new[c:d]:
            yield a, b, list(new[c:d]), tag == "equal"


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text else []
