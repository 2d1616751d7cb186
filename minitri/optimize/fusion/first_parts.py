"""Divides a graph into initial parts (groups of nodes that share a kernel), before fusion merges parts. Estimates
whether computing a value in several kernels costs less than storing the value.

The class `FirstParts` divides the compute nodes of a graph into parts. Compute nodes are reductions, scans, products
and elementwise nodes. Each reduction, scan and product starts a part (a future kernel) of its own. The part of a
reduction, scan or product also contains the elementwise nodes whose results this operation reads. Several parts can
need the value of one elementwise node. Then either each part computes the value, or one part stores the value in
memory. Each part computes an elementwise value that it needs if loading the operands costs less than storing and
loading the value. Later, minitri/optimize/fusion/partition.py merges parts.
"""

from collections.abc import Collection, Sequence

from minitri.base.dims import product
from minitri.base.nodes import grouped
from minitri.base.operators import OPERATORS
from minitri.base.types import f64
from minitri.graph.ir import Apply, Contract, Graph, Input, Node, allows, children, is_copy
from minitri.kernels.demand import COMPUTE

TYPICAL = 1024  # stands for an unknown size when traffic is compared
MAX_REPEATED_OPS = 16  # a value that needs more operations is not computed twice
MAX_PROLOGUE_OPS = 8  # the most operations on an operand of a product, which each tile of the other operand repeats


