"""The purpose of a step: the nodes of the steps that use its results.

In: for each step, in order, the names that it defines and uses; and the nodes of the steps that have nodes of their
own. Out: nodes for every step.

    i = pid * 4           serves the load: {2}
    x = load(p + i)       {2}
    s = 3                 serves the product: {5}
    y = x * s             {5}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Nodes = frozenset[int]
NONE: Nodes = frozenset()
OWN, SERVES, WHOLE = "own", "serves", "whole"


@dataclass(frozen=True, slots=True)
class Origin:
    """The nodes that a line comes from, and how that is known.

    "own"      the line is an operation of these nodes
    "serves"   it serves them: an index, a mask, a constant
    "whole"    it belongs to the kernel that makes them
    ""         it is no operation: a brace, a label, a comment
    """

    nodes: Nodes
    how: str


NOWHERE = Origin(NONE, "")
Step = tuple[Iterable[str], Iterable[str]]  # names defined, names used


def served(steps: Sequence[Step], own: Sequence[Nodes | None], kept: frozenset[str] = frozenset()) -> list[Nodes]:
    """Goes from the last step to the first, twice, because steps above use what a loop carries.

    A definition ends the need for a name, except for names in `kept`.
    """
    needed: dict[str, Nodes] = defaultdict(frozenset)
    found = [NONE] * len(steps)
    for _ in range(2):
        for k in range(len(steps) - 1, -1, -1):
            defines, uses = steps[k]
            nodes = own[k]
            found[k] = nodes = NONE.union(*(needed[n] for n in defines)) if nodes is None else nodes
            for name in defines:
                if name not in kept:
                    needed.pop(name, None)
            for name in uses:
                needed[name] |= nodes
    return found
