"""What passes report while they run: log lines, and the rewrite rules that they apply.

MINITRI_LOGS=+fusion,tile asks for log lines on stderr. In: the topics in the environment. Out: lines that begin with their topic.

    a pass or a stage   its text after the pass has run
    fusion              the ledger
    autotune            the table of measurements, and the options that were kept
    cache               the entries found on disk

A `+` before a topic is allowed, and `all` is every topic. An unknown topic is reported once, with the
list of topics.

    with recorded() as firings:
        simplify(graph)             a `Firing` for each rule that was applied

Without a recorder, `fired` costs almost nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from minitri.base.diagnostics import Span

SETTING = "MINITRI_LOGS"  # the name in the environment
OWN = ("fusion", "autotune", "cache")


def enabled(topic: str) -> bool:
    return bool(_wanted(os.environ.get(SETTING, "")) & {topic, "all"})


def log(topic: str, text: str) -> None:
    """Prints each line of a text if its topic is enabled."""
    if enabled(topic):
        for line in text.rstrip("\n").split("\n"):
            print(f"[{topic}] {line}", file=sys.stderr)


@cache
def _wanted(setting: str) -> frozenset[str]:
    return frozenset(word.strip().removeprefix("+") for word in setting.split(",") if word.strip())


@cache
def check_topics(setting: str, known: tuple[str, ...]) -> None:
    """Reports unknown topics of the environment, once."""
    there = ("all", *OWN, *known)
    for topic in sorted(_wanted(setting) - set(there)):
        print(f"MINITRI_LOGS: there is no topic {topic[:40]!r}; there are {', '.join(there)}", file=sys.stderr)


# ---- rules that fire -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule, what it took and what it made (a node, an op, two axes), and the spans of that."""

    rule: Callable[..., Any]
    before: Any
    after: Any
    spans: tuple[Span, ...]


_firings: ContextVar[list[Firing] | None] = ContextVar("firings", default=None)


@contextmanager
def recorded() -> Iterator[list[Firing]]:
    """Collects the firings inside the block."""
    token = _firings.set(found := [])
    try:
        yield found
    finally:
        _firings.reset(token)


def fired(rule: Callable[..., Any], before: Any, after: Any, spans: tuple[Span, ...] = ()) -> None:
    found = _firings.get()
    if found is not None:
        found.append(Firing(rule, before, after, spans))
