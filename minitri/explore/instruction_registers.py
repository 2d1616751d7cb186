"""Finds the registers that a machine instruction defines and uses.

In: the text of one instruction. Out: the names of the registers that the instruction defines and uses. These names link
an instruction without a source line, such as the computation of an address, to the instructions that use its result
(triton_provenance.py).

    ptx       @%p1 add.s32 %r3, %r1, %r2            defines %r3; uses %p1, %r1, %r2, and the old value of %r3
    sass      IMAD.WIDE R2, R41, 0x4, R18           defines R2, R3; uses R41, R42, R18, R19
    amdgcn    s_add_u32 s10, s2, s6                 defines s10; uses s2, s6

An instruction writes its first operand, unless the name of the instruction says that it writes memory or nothing. If
the width of an operand is uncertain, too many registers count as used rather than too few.
"""

import re
from itertools import takewhile

from minitri.base.toml_tables import table_beside

Names = tuple[str, ...]

MACHINES = table_beside(__file__, "instruction_sets.toml")
_PREDICATE = re.compile(r"!?U?P(T|\d+)")
_WIDE = re.compile(r"\.(WIDE|64|128)\b|^F(ADD|MUL|FMA)2\b")  # operands of two registers: 64 bits, or two floats


def effects(text: str, machine: str) -> tuple[Names, Names]:
    """Returns (defined, used): the names of the registers that an instruction defines and uses."""
    guard, text = _guarded(text.strip().rstrip(";"))
    opcode, _, rest = text.partition(" ")
    operands = _operands(rest.strip())
    count = 0 if re.match(MACHINES[machine]["no_result"], opcode) else _results(operands, opcode, machine)
    written = _all(operands[:count], opcode, machine)
    read = _all(operands[count:], opcode, machine)
    if guard:  # where it does not run, the old value stays
        read += _all([guard], "", machine) + written
    if machine == "amdgcn" and "_load" in opcode:  # masked threads keep the old value too
        read += written
    return written, read


def _guarded(text: str) -> tuple[str, str]:
    """Returns the predicate before an instruction, and the instruction."""
    match = re.match(r"@!?(\S+)\s+(.*)", text, re.DOTALL)
    return (match[1], match[2]) if match else ("", text)


def _operands(text: str) -> list[str]:
    """Splits the operands of an instruction at commas outside of braces and brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text)] if text else []


def _results(operands: list[str], opcode: str, machine: str) -> int:
    """Returns how many of the first operands are results.

    In SASS, predicates after the first register are results too.
    """
    if machine != "sass":
        return 1
    count = 1 + len(list(takewhile(_PREDICATE.fullmatch, operands[1:])))
    predicate_first = bool(operands and _PREDICATE.fullmatch(operands[0]))
    return count + (predicate_first and opcode.startswith(("SHFL", "ATOM", "R2UR")))


def _all(operands: list[str], opcode: str, machine: str) -> Names:
    return tuple(name for operand in operands for name in _registers(operand, opcode, machine))


def _registers(operand: str, opcode: str, machine: str) -> list[str]:
    found: list[str] = []
    for match in re.finditer(MACHINES[machine]["register"], operand):
        if machine == "ptx":
            found.append(match[0])
        elif machine == "sass":
            found += [f"{match[1]}{int(match[2]) + k}" for k in range(_count(match, operand, opcode))]
        else:
            kind, first = match[1] or match[3] or match[6], int(match[2] or match[4] or 0)
            found += [f"{kind}{k}" for k in range(first, int(match[5] or first) + 1)]
    return found


def _count(match: re.Match[str], operand: str, opcode: str) -> int:
    """Returns how many registers of SASS one name stands for."""
    if match[1].endswith("P"):
        return 1
    if match[1] == "R" and (many := re.search(r"^(?:LDTM|STTM).*\.x(\d+)\b", opcode)):
        return int(many[1])
    if not (match[3] or operand.startswith("gdesc") or _WIDE.search(opcode)):
        return 1
    return 4 if ".128" in opcode else 2
