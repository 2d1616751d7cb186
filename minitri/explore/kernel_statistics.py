"""Collects numbers about each kernel: its predicted time (roofline), its resources, and its instructions of each kind.

The function `figures` takes a `Trace` of a compilation (provenance.py), and returns plain data for the page:

    {chip, kernels, resources, missing}
    kernel    {name, needed, asked, floor, bound, measured}     needed, asked: {bytes, operations}
    resource  {name, warps, registers, shared, local, spills, blocks, occupancy, bound, instructions}

`missing` has the reasons why some figures are not available. The caller of this module gives the measured times of the
kernels (minitri/profile.py measures these times). The roofline comes from minitri/hardware/roofline.py. The class
`Resources` lists which resources of a multiprocessor a compiled kernel takes:

  - registers and local memory, as the assembler reports them (through cuobjdump for NVIDIA, through LLVM for AMD),
  - shared memory, from Triton,
  - how many warps of the kernel run at once, and what limits this number (minitri/hardware/chips.py),
  - a count of instructions by kind (instruction_sets.toml). An instruction in a loop is counted once.

The file page/figures.js draws the figures on the page.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from minitri.base.diagnostics import CompileError, listed
from minitri.explore.instruction_registers import MACHINES
from minitri.explore.machine_code import KernelCode, MachineCode
from minitri.explore.provenance import Trace
from minitri.hardware.chips import SIMDS, Multiprocessor, Peak, blocks_at_once, multiprocessor
from minitri.hardware.predicted_work import Work
from minitri.hardware.roofline import Row, roofline
from minitri.hardware.targets import Target
from minitri.triton.compiled_stages import inspected


class Resources(NamedTuple):
    """The resources that a compiled kernel takes on a multiprocessor, such as registers.

    `registers`: the number of registers of one thread.
    `shared`: the bytes of shared memory that one block of threads uses.
    `local`: the bytes of local memory that one thread uses, for its stack and for spilled registers.
    `spills`: the number of instructions that read or write local memory.
    `blocks`: the number of blocks of threads that a multiprocessor runs at once. None if the limits of the
        multiprocessor are unknown.
    `occupancy`: the number of the kernel's warps that run on a multiprocessor at once, divided by the multiprocessor's
        largest number of warps. None if unknown.
    `bound`: the resource that limits the number of blocks on a multiprocessor, such as "registers". The text is empty
        if the number of warps is the limit, or if the limit is unknown.
    """

    kernel: str
    warps: int
    registers: int
    shared: int
    local: int
    spills: int
    blocks: int | None
    occupancy: float | None
    bound: str
    instructions: Mapping[str, int]


def resources(machine: MachineCode) -> tuple[Resources, ...]:
    """Returns the resources of each distinct kernel.

    The result is empty if the target is not a GPU. Raises StageUnavailable (MT0402) if the machine code of a kernel is
    not available.
    """
    return tuple(_resources(k, machine.target) for k in machine.kernels) if machine.target.stages else ()


# ---- figures of a page ------------------------------------------------------------------


def figures(trace: Trace, measured: Mapping[str, float] | None = None, quick: bool = False) -> dict[str, Any]:
    """Returns the figures of all kernels as data.

    `measured` maps the name of a kernel to the measured time of the kernel in seconds. If `quick` is true, the result
    lacks all numbers that need machine code.
    """
    found = roofline(trace.compilation, measured)
    chip = found.chip if found else None
    kernels = [_row(r, chip) for r in (found.graph, *found.kernels)] if found else []
    taken: list[dict[str, Any]] = []
    missing: list[str] = []
    if not found:
        missing.append("Bytes and operations are counted when all sizes are known: `-D NAME=SIZE`.")
    elif found.mismatch:
        missing.append(f"Measured times are left out: {found.mismatch}.")
    if not quick:
        try:
            taken = [r._asdict() for r in resources(trace.machine)]
        except CompileError as error:
            missing.append(str(error))
    return {"chip": chip and chip._asdict(), "kernels": kernels, "resources": taken, "missing": missing}


def _row(row: Row, chip: Peak | None) -> dict[str, Any]:
    bound, floor = row.floor(chip) if chip else ("", 0.0)
    moved = {"needed": _work(row.needed), "asked": row.asked and _work(row.asked)}
    return {"name": row.name, **moved, "bound": bound, "floor": floor, "measured": row.measured}


def _work(work: Work) -> dict[str, Any]:
    return {"bytes": work.bytes, "operations": dict(work.operations), "total": work.total}


# ---- NVIDIA and AMD ------------------------------------------------------------------------


# The registers of a thread, the bytes of shared memory of a block, the bytes of local memory of a thread, and for each
# resource how many blocks of threads it allows a multiprocessor to run at once; empty if the limits are unknown.
Usage = tuple[int, int, int, Mapping[str, int]]


def _nvidia(code: KernelCode, limits: Multiprocessor | None) -> Usage:
    usage = inspected(code.built.asm["cubin"], code.name, "cuobjdump", "-res-usage")
    registers, stack, static, local = (_number(rf"\b{n}:(\d+)", usage) for n in ("REG", "STACK", "SHARED", "LOCAL"))
    shared = max(code.built.metadata.shared, static)
    counts = blocks_at_once(limits, code.kernel.program.warps, registers, shared) if limits else {}
    return registers, shared, max(stack, local), counts


def _amd(code: KernelCode, limits: Multiprocessor | None) -> Usage:
    shared, text, warps = code.built.metadata.shared, code.text("amdgcn"), code.kernel.program.warps
    registers = _number(r"; TotalNumVgprs: (\d+)", text) or _number(r"; NumVgprs: (\d+)", text)
    waves = _number(r"; Occupancy: (\d+)", text)  # how many warps fit into the registers of one SIMD unit
    counts: dict[str, int] = {}
    if limits and waves:
        counts = {"warps": limits.warps // warps, "registers": waves * SIMDS // warps}
        counts |= {"shared memory": limits.shared // shared} if shared else {}
    return registers, shared, _number(r"; ScratchSize: (\d+)", text), counts


def _resources(code: KernelCode, target: Target) -> Resources:
    limits, warps = multiprocessor(target), code.kernel.program.warps
    registers, shared, local, counts = (_nvidia if target.kind == "cuda" else _amd)(code, limits)
    mix = _mix(code.text(target.stages[-1]), target.stages[-1])
    blocks = min(counts.values(), default=None)
    limiting = [name for name, count in counts.items() if count == blocks != counts["warps"]]
    bound = listed(limiting) if limiting else ""
    occupancy = blocks * warps / limits.warps if limits and blocks is not None else None
    spills = mix.get("local memory", 0)
    return Resources(code.title, warps, registers, shared, local, spills, blocks, occupancy, bound, mix)


# ---- instructions --------------------------------------------------------------------------

OTHER = "integer and moves"


def _mix(text: str, machine: str) -> dict[str, int]:
    """Returns the number of instructions of each kind, the most frequent kind first."""
    kinds, opcodes = MACHINES[machine]["kinds"].items(), re.findall(MACHINES[machine]["opcode"], text, re.MULTILINE)
    counts = Counter(next((kind for kind, start in kinds if re.match(start, name)), OTHER) for name in opcodes)
    return dict(counts.most_common())


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
