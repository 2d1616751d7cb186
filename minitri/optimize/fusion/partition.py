"""Merges the nodes of a graph into parts. Each part of the graph becomes one kernel.

The method `Partition.run` returns the axes and indices of each kernel, in an order in which the kernels can run. A
merge is legal under two conditions: `one_kernel` accepts the merged part, and the graph of parts stays acyclic. Among
legal merges, the merge that saves the most memory traffic comes first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import pairwise

import networkx as nx

from minitri.base.nodes import grouped
from minitri.base.resource_limits import check_time
from minitri.graph.ir import Apply, Contract, Graph, Node, Reduce, is_copy
from minitri.kernels.demand import NotOneKernel
from minitri.optimize.fusion.factor_order import in_order, trial_kernel
from minitri.optimize.fusion.first_parts import FirstParts
from minitri.optimize.fusion.one_kernel import one_kernel
from minitri.optimize.fusion.shared_axes import MAX_BUFFERS, FusedIndexing
from minitri.optimize.online_reductions.merge_loops import one_loop

MANY = 64  # a value is small if the largest value of a part has at least MANY times as many bytes
MAX_REDUCTIONS = 12  # each one can keep an accumulator as large as a block in registers


class NotOneLoop(NotOneKernel):
    """Raised if reductions and products over one axis cannot share a single loop."""


class Partition(FirstParts):
    """The parts of a graph (sets of nodes, each a future kernel) while they are being merged."""

    def __init__(self, graph: Graph, stored: set[Node], free: Collection[Node] = ()) -> None:
        super().__init__(graph, stored, free)
        self._known_attempt = cache(self._attempt)

    def run(self) -> list[FusedIndexing]:
        """Merges parts, and returns the index notation of each remaining part. The parts are in an order in which they
        can run.

        Raises a single NotOneKernel if some parts cannot be one kernel. The exception NotOneKernel lists all values
        that must be stored in memory.
        """
        self.start()
        self._check_first()
        graph = self.quotient()
        self._merge_edges(graph)
        self._merge_siblings(graph)
        self._move_first_steps(graph)
        indexed, refused = self._indexed(self.parts)
        if refused:
            raise NotOneKernel(refused[0].reason, *(n for refusal in refused for n in refusal.nodes))
        return [in_order(indexed[h]) for h in self.ordered_homes()]

    def _check_first(self) -> None:
        """Raises NotOneKernel if a part (the nodes of a future kernel) reads too many arrays."""
        cuts: list[Node] = []
        # before time is spent on merging the parts
        for part in self.parts.values():
            inner = sorted(part, key=self.position.__getitem__)[:-1]
            pieces, leaves = 1, len(self.leaves(part))
            while leaves > pieces * (MAX_BUFFERS + MAX_REDUCTIONS):  # merging may save one array for each reduction
                pieces *= 2
            # one kernel stores each of these values, and another kernel loads it
            cuts += [inner[len(inner) * k // pieces] for k in range(1, pieces) if inner]
        if cuts:
            raise NotOneKernel("it would read too many arrays", *cuts)

    def _indexed(self, homes: Iterable[int]) -> tuple[dict[int, FusedIndexing], list[NotOneKernel]]:
        """Returns a `FusedIndexing` for each part that fits into one kernel, and an exception for each other part."""
        indexed: dict[int, FusedIndexing] = {}
        refused: list[NotOneKernel] = []
        for h in homes:
            try:
                indexed[h] = self._one_kernel(self.parts[h], self.roots(h))
            except NotOneKernel as refusal:
                refused.append(refusal)
        return indexed, refused

    # ---- merging ---------------------------------------------------------------------

    def _one_kernel(self, part: set[Node], roots: Sequence[Node]) -> FusedIndexing:
        """Returns the index notation of a part (the nodes of a future kernel)."""
        found = self._known_attempt(frozenset(part), tuple(roots))
        if isinstance(found, NotOneKernel):
            # NotOneLoop if reductions and products of the part cannot share one loop
            raise found
        return found

    def _attempt(self, part: frozenset[Node], roots: tuple[Node, ...]) -> FusedIndexing | NotOneKernel:
        check_time()
        first = tuple(sorted(roots, key=lambda n: not isinstance(n, Reduce)))
        try:
            found = one_kernel(part, list(reversed(roots)), self.allows)
        except NotOneKernel as refusal:
            return refusal if first == roots else self._attempt(part, first)
        if first != roots and any(len(ds) > 1 for n, ds in found.demands.items() if found.is_leaf(n)):
            other = self._attempt(part, first)
            found = found if isinstance(other, NotOneKernel) else min(found, other, key=_loads)
        if any(permuted or isinstance(u, Contract) for n, permuted in found.in_parts.items() for u in self.users[n]):
            return NotOneKernel("another kernel reads its rows", *found.in_parts)
        reason = one_loop(trial_kernel(found), found.loop) if found.loop is not None else None
        return found if reason is None else NotOneLoop(reason, roots[0])

    def quotient(self) -> nx.DiGraph[int]:
        """Returns a directed graph with one node for each part. An edge leads from a part to each part that reads its
        values.
        """
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self.parts)
        for h, part in self.parts.items():
            for node in part:
                graph.add_edges_from((self.homes[s][0], h) for s in self.sources[node] if s not in part)
        return graph

    def _merge_edges(self, graph: nx.DiGraph[int]) -> None:
        """Merges pairs of parts (future kernels): one part computes values that the other part reads."""
        merged = True
        while merged:  # one merge can make other merges possible
            merged = False
            carried = self._carried()
            # the merge that saves the most bytes comes first
            for a, b in sorted(graph.edges, key=lambda e: (-carried[e], e)):
                if graph.has_edge(a, b) and self.refusal(a, b, graph) is None:
                    self._merge([a], b, graph)
                    merged = True

    def _carried(self) -> dict[tuple[int, int], int]:
        """Returns the bytes of memory traffic that merging each pair of parts would save."""
        carried: dict[tuple[int, int], int] = defaultdict(int)
        for node in self.compute:
            for b in {h for u in self.users[node] for h in self.homes[u]}.difference(self.homes[node]):
                # part `b` reads values of the part of `node`
                carried[self.homes[node][0], b] += self.bytes(node)
        return carried

    def refusal(self, a: int, b: int, graph: nx.DiGraph[int]) -> str | None:
        """Returns the reason why the parts `a` and `b` cannot be one kernel, or None if `a` and `b` can be one kernel.
        Part `b` may read values that part `a` computes, but `a` must not read values that `b` computes.
        """
        return "another kernel must run in between" if detour(graph, a, b) else self._reason_against([a], b)

    def _reason_against(self, joining: Sequence[int], last: int) -> str | None:
        """Returns the reason why parts cannot be merged into one part, or None."""
        joined = set[Node]().union(*(self.parts[h] for h in joining))
        inside = joined | self.parts[last]
        shared = set.intersection(*(self.leaves(self.parts[h]) for h in (*joining, last)))
        # a kernel may store a value and compute others from the same array, but not from the stored value
        apart = joined.intersection(s for n in self.parts[last] for s in self.sources[n]) if shared else joined
        if any(isinstance(u, Contract) for n in apart if is_copy(n) for u in self.users[n]):
            return "a copy that a tensor core can read"
        if not apart.isdisjoint(self.stored):
            return "kept in memory: it would be computed too often"
        if sum(not isinstance(n, Apply) for n in inside) > MAX_REDUCTIONS:
            return f"{MAX_REDUCTIONS} reductions are enough for one kernel"
        dear = any(self.has_costly_prologue(h, last) for h in joining)
        again = "it would be computed again for every tile of the product" if dear else None
        try:
            found = self._one_kernel(inside, self.roots(*joining, last))
        except NotOneLoop as refusal:
            return f"not one loop: {refusal.reason}"
        except NotOneKernel as refusal:
            return again or refusal.reason
        return again if found.loop is None else None  # a program that loops holds all columns of a product

    def _merge(self, joining: Sequence[int], b: int, graph: nx.DiGraph[int]) -> None:
        for a in joining:
            part = self.parts.pop(a)
            self.parts[b] |= part
            for n in part:
                self.homes[n] = list(dict.fromkeys(b if h == a else h for h in self.homes[n]))
            nx.contracted_nodes(graph, b, a, self_loops=False, copy=False)

    def _merge_siblings(self, graph: nx.DiGraph[int]) -> None:
        """Merges independent parts (future kernels) that share an input array or a result shape. For example, one
        kernel stores `relu(x)` and a copy of `-x` that a product will read.
        """
        for chain in _chains(self._sibling_pairs()):
            first, more = 0, 1  # where one pair merges, the next ones usually do: each success doubles `more`
            while first + 1 < len(chain):
                if self._merge_independent(chain[first : first + more + 1], graph):
                    first, more = first + more, 2 * more
                else:
                    first, more = first + (more == 1), max(1, more // 2)

    def _merge_independent(self, homes: Sequence[int], graph: nx.DiGraph[int]) -> bool:
        """Merges independent parts if they can be one kernel, and returns whether they were merged."""
        # a part has the number of its first node, which is now in the part into which the part was merged
        *joining, last = homes = list(dict.fromkeys(self.homes[self.order[h]][0] for h in homes))
        if not joining:
            return True  # the parts have been merged before
        after = {s for h in homes for s in graph.successors(h)}
        if connected(graph, after, homes) or self._reason_against(joining, last) is not None:
            return False
        self._merge(joining, last, graph)
        return True

    def _move_first_steps(self, graph: nx.DiGraph[int]) -> None:
        """Moves the first elementwise operations of a kernel into another kernel that computes their operands."""
        for a, b in sorted(graph.edges):
            # if another kernel needs only `a+b-c`, the kernel of a, b and c stores `a+b-c`: fewer bytes in total
            self._move(self._first_steps(b), a, graph)
            # A small result moves even if no bytes are saved: the square root of a column's variance is computed with
            # the variance, instead of for each row.
            self._move(self._few_elements(a, b), a, graph, few=True)

    def _move(self, nodes: set[Node], a: int, graph: nx.DiGraph[int], few: bool = False) -> None:
        """Moves nodes into the part `a`. Undoes the move if a changed part could not become one kernel."""
        if not nodes or not nodes.isdisjoint(self.stored):
            return
        before = {h: self.parts[h] for h in sorted({a, *(h for n in nodes for h in self.homes[n])})}
        traffic = self._stored_bytes(*before)
        for h, part in before.items():
            self._assign(h, part | nodes if h == a else part - nodes)
        makers = {self.homes[s][0] for n in nodes for s in self.sources[n] if s not in self.parts[a]}
        readers = before.keys() - {a}
        # without `few`, nodes move only if the kernels then store fewer bytes
        acyclic = not connected(graph, {a, *readers}, makers) and not connected(graph, readers, [a])
        if acyclic and (few or self._stored_bytes(*before) < traffic) and not self._indexed(before)[1]:
            graph.add_edges_from([*((m, a) for m in makers), *((a, h) for h in readers)])
        else:  # back to the parts before the move
            for h, part in before.items():
                self._assign(h, part)

    def _first_steps(self, home: int) -> set[Node]:
        """Returns the elementwise nodes of a part that come before its reductions."""
        part = self.parts[home]
        steps: set[Node] = set()
        # these nodes depend on no nodes of the part except each other
        for node in sorted(part, key=self.position.__getitem__):
            if isinstance(node, Apply) and all(s in steps for s in self.sources[node] if s in part):
                steps.add(node)
        feeding: set[Node] = {n for n in part if not isinstance(n, Apply)}
        for node in sorted(steps, key=self.position.__getitem__, reverse=True):
            if any(u in feeding for u in self.users[node]):
                feeding.add(node)
        # at least one reduction depends on each of these nodes
        return steps & feeding

    def _few_elements(self, a: int, b: int) -> set[Node]:
        """Finds elementwise nodes with few elements that part `a` can compute instead of part `b`."""
        found, part = set[Node](), self.parts[b]
        largest = max(map(self.bytes, part))
        for node in sorted(part, key=self.position.__getitem__):
            inside = part.intersection(self.sources[node])
            follows = inside or not self.parts[a].isdisjoint(self.sources[node])
            # a node that can move to part `a` uses no values of part `b` except those of other such nodes
            if isinstance(node, Apply) and inside <= found and follows and self.bytes(node) * MANY <= largest:
                found.add(node)
        return found

    def _assign(self, home: int, part: set[Node]) -> None:
        """Replaces the nodes of one part (a future kernel), and records for each node which parts contain the node."""
        for n in self.parts[home] | part:
            rest = [h for h in self.homes[n] if h != home]
            self.homes[n] = sorted([*rest, home]) if n in part else rest
        self.parts[home] = part

    def _stored_bytes(self, *homes: int) -> int:
        return sum(self.bytes(n) for h in homes for n in self.roots(h))

    def _sibling_pairs(self) -> list[tuple[int, int]]:
        """Returns pairs of parts (future kernels) that share an input array or a result shape."""
        keys = {h: (*self.leaves(part), *{r.shape for r in self.roots(h)}) for h, part in sorted(self.parts.items())}
        alike = grouped((key, h) for h, own in keys.items() for key in own)
        pairs = Counter(pair for homes in alike.values() for pair in pairwise(homes))
        # the pair with the most arrays and result shapes in common comes first
        return sorted(pairs, key=lambda p: (-pairs[p], p))

    # ---- the result ------------------------------------------------------------------

    def ordered_homes(self) -> list[int]:
        """Returns the parts (future kernels) in order: each part comes after the parts whose results it reads."""
        key = {h: min(self.position[n] for n in part) for h, part in self.parts.items()}
        return list(nx.lexicographical_topological_sort(self.quotient(), key=lambda h: key[h]))


def _chains(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Joins consecutive pairs into lists: the pairs (1, 2), (2, 3) become [1, 2, 3]."""
    chains: list[list[int]] = []
    for a, b in pairs:
        if chains and chains[-1][-1] == a:
            chains[-1].append(b)
        else:
            chains.append([a, b])
    return chains


# ---- whether one part depends on another -----------------------------------------------------


def connected(graph: nx.DiGraph[int], starts: Iterable[int], ends: Iterable[int]) -> bool:
    """Checks whether a path leads from one of `starts` to one of `ends`. A node that is in both `starts` and `ends`
    counts as a path.

    The search follows edges forwards from `starts` and backwards from `ends`. Each step continues from the side
    (`starts` or `ends`) whose last step reached fewer nodes. A search for a path from both of its ends stays fast even
    if one node of the graph has a thousand edges.
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
    """Checks whether a path from `a` to `b` leads through other nodes."""
    starts = (s for s in graph.successors(a) if s != b)
    return connected(graph, starts, (p for p in graph.predecessors(b) if p != a))


def _loads(found: FusedIndexing) -> int:
    """Returns how many loads of arrays a kernel has."""
    # an array that is needed at two different indices is loaded twice
    return sum(len(ds) for n, ds in found.demands.items() if found.is_leaf(n))
