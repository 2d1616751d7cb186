"""The figures of each kernel: the roofline of its chip, registers, shared memory, instructions.

In: a compilation. Out: plain data for the page:

    {chip, kernels, resources, missing}
    kernel    {name, needed, asked, floor, bound, measured}     needed, asked: {bytes, operations}
    resource  {name, warps, registers, shared, local, spills, blocks, occupancy, bound, instructions}

The figures are those of roofline.py and resources.py; `missing` says why some are not there. Measured
times are there if somebody measured (minitri/profile.py). Left out: what a picture is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.explore.resources import resources
from minitri.hardware.chips import Peak
from minitri.hardware.predicted_work import Work
from minitri.hardware.roofline import Row, roofline
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import Compilation


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
