"""Log lines about compilation on stderr, on request: MINITRI_LOGS=+fusion,tile.

In: the topics in the environment. Out: lines that begin with their topic.

    a pass or a stage   its text after the pass has run
    fusion              the ledger
    autotune            the table of measurements, and the options that were kept
    cache               the entries found on disk

A `+` before a topic is allowed, and `all` is every topic. An unknown topic is reported once, with the
list of topics.
"""

from __future__ import annotations

import os
import sys
from functools import cache

OWN = ("fusion", "autotune", "cache")


def enabled(topic: str) -> bool:
    wanted = _wanted(os.environ.get("MINITRI_LOGS", ""))
    return topic in wanted or "all" in wanted


def log(topic: str, text: str) -> None:
    """Prints each line of a text if its topic is enabled."""
    if enabled(topic):
        for line in text.rstrip("\n").split("\n"):
            print(f"[{topic}] {line}", file=sys.stderr)


@cache
def _wanted(setting: str) -> frozenset[str]:
    return frozenset(word.strip().removeprefix("+") for word in setting.split(",") if word.strip())


def check_topics(known: tuple[str, ...]) -> None:
    """Reports unknown topics of the environment, once."""
    _check(os.environ.get("MINITRI_LOGS", ""), known)


@cache
def _check(setting: str, known: tuple[str, ...]) -> None:
    there = ("all", *OWN, *known)
    for topic in sorted(_wanted(setting) - set(there)):
        print(f"MINITRI_LOGS: there is no topic {topic[:40]!r}; there are {', '.join(there)}", file=sys.stderr)
