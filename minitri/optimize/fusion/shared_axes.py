"""Assigns axes to the operations of one future kernel, so that the operations share as many axes as possible.

    m[i] = max over r of x[i, r]        the sum reuses the axis r, which the part already has: both
    s[i] = sum over r of exp(x - m)     read x[i, r], so softmax is one kernel

The class `FusedIndexing` takes a part of a graph: the nodes that one kernel computes. The class finds each index at
which the kernel needs a node. Such an index, for example `x[i, r]`, is called a *demand*. If a kernel has a single
operation, the file minitri/kernels/demand.py finds the demands. In a part with several operations, a later operation
reuses existing axes of the same length. Among existing axes of the same length, the kernel uses the axis that lets the
operations share the most loads. A grid program that reduces a piece of an array can also store a result for each
element of this piece.

    t[i] = sum over r of x[16384*i + r]      the index reaches each element of out once,
    out[16384*i + r] = 2 * x[16384*i + r]    so both need the same elements of x
"""

from collections.abc import Sequence, Set

from minitri.base import dims
from minitri.base.dims import Dim, Symbol, axis_names
from minitri.base.intervals import mixed_radix
from minitri.base.symbolic_minmax import Allows
from minitri.graph import ir
from minitri.graph.ir import Apply, Contract, Gather, Node, Reduce, Scan, Shape, axis, axis_symbol, ranges
from minitri.graph.scalar_form import Element, element
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.demand import PARALLEL, REDUCED, Demand, Indexing, NotOneKernel, plain_axis, with_axes

MAX_BUFFERS = 96


