"""The partition of compute nodes into parts, each of which becomes one kernel.

In: a graph. Out: sets of nodes, in an order in which they can run. A part is legal if
`one_kernel` accepts it and if the parts stay acyclic; among the legal merges
the one that keeps most bytes out of memory is taken first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import networkx as nx

from minitri.base.limits import check_time
from minitri.graph.ir import Apply, Contract, Graph, Node, is_copy
from minitri.kernels.demand import NotOneKernel
from minitri.optimize.fusion.first_parts import FirstParts
from minitri.optimize.fusion.fused_indexing import MAX_BUFFERS, FusedIndexing
from minitri.optimize.fusion.one_kernel import one_kernel
from minitri.optimize.fusion.operand_order import in_order, trial_kernel
from minitri.optimize.online_reductions.kernels import one_loop

MAX_REDUCTIONS = 12  # in a loop over blocks each one holds an accumulator as large as a block, in registers


class NotOneLoop(NotOneKernel):
    """Reductions and products over one axis that one loop cannot make."""


class Partition(FirstParts):
    """The parts of a graph while they are being merged."""

    def __init__(self, graph: Graph, stored: set[Node]) -> None:
        super().__init__(graph, stored)
        self._changes: dict[int, int] = defaultdict(int)  # how often each part changed
        self._known: dict[object, str | None] = {}  # refusals of parts as they were

    def run(self) -> list[FusedIndexing]:
        """The index notation of each part, in an order in which the parts can run."""
        self.start()
        self._check_first()
        graph = self.quotient()
        self._merge_edges(graph)
        self._merge_siblings(graph)
        self._take_over(graph)
        indexed = self._indexed()
        return [in_order(indexed[h]) for h in self.ordered_homes()]

    def _check_first(self) -> None:
        """Cuts the parts that read too many arrays, before merging is tried with each of these arrays."""
        cuts: list[Node] = []
        for part in self.parts.values():
            inner = sorted(part, key=self.position.__getitem__)[:-1]
            pieces, leaves = 1, len(self.leaves(part))
            while leaves > pieces * (MAX_BUFFERS + MAX_REDUCTIONS):  # merging may save one for each reduction
                pieces *= 2
            cuts += [inner[len(inner) * k // pieces] for k in range(1, pieces) if inner]
        if cuts:
            raise NotOneKernel("it would read too many arrays", *cuts)

    def _indexed(self) -> dict[int, FusedIndexing]:
        """The index notation of each part. Values that must be stored first are known for all parts at once."""
        indexed: dict[int, FusedIndexing] = {}
        refused: list[NotOneKernel] = []
        for h in self.parts:
            try:
                indexed[h] = self.index(h)
            except NotOneKernel as refusal:
                refused.append(refusal)
        if refused:
            raise NotOneKernel(refused[0].reason, *(n for refusal in refused for n in refusal.nodes))
        return indexed

    # ---- merging ---------------------------------------------------------------------

    def index(self, home: int) -> FusedIndexing:
        return self._one_kernel(self.parts[home], self.roots(home))

    def _one_kernel(self, part: set[Node], roots: Sequence[Node]) -> FusedIndexing:
        """The index notation of a part, if that is one kernel. Reductions and products that share a loop
        are only one if the loop runs once."""
        check_time()
        found = one_kernel(frozenset(part), list(reversed(roots)), self.allows)
        if found.loop is not None:
            reason = one_loop(trial_kernel(found), found.loop)
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
            carried = self._carried()
            for a, b in sorted(graph.edges, key=lambda e: (-carried[e], e)):
                if graph.has_edge(a, b) and self.refusal(a, b, graph) is None:
                    self._merge([a], b, graph)
                    merged = True

    def _carried(self) -> dict[tuple[int, int], int]:
        """For each edge the bytes that merging would keep out of memory."""
        carried: dict[tuple[int, int], int] = defaultdict(int)
        for node in self.compute:
            readers = {h for u in self.users[node] for h in self.homes[u]}.difference(self.homes[node])
            for b in readers:
                carried[self.homes[node][0], b] += self.bytes(node)
        return carried

    def refusal(self, a: int, b: int, graph: nx.DiGraph[int]) -> str | None:
        """Why parts a and b (which may read a) cannot be one kernel; None if they can."""
        return "another kernel must run in between" if detour(graph, a, b) else self._not_one([a], b)

    def _not_one(self, joining: Sequence[int], last: int) -> str | None:
        """Why the last part cannot take in all the others."""
        joined = set[Node]().union(*(self.parts[h] for h in joining))
        copies = filter(is_copy, joined)
        if any(isinstance(u, Contract) for n in copies for u in self.users[n]):
            return "a copy that a tensor core can read"
        if not joined.isdisjoint(self.stored):
            return "kept in memory: it would be computed too often"
        inside = joined | self.parts[last]
        if sum(not isinstance(n, Apply) for n in inside) > MAX_REDUCTIONS:
            return f"{MAX_REDUCTIONS} reductions are enough for one kernel"
        homes = (*joining, last)
        roots = self.roots(*homes)
        key = homes, tuple(self._changes[h] for h in homes), tuple(roots)
        if key not in self._known:  # found once for parts that stay as they are
            self._known[key] = self._refused(joining, last, inside, roots)
        return self._known[key]

    def _refused(self, joining: Sequence[int], last: int, inside: set[Node], roots: Sequence[Node]) -> str | None:
        """Why these nodes are not one kernel."""
        dear = any(self.dear_prologue(h, last) for h in joining)
        again = "it would be computed again for every tile of the product" if dear else None
        try:
            found = self._one_kernel(inside, roots)
        except NotOneLoop as refusal:
            return f"not one loop: {refusal.reason}"
        except NotOneKernel as refusal:
            return again or refusal.reason
        return again if found.loop is None else None  # a program that loops holds all columns of a product

    def _merge(self, joining: Sequence[int], b: int, graph: nx.DiGraph[int]) -> None:
        self._changes[b] += 1
        for a in joining:
            part = self.parts.pop(a)
            self.parts[b] |= part
            for n in part:
                self.homes[n] = list(dict.fromkeys(b if h == a else h for h in self.homes[n]))
            graph.add_edges_from((p, b) for p in list(graph.predecessors(a)) if p != b)
            graph.add_edges_from((b, s) for s in list(graph.successors(a)) if s != b)
            graph.remove_node(a)

    def _merge_siblings(self, graph: nx.DiGraph[int]) -> None:
        """Parts without a path between them that read the same arrays or fill the same shape."""
        for chain in _chains(self._sibling_pairs()):
            first, more = 0, 1  # where one pair merges the next ones mostly do: twice as many are tried at once
            while first + 1 < len(chain):
                more = max(1, min(more, self._most_together(chain[first : first + more + 1]) - 1))
                if self._join(chain[first : first + more + 1], graph):
                    first, more = first + more, 2 * more
                elif more > 1:
                    more = 1
                else:
                    first += 1

    def _most_together(self, homes: Sequence[int]) -> int:
        """How many of these parts, from the first on, may be one kernel by what they read and write."""
        inside, leaves, roots = set[Node](), set[Node](), 0
        for count, home in enumerate(homes):
            part = self.parts.get(home, set())
            inside, leaves = inside | part, leaves | self.leaves(part)
            roots += len(self.roots(home)) if part else 0
            reductions = sum(not isinstance(n, Apply) for n in inside)
            if reductions > MAX_REDUCTIONS or len(leaves - inside) + roots > MAX_BUFFERS:
                return count
        return len(homes)

    def _join(self, homes: Sequence[int], graph: nx.DiGraph[int]) -> bool:
        """Whether these parts became one: none needs another, and together they are one kernel."""
        *joining, last = homes
        if any(h not in self.parts for h in homes):
            return False
        after = {s for h in homes for s in graph.successors(h)}
        if connected(graph, after, homes) or self._not_one(joining, last) is not None:
            return False
        self._merge(joining, last, graph)
        return True

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
            if self._stored_bytes(a, b) < traffic and self._valid(a, b) and not connected(graph, [a], makers):
                graph.add_edges_from((m, a) for m in makers)
            else:
                self._assign(a, before[0])
                self._assign(b, before[1])

    def _valid(self, *homes: int) -> bool:
        """Whether each of these parts is one kernel."""
        try:
            for h in homes:
                self.index(h)
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
        self._changes[home] += 1

    def _stored_bytes(self, *homes: int) -> int:
        return sum(self.bytes(n) for h in homes for n in self.roots(h))

    def _sibling_pairs(self) -> list[tuple[int, int]]:
        by_key: dict[object, list[int]] = defaultdict(list)
        for h, part in sorted(self.parts.items()):
            for key in (*self.leaves(part), *{r.shape for r in self.roots(h)}):
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


def _chains(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Pairs that follow each other in one list: (1, 2), (2, 3), (5, 6) are [1, 2, 3] and [5, 6]."""
    chains: list[list[int]] = []
    for a, b in pairs:
        if chains and chains[-1][-1] == a:
            chains[-1].append(b)
        else:
            chains.append([a, b])
    return chains


# ---- whether one part depends on another -----------------------------------------------------


def connected(graph: nx.DiGraph[int], starts: Iterable[int], ends: Iterable[int]) -> bool:
    """Whether a path leads from one of `starts` to one of `ends`. A start that is an end counts.

    The search goes from both sides at once and always extends the smaller side. A part that a thousand others read
    costs nothing then, if the part it is asked about reads only a few.
    """
    after, before = set(starts), set(ends)
    forward, backward = after, before
    while forward and backward:
        if not after.isdisjoint(before):
            return True
        if len(forward) <= len(backward):
            forward = {s for n in forward for s in graph.successors(n)} - after
            after = after | forward
        else:
            backward = {p for n in backward for p in graph.predecessors(n)} - before
            before = before | backward
    return False


def detour(graph: nx.DiGraph[int], a: int, b: int) -> bool:
    """Whether a path leads from a to b that is not the edge between them."""
    if graph.out_degree(a) < 2 or graph.in_degree(b) < 2:  # then there is no other edge to begin or to end with
        return False
    starts = (s for s in graph.successors(a) if s != b)
    return connected(graph, starts, (p for p in graph.predecessors(b) if p != a))
