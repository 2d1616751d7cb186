"""The passes one after another: what each of them changed, and by which rule.

In: a compilation. Out: plain data, a list:

    {name, group, stage, about, where, seconds, patch, rules}

`patch` makes the text after a pass out of the text after the one before: [[start, end, new lines, renumbered], …];
so texts are not repeated, and the page shows the patch as what it is, a difference. Lines that differ in the
numbers of values alone are in it too, as renumbered. `rules` are the
rules of `simplify` that fired, each with where it is defined and how often. Left out: passes that
have no text before them (the parser); the page hides those that changed nothing.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from minitri.backend import emit
from minitri.graph import build, simplify, specialise, split
from minitri.kernel import flatten, fuse, online, relax
from minitri.pipeline import Compilation, PassRecord
from minitri.syntax import parse
from minitri.tile import lower, mask

ROOT = Path(__file__).parents[2]
HOMES = {
    "parse": parse, "build": build, "specialise": specialise, "simplify": simplify, "split": split, "fuse": fuse,
    "flatten": flatten, "online": online, "relax": relax, "lower": lower, "mask": mask, "emit": emit,
}  # fmt: skip
MAX_COMPARED = 4000  # lines of a text that are compared one by one

VALUE = re.compile(r"(?<![\w.])[%v]\d+\b")  # the name of a value, which moves with every line above it

Patch = list[tuple[int, int, list[str], bool]]


def passes(compiled: Compilation) -> list[dict[str, Any]]:
    """Our passes, in order."""
    return [_record(compiled, r) for r in compiled.passes]


def _record(compiled: Compilation, r: PassRecord) -> dict[str, Any]:
    home = HOMES.get(r.name)
    return {
        "name": r.name, "group": "minitri", "stage": r.stage, "about": _summary(home), "where": _file(home),
        "patch": patch(r.before, r.after),
        "rules": _rules(compiled) if r.name == "simplify" else [],
    }  # fmt: skip


def patch(before: str, after: str) -> Patch:
    """What makes one text of the other, by lines."""
    old, new = lines(before), lines(after)
    if max(len(old), len(new)) > MAX_COMPARED:
        return [(0, len(old), new, False)]
    return list(_differences(old, new))


def _differences(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, list[str], bool]]:
    alike = SequenceMatcher(None, [VALUE.sub("%", x) for x in old], [VALUE.sub("%", x) for x in new], autojunk=False)
    for tag, a, b, c, d in alike.get_opcodes():
        if tag != "equal" or old[a:b] != new[c:d]:
            yield a, b, list(new[c:d]), tag == "equal"


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text else []


def _summary(home: Any) -> str:
    return (inspect.getdoc(home) or "").split("\n")[0] if home else ""


def _file(home: Any) -> str:
    return Path(home.__file__).relative_to(ROOT).as_posix() if home else ""


# ---- rules -----------------------------------------------------------------------------------


def _rules(compiled: Compilation) -> list[dict[str, Any]]:
    """The rules that `simplify` applied; it is run again and asked."""
    if "simplify" in compiled.context.without or compiled.context.start is not None:
        return []
    fired: Counter[Callable[..., Any]] = Counter()
    simplify.simplify(compiled.value("graph.specialised"), lambda rule, before, after: fired.update([rule]))
    return [
        {"name": rule.__name__, "about": _summary(rule), "where": _place(rule), "count": count}
        for rule, count in fired.most_common()
    ]


def _place(rule: Callable[..., Any]) -> str:
    code = rule.__code__
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT)
    return f"{path.relative_to(ROOT).as_posix() if inside else path.name}:{code.co_firstlineno}"
