"""The lines of a Triton function while they are written.

In: texts, one operation each. Out: lines at the indentation at hand, the op that each is of, and the sizes that
become arguments because nobody knows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minitri.base.dims import Dim
from minitri.base.limits import check_time
from minitri.kernels.ir import Op

STEP = "    "


class Lines:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ops: list[tuple[int, Op]] = []  # (1-based line, the op it holds)
        self.sizes: dict[Dim, str] = {}
        self.indent = STEP

    def add(self, text: str, op: Op | None = None) -> None:
        check_time()
        self.texts.append(self.indent + text)
        if op is not None:
            self.ops.append((len(self.texts), op))

    def size(self, d: Dim) -> str:
        """A size as a literal or as an argument that the host computes."""
        if d.constant is not None:
            return str(d.constant)
        return self.sizes.setdefault(d, f"s{len(self.sizes)}")

    @contextmanager
    def within(self, head: str) -> Iterator[None]:
        """What is added stands in this `for`, `if` or `else`."""
        self.add(head)
        outer, self.indent = self.indent, self.indent + STEP
        yield
        self.indent = outer
