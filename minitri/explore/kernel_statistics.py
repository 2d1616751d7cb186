"""Figures about each kernel: its place under the roofline, the resources that it takes, its instructions by kind.

In: a compilation. Out: plain data for the page (`figures`):

    {chip, kernels, resources, missing}
    kernel    {name, needed, asked, floor, bound, measured}     needed, asked: {bytes, operations}
    resource  {name, warps, registers, shared, local, spills, blocks, occupancy, bound, instructions}

`missing` says why a figure is not there. Times come from the caller (minitri/profile.py measures them), the roofline
from minitri/hardware/roofline.py. `Resources` says what a compiled kernel takes of a multiprocessor:

  - registers and local memory, from the assembler (cuobjdump for NVIDIA, LLVM's report for AMD),
  - shared memory, from Triton,
  - how many of its warps run at once, and what limits them (minitri/hardware/chips.py),
  - a count of instructions by kind (instruction_sets.toml). An instruction in a loop counts once.

Left out: what only a measurement can say; how the page draws the figures (page/figures.js).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from minitri.base.diagnostics import CompileError, listed
from minitri.explore.def_use import MACHINES
from minitri.explore.machine_code import KernelCode, MachineCode
from minitri.explore.provenance import Trace
from minitri.hardware.chips import Peak, blocks_at_once, compute_unit, multiprocessor
from minitri.hardware.predicted_work import Work
from minitri.hardware.roofline import Row, roofline
from minitri.hardware.targets import StageUnavailable, Target
from minitri.pipeline import Compilation
from minitri.triton.artifacts import inspected


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled kernel takes of a multiprocessor.

    registers   of a thread
    shared      bytes of a block
    local       bytes of a thread: its stack and spilled registers
    spills      instructions that read or write local memory
    blocks      how many a multiprocessor runs at once; None if its limits are unknown
    occupancy   their warps as a part of all warps that it can hold, from 0 to 1
    bound       what limits `blocks`
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


def resources(compiled: Compilation, machine: MachineCode | None = None) -> tuple[Resources, ...]:
    """One for each distinct kernel; none for a target without a GPU. Raises StageUnavailable (MT0402) as its machine code."""
    measure = {"cuda": _nvidia, "hip": _amd}.get(compiled.context.target.kind)
    if measure is None:
        return ()
    return tuple(measure(k, compiled.context.target) for k in (machine or MachineCode(compiled)).kernels)


# ---- figures of a page ------------------------------------------------------------------


def figures(trace: Trace, measured: Mapping[str, float] | None = None, quick: bool = False) -> dict[str, Any]:
    """The figures as data. `measured`: seconds by the name of the kernel; `quick`: without what needs machine code."""
    compiled = trace.compilation
    found = roofline(compiled, measured)
    chip = found.chip if found else None
    rows = [found.graph, *found.kernels] if found else []
    taken, reason = ([], []) if quick else _taken(trace)
    unlike = [f"Measured times are left out: {found.mismatch}."] if found and found.mismatch else []
    return {
        "chip": chip and {"name": chip.name, "bandwidth": chip.bandwidth, "rates": dict(chip.rates)},
        "kernels": [_row(r, chip) for r in rows], "resources": taken,
        "missing": [
            *([] if found else ["Bytes and operations are counted when all sizes are known: -D M=4096."]), *unlike, *reason
        ],
    }  # fmt: skip


def _taken(trace: Trace) -> tuple[list[dict[str, Any]], list[str]]:
    """The resources as data, and the reason why there are none."""
    try:
        return [
            asdict(r) | {"instructions": dict(r.instructions)} for r in resources(trace.compilation, trace.machine)
        ], []
    except (StageUnavailable, CompileError) as error:
        return [], [str(error)]


def _row(row: Row, chip: Peak | None) -> dict[str, Any]:
    bound, floor = row.floor(chip) if chip else ("", 0.0)
    return {
        "name": row.name, "needed": _work(row.needed), "asked": _work(row.asked) if row.asked else None,
        "bound": bound, "floor": floor, "measured": row.measured,
    }  # fmt: skip


def _work(work: Work) -> dict[str, Any]:
    return {"bytes": work.bytes, "operations": dict(work.operations), "total": work.total}


# ---- NVIDIA --------------------------------------------------------------------------------


def _nvidia(code: KernelCode, target: Target) -> Resources:
    kernel, built = code.kernel, code.built
    usage = inspected(built.asm["cubin"], kernel.name, "cuobjdump", "-res-usage")
    registers, stack, static, local = (_number(rf"\b{n}:(\d+)", usage) for n in ("REG", "STACK", "SHARED", "LOCAL"))
    counts = _mix(code.text("sass"), "sass")
    shared = max(built.shared, static)
    runs = _nvidia_occupancy(target, kernel.warps, registers, shared)
    spills = counts.get("local memory", 0)
    return Resources(code.title, kernel.warps, registers, shared, max(stack, local), spills, *runs, counts)


def _nvidia_occupancy(target: Target, warps: int, registers: int, shared: int) -> tuple[int | None, float | None, str]:
    limits = multiprocessor(target)
    if limits is None:
        return None, None, ""
    counts = blocks_at_once(limits, warps, registers, shared)
    blocks = min(counts.values())
    bound = listed([name for name, count in counts.items() if count == blocks])
    return blocks, blocks * warps / limits.warps, "" if blocks == counts["warps"] else bound


# ---- AMD -----------------------------------------------------------------------------------


def _amd(code: KernelCode, target: Target) -> Resources:
    kernel, built, text = code.kernel, code.built, code.text("amdgcn")
    counts = _mix(text, "amdgcn")
    registers = _number(r"; TotalNumVgprs: (\d+)", text) or _number(r"; NumVgprs: (\d+)", text)
    runs = _amd_occupancy(target, kernel.warps, _number(r"; Occupancy: (\d+)", text), built.shared)
    local, spills = _number(r"; ScratchSize: (\d+)", text), counts.get("local memory", 0)
    return Resources(code.title, kernel.warps, registers, built.shared, local, spills, *runs, counts)


def _amd_occupancy(target: Target, warps: int, waves: int, shared: int) -> tuple[int | None, float | None, str]:
    """(blocks, occupancy, bound). `waves`: how many waves the registers allow on one SIMD."""
    limits = compute_unit(target)
    if limits is None or not waves:
        return None, None, ""
    most = limits.waves * limits.simds
    by_registers = waves * limits.simds // warps
    by_memory = limits.shared // shared if shared else by_registers
    blocks = min(by_registers, by_memory)
    bound = "" if blocks * warps >= most else "shared memory" if by_memory < by_registers else "registers"
    return blocks, blocks * warps / most, bound


# ---- instructions --------------------------------------------------------------------------

OTHER = "integer and moves"


def _mix(text: str, machine: str) -> dict[str, int]:
    """The number of instructions of each kind, the most frequent first."""
    kinds, opcodes = MACHINES[machine]["kinds"].items(), re.findall(MACHINES[machine]["opcode"], text, re.MULTILINE)
    counts = Counter(next((kind for kind, start in kinds if re.match(start, name)), OTHER) for name in opcodes)
    return dict(counts.most_common())


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
