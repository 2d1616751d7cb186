"""The arguments that a schedule rule has in addition to the kernel."""

from dataclasses import dataclass

from minitri.hardware.chips import Chip
from minitri.tiles.schedule import Options


@dataclass(frozen=True, slots=True)
class Request:
    """The request for a schedule: the chip, whether Triton's interpreter runs the kernel, and the caller's options."""

    chip: Chip
    interpreter: bool = False
    options: Options = Options()
