"""tile → tile: asks Triton to merge the two loops of a persistent matrix product into one ("loop flattening").

    for turn in tl.range(…):                     for turn in tl.range(…, flatten=True):
      for r_start in range(…):                     for r_start in range(…):

Each grid program of a persistent kernel computes several tiles in a loop. Inside the loop over tiles, a matrix product
has an inner loop over the summed axis. Triton's option `flatten` merges the outer and the inner loop. The merged loop
loads the blocks of the next tile while it stores the present tile.

The pass `flatten-loops` marks a persistent program `flattened` if its loops carry only one value, the sum of a matrix
product. A loop with several carried values, as in attention, is not merged. If a merged loop carried several values,
the code that Triton 3.6 generates would read sums before they are computed.
"""

from dataclasses import replace

from minitri.kernels.ir import Dot
from minitri.tiles.ir import Program


def flatten_loops(program: Program) -> Program:
    carries = [c for loop in program.loops for c in loop.carries]
    whole = all(loop.first is None and loop.last is None for loop in program.loops)
    one = program.persistent > 0 and whole and len(carries) == 1 and isinstance(carries[0][1], Dot)
    return replace(program, flattened=True) if one else program
