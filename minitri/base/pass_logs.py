"""Reports what the compiler's passes do: prints log lines, and records which rewrite rules are applied.

The environment variable MINITRI_LOGS=+fusion,tile enables log lines on stderr. Each log line begins with its topic. The
name of a pass is a topic, whose log lines show the text of the minitri program after this pass. The name of a compiler
stage is a topic, whose log lines show the text of this stage. The other topics are:

`fusion`: the list of fusion decisions.
`autotune`: the table of measurements, and the options that were chosen.
`cache`: the cache entries that the compiler found on disk.

In the value of MINITRI_LOGS, a `+` before a topic has no effect, and `all` enables every topic. An unknown topic is
reported once, with a list of the known topics.

    with recorded() as firings:
        simplify(graph)             a `Firing` for each rule that was applied

A pass calls the function `fired` each time the pass applies a rewrite rule. Outside of a `with recorded()` block,
`fired` does nothing.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import Any

from minitri.base.nodes import Record
from minitri.base.resource_limits import assigned
from minitri.base.spans import Span

SETTING = "MINITRI_LOGS"  # the environment variable
OWN = ("fusion", "autotune", "cache")


def enabled(topic: str) -> bool:
    return bool(_wanted(os.environ.get(SETTING, "")) & {topic, "all"})


def log(topic: str, text: str) -> None:
    """Prints each line of a text to stderr if the topic is enabled."""
    if enabled(topic):
        for line in text.rstrip("\n").split("\n"):
            print(f"[{topic}] {line}", file=sys.stderr)


@cache
def _wanted(setting: str) -> frozenset[str]:
    return frozenset(word.strip().removeprefix("+") for word in setting.split(",") if word.strip())


@cache
def check_topics(setting: str, known: tuple[str, ...]) -> None:
    """Reports the unknown topics in the value of MINITRI_LOGS, but only once for each value."""
    topics = ("all", *OWN, *known)
    for topic in sorted(_wanted(setting) - set(topics)):
        print(f"MINITRI_LOGS: there is no topic {topic[:40]!r}; there are {', '.join(topics)}", file=sys.stderr)


# ---- rules that fire -----------------------------------------------------------------------


class Firing(Record):
    """One application of a rewrite rule.

    A rewrite rule replaces objects of an intermediate representation, such as a node of the graph. The attribute
    `before` has the replaced objects, and the attribute `after` has the new objects. The attribute `spans` has the
    ranges of the source text that the rule affects.
    """

    rule: Callable[..., Any]
    before: Any
    after: Any
    spans: tuple[Span, ...]


_firings: ContextVar[list[Firing] | None] = ContextVar("firings", default=None)


def recorded() -> AbstractContextManager[list[Firing]]:
    """Collects a `Firing` for each rule that is applied inside the `with` block."""
    return assigned(_firings, [])


def fired(rule: Callable[..., Any], before: Any, after: Any, spans: tuple[Span, ...] = ()) -> None:
    """Reports that a rewrite rule was applied. The function does nothing outside of a `with recorded()` block."""
    if (found := _firings.get()) is not None:
        found.append(Firing(rule, before, after, spans))
