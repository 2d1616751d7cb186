"""What a step is there for: the nodes of the steps that use what it defines.

In: for each step the names that it defines and those that it uses, in order, and the nodes of those
steps that have some of their own. Out: nodes for every step.

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
    """The nodes that a line comes from, and how that is known: it is an operation of their "own", it
    "serves" them (an index, a mask, a constant), it is of a kernel as a "whole" that makes them, or "":
    it is no operation (a brace, a label, a comment)."""

    nodes: Nodes
    how: str


NOWHERE = Origin(NONE, "")
Step = tuple[Iterable[str], Iterable[str]]  # names defined, names used


def served(steps: Sequence[Step], own: Sequence[Nodes | None], kept: frozenset[str] = frozenset()) -> list[Nodes]:
    """From the last step to the first, twice: what a loop carries on is used by steps above. A
    definition ends what is needed of a name, but for those that are `kept`."""
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
