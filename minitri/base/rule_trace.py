"""Records which rewrite rules a pass applies.

    with recorded() as firings:
        simplify(graph)

In: the calls of `fired` that passes make. Out: a list of `Firing`. Without a recorder, `fired` costs
almost nothing. Left out: the rules themselves; each pass describes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from minitri.base.spans import Span


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule, what it took and what it made (a node, an op, two axes), and the spans of that."""

    rule: Callable[..., Any]
    before: Any
    after: Any
    spans: tuple[Span, ...]


_firings: ContextVar[list[Firing] | None] = ContextVar("firings", default=None)
_place: ContextVar[tuple[Span, ...]] = ContextVar("place", default=())


@contextmanager
def recorded() -> Iterator[list[Firing]]:
    """Collects the firings inside the block."""
    token = _firings.set(found := [])
    try:
        yield found
    finally:
        _firings.reset(token)


def place(spans: tuple[Span, ...]) -> None:
    """Sets the spans for the firings that follow."""
    if _firings.get() is not None:
        _place.set(spans)


def fired(rule: Callable[..., Any], before: Any, after: Any, spans: tuple[Span, ...] | None = None) -> None:
    found = _firings.get()
    if found is not None:
        found.append(Firing(rule, before, after, _place.get() if spans is None else spans))
