"""The parts with which fusion starts, and the cost of computing a value twice.

In: a graph. Out: sets of compute nodes. Each reduction, scan and product is a part of its own, with the elementwise
nodes that only it uses. An elementwise value that several parts use joins all of them if its operands are cheaper to
read than the value is to store and to read. What merges these parts is in minitri/optimize/fusion/partition.py.
"""

from __future__ import annotations

from collections import defaultdict

from minitri.base.dims import Dim, product
from minitri.base.operators import OPERATORS
from minitri.base.types import f64
from minitri.graph.ir import Apply, Contract, Graph, Input, Node, allows, is_copy, operands
from minitri.kernels.demand import COMPUTE

TYPICAL = 1024  # what an unknown size is taken for when traffic is compared
MAX_REPEATED_OPS = 16  # a value is computed twice only if that few operations make it
MAX_PROLOGUE_OPS = 8  # operations on an operand of a product, repeated for each tile of the other


class FirstParts:
    """The parts of a graph; a part is a set of compute nodes."""

    def __init__(self, graph: Graph, stored: set[Node]) -> None:
        self.graph, self.allows = graph, allows(graph.conditions)
        self.order = graph.nodes()
        self.stored = stored | {n for n in self.order if is_copy(n)}
        self.position = {n: k for k, n in enumerate(self.order)}
        self.compute = [n for n in self.order if isinstance(n, COMPUTE)]
        self.reads = self._reads()
        self.sources = {n: [f for f in read if not isinstance(f, Input)] for n, read in self.reads.items()}
        self.users: dict[Node, list[Node]] = defaultdict(list)
        for node in self.compute:
            for source in self.sources[node]:
                self.users[source].append(node)
        self.outputs = set(graph.outputs)
        self.parts: dict[int, set[Node]] = {}
        self.homes: dict[Node, list[int]] = {}
        self.prologue: dict[Node, int] = {}  # nodes computed as operands of a product: distance from it

    # ---- the graph seen through views ------------------------------------------------

    def _reads(self) -> dict[Node, tuple[Node, ...]]:
        """The compute nodes and inputs that each compute node reaches through nodes that cost nothing."""
        reached: dict[Node, tuple[Node, ...]] = {}
        reads: dict[Node, tuple[Node, ...]] = {}
        for node in self.order:
            reads[node] = tuple(dict.fromkeys(r for o in operands(node) for r in reached[o]))
            reached[node] = (node,) if isinstance(node, (Input, *COMPUTE)) else reads[node]
        return {n: reads[n] for n in self.compute}

    def roots(self, *homes: int) -> list[Node]:
        """The nodes of these parts that something outside of them needs."""
        used = {
            n for home in homes for n in self.parts[home]
            if n in self.outputs
            or any(n not in self.parts[h] for u in self.users[n] for h in self.homes[u] if h not in homes)
        }  # fmt: skip
        return sorted(used, key=self.position.__getitem__)

    def leaves(self, part: set[Node]) -> set[Node]:
        """What a part reads from memory."""
        return {r for n in part for r in self.reads[n] if r not in part}

    # ---- the first parts -------------------------------------------------------------

    def start(self) -> None:
        """Gives each compute node its first part, or several."""
        for node in reversed(self.compute):
            homes = self._first_homes(node)
            self.homes[node] = homes
            for h in homes:
                self.parts.setdefault(h, set()).add(node)

    def _first_homes(self, node: Node) -> list[int]:
        own = [self.position[node]]
        if not isinstance(node, Apply) or node in self.stored:
            return own
        users = self.users[node]
        homes = list(dict.fromkeys(h for u in users for h in self.homes[u]))
        if not homes or not all(self._may_feed(node, u) for u in users):
            return own
        again = node not in self.outputs and self._cheap_to_repeat(node, len(homes))
        return homes if len(homes) == 1 or again else own

    def _may_feed(self, node: Node, user: Node) -> bool:
        """Elementwise nodes feed anything, but operands of a product only if few and cheap."""
        if not isinstance(user, Contract) and user not in self.prologue:
            return True
        cone = self._cone(node)
        leaves = self.leaves(cone)
        if isinstance(user, Contract) and user.dtype == f64 and any(n.dtype.bits < 32 for n in cone | leaves):
            return False  # Triton 3.6 cannot compile an f64 product whose operand it computes from 16 bits or fewer
        alone = all(isinstance(r, Input) for r in leaves)  # else an epilogue
        depth = self.prologue.get(user, 0) + 1
        if _is_cheap(node) and alone and depth <= MAX_PROLOGUE_OPS and self._bytes_read(node) <= 2 * self.bytes(node):
            self.prologue[node] = depth
            return True
        return False

    def dear_prologue(self, a: int, b: int) -> bool:
        """Whether part a makes an operand of a product in part b with more than a few cheap operations."""
        pairs = [(n, u) for n in self.parts[a] for u in self.users[n] if u in self.parts[b]]
        if not any(isinstance(u, Contract) or u in self.prologue for _, u in pairs):
            return False
        return not all(map(_is_cheap, self.parts[a])) or not all(self._may_feed(n, u) for n, u in pairs)

    def _cheap_to_repeat(self, node: Node, homes: int) -> bool:
        """Reading its operands in every home, against reading them once, storing it, and reading that."""
        stored = self._bytes_read(node) + (1 + homes) * self.bytes(node)
        return len(self._cone(node)) <= MAX_REPEATED_OPS and homes * self._bytes_read(node) < stored

    def _cone(self, node: Node) -> set[Node]:
        """The elementwise nodes that are computed again with this one."""
        found, stack = set[Node](), [node]
        while stack and len(found) <= MAX_REPEATED_OPS:
            n = stack.pop()
            if isinstance(n, Apply) and n not in found and n not in self.stored:
                found.add(n)
                stack += self.sources[n]
        return found

    def _bytes_read(self, node: Node) -> int:
        return sum(map(self.bytes, self.leaves(self._cone(node))))

    def bytes(self, node: Node) -> int:
        return max(1, typical(product(list(node.shape)))) * node.dtype.bytes


def _is_cheap(node: Node) -> bool:
    return isinstance(node, Apply) and (node.op == "cast" or OPERATORS[node.op].cost == "cheap")


def typical(d: Dim) -> int:
    """The value of a size, taking unknown dimensions for a typical one."""
    return int(d.substitute(dict.fromkeys(d.symbols(), TYPICAL)))
