"""Which compute nodes of a graph form a part, that is, become one kernel together.

In: a graph. Out: sets of nodes, in an order in which they can run. A part is legal if
`Indexing` can express it on named axes and if the parts stay acyclic; among the legal merges
the one that keeps most bytes out of memory is taken first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import networkx as nx

from minitri.dims import Dim, product
from minitri.graph.ir import Apply, Contract, Graph, Input, Node, contiguous, is_copy, operands
from minitri.kernel.build import build
from minitri.kernel.index import COMPUTE, Indexing, NotOneKernel
from minitri.kernel.ir import Buffer
from minitri.kernel.online import one_loop
from minitri.ops import OPERATORS
from minitri.quota import check_time
from minitri.types import f64

TYPICAL = 1024  # what an unknown size is taken for when traffic is compared
MAX_REPEATED_OPS = 16  # a value is computed twice only if that few operations make it
MAX_REDUCTIONS = 12  # where a row is read block by block, each one reads it again
MAX_PROLOGUE_OPS = 8  # operations on an operand of a product, repeated for each tile of the other


class NotOneLoop(NotOneKernel):
    """Reductions and products over one axis that one loop cannot make."""


class Partition:
    """The parts of a graph while they are being merged; a part is a set of compute nodes."""

    def __init__(self, graph: Graph, stored: set[Node], enabled: bool) -> None:
        self.graph, self.enabled = graph, enabled
        self.order = graph.nodes()
        self.stored = stored | {n for n in self.order if is_copy(n)}
        self.position = {n: k for k, n in enumerate(self.order)}
        self.compute = [n for n in self.order if isinstance(n, COMPUTE)]
        fronts = self._fronts()
        self.reads: dict[Node, tuple[Node, ...]] = {
            n: tuple(dict.fromkeys(f for o in operands(n) for f in fronts[o])) for n in self.compute
        }
        self.sources: dict[Node, list[Node]] = {
            n: [f for f in read if not isinstance(f, Input)] for n, read in self.reads.items()
        }
        self.users: dict[Node, list[Node]] = defaultdict(list)
        for node in self.compute:
            for source in self.sources[node]:
                self.users[source].append(node)
        self.outputs = set(graph.outputs)
        self.parts: dict[int, set[Node]] = {}
        self.homes: dict[Node, list[int]] = {}
        self.prologue: dict[Node, int] = {}  # nodes computed as operands of a product: distance from it

    # ---- the graph seen through views ------------------------------------------------

    def _fronts(self) -> dict[Node, tuple[Node, ...]]:
        """For each node the compute nodes and inputs it reaches through nodes that cost nothing."""
        fronts: dict[Node, tuple[Node, ...]] = {}
        for node in self.order:
            if isinstance(node, (Input, *COMPUTE)):
                fronts[node] = (node,)
            else:
                fronts[node] = tuple(dict.fromkeys(f for o in operands(node) for f in fronts[o]))
        return fronts

    def roots(self, part: Iterable[Node]) -> list[Node]:
        """The nodes of a part that something outside of it needs."""
        inside = set(part)
        used = [
            n for n in inside
            if n in self.outputs or any(n not in self.parts[h] for u in self.users[n] for h in self.homes[u])
        ]  # fmt: skip
        return sorted(used, key=self.position.__getitem__)

    # ---- the first parts -------------------------------------------------------------

    def run(self) -> list[Indexing]:
        """The index notation of each part, in an order in which the parts can run."""
        for node in reversed(self.compute):
            homes = self._first_homes(node)
            self.homes[node] = homes
            for h in homes:
                self.parts.setdefault(h, set()).add(node)
        if self.enabled:
            graph = self.quotient()
            self._merge_edges(graph)
            self._merge_siblings(graph)
            self._take_over(graph)
        indexed = {h: self.index(part) for h, part in self.parts.items()}
        return [indexed[h] for h in self.ordered_homes()]

    def _first_homes(self, node: Node) -> list[int]:
        own = [self.position[node]]
        if not isinstance(node, Apply) or node in self.stored or not self.enabled:
            return own
        users = self.users[node]
        homes = list(dict.fromkeys(h for u in users for h in self.homes[u]))
        if not homes or not all(self._may_feed(node, u) for u in users):
            return own
        if len(homes) == 1:
            return homes
        if node not in self.outputs and self._cheap_to_repeat(node, len(homes)):
            return homes
        return own

    def _may_feed(self, node: Node, user: Node) -> bool:
        """Elementwise nodes feed anything, but operands of a product only if few and cheap."""
        if not isinstance(user, Contract) and user not in self.prologue:
            return True
        if isinstance(user, Contract) and user.dtype == f64:
            return False  # Triton 3.6 cannot compile an f64 product whose operand it converts from 16 bits
        cone = set(self._cone(node))
        alone = all(isinstance(r, Input) for n in cone for r in self.reads[n] if r not in cone)  # else an epilogue
        depth = self.prologue.get(user, 0) + 1
        if _is_cheap(node) and alone and depth <= MAX_PROLOGUE_OPS and self._bytes_read(node) <= 2 * self.bytes(node):
            self.prologue[node] = depth
            return True
        return False

    def _dear_prologue(self, a: int, b: int) -> bool:
        """Whether part a makes an operand of a product in part b with more than a few cheap operations."""
        pairs = [(n, u) for n in self.parts[a] for u in self.users[n] if u in self.parts[b]]
        if not any(isinstance(u, Contract) or u in self.prologue for _, u in pairs):
            return False
        return not all(map(_is_cheap, self.parts[a])) or not all(self._may_feed(n, u) for n, u in pairs)

    def _cheap_to_repeat(self, node: Node, homes: int) -> bool:
        """Reading its operands in every home, against reading them once, storing it, and reading that."""
        stored = self._bytes_read(node) + (1 + homes) * self.bytes(node)
        return len(self._cone(node)) <= MAX_REPEATED_OPS and homes * self._bytes_read(node) < stored

    def _cone(self, node: Node) -> list[Node]:
        """The elementwise nodes that are computed again with this one."""
        found: list[Node] = []
        stack = [node]
        while stack and len(found) <= MAX_REPEATED_OPS:
            n = stack.pop()
            if isinstance(n, Apply) and n not in found and n not in self.stored:
                found.append(n)
                stack.extend(self.sources[n])
        return found

    def _bytes_read(self, node: Node) -> int:
        cone = set(self._cone(node))
        leaves = {r for n in cone for r in self.reads[n] if r not in cone}
        return sum(self.bytes(leaf) for leaf in leaves)

    def bytes(self, node: Node) -> int:
        return max(1, typical(product(list(node.shape)))) * node.dtype.bytes

    # ---- merging ---------------------------------------------------------------------

    def index(self, part: set[Node]) -> Indexing:
        return self._one_kernel(part, self.roots(part))

    def _one_kernel(self, part: set[Node], roots: Sequence[Node]) -> Indexing:
        """The index notation of a part, if that is one kernel. Reductions and products that share a loop
        are only one if the loop runs once."""
        check_time()
        found = Indexing(frozenset(part), list(reversed(roots)))
        if found.loop is not None:
            kernel = build("k0", found, _any_buffer, lambda node: [_any_buffer(node)], {})
            reason = one_loop(kernel, found.loop)
            if reason is not None:
                raise NotOneLoop(reason, roots[0])
        return found

    def quotient(self) -> nx.DiGraph[int]:
        """The parts as one node each, with an edge where one reads what another stores."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self.parts)
        for h, part in self.parts.items():
            for node in part:
                graph.add_edges_from((self.homes[s][0], h) for s in self.sources[node] if s not in part)
        return graph

    def _merge_edges(self, graph: nx.DiGraph[int]) -> None:
        """Heaviest edge first; again as long as anything merged (a refusal can become possible)."""
        merged = True
        while merged:
            merged = False
            for a, b in sorted(graph.edges, key=lambda e: (-self._carried(*e), e)):
                if graph.has_edge(a, b) and self.refusal(a, b, graph) is None:
                    self._merge(a, b, graph)
                    merged = True

    def _carried(self, a: int, b: int) -> int:
        """Bytes that merging would keep out of memory."""
        return sum(self.bytes(n) for n in self.parts[a] if any(u in self.parts[b] for u in self.users[n]))

    def refusal(self, a: int, b: int, graph: nx.DiGraph[int]) -> str | None:
        """Why parts a and b (which may read a) cannot be one kernel; None if they can."""
        if not self.enabled:
            return "fusion is off"
        if any(_reaches(graph, s, [b]) for s in graph.successors(a) if s != b):
            return "another kernel must run in between"
        copies = filter(is_copy, self.parts[a])
        if any(isinstance(u, Contract) for n in copies for u in self.users[n]):
            return "a copy that a tensor core can read"
        if any(n in self.stored for n in self.parts[a]):
            return "kept in memory: it would be computed too often"
        inside = self.parts[a] | self.parts[b]
        if sum(not isinstance(n, Apply) for n in inside) > MAX_REDUCTIONS:
            return f"{MAX_REDUCTIONS} reductions are enough for one kernel"
        again = "it would be computed again for every tile of the product" if self._dear_prologue(a, b) else None
        try:
            found = self._one_kernel(inside, self._merged_roots(a, b))
        except NotOneLoop as refusal:
            return f"not one loop: {refusal.reason}"
        except NotOneKernel as refusal:
            return again or refusal.reason
        return again if found.loop is None else None  # a program that loops holds all columns of a product

    def _merged_roots(self, a: int, b: int) -> list[Node]:
        inside = self.parts[a] | self.parts[b]
        used = {
            n for n in inside
            if n in self.outputs
            or any(n not in self.parts[h] for u in self.users[n] for h in self.homes[u] if h not in (a, b))
        }  # fmt: skip
        return sorted(used, key=self.position.__getitem__)

    def _merge(self, a: int, b: int, graph: nx.DiGraph[int]) -> None:
        part = self.parts.pop(a)
        self.parts[b] |= part
        for n in part:
            self.homes[n] = list(dict.fromkeys(b if h == a else h for h in self.homes[n]))
        graph.add_edges_from((p, b) for p in list(graph.predecessors(a)) if p != b)
        graph.add_edges_from((b, s) for s in list(graph.successors(a)) if s != b)
        graph.remove_node(a)

    def _merge_siblings(self, graph: nx.DiGraph[int]) -> None:
        """Parts without a path between them that read the same arrays or fill the same shape."""
        for a, b in self._sibling_pairs():
            if a not in self.parts or b not in self.parts:
                continue
            independent = not _reaches(graph, a, [b]) and not _reaches(graph, b, [a])
            if independent and self.refusal(a, b, graph) is None:
                self._merge(a, b, graph)

    def _take_over(self, graph: nx.DiGraph[int]) -> None:
        """A part takes over what the next one does first, if that leaves less to store.

        log(sum) + max - picked feeds a mean over other axes: its parts are three values a row,
        the result is one.
        """
        for a, b in sorted(graph.edges):
            first = self._first_steps(b)
            before = self.parts[a], self.parts[b]
            elsewhere = any(n in self.stored or not {a, b}.issuperset(self.homes[n]) for n in first)
            if not first or elsewhere:
                continue
            traffic = self._stored_bytes(a, b)
            self._assign(a, before[0] | first)
            self._assign(b, before[1] - first)
            makers = {self.homes[s][0] for n in first for s in self.sources[n] if s not in before[0] | before[1]}
            if self._stored_bytes(a, b) < traffic and self._valid(a, b) and not _reaches(graph, a, makers):
                graph.add_edges_from((m, a) for m in makers)
            else:
                self._assign(a, before[0])
                self._assign(b, before[1])

    def _valid(self, *homes: int) -> bool:
        """Whether each of these parts is one kernel."""
        try:
            for h in homes:
                self.index(self.parts[h])
        except NotOneKernel:
            return False
        return True

    def _first_steps(self, home: int) -> set[Node]:
        """The elementwise nodes of a part that feed its reductions and need none of them."""
        part = self.parts[home]
        steps: set[Node] = set()
        for node in sorted(part, key=self.position.__getitem__):
            if isinstance(node, Apply) and all(s in steps for s in self.sources[node] if s in part):
                steps.add(node)
        feeding: set[Node] = {n for n in part if not isinstance(n, Apply)}
        for node in sorted(steps, key=self.position.__getitem__, reverse=True):
            if any(u in feeding for u in self.users[node]):
                feeding.add(node)
        return steps & feeding

    def _assign(self, home: int, part: set[Node]) -> None:
        for n in self.parts[home] | part:
            rest = [h for h in self.homes[n] if h != home]
            self.homes[n] = sorted([*rest, home]) if n in part else rest
        self.parts[home] = part

    def _stored_bytes(self, *homes: int) -> int:
        return sum(self.bytes(n) for h in homes for n in self.roots(self.parts[h]))

    def _sibling_pairs(self) -> list[tuple[int, int]]:
        by_key: dict[object, list[int]] = defaultdict(list)
        for h, part in sorted(self.parts.items()):
            leaves = {r for n in part for r in self.reads[n] if r not in part}
            shapes = {r.shape for r in self.roots(part)}
            for key in (*leaves, *shapes):
                by_key[key].append(h)
        pairs: dict[tuple[int, int], int] = defaultdict(int)
        for homes in by_key.values():
            for first, second in zip(homes, homes[1:]):
                pairs[first, second] += 1
        return sorted(pairs, key=lambda p: (-pairs[p], p))

    # ---- the result ------------------------------------------------------------------

    def ordered_homes(self) -> list[int]:
        """The parts in an order in which they can run."""
        key = {h: min(self.position[n] for n in part) for h, part in self.parts.items()}
        return list(nx.lexicographical_topological_sort(self.quotient(), key=lambda h: key[h]))


def _any_buffer(node: Node) -> Buffer:
    """Some memory for a value, to see what its kernel would be."""
    role = "scalar" if isinstance(node, Input) and node.scalar else "input"
    return Buffer("x", node.dtype, node.shape, contiguous(node.shape), role)


def _is_cheap(node: Node) -> bool:
    return isinstance(node, Apply) and (node.op == "cast" or OPERATORS[node.op].cost == "cheap")


def _reaches(graph: nx.DiGraph[int], start: int, ends: Iterable[int]) -> bool:
    return any(nx.has_path(graph, start, end) for end in ends)


def typical(d: Dim) -> int:
    """The value of a size, taking unknown dimensions for a typical one."""
    symbols = d.symbols()
    return int(d.substitute({s: TYPICAL for s in symbols})) if symbols else int(d)