class FirstParts:
    """The initial parts of a graph, before fusion merges parts. A part is a set of nodes that one kernel computes. The
    homes of a node are the parts that contain the node.

    The set `stored` contains the nodes whose values must be stored in memory. Nodes that only copy elements are added
    to `stored`, unless the argument `free` contains them.
    """

    def __init__(self, graph: Graph, stored: set[Node], free: Collection[Node] = ()) -> None:
        self.graph, self.allows = graph, allows(graph.conditions)
        self.order = graph.nodes()
        self.stored = stored | {n for n in self.order if is_copy(n) and n not in free}
        self.position = {n: k for k, n in enumerate(self.order)}
        self.compute = [n for n in self.order if isinstance(n, COMPUTE)]
        self.reads = self._reads()
        self.sources = {n: [f for f in read if not isinstance(f, Input)] for n, read in self.reads.items()}
        self.users: dict[Node, list[Node]] = grouped((s, node) for node in self.compute for s in self.sources[node])
        self.outputs = set(graph.outputs)
        self.parts: dict[int, set[Node]] = {}
        self.homes: dict[Node, list[int]] = {}
        self.prologue: dict[Node, int] = {}  # nodes computed for operands of a product: the distance to the product

    # ---- the graph seen through views ------------------------------------------------

    def _reads(self) -> dict[Node, tuple[Node, ...]]:
        """Returns the compute nodes and inputs that each compute node reads, directly or through views."""
        # a view costs nothing, so a node that reads a view is a reader of the viewed node
        reached: dict[Node, tuple[Node, ...]] = {}
        reads: dict[Node, tuple[Node, ...]] = {}
        for node in self.order:
            reads[node] = tuple(dict.fromkeys(r for o in children(node) for r in reached[o]))
            reached[node] = (node,) if isinstance(node, (Input, *COMPUTE)) else reads[node]
        return {n: reads[n] for n in self.compute}

    def roots(self, *homes: int) -> list[Node]:
        """Returns the nodes of given parts that must be stored: program outputs, and nodes that other parts use."""
        used = {
            n for home in homes for n in self.parts[home]
            if n in self.outputs
            or any(n not in self.parts[h] for u in self.users[n] for h in self.homes[u] if h not in homes)
        }  # fmt: skip
        return sorted(used, key=self.position.__getitem__)

    def leaves(self, part: set[Node]) -> set[Node]:
        """Returns the nodes that a part reads from memory."""
        return {r for n in part for r in self.reads[n] if r not in part}

    # ---- the first parts -------------------------------------------------------------

    def start(self) -> None:
        """Puts each compute node, such as a reduction, into a first part of the graph. A cheap node can belong to
        several parts.
        """
        for node in reversed(self.compute):
            self.homes[node] = self._first_homes(node)
            for h in self.homes[node]:
                self.parts.setdefault(h, set()).add(node)

    def _first_homes(self, node: Node) -> list[int]:
        """Decides in which parts (future kernels) a node starts: in a new part, or in the parts of the node's users."""
        own = [self.position[node]]
        if not isinstance(node, Apply) or node in self.stored or self._narrows_product(node):
            return own
        users = self.users[node]
        homes = list(dict.fromkeys(h for u in users for h in self.homes[u]))
        if not homes or not all(self._may_feed(node, u) for u in users):
            return own
        again = node not in self.outputs and self._cheap_to_repeat(node, homes)
        return homes if len(homes) == 1 or again else own

    def _narrows_product(self, node: Apply) -> bool:
        """Checks whether a node casts a product to a narrower dtype and is the product's only user."""
        source = self.sources[node][0] if self.sources[node] else node
        narrow = node.op == "cast" and node.dtype.bits < source.dtype.bits
        # a kernel that computes both stores only the converted product, so it stores fewer bytes
        return narrow and isinstance(source, Contract) and self.users[source] == [node]

    def _may_feed(self, node: Node, user: Node) -> bool:
        """Checks whether the part that computes `user` should also compute the elementwise operand `node`."""
        if not isinstance(user, Contract) and user not in self.prologue:
            return True
        cone, leaves = self._cone(node)
        if isinstance(user, Contract) and user.dtype == f64 and any(n.dtype.bits < 32 for n in cone | leaves):
            return False  # Triton 3.6 cannot compile an f64 product whose operand it computes from 16 bits or fewer
        alone = all(isinstance(r, Input) for r in leaves)  # otherwise it can be the epilogue of another kernel
        few = sum(map(self.bytes, leaves)) <= 2 * self.bytes(node)
        depth = self.prologue.get(user, 0) + 1
        # each tile of a product repeats the operations of its operand
        if all(map(_is_cheap, cone)) and alone and few and depth <= MAX_PROLOGUE_OPS:
            self.prologue[node] = depth
            return True
        return False

    def has_costly_prologue(self, a: int, b: int) -> bool:
        """Checks whether part `a` needs many or costly operations for an operand of a matrix product in part `b`."""
        pairs = [(n, u) for n in self.parts[a] for u in self.users[n] if u in self.parts[b]]
        if not any(isinstance(u, Contract) or u in self.prologue for _, u in pairs):
            return False
        return not all(map(_is_cheap, self.parts[a])) or not all(self._may_feed(n, u) for n, u in pairs)

    def _cheap_to_repeat(self, node: Node, homes: Sequence[int]) -> bool:
        """Checks whether recomputing a node in each kernel moves fewer bytes than storing and loading the result."""
        cone, loads = self._cone(node)
        # an operand that a part loads for its other nodes as well causes no additional traffic
        known = [{r for n in self.parts[h] for r in self.reads[n]} for h in homes]
        again = sum(self.bytes(r) for read in known for r in self._cone(node, read)[1])
        # the operands are loaded once, the value is stored once, and each part loads the value
        stored = sum(map(self.bytes, loads)) + (1 + len(homes)) * self.bytes(node)
        return len(cone) <= MAX_REPEATED_OPS and again < stored

    def _cone(self, node: Node, known: Collection[Node] = ()) -> tuple[set[Node], set[Node]]:
        """Returns what a kernel needs to compute `node`: the elementwise nodes to compute, and the values to load."""
        again, loads, stack = set[Node](), set[Node](), [node]
        while stack and len(again) <= MAX_REPEATED_OPS:
            n = stack.pop()
            if isinstance(n, Apply) and n not in self.stored:
                again.add(n)
                stack += [r for r in self.reads[n] if r not in known and r not in again]  # known values are available
            elif n is not node:
                loads.add(n)
        return again, loads.union(stack)

    def bytes(self, node: Node) -> int:
        elements = product(list(node.shape))
        return max(1, int(elements.substitute(dict.fromkeys(elements.symbols(), TYPICAL)))) * node.dtype.bytes


def _is_cheap(node: Node) -> bool:
    return isinstance(node, Apply) and (node.op == "cast" or OPERATORS[node.op].cost == "cheap")
