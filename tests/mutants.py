"""The gallery: planted compiler bugs, each a small patch, and what notices it.

    python tests/mutants.py [NAME ...] [--thorough]       plants them and prints what noticed

A row says where a bug stands (`file`), what is changed (`old`, which must stand there once, into
`new`), which pass is wrong because of it (`guilty`), and the program of tests/oracle_quick.py that
shows it (`case`, run with the schedule `schedule`). Nothing is written: tests/patched.py imports
the package with the changed text in a fork. tests/test_mutants.py holds every row to its word, and
`Program.check` to naming the pass. When the compiler changes under a row the row must follow.

`unseen`: why `check` cannot name the pass here, where that is so; such bugs are killed by `text`, a
piece of the Triton source that must be there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patched import ROOT, Job, replaced, run

MASK, LOWER, TILE = "minitri/tile/mask.py", "minitri/tile/lower.py", "minitri/tile/ir.py"
EMIT, INTERPRETED, OPS = "minitri/backend/emit.py", "minitri/backend/interpreted.py", "minitri/ops.py"
INDEX, BUILD, FUSE = "minitri/kernel/index.py", "minitri/kernel/build.py", "minitri/kernel/fuse.py"
PARTITION, FLATTEN, PARTS = "minitri/kernel/partition.py", "minitri/kernel/flatten.py", "minitri/graph/parts.py"
SIMPLIFY, SPECIALISE, DIMS = "minitri/graph/simplify.py", "minitri/graph/specialise.py", "minitri/dims.py"
VALUES, GRAPH, INDEXING = "minitri/graph/values.py", "minitri/graph/ir.py", "minitri/graph/indexing.py"
VIEWS, REDUCTIONS = "minitri/graph/functions/views.py", "minitri/graph/functions/reductions.py"
MAKING = "minitri/graph/functions/making.py"
ONLINE, RELAX = "minitri/kernel/online.py", "minitri/kernel/relax.py"
SKIP, ROUNDS, TRANSPORT = "minitri/tile/skip.py", "minitri/tile/online.py", "minitri/transport.py"

USUAL = ("interpreter", "cuda", "cuda general")


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    guilty: str
    case: str
    schedule: str = "own"
    text: str = ""
    unseen: str = ""

    def job(self, call: str, *args: Any) -> Job:
        source = (ROOT / self.file).read_text(encoding="utf-8")
        seconds = 300 if True in args else 30  # thorough
        return Job(self.name, self.file, replaced(source, self.old, self.new, self.name), call, args, seconds)


GALLERY: tuple[Mutant, ...] = (
    # ---- build: typing, broadcasting, functions ----
    Mutant("mixed signs meet in 32 bits", VALUES, "        dtype = promote(dtype, other)",
           "        dtype = promote(dtype, other) if dtype.kind == other.kind else dtype", "build", "mixed signs"),
    Mutant("an integer and a half meet in the integer", VALUES, "        dtype = promote(dtype, other)",
           "        dtype = dtype if dtype.is_integer else promote(dtype, other)", "build", "integer with half"),
    Mutant("a sum of bytes is a byte", REDUCTIONS, "return dtype if dtype.is_float or dtype == u64 else i64",
           "return dtype if dtype.kind != 'b' else i64", "build", "sum of bytes"),
    Mutant("a sum of truths is 32 bits wide", REDUCTIONS, "return dtype if dtype.is_float or dtype == u64 else i64",
           "return i32 if dtype == bool_ else dtype if dtype.is_float or dtype == u64 else i64", "build", "sum of truths"),
    Mutant("broadcast aligns the first axes", VALUES, "lead = len(shape) - node.rank", "lead = 0", "build", "bias"),
    Mutant("keepdims is ignored", REDUCTIONS, "return _keep(t, out, x.shape, axes) if keepdims else out", "return out",
           "build", "sum with kept axis"),
    Mutant("a mean divides by the size of all axes", REDUCTIONS, "dims.product([shape[k] for k in axes]) - less",
           "dims.product(list(shape)) - less", "build", "mean"),
    Mutant("a variance without centring", REDUCTIONS,
           'centred = t.elementwise("subtract", [a, _average(t, a, axes, True)])', "centred = a", "build", "variance"),
    Mutant("the correction of a deviation is lost", REDUCTIONS, 'axes, keepdims, as_int(correction, "correction"))',
           "axes, keepdims, 0)", "build", "corrected deviation"),
    Mutant("TF32 is left on", EMIT, '{self.names[op.acc]}, "{op.precision}")', '{self.names[op.acc]}, "tf32")', "emit",
           "matmul in full precision"),
    Mutant("quotient and remainder of a reshape are swapped", VIEWS, "place if k == 0 else place % extent",
           "place % extent if k == 0 else place", "build", "regrouped"),
    Mutant("a reshape counts with the wrong axes", VIEWS, "place = flat // dims.product(old[k + 1 :])",
           "place = flat // dims.product(old[:k])", "build", "regrouped"),
    Mutant("a permutation is its own inverse", VIEWS, "[ir.axis(order.index(k)) for k in range(rank)]",
           "[ir.axis(order[k]) for k in range(rank)]", "build", "permuted"),
    Mutant("a flip is one off", VIEWS, "index = [e - 1 - ir.axis(k) if k in axes", "index = [e - ir.axis(k) if k in axes",
           "build", "flip and roll"),
    Mutant("a roll goes the other way", VIEWS, "(ir.axis(k) - by[k]) %", "(ir.axis(k) + by[k]) %", "build", "flip and roll"),
    Mutant("a negative step is taken forwards", INDEXING, "start + step * (ir.axis(axis)",
           "start + abs(step) * (ir.axis(axis)", "build", "backwards"),
    Mutant("the length of a slice is rounded down", INDEXING, "(distance + (abs(step) - 1)) // abs(step)",
           "distance // abs(step)", "build", "backwards"),
    Mutant("negative indices are not wrapped", INDEXING,
           't.elementwise("where", [below, t.elementwise("add", [index, size]), index])', "index", "build", "gather"),
    Mutant("a triangle without its diagonal", MAKING, 't.elementwise("greater_equal", [_diagonal(t, a.shape, k), 0])',
           't.elementwise("greater", [_diagonal(t, a.shape, k), 0])', "build", "triangle"),
    Mutant("0.0 and -0.0 are one constant", GRAPH, 'bits = struct.pack("d", value) if dtype.is_float else int(value)',
           "bits = value", "build", "both zeros"),
    # ---- specialise ----
    Mutant("every dimension gets the first one's size", SPECIALISE, "Dim.of(n) for name, n in sizes.items()}",
           "Dim.of(next(iter(sizes.values()))) for name in sizes}", "specialise", "mean"),
    # ---- simplify ----
    Mutant("x + 0 is x", SIMPLIFY, '{"multiply": 1, "divide": 1, "subtract": 0, "power": 1}',
           '{"multiply": 1, "divide": 1, "subtract": 0, "power": 1, "add": 0}', "simplify", "one by x and 0"),
    Mutant("0 * x is 0", SIMPLIFY, "    neutral = {", '    if node.op == "multiply" and (z := _constant(right)) and not z.value:\n'
           "        return right\n    neutral = {", "simplify", "sign of zero"),
    Mutant("x - x is 0", SIMPLIFY, "    neutral = {", '    if node.op == "subtract" and left is right:\n'
           "        return _spread(i, i.const(0, node.dtype), node.shape)\n    neutral = {", "simplify", "x with itself"),
    Mutant("x / x is 1", SIMPLIFY, "    neutral = {", '    if node.op == "divide" and left is right:\n'
           "        return _spread(i, i.const(1, node.dtype), node.shape)\n    neutral = {", "simplify", "x with itself"),
    Mutant("x == x is true", SIMPLIFY, "    left, right = node.args\n    neutral", '    left, right = node.args\n'
           '    if node.op == "equal" and left is right:\n        return _spread(i, i.const(True, node.dtype), node.shape)\n'
           "    neutral", "simplify", "x with itself"),
    Mutant("a cube is a square", SIMPLIFY, "if c is not None and c.value == 2:", "if c is not None and c.value >= 2:",
           "simplify", "powers"),
    Mutant("rounding to f16 and back is dropped", SIMPLIFY, "and holds(inner.dtype, inner.args[0].dtype)):",
           "and inner.dtype.is_float):", "simplify", "rounded on the way"),
    Mutant("an integer by way of a float wraps", SIMPLIFY, "node.dtype.is_integer and not holds(node.dtype, x.dtype):",
           "node.dtype.is_integer and holds(node.dtype, x.dtype):", "simplify", "integer narrowed"),
    Mutant("constants are folded in f16", SIMPLIFY, "operands = [np.asarray(v.value, v.dtype.numpy) for v in values",
           "operands = [np.asarray(v.value, np.float16 if v.dtype.is_float else v.dtype.numpy) for v in values",
           "simplify", "folded tenths"),
    Mutant("a known condition takes the other branch", SIMPLIFY, "node.args[1] if c.value else node.args[2]",
           "node.args[2] if c.value else node.args[1]", "simplify", "known choice"),
    Mutant("transposes are composed in the wrong order", SIMPLIFY,
           "return i.view(inner.x, node.shape, tuple(x.substitute(env) for x in inner.index))",
           "return i.view(inner.x, node.shape, tuple(x.substitute({axis_symbol(k): e for k, e in enumerate(inner.index)})"
           " for x in node.index))", "simplify", "permuted twice"),
    Mutant("a view that crops is no view", SIMPLIFY, "if isinstance(node, View) and node.shape == node.x.shape:",
           "if isinstance(node, View) and len(node.shape) == len(node.x.shape) == 1:", "simplify", "cropped"),
    Mutant("a gather looks through a slice", SIMPLIFY, "== len(set(plain)) == v.rank and v.shape == _permuted(v):",
           "== len(set(plain)) == v.rank:", "simplify", "gather of a head"),
    Mutant("a thin product reads rows as columns", SIMPLIFY, "node.dtype), shape, (*batch, k, n)))",
           "node.dtype), shape, (*batch, n, k)))", "simplify", "thin products"),
    Mutant("a wrap that ends at the extent is none", DIMS, "proves_nonnegative(y - rest - 1, ranges, positive):",
           "proves_nonnegative(y - rest, ranges, positive):", "simplify", "rolled back"),
    # ---- split ----
    Mutant("a split reduction loses its tail", PARTS, "self.parts = -(-self.extent // length)", "self.parts = self.extent // length", "split",
           "long sum", "cuda"),
    Mutant("a split maximum is padded with 0", PARTS, "self.missing, arrays.neutral(self.node.op, self.node.dtype))",
           "self.missing, 0)", "split", "long max", "cuda"),
    Mutant("the parts of a split overlap", PARTS, "axis(self.k) * self.length + axis(self.k + 1)",
           "axis(self.k) * (self.length - 1) + axis(self.k + 1)", "split", "long sum of integers", "cuda"),
    Mutant("parts that follow a maximum are not rescaled", PARTS, 'compute(i, "multiply", partial, factor)', "partial",
           "split", "long logsumexp", "cuda"),
    Mutant("a part of nothing but -inf is rescaled", PARTS,
           'compute(i, "where", _is_bottom(i, parts), constant(i, factor, 1.0), factor)', "factor", "split", "long logsumexp", "cuda"),
    Mutant("variances of parts are put together without their count", PARTS,
           'compute(i, "multiply", compute(i, "multiply", first, second), counts)',
           'compute(i, "multiply", first, second)', "split", "long variance", "cuda"),
    Mutant("the last part of a variance counts as a full one", PARTS,
           "dims.smallest(Dim.of(cut.length), cut.extent - axis(cut.place) * cut.length)", "Dim.of(cut.length)", "split",
           "long variance", "cuda"),
    # ---- fuse ----
    Mutant("a piece of a concat is one too long", INDEX, "inside = self.open_guards([place, extent - 1 - place])",
           "inside = self.open_guards([place, extent - place])", "fuse", "concat of three"),
    Mutant("the pieces of a concat do not move on", INDEX, "            offset = offset + extent", "            offset = extent",
           "fuse", "concat of three"),
    Mutant("the parts of a concat are swapped", BUILD, "self._where(self._inside(own, spans), value, result, spans)",
           "self._where(self._inside(own, spans), result, value, spans)", "fuse", "concat"),
    Mutant("a gather is not guarded", INDEX, "inside = self.open_guards(gather_guards(node, where))", "inside = ()", "fuse",
           "gather out of range"),
    Mutant("gathers are guarded at the end alone", INDEX, "out += [d, extent - 1 - d]", "out += [extent - 1 - d]", "fuse",
           "gather out of range"),
    Mutant("fused although another kernel runs in between", PARTITION,
           "if any(_reaches(graph, s, [b]) for s in graph.successors(a) if s != b):", "if False:", "fuse", "around two products"),
    Mutant("a reduction takes an axis that it keeps", INDEX,
           "if e == extent and a not in kept and a not in chosen]", "if e == extent and a not in chosen]", "fuse",
           "rows and columns"),
    Mutant("a repeated value is summed once", BUILD, "if set(axes) <= set(x.axes):", "if True:", "fuse",
           "sum of a repeated row"),
    Mutant("outputs are handed out backwards", FUSE, "in zip(graph.outputs, outputs):", "in zip(graph.outputs, outputs[::-1]):",
           "fuse", "sign of zero"),
    Mutant("temporaries share one name", FUSE, '_unlike(taken, f"t{len(temporaries)}")', '_unlike(taken, "t0")', "fuse",
           "two temporaries"),
    Mutant("operands of a product get each other's index", INDEX, "return [(node.a, a), (node.b, b)]",
           "return [(node.a, Demand((*index[:-2], dims.axis(k), index[-2]), guards)), (node.b, b)]", "fuse", "square product"),
    # ---- flatten ----
    Mutant("a part of an array is flattened", FLATTEN,
           "        and buffer.shape[place + 1] == b.extent\n"
           "        and buffer.strides[place] == buffer.strides[place + 1] * b.extent\n", "", "flatten", "slices of rows"),
    Mutant("rows with gaps are flattened", FLATTEN, "and buffer.strides[place] == buffer.strides[place + 1] * b.extent",
           "and True", "flatten", "rows with gaps"),
    # ---- online ----
    Mutant("a minimum is followed as a maximum is", TRANSPORT, 'if ops != {"max"}:', 'if not ops <= {"max", "min"}:', "online",
           "sum after a minimum", "small"),
    # ---- relax ----
    Mutant("f32 results are relaxed too", RELAX, "return buffer.dtype.is_float and buffer.dtype.bits == 16",
           "return buffer.dtype.is_float", "relax", "rows by a column"),
    Mutant("1 / y is multiplied where the quotient is also kept in f32", RELAX,
           "and _only_reader(b, kernel, plan)", "", "relax", "a quotient for both widths"),
    Mutant("a jump may come after relaxed arithmetic", RELAX,
           "return not any(_is_arithmetic(op) for op in jumped)", "return True", "relax", "a jump after a quotient"),
    Mutant("a jump may come after relaxed arithmetic of another kernel", RELAX, "relaxed and b not in exact and", "relaxed and",
           "relax", "a jump after a stored quotient"),
    Mutant("a quotient is turned over", RELAX, '(op.args[0], emit("reciprocal", (op.args[1],)))',
           '(op.args[1], emit("reciprocal", (op.args[0],)))', "relax", "halves by a column"),
    Mutant("two divisors share one reciprocal", RELAX, "return once((name, args), Compute(", "return once((name,), Compute(", "relax",
           "halves by a column"),
    Mutant("1 + tanh(x) is 2 * sigmoid(x)", RELAX, '(emit("multiply", (other.args[0], two), other),)', "(other.args[0],)", "relax",
           "one and tanh"),
    Mutant("2 + tanh(x) is taken for 1 + tanh(x)", RELAX, "isinstance(op, Constant) and op.value == 1", "isinstance(op, Constant)",
           "relax", "two and tanh"),
    # ---- lower ----
    Mutant("one block too few", TILE, "return floordiv(self.extent + (self.block - 1), Dim.of(self.block))",
           "return floordiv(self.extent, Dim.of(self.block))", "lower", "bias", "small"),
    Mutant("a minimum is carried by maximum", ROUNDS, '    "min": "minimum",', '    "min": "maximum",', "lower",
           "min of rows", "small"),
    Mutant("products are carried from 0", LOWER, "self.write.carry(new.dtype, new.x.axes, neutral(new.op, new.dtype), new)",
           'self.write.carry(new.dtype, new.x.axes, neutral("sum", new.dtype), new)', "lower", "prod of rows", "small"),
    Mutant("a maximum starts at 0", LOWER, "self.write.carry(new.dtype, new.x.axes, neutral(new.op, new.dtype), new)",
           "self.write.carry(new.dtype, new.x.axes, 0, new)", "lower", "max of integers", "small"),
    Mutant("an accumulator starts at 1", LOWER, "carry = self.write.carry(new.dtype, new.axes, 0.0, new)",
           "carry = self.write.carry(new.dtype, new.axes, 1.0, new)", "lower", "matmul"),
    Mutant("the accumulator of a product is not carried", LOWER, "replace(new, acc=carry)",
           "replace(new, acc=carry.initial)", "lower", "chain of products", "small"),
    Mutant("a running sum forgets the blocks before", LOWER, "result = self.write.compute(body, COMBINE[new.op], carry, own)", "result = own",
           "lower", "cumsum", "small"),
    Mutant("a running sum carries the last block alone", LOWER, '"where", last, result, ', '"where", last, own, ',
           "lower", "cumsum", "small"),
    Mutant("carried lanes are summed", LOWER, "spans=op.spans, op=op.op, x=carried, over=op.over)",
           'spans=op.spans, op="sum", x=carried, over=op.over)', "lower", "max of rows", "small"),
    Mutant("argmax takes the last of equal ones", LOWER, '"greater" if new.op == "argmax" else "less"',
           '"greater_equal" if new.op == "argmax" else "less_equal"', "lower", "argmax", "small"),
    Mutant("argmax passes NaN over", LOWER, "if x.dtype.is_float:  # the first nan wins", "if False:", "lower",
           "argmax of nan", "small"),
    Mutant("argmax counts from the start of each block", LOWER, "here = self._append(body, self._lane(new.over[0], new))",
           "here = self._append(body, self._lane(new.over[0], new, first=True))", "lower", "argmax", "small"),
    Mutant("a phase does not wait for the one before", LOWER, "level[o] + self._ends_phase(o) for o in", "level[o] for o in",
           "lower", "softmax", "small"),
    # ---- online: what it writes is only seen once there are blocks ----
    Mutant("the old and the new maximum are swapped", ONLINE, 'self._compute("subtract", self.before[h, y], h)',
           'self._compute("subtract", h, self.before[h, y])', "lower", "softmax", "small"),
    Mutant("a variance is moved without its count", ONLINE,
           'self._compute("multiply", self._compute("multiply", first, second), before)',
           'self._compute("multiply", first, second)', "lower", "variance", "small"),
    Mutant("a running mean divides by all elements", ONLINE, 'running[m.mean] = self._compute("divide", m.y.y, count)',
           "running[m.mean] = m.mean", "lower", "variance", "small"),
    Mutant("a sum that follows a maximum is not rescaled", ROUNDS,
           'self.write.compute(body, "add", self.write.compute(body, "multiply", carry, factor), block)',
           'self.write.compute(body, "add", carry, block)', "lower", "softmax", "small"),
    Mutant("a running count forgets the outer loop", ROUNDS, "return start * product([a.extent for a in inner]) + ",
           "return ", "lower", "variance of two axes", "small"),
    Mutant("the stand-in for a maximum stays", ROUNDS, 'return self.write.compute(self.write.out, "multiply", self.top[op],'
           " made[op.rescale])", "return self.top[op]", "lower", "sum of exponentials of -inf", "small"),
    # ---- skip ----
    Mutant("one block with something in it is left out", SKIP, "last = smallest(rest + 1,", "last = smallest(rest + 1 - self.axis.block,", "lower",
           "causal attention", "cuda"),
    Mutant("a mask counts from the first row alone", SKIP, "end = block_start(a.name) + (a.lanes - 1 if split[0].constant > 0 else 0)",
           "end = block_start(a.name)", "lower", "causal attention", "cuda"),
    Mutant("a block on the diagonal is taken for a full one", SKIP, "else self._down(largest(inner_last, 0))",
           "else self._down(largest(inner_last, 0) + (self.axis.block - 1))", "lower", "causal attention", "small"),
    Mutant("a mask of zeros is taken for neutral", SKIP, "return bool(loop.carries) and all(known[c] == known[n] for c, n in loop.carries)",
           "return True", "lower", "sum of exponentials of a triangle", "small"),
    Mutant("a product that follows a maximum is not rescaled", ROUNDS,
           'sofar = self.write.compute(body, "multiply", carry, self._factor(op, new, body))', "sofar = carry", "lower",
           "causal attention", "small"),
    # ---- mask ----
    Mutant("loads are not masked", MASK, "mask=self._mask(new), other", "mask=self._mask(replace(new, index=())), other",
           "mask", "bias"),
    Mutant("stores are not masked", MASK, "new = replace(new, mask=self._mask(new))",
           "new = replace(new, mask=Mask(()))", "mask", "bias"),
    Mutant("<= for <", MASK, "return axis.extent - 1 - axis.index", "return axis.extent - axis.index",
           "mask", "bias"),
    Mutant("the last element is masked away", MASK, "return axis.extent - 1 - axis.index",
           "return axis.extent - 2 - axis.index", "mask", "bias"),
    Mutant("an axis is tested against another's extent", MASK, "tests = {_end(a): a for a in used",
           "tests = {used[0].extent - 1 - a.index: a for a in used", "mask", "bias", "small"),
    Mutant("even extents are thought divisible", MASK, "return any(c % axis.block for", "return any(c % min(axis.block, 2) for",
           "mask", "matmul"),
    Mutant("lanes past an odd block are not tested", MASK, " | {_spare(a): a for a in used if a.lanes != a.block}", "",
           "mask", "bias", "odd"),
    Mutant("guards are dropped", MASK, "kept = tuple(c for c in dict.fromkeys((*tests, *guards))", "kept = tuple(c for c in dict.fromkeys(tests)", "mask", "concat of three"),
    Mutant("masked lanes of a maximum are 0", MASK, "new.over, arrays.neutral(new.op, new.x.dtype), out))", "new.over, 0, out))",
           "mask", "max after exp"),
    Mutant("masked lanes of a product are not 0", MASK, "new = replace(new, a=a, b=self._neutral(new.b, (new.over,), 0.0, out))",
           "pass", "mask", "matmul of exp and one"),
    Mutant("masked lanes reach a carried sum", MASK, "self._neutral(x, lanes, carry.initial.value, out))) if lanes else op",
           "x)) if lanes else op", "mask", "sum after an offset", "small"),
    Mutant("masked lanes win a carried argmax", MASK, "x = self.new[op.args[0]] = self._neutral(x, lanes, best.initial.value, out)",
           "pass", "mask", "argmax", "small"),
    # ---- emit, and what runs its source ----
    Mutant("a loop is one block short", EMIT, "last = self._size(a.extent) if loop.last is None",
           "last = self._size(a.extent - 1) if loop.last is None", "emit", "sum of rows", "small"),
    Mutant("the grid is rounded down", EMIT, "return product([a.tiles for a in self.program.grid])",
           "return product([a.extent // a.block for a in self.program.grid])", "emit", "bias", "small"),
    Mutant("strides are swapped", EMIT, "for d, s in zip(index, buffer.strides)), Dim.of(0))",
           "for d, s in zip(index, buffer.strides[::-1])), Dim.of(0))", "emit", "triangle"),
    Mutant("the sign of a stride is ignored", EMIT, "offset = sum((d * s for d, s",
           "offset = sum((d * abs(int(s)) for d, s", "emit", "one row backwards"),
    Mutant("masks are one element short in the source", EMIT, 'return f"{left} < {self._size(split[1] + 1)}"',
           'return f"{left} < {self._size(split[1])}"', "emit", "bias"),
    Mutant("masked lanes are 0 in the source", EMIT, "other={other_value(op.other, op.dtype)}", "other=0", "emit",
           "max of rows"),
    Mutant("negative indices are divided as C does", EMIT, "if proves_nonnegative(a.a, self.ranges) or _is_clipped(a.a):", "if True:", "emit",
           "rolled along rows", "general"),
    Mutant("a ragged group of tiles is taken for a full one", EMIT, 'f"height = tl.minimum({rows} - first, {self.program.group})"',
           'f"height = {self.program.group}"', "emit", "matmul", "small"),
    Mutant("a product with sides swapped", EMIT,
           "(op.a, op.b) if lanes.index(row) < lanes.index(column) else (op.b, op.a)", "(op.a, op.b)", "emit",
           "transposed result"),
    Mutant("buffers are swapped", EMIT, 'arguments = [pointer if offset == "0"', 'pointer = "p0"; arguments = [pointer if offset == "0"', "emit",
           "x minus y"),
    Mutant("offsets stay in 32 bits", EMIT, '(".to(tl.int64)" if self.wide else "")', '""', "emit", "far apart"),
    Mutant("a rounding is dropped in the source", EMIT, '        return f"rt.to_{target.name}({wide})"', "        return wide", "emit",
           "rounded on the way"),
    Mutant("bf16 is cut off, not rounded", INTERPRETED, '"to_bf16": lambda x: x.astype(np.float32).astype(_BF16),',
           '"to_bf16": lambda x: (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(_BF16),', "emit",
           "brain floats"),
    Mutant("a running sum leaves its element out", INTERPRETED,
           "return lambda x, axis: ufunc.accumulate(x, axis=axis, dtype=x.dtype)",
           "return lambda x, axis: ufunc.accumulate(x, axis=axis, dtype=x.dtype) - x", "emit", "cumsum"),
    Mutant("equal ones: the last is argmax", INTERPRETED, "none = np.iinfo(index.dtype).max\n        return best.squeeze(axis), "
           "np.where(candidates, index, none).astype(index.dtype).min(axis)",
           "none = -1\n        return best.squeeze(axis), np.where(candidates, index, none).astype(index.dtype).max(axis)",
           "emit", "argmax"),
    Mutant("a reduction drops NaN", INTERPRETED, '"reduce_max": _reduction(np.maximum)', '"reduce_max": _reduction(np.fmax)',
           "emit", "max of nan"),
    Mutant("maximum drops NaN", OPS, 'np.maximum, "rt.maximum({0}, {1})"', 'np.maximum, "tl.maximum({0}, {1})"', "emit",
           "maximum"),
    Mutant("shifts are not guarded", OPS, '_shift_left, "rt.shift_left({0}, {1})"', '_shift_left, "{0} << {1}"', "emit", "shifts",
           text="rt.shift_left(", unseen="numpy, which Triton's interpreter uses, gives 0 itself"),
    Mutant("floor division truncates", OPS, 'np.floor_divide, "rt.floordiv({0}, {1})"', 'np.floor_divide, "{0} // {1}"', "emit",
           "integer division"),
    Mutant("division is approximate", OPS, '"f32": "tl.div_rn({0}, {1})"', '"f32": "{0} / {1}"', "emit", "float division",
           text="tl.div_rn(", unseen="Triton's interpreter divides exactly; on a GPU `check` sees it"),
)  # fmt: skip


# ---- planting --------------------------------------------------------------------------


def noticed(name: str, thorough: bool = False) -> dict[str, Any]:
    """In a child: whether the oracle notices the bug, and which pass `check` names.

    `thorough`: any case may notice it, and `check` runs every variant, as `Program.check` does.
    """
    import oracle_quick as oracle

    m = next(m for m in GALLERY if m.name == name)
    failure = (
        oracle.first_failure() if thorough else oracle.first_failure([m.case], [m.schedule], after=("mask", "emit"))
    )
    found = {"noticed": failure is not None, "what": failure and f"{failure.case}: {failure.what}".splitlines()[0]}
    if m.text and m.text not in oracle.program(m.case).lower()["triton"]:
        found |= {"noticed": True, "what": f"no {m.text} in the source"}
    return {**found, "named": oracle.named(m.case, m.schedule, USUAL if thorough else ())}


def plant(
    mutants: Sequence[Mutant] = GALLERY, thorough: bool = False, workers: int = 1
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    """The mutants with what was found, as it comes. A child that dies has been noticed, too."""
    by_name = {m.name: m for m in mutants}
    by_file = sorted(mutants, key=lambda m: m.file)
    for outcome in run((m.job("mutants:noticed", m.name, thorough) for m in by_file), workers):
        found = outcome.value or {"noticed": True, "named": None, "what": outcome.error}
        yield by_name[outcome.job.name], found


def main() -> None:
    parser = argparse.ArgumentParser(description="Plants the bugs of the gallery.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--thorough", action="store_true", help="any case may notice, every variant is checked")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    options = parser.parse_args()
    chosen = [m for m in GALLERY if not options.names or m.name in options.names]
    for m, found in plant(chosen, options.thorough):
        if options.json:
            print(json.dumps({"name": m.name, **found}), flush=True)
        else:
            mark = "ok" if found["noticed"] and found["named"] == m.guilty else "WRONG"
            print(f"{mark:5} {m.name:55} {m.guilty:10} {found['named'] or '-':10} {found['what']}", flush=True)


if __name__ == "__main__":
    main()
