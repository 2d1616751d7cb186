"""The figures of each kernel: the roofline of its chip, the resources that it takes, its instructions by kind.

In: a compilation. Out: plain data for the page (`figures`):

    {chip, kernels, resources, missing}
    kernel    {name, needed, asked, floor, bound, measured}     needed, asked: {bytes, operations}
    resource  {name, warps, registers, shared, local, spills, blocks, occupancy, bound, instructions}

`missing` says why some are not there. Measured times are there if somebody measured (minitri/profile.py), and the
roofline is that of roofline.py. What a compiled kernel takes of a multiprocessor is a `Resources`:

  - registers and local memory, as the assembler has allocated them (cuobjdump for NVIDIA, LLVM's report for AMD),
  - shared memory, as Triton launches the kernel,
  - how many of its warps run at once, and what limits them (minitri/hardware/chips.py),
  - a count of instructions by kind.

Instructions are counted in the text, not as they run: those of a loop count once. The
kinds are in instructions.toml. Left out: what can only be measured; what a picture is made of the figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from minitri.base.diagnostics import CompileError, listed
from minitri.explore.registers import MACHINES
from minitri.hardware.chips import Peak, blocks_at_once, compute_unit, multiprocessor
from minitri.hardware.predicted_work import Work
from minitri.hardware.roofline import Row, roofline
from minitri.hardware.targets import StageUnavailable, Target
from minitri.pipeline import Compilation
from minitri.triton.artifacts import Built, inspected, kernel_text
from minitri.triton.emit import EmittedKernel


@dataclass(frozen=True, slots=True)
class Resources:
    """`registers`, `local` (bytes: stack and spilled registers) are a thread's, `shared` (bytes) a block's.
    `spills`: instructions that read or write local memory. `blocks`: how many a multiprocessor runs at
    once, None where no limits are known; `occupancy`: the part of its warps that these are; `bound`: what
    stops there being more."""

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


def resources(compiled: Compilation) -> tuple[Resources, ...]:
    """One for each kernel; StageUnavailable as of its machine code, nothing without a GPU's target."""
    target = compiled.context.target
    measure = {"cuda": _nvidia, "hip": _amd}.get(target.kind)
    if measure is None:
        return ()
    return tuple(measure(k, built, target) for k, built in zip(compiled.value("triton"), compiled.compiled))


# ---- figures of a page ------------------------------------------------------------------


def figures(compiled: Compilation, measured: Mapping[str, float] | None = None, quick: bool = False) -> dict[str, Any]:
    """The figures of a compilation; `measured`: seconds by the name of the kernel; `quick`: nothing compiled."""
    found = roofline(compiled, measured)
    chip = found.chip if found else None
    rows = [found.graph, *found.kernels] if found else []
    taken, reason = ([], []) if quick else _taken(compiled)
    unlike = [f"Measured times are left out: {found.unlike}."] if found and found.unlike else []
    return {
        "chip": chip and {"name": chip.name, "bandwidth": chip.bandwidth, "rates": dict(chip.rates)},
        "kernels": [_row(r, chip) for r in rows], "resources": taken,
        "missing": [
            *([] if found else ["Bytes and operations are counted when all sizes are known: -D M=4096."]), *unlike, *reason
        ],
    }  # fmt: skip


def _taken(compiled: Compilation) -> tuple[list[dict[str, Any]], list[str]]:
    """What the compiled kernels take, or why that is not known here."""
    try:
        return [asdict(r) | {"instructions": dict(r.instructions)} for r in resources(compiled)], []
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


def _nvidia(kernel: EmittedKernel, built: Built, target: Target) -> Resources:
    usage = inspected(built.asm["cubin"], kernel.name, "cuobjdump", "-res-usage")
    registers, stack, static, local = (_number(rf"\b{n}:(\d+)", usage) for n in ("REG", "STACK", "SHARED", "LOCAL"))
    counts = _mix(kernel_text(built.asm, "sass", kernel.name), "sass")
    shared = max(built.shared, static)
    runs = _nvidia_occupancy(target, kernel.warps, registers, shared)
    spills = counts.get("local memory", 0)
    return Resources(kernel.name, kernel.warps, registers, shared, max(stack, local), spills, *runs, counts)


def _nvidia_occupancy(target: Target, warps: int, registers: int, shared: int) -> tuple[int | None, float | None, str]:
    limits = multiprocessor(target)
    if limits is None:
        return None, None, ""
    counts = blocks_at_once(limits, warps, registers, shared)
    blocks = min(counts.values())
    bound = listed([name for name, count in counts.items() if count == blocks])
    return blocks, blocks * warps / limits.warps, "" if blocks == counts["warps"] else bound


# ---- AMD -----------------------------------------------------------------------------------


def _amd(kernel: EmittedKernel, built: Built, target: Target) -> Resources:
    text = kernel_text(built.asm, "amdgcn", kernel.name)
    counts = _mix(text, "amdgcn")
    registers = _number(r"; TotalNumVgprs: (\d+)", text) or _number(r"; NumVgprs: (\d+)", text)
    runs = _amd_occupancy(target, kernel.warps, _number(r"; Occupancy: (\d+)", text), built.shared)
    local, spills = _number(r"; ScratchSize: (\d+)", text), counts.get("local memory", 0)
    return Resources(kernel.name, kernel.warps, registers, built.shared, local, spills, *runs, counts)


def _amd_occupancy(target: Target, warps: int, waves: int, shared: int) -> tuple[int | None, float | None, str]:
    """`waves`: how many a SIMD runs, by its registers."""
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
    """How many instructions of each kind, the most frequent first."""
    kinds, opcodes = MACHINES[machine]["kinds"].items(), re.findall(MACHINES[machine]["opcode"], text, re.MULTILINE)
    counts = Counter(next((kind for kind, start in kinds if re.match(start, name)), OTHER) for name in opcodes)
    return dict(counts.most_common())


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