class FusedIndexing(Indexing):
    """The axes of a kernel with several operations, and the indices at which the kernel needs each node. Raises
    NotOneKernel if the kernel would read too many arrays.

    `loop`: the axis of a loop that computes both products and other reductions. None if the kernel has no such loop.
    `held`: axes of which each grid program has all indices. They are the column axes of the products whose sums run
        over `loop`. The file one_kernel.py sets both fields, `loop` and `held`.
    `in_parts`: results, such as `2 * x`, of which each grid program of a split reduction stores a part. The value for a
        result is True if the axes of this result are permuted.
    `exchanged`: the row axis and the column axis of a product, if they exchange their places in the order of the axes.
        The file factor_order.py sets `exchanged`.
    """

    def __init__(self, inside: frozenset[Node], roots: Sequence[Node], allows: Allows) -> None:
        self.loop: str | None = None
        self.held: Set[str] = set()
        self.in_parts: dict[Node, bool] = {}
        self.exchanged: tuple[str, ...] = ()
        self._rows: dict[Node, str] = {}  # product → its row axis, if a result needs this axis before the operands do
        super().__init__(inside, roots, allows)

    def _order(self) -> list[Node]:
        order = super()._order()
        leaves = sum(map(self.is_leaf, order))
        compute = [n for n in order if n in self.inside and n is not self.roots[0]]
        if compute and leaves + len(self.roots) > MAX_BUFFERS:
            raise NotOneKernel(f"it would read {leaves} arrays", compute[len(compute) // 2])
        return order

    def axis_order(self) -> list[str]:
        if self.loop is not None and not self.held:  # every column of a product lies along the loop
            return [*self.parallel, *(a for a in self.axes if a in self.reduced)]
        other = dict(zip(self.exchanged, reversed(self.exchanged)))
        return [other.get(a, a) for a in super().axis_order()]

    # ---- results -----------------------------------------------------------------------

    def _root_demand(self, node: Node) -> Demand:
        """Returns the index at which a result of the kernel is computed and stored."""
        # A result that the kernel needs and stores at the same index, such as `[i, j]`, is computed only once.
        for demand in self.demands.get(node, ()):
            if not demand.guards and self._plain(node, demand):
                return demand
        if (found := self._index_in_parts(node)) is not None:
            return Demand(found)
        # otherwise the result is indexed by axes with the same extents
        index: list[Dim] = []
        digits = self._digits_of_row(node)
        for k, extent in enumerate(node.shape):
            free = extent != 1 and k not in digits
            name = (self._match(node, k, index) or self._fresh(extent, PARALLEL)) if free else None
            index.append(dims.axis(name) if name else digits.get(k, dims.ZERO))
        return Demand(tuple(index))

    def _index_in_parts(self, root: Node) -> tuple[Dim, ...] | None:
        """Returns an index such as `16384*i + r` at which a split reduction can store the result `root`, or None."""
        # Each program of `sum(x)` adds up 16384 elements `x[16384*i + r]`. At this index, the kernel can also store the
        # result `2 * x`, so `sum(x)` and `2 * x` share one load of x.
        if not self.reduced:
            return None
        axes = tuple(map(axis, range(root.rank)))
        elements = ir.postorder([element(root, axes)], self._operands)
        whole = [e for e in elements if axis_names(e.at) == axis_names(element(root, axes).at)]
        # a result of arrays with different orders of axes is left out, because transposes need square tiles
        orders = {tuple(d.symbols() for d in e.at if d != 0) for e in whole if not self._operands(e)}
        known = dict(element(n, d.index) for n, ds in self.demands.items() for d in ds if not d.guards)
        for node, at in whole if len(orders) == 1 else ():
            needed = tuple(root.shape[axes.index(d)] if d in axes else dims.ONE for d in at)
            # the kernel must read the elements already, and the stores must not be slow
            if node in known and {*at} <= {*axes, dims.ZERO} and self._visits_all(root, node, needed, known[node]):
                self.in_parts[root] = orders != {tuple(d.symbols() for d in element(root, axes).at if d != 0)}
                return tuple(known[node][at.index(d)] if d in at else dims.ZERO for d in axes)
        return None

    def _operands(self, e: Element) -> list[Element]:
        """Returns the operands' elements from which one element of an elementwise node is computed."""
        args = e.node.args if isinstance(e.node, Apply) and not self.is_leaf(e.node) else ()
        return [element(a, e.at) for a in args]

    def _visits_all(self, root: Node, node: Node, needed: Shape, index: Sequence[Dim]) -> bool:
        """Checks whether an index like `16384*i + r` reaches each element of a result exactly once."""
        place = sum((d * n for d, n in zip(index, ir.contiguous(node.shape))), dims.ZERO)
        digits = mixed_radix(place, self.ranges.ranges, dims.product(list(root.shape)))
        last = min(digits, key=digits.__getitem__, default=None)
        # a thread must store 16 bytes of the result at once
        aligned = last is not None and self.axes[last.name] * root.dtype.bytes % ALIGNMENT == 0
        # `needed`: how many indices along each axis of `node` the result needs. The result must not need only a part of
        # each row, as in `sum(x), x[:, :64] * 2`, or only the diagonal.
        whole = needed[1:] == node.shape[1:] and dims.product(list(needed)) == dims.product(list(root.shape))
        # False if each entry of the index is a single axis, as in `[i, r]`
        return aligned and whole and len(digits) == len(self.axes) and not all(d == 0 or plain_axis(d) for d in index)

    def _digits_of_row(self, root: Node) -> dict[int, Dim]:
        """Splits a product's row index into axes of a result, such as `i // 32, i % 32`."""
        products = any(map(_is_product, self.inside))
        stack, seen = [element(root, tuple(map(axis, range(root.rank))))] if products else [], set[Node]()
        while stack:
            node, index = stack.pop()
            if _is_product(node):
                break
            if isinstance(node, Apply) and node in self.inside and node not in seen:  # several paths may lead to a node
                seen.add(node)
                stack += [element(a, index) for a in node.args]
        else:
            return {}
        # for the row `i = 32*d0 + d1` of the product, with d1 < 32, d0 is `i // 32` and d1 is `i % 32`
        digits = mixed_radix(index[-2], ranges(root.shape), node.shape[-2])
        if not digits or node not in self.inside:  # the result does not split the row axis of a product
            return {}
        known = [plain_axis(d.index[-2]) for d in self.demands.get(node, ()) if not d.guards]
        known.append(self._rows.get(node))
        row = self._rows[node] = next(filter(None, known), None) or self._fresh(node.shape[-2], PARALLEL)
        steps = {k: digits.get(axis_symbol(k)) for k in range(root.rank)}
        return {k: dims.axis(row) // step % root.shape[k] for k, step in steps.items() if step}

    def _match(self, node: Node, k: int, index: list[Dim]) -> str | None:
        """Returns a kernel axis with the same size as an axis of a result, or None."""
        free = [a for a in self.axes if a not in map(plain_axis, index)]
        candidates = [a for a in free if self.axes[a] == node.shape[k]]
        if len(candidates) < 2:
            return candidates[0] if candidates else None

        def full(name: str) -> Demand:
            rest = [a for a in free if a != name]
            tail: list[Dim] = []
            for extent in node.shape[k + 1 :]:
                same = next((a for a in rest if self.axes[a] == extent), None)
                tail.append(dims.axis(same) if same and extent != 1 else dims.ZERO)
                rest = [a for a in rest if a != same]
            return Demand((*index, dims.axis(name), *tail))

        def fit(name: str) -> tuple[int, int]:
            met, new = self._count_shared(node, full(name))
            return -new, met

        return max(candidates, key=fit)  # the axis that needs the fewest additional operands

    # ---- reductions --------------------------------------------------------------------

    def _axes_over(self, node: Reduce | Contract, demand: Demand, extents: Sequence[Dim]) -> tuple[str, ...]:
        """Chooses axes of the kernel for a reduction: existing axes of equal size, or new axes."""
        kept = {s.name for d in demand.index for s in d.symbols()} | self._product_axes()
        chosen: list[str] = []
        for k, extent in enumerate(extents):
            fitting = [a for a, e in self.axes.items() if e == extent and a not in kept and a not in chosen]
            last = k + 1 == len(extents)
            shared = {a: self._reused(node, demand, [*chosen, a]) for a in fitting if last and isinstance(node, Reduce)}
            # if several axes match: the axis with which the reduction shares the most operands with the kernel
            best = max(fitting, key=lambda a: (shared.get(a, 0), a in self.reduced), default=None)
            chosen.append(best or self._fresh(extent, REDUCED))
        return tuple(chosen)

    def column_axis(self, d: Dim) -> str | None:
        """Returns the axis along which the column index of a product runs. If a matrix product shares a loop with
        reductions, the column index of the product is the loop's axis `r`, or `r` plus an offset.
        """
        along_loop = d.coefficient(Symbol(self.loop, "axis")) if self.loop is not None else None
        return self.loop if along_loop is not None and along_loop[0] == 1 else plain_axis(d)

    def _product_axes(self) -> set[str]:
        """Returns the row and column axes of products, except axes that are also reduced."""
        demands = [d for n, ds in self.demands.items() if isinstance(n, Contract) and not self.is_leaf(n) for d in ds]
        sides = {plain_axis(i) for d in demands for i in d.index[-2:]}
        # a reduction reuses the row or column axis of a product only if another reduction already uses this axis
        return {a for a in sides if a is not None} - self.reduced

    def _reused(self, node: Reduce, demand: Demand, names: Sequence[str]) -> int:
        """Counts the operands that both the kernel and a reduction read at the same index."""
        return self._count_shared(node.x, Demand(with_axes(demand.index, node.axes, names), demand.guards))[0]

    def _count_shared(self, node: Node, demand: Demand, limit: int = 64) -> tuple[int, int]:
        """Returns two counts of a node's operands: operands that the kernel already needs, and new operands."""
        count, stack, seen = 0, [(node, demand)], set[tuple[Node, Demand]]()
        while stack and len(seen) < limit:  # at most `limit` pairs of a node and its index
            node, demand = stack.pop()
            if (node, demand) in seen:
                continue
            seen.add((node, demand))
            if demand in self.demands.get(node, ()):
                count += 1  # the search does not continue to the operands of this operand
            elif isinstance(node, Reduce) and not self.is_leaf(node):
                stack.extend(self._operand_demand(node, demand))
            elif not isinstance(node, (Contract, Scan, Gather)):
                stack.extend(self.pull(node, demand))
        return count, len(seen) - count

    def _operand_demand(self, node: Reduce, demand: Demand) -> list[tuple[Node, Demand]]:
        """Returns a reduction's operand with the operand's index, or [] if the kernel lacks axes for the reduction."""
        over: list[str] = []
        for extent in (node.x.shape[k] for k in node.axes):
            over += [a for a in self.axes if a in self.reduced and a not in over and self.axes[a] == extent][:1]
        # the reduction is assumed to run over axes of the same extents that the kernel already reduces
        whole = len(over) == len(node.axes)
        return [(node.x, Demand(with_axes(demand.index, node.axes, over), demand.guards))] if whole else []


def _is_product(node: Node) -> bool:
    """Checks whether a node is a matrix product, or a sum of partial matrix products."""
    # minitri/optimize/split_k.py splits a product into parts and adds them up
    added = isinstance(node, Reduce) and isinstance(node.x, Contract) and max(node.axes) < node.x.rank - 2
    return added or isinstance(node, Contract)
