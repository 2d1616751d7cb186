"""Registers of the first operand of a product that are written while a tensor core may read them, in SASS of Hopper."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A product of which four registers are the first operand; it is in flight until a wait lets so many pass. (One without
# `gsb0` is of the same group as the next that has it.)
PRODUCT = re.compile(r"[HQI]GMMA\S* R\d+, (?:R(\d+), )?gdesc.*?(gsb0)?;?$")
WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
BRANCH = re.compile(r"^(?:@!?U?P\d+ )?BRA.*?(L_x_\d+|LBB\w*)")
WRITES = re.compile(
    r"^(?:@!?U?P\d+ )?((?:LDS|LDSM|LDG|MOV|PRMT|SHF|SEL|FSEL|LOP3|VIADD|IADD|IMAD|I2F|F2F|F|H)[\w.]*) (?:P\d+, )?R(\d+)"
)


def overtaken(sass: str) -> list[tuple[str, str]]:
    """(what writes, the product whose first operand it writes) in the loops of a kernel."""
    found: dict[tuple[str, str], None] = {}
    for body in _loops(sass):
        pending: list[tuple[range, str, bool]] = []  # registers, text, whether a group ends
        for text in body * 2:  # once around
            if (product := PRODUCT.search(text)) and "GMMA" in text:
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


def _loops(sass: str) -> Iterator[list[str]]:
    """The instructions of loops with products."""
    lines = [re.sub(r"^(?:/\*\w+\*/|[-\w]+:\S+)?\s*", "", line.strip()) for line in sass.splitlines()]
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"\.?(L_x_\d+|LBB\w*):", line))}
    for n, line in enumerate(lines):
        back = BRANCH.match(line)
        if back and labels.get(back[1], n) < n and any("GMMA" in text for text in lines[labels[back[1]] : n]):
            yield lines[labels[back[1]] : n]


def _registers(name: str) -> int:
    return 4 if ".128" in name or name.endswith(".4") else 2 if ".64" in name or name.endswith(".2") else 1
