"""The arguments of a schedule rule besides the kernel."""

from dataclasses import dataclass

from minitri.hardware.chips import Chip
from minitri.tiles.schedule import Options


@dataclass(frozen=True, slots=True)
class Request:
    """The chip that the kernel will run on, whether Triton's interpreter runs it, and the caller's options."""

    chip: Chip
    interpreter: bool = False
    options: Options = Options()
