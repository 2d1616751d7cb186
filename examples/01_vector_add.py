"""(a) Vector addition: programs, offsets and masks.

    python examples/01_vector_add.py            7 elements, then 2**24 of them
    python examples/01_vector_add.py --stages   every stage of the small one, down to machine code

A kernel runs as many *programs*; each works on a block of elements. Seven elements in blocks of 3
need three programs. Tiles of Triton have a power of two of lanes, so a block of 3 has 4 lanes, of
which the last does nothing. The table shows each program's offsets and its mask:

    program  offsets     mask
    0        0 1 2 (3)   1 1 1 0      (3): the lane beyond the block, an element of program 1
    1        3 4 5 (6)   1 1 1 0
    2        6 7 8 (9)   1 0 0 0      7 and 8 are past the end

A lane whose mask is 0 neither reads nor writes. The table is computed from the conditions that
the masking pass has put into the program, not from what they ought to be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, normal, program, rate, stages

import minitri as mt
from minitri.kernels.ir import Mask, Store
from minitri.profile import time_call
from minitri.tiles.ir import Program as TileProgram, lane_number

SMALL, BLOCK, LARGE = 7, 3, 2**24


def store_mask(tiles: TileProgram) -> Mask:
    mask = next(op for op in tiles.ops() if isinstance(op, Store)).mask
    assert mask is not None
    return mask


def show_masks(tiles: TileProgram) -> None:
    """Offsets and mask of each program of a grid with one axis."""
    axis = tiles.grid[0]
    conditions = store_mask(tiles).conditions
    lanes = np.arange(axis.lanes)
    print(f"  {'program':8} {'offsets':16} mask")
    for number in range(axis.tiles.evaluate({})):
        offsets = number * axis.block + lanes
        env = {axis.symbol: offsets, next(iter(lane_number(axis.name).symbols())): lanes}
        mask = np.all([c.compute(env) >= 0 for c in conditions], axis=0)
        words = [str(n) if lane < axis.block else f"({n})" for lane, n in enumerate(offsets)]
        print(f"  {number:<8} {' '.join(words):16} {' '.join(str(int(m)) for m in mask)}")
    for reason in store_mask(tiles).reasons:
        print(f"  {reason}")


def large(add: mt.Program, torch: Any) -> None:
    """2**24 elements, on the GPU if there is one: the same kernel, with another block and no mask."""
    tiles = add.lower(N=LARGE).compilation.value("tile.masked").programs[0]
    (axis,) = tiles.grid
    print(f"  {axis.tiles} programs of {axis.block} elements on a GPU")
    print(f"  {', '.join(store_mask(tiles).reasons)}")
    x, y = normal(LARGE), normal(LARGE)
    bytes = 3 * x.nbytes
    if torch is None:
        agree(f"n = {LARGE}", add(x, y), x + y, 0.0)
        print("  no GPU: the same kernel ran in Triton's interpreter")
        return
    a, b = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    agree(f"n = {LARGE}, on the GPU", add(a, b).cpu(), x + y, 0.0)
    print(f"  minitri {rate(time_call(add, a, b).median, bytes)}")
    print(f"  torch   {rate(time_call(torch.add, a, b).median, bytes)}")


def main() -> None:
    args = flags(__doc__)
    add = program("vector_add.mt")
    small = add.configured(options=mt.Options(blocks={"i": BLOCK}))
    x, y = normal(SMALL), normal(SMALL)

    print(f"{SMALL} elements, a block of {BLOCK}:")
    show_masks(small.lower(N=SMALL).compilation.value("tile.masked").programs[0])
    agree(f"n = {SMALL}", small(x, y), x + y, 0.0)
    for n in (0, 1, 3, 5, 100):
        a, b = normal(n), normal(n)
        agree(f"n = {n}", small(a, b), a + b, 0.0)

    print(f"\n{LARGE} elements, a block chosen by rule:")
    large(add, gpu())
    if args.stages:
        stages(small, x, y)


if __name__ == "__main__":
    main()
