"""The second argument of a schedule rule: everything besides the kernel that a schedule depends on."""

from __future__ import annotations

from dataclasses import dataclass

from minitri.hardware.chips import Chip
from minitri.tiles.schedule import Options


@dataclass(frozen=True, slots=True)
class Request:
    """chip: where the kernel will run. interpreter: whether Triton's interpreter runs it. options: the caller's."""

    chip: Chip
    interpreter: bool = False
    options: Options = Options()
