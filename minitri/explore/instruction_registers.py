"""Finds the registers that a machine instruction defines and uses.

The function `effects` takes the text of one instruction. It returns the names of the registers that the instruction
defines and uses. Some instructions, such as the computation of an address, have no source line. For an instruction
without source line, triton_provenance.py finds the instructions that read the register with the result.

    ptx       @%p1 add.s32 %r3, %r1, %r2            defines %r3; uses %p1, %r1, %r2, and the old value of %r3
    sass      IMAD.WIDE R2, R41, 0x4, R18           defines R2, R3; uses R41, R42, R18, R19
    amdgcn    s_add_u32 s10, s2, s6                 defines s10; uses s2, s6

Most instructions write their first operand. The table instruction_sets.toml names the instructions that write no
register. If the text does not say how many registers an operand has, the module assumes the largest possible number.
"""

import re
from collections.abc import Iterator
from itertools import takewhile

from minitri.base.toml_tables import table_beside

Names = tuple[str, ...]

MACHINES = table_beside(__file__, "instruction_sets.toml")
_GUARD = re.compile(r"@!?(\S+)\s+")
_PREDICATE = re.compile(r"!?U?P(T|\d+)")
_WIDE = re.compile(r"\.(WIDE|64|128)\b|^F(ADD|MUL|FMA)2\b")  # operands of two registers: 64 bits, or two floats


def effects(text: str, machine: str) -> tuple[Names, Names]:
    """Returns (defined, used): the names of the registers that an instruction defines and uses."""
    text = text.strip().rstrip(";")
    guard = _GUARD.match(text)
    opcode, _, rest = text[guard.end() if guard else 0 :].partition(" ")
    # split at commas outside of braces and brackets
    operands = [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", rest)] if rest.strip() else []
    count = 0 if re.match(MACHINES[machine]["no_result"], opcode) else _results(operands, opcode, machine)
    written = tuple(_registers(operands[:count], opcode, machine))
    read = tuple(_registers(operands[count:], opcode, machine))
    if guard:  # where the instruction does not run, the register keeps its old value
        read += (*_registers([guard[1]], "", machine), *written)
    if machine == "amdgcn" and "_load" in opcode:  # the registers of masked threads also keep their old values
        read += written
    return written, read


def _results(operands: list[str], opcode: str, machine: str) -> int:
    """Returns how many operands an instruction writes."""
    if machine != "sass":
        return 1
    # written operands come first: in SASS (NVIDIA's machine code), a register and then predicates (truth values)
    count = 1 + len(list(takewhile(_PREDICATE.fullmatch, operands[1:])))
    predicate_first = bool(operands and _PREDICATE.fullmatch(operands[0]))
    return count + (predicate_first and opcode.startswith(("SHFL", "ATOM", "R2UR")))


def _registers(operands: list[str], opcode: str, machine: str) -> Iterator[str]:
    """Yields the names of the registers that the given operands stand for."""
    for operand in operands:
        for match in re.finditer(MACHINES[machine]["register"], operand):
            first = int(match["first"] or 0)
            more = _count(match, operand, opcode) - 1 if machine == "sass" else 0
            yield from (f"{match['kind']}{k}" for k in range(first, int(match["last"] or first + more) + 1))


def _count(match: re.Match[str], operand: str, opcode: str) -> int:
    """Returns how many consecutive registers an operand of SASS (NVIDIA's machine code) stands for."""
    if match["kind"] == "R" and (many := re.search(r"^(?:LDTM|STTM).*\.x(\d+)\b", opcode)):
        return int(many[1])
    if match["kind"].endswith("P") or not (match["wide"] or operand.startswith("gdesc") or _WIDE.search(opcode)):
        return 1
    return 4 if ".128" in opcode else 2  # R4 can stand for R4 and R5
