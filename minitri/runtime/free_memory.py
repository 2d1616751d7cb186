"""Whether there is memory for the arrays of a call.

In: shapes and dtypes about to be allocated, or a block that allocates. Out: nothing, or a CompileError MT0401 in place
of a MemoryError. The one idea: a system that overcommits hands out memory that it does not have, and ends the process
when it is used. So a request that is larger than the machine's memory is refused first. Left out: GPU memory; torch has
an error for that, and its users catch it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from minitri.base.diagnostics import CompileError
from minitri.base.types import DType
from minitri.graph.ir import Graph


@cache
def installed() -> int:
    """The bytes of memory of this machine; as good as no limit where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 60


def require_memory(dtype: DType, shape: tuple[int, ...]) -> None:
    """CompileError if an array is larger than all memory."""
    size = math.prod(shape) * dtype.bytes
    if size > installed():
        from rich.filesize import decimal

        message = f"there is not enough memory for {dtype}[{', '.join(map(str, shape))}], which is {decimal(size)}"
        raise CompileError("MT0401", message, help="take smaller sizes")


def require_graph(graph: Graph, sizes: Mapping[str, int]) -> None:
    """CompileError if some value of a graph is: the reference and the evaluators make each of them."""
    for node in graph.nodes():
        require_memory(node.dtype, tuple(e.evaluate(sizes) for e in node.shape))


@contextmanager
def enough() -> Iterator[None]:
    """Within the block a MemoryError becomes a CompileError."""
    try:
        yield
    except MemoryError:
        message = "there is not enough memory for the arrays of this call"
        raise CompileError("MT0401", message, help="take smaller sizes") from None
