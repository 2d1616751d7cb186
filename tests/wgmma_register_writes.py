"""Finds registers that are written while a tensor core may still read them as a product's operand, in Hopper's SASS."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A product whose first operand is four registers. It runs until a wait leaves fewer groups than came after it.
# (A product without `gsb0` belongs to the group of the next one that has it.)
PRODUCT = re.compile(r"[HQI]GMMA\S* R\d+, (?:R(\d+), )?gdesc.*?(gsb0)?;?$")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
BRANCH = re.compile(r"^(?:@!?U?P\d+ )?BRA.*?(L_x_\d+|LBB\w*)")
WRITES = re.compile(
    r"^(?:@!?U?P\d+ )?([A-Z]\w*(?:\.\w+)*) (?:!?U?P\w+, )*R(\d+)"
)  # the text of a store starts with `[`


def overtaken(sass: str) -> list[tuple[str, str]]:
    """(the writing instruction, the product whose operand it overwrites). The kernel is read loop by loop and from
    top to
    bottom, because loops may be unrolled."""
    lines = _lines(sass)
    found: dict[tuple[str, str], None] = {}
    for body in (lines, *(loop * 2 for loop in _loops(lines))):  # each loop twice, for its next iteration
        pending: list[tuple[range, str, bool]] = []  # registers, text, whether a group ends
        for text in body:
            if product := PRODUCT.search(text):
                first = int(product[1]) if product[1] else None
                pending.append((range(0) if first is None else range(first, first + 4), text, bool(product[2])))
            elif wait := WAIT.search(text):
                ends = [n for n, (_, _, last) in enumerate(pending) if last]
                left = int(wait[1], 16)
                if len(ends) > left:
                    del pending[: ends[len(ends) - left - 1] + 1]
            elif write := WRITES.match(text):
                written = range(int(write[2]), int(write[2]) + _registers(write[1]))
                found |= {(text, p): None for registers, p, _ in pending if set(registers) & set(written)}
    return list(found)


def has_loops(sass: str) -> bool:
    """Whether there are products in loops."""
    return any(True for _ in _loops(_lines(sass)))


def _lines(sass: str) -> list[str]:
    """Labels and instructions, without the text before them."""
    return [re.sub(r"^(?:/\*\w+\*/|[-\w]+:\S+)?\s*", "", line.strip()) for line in sass.splitlines()]


def _loops(lines: list[str]) -> Iterator[list[str]]:
    """The instructions of each loop that has products."""
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"\.?(L_x_\d+|LBB\w*):", line))}
    for n, line in enumerate(lines):
        back = BRANCH.match(line)
        if back and labels.get(back[1], n) < n and any("GMMA" in text for text in lines[labels[back[1]] : n]):
            yield lines[labels[back[1]] : n]


def _registers(name: str) -> int:
    return 4 if ".128" in name or name.endswith(".4") else 2 if ".64" in name or name.endswith(".2") else 1
