"""The texts of the error pages: one row a code, in the order of the codes."""

from __future__ import annotations

from minitri.errors.examples import Example
from minitri.errors.pages import Page

# Five elements in a block of eight.
TILE = """\
plan main(x: f32[5]) -> out: f32[5]

program k0(input x: f32[5], output out: f32[5]) warps 4 {{
  grid i: 5 by 8
  %0: f32[i] = {load}
  %1: f32[] = const 1.0
  %2: f32[i] = add %0, %1
  store out[i] %2 {{mask = [i < 5]}}
}}
"""

PAGES: dict[str, Page] = {
    "MT0001": Page(
        """The text is not in the language, and not in Python either: a bracket that never closes, an operator
        without operand, a character that has no meaning. The caret stands under the first word that does not fit.""",
        Example("(x + 1) * (x - 1", {"x": "f32[N]"}),
        "Put right what the caret points at. If that word looks fine, the mistake is just before it.",
        Example("(x + 1) * (x - 1)", {"x": "f32[N]"}),
        ("MT0002", "MT0003"),
    ),
    "MT0002": Page(
        """This is Python, but the language has no such thing: loops, `if` statements, `and`, lambdas, chained
        comparisons, assignments to parts of arrays. A program is a function from arrays to arrays; what Python does
        element by element it does with whole arrays.""",
        Example("x > 0 and x < 1", {"x": "f32[N]"}),
        "The help says what to write instead. docs/reference/language.md has a table of all of it.",
        Example("(x > 0) & (x < 1)", {"x": "f32[N]"}),
        ("MT0001",),
    ),
    "MT0003": Page(
        """There is no program here: the text is empty, the module has no `def`, the file cannot be read, or what
        was decorated is not a function with a source text.""",
        Example("# nothing yet", {}),
        "Write an expression, or a module with at least one `def`.",
        Example("def f(x: f32[N]):\n    return x\n"),
        ("MT0001",),
    ),
    "MT0004": Page(
        """The annotation of a parameter or result is no type. A type is a dtype and dimensions, `f32[M, N]`; each
        dimension is a name, an integer, or + - * // % of them; `*B` is any number of axes.""",
        Example("x + 1", {"x": "f32[M, :]"}),
        "Give every dimension a name or a size; or leave the type out, and the call says it.",
        Example("x + 1", {"x": "f32[M, N]"}),
        ("MT0202", "MT0304"),
    ),
    "MT0101": Page(
        """A name that is no parameter, dimension, earlier assignment, function or constant. Variables around a
        function are not seen: what a program needs is passed to it.""",
        Example("sofmtax(x)", {"x": "f32[M, N]"}),
        "Look at the spelling, or pass the value as a parameter.",
        Example("softmax(x)", {"x": "f32[M, N]"}),
        ("MT0102", "MT0103"),
    ),
    "MT0102": Page(
        """A call with arguments that the function does not take: too many, too few, an unknown keyword, a word that
        its option does not know, a tuple where an array belongs.""",
        Example('gelu(x, approximate="tan")', {"x": "f32[N]"}),
        "The message shows what the function takes; docs/reference/operators.md lists all of them.",
        Example('gelu(x, approximate="tanh")', {"x": "f32[N]"}),
        ("MT0101", "MT0301"),
    ),
    "MT0103": Page(
        """Arrays have the attributes `.T`, `.mT`, `.shape`, `.ndim`, `.size` and `.dtype`. Any function of the
        language may be written as a method, but then it is called: `x.sum()`.""",
        Example("x / x.rank", {"x": "f32[M, N]"}),
        "Write one of these attributes, or call the method.",
        Example("x / x.ndim", {"x": "f32[M, N]"}),
        ("MT0101",),
    ),
    "MT0104": Page(
        """Two functions of a module, or two parameters, have one name; or a dimension is called as an axis of a pack
        is: the axes of `*B` are B0, B1, ….""",
        Example("def f(x: f32[N], x: f32[N]):\n    return x\n"),
        "Rename one of the two.",
        Example("def f(x: f32[N], y: f32[N]):\n    return x + y\n"),
        ("MT0101",),
    ),
    "MT0105": Page(
        """A function calls itself, directly or by way of others. Calls are inlined, so this would have no end; and
        there is no branch on data that could stop it.""",
        Example("def f(x: f32[N]):\n    return f(x - 1)\n"),
        "Write out the steps, or compute them with whole arrays.",
        Example("def step(x):\n    return x * x - 1\n\n\ndef f(x: f32[N]):\n    return step(step(x))\n"),
        ("MT0002",),
    ),
    "MT0106": Page(
        """A value is needed while compiling and is only known when the program runs: an axis, a shape, the bound of a
        slice, the condition of `a if c else b`. Numbers, dimensions and `int` and `bool` parameters are known;
        elements of arrays are not.""",
        Example("x if x > 0 else 0.1 * x", {"x": "f32[N]"}),
        "Choose between elements with `where`; pass what decides shapes as an `int` parameter.",
        Example("where(x > 0, x, 0.1 * x)", {"x": "f32[N]"}),
        ("MT0002", "MT0206"),
    ),
    "MT0201": Page(
        """The shapes of two operands do not broadcast. They are compared from the last axis on: two sizes must be
        equal, or one of them 1. A dimension with a name is never taken for 1, whatever its size in a call; so
        different names that meet must have equal sizes.""",
        Example("x + y", {"x": "f32[4, 3]", "y": "f32[4]"}),
        "Insert an axis of size 1 where one operand is to be repeated.",
        Example("x + y[:, None]", {"x": "f32[4, 3]", "y": "f32[4]"}),
        ("MT0203", "MT0205", "MT0304"),
    ),
    "MT0202": Page(
        """There is no such dtype, or the operation is not for this one: `-` of booleans, bits of floats, an index
        that is no integer.""",
        Example("x - y", {"x": "bool[N]", "y": "bool[N]"}),
        "Convert with `astype`, or take the operation that is meant; for booleans that is `^`.",
        Example("x ^ y", {"x": "bool[N]", "y": "bool[N]"}),
        ("MT0207", "MT0303"),
    ),
    "MT0203": Page(
        """In `a @ b` the last axis of a and the last but one of b (the only one of a vector) must be equal: they are
        multiplied and summed. The axes before those broadcast.""",
        Example("x @ w", {"x": "f16[M, 512]", "w": "f16[256, 512]"}),
        "Transpose one of the two with `.mT`, or look whether the types are right.",
        Example("x @ w.mT", {"x": "f16[M, 512]", "w": "f16[256, 512]"}),
        ("MT0201",),
    ),
    "MT0204": Page(
        """An axis that the array does not have, or one that is named twice. Axes count from 0, or from the end: the
        last one is -1.""",
        Example("sum(x, axis=2)", {"x": "f32[M, N]"}),
        "Name an axis from -rank to rank - 1.",
        Example("sum(x, axis=1)", {"x": "f32[M, N]"}),
        ("MT0206",),
    ),
    "MT0205": Page(
        """A shape that cannot be made from this array: another number of elements, an axis to drop whose size is not
        1, a negative size. What depends on sizes of a call is checked at the call.""",
        Example("reshape(x, (4, 2))", {"x": "f32[3, 3]"}),
        "Let one size be -1, and it is computed; or pad or slice first.",
        Example("reshape(x, (9,))", {"x": "f32[3, 3]"}),
        ("MT0201", "MT0304"),
    ),
    "MT0206": Page(
        """An index that does not fit: out of range, too many of them, a boolean mask, a step of 0. An index *array* is
        not checked like this, since a kernel cannot raise: out of range it gives NaN or 0
        (docs/reference/semantics.md).""",
        Example("x[x > 0]", {"x": "f32[N]"}),
        """A result whose size depends on data does not exist here: keep the shape with `where`, and let the rest be
        the neutral element.""",
        Example("sum(where(x > 0, x, 0))", {"x": "f32[N]"}),
        ("MT0106", "MT0204"),
    ),
    "MT0207": Page(
        "A result, or an argument of another function, is not of the type that its annotation declares.",
        Example("def f(x: f32[M, N]) -> f16[M]:\n    return sum(x, axis=1)\n"),
        "Convert it, or declare what it is.",
        Example("def f(x: f32[M, N]) -> f16[M]:\n    return astype(sum(x, axis=1), f16)\n"),
        ("MT0202", "MT0303"),
    ),
    "MT0208": Page(
        """A constant that the dtype it meets cannot hold, or a constant expression without a value. A number takes the
        dtype of the array beside it, as in numpy, and like numpy this is an error and not a wrapped value.""",
        Example("x + 200", {"x": "i8[N]"}),
        "Convert the array to a dtype that holds the number.",
        Example("astype(x, i16) + 200", {"x": "i8[N]"}),
        ("MT0202",),
    ),
    "MT0209": Page(
        """`max`, `min`, `argmax` and `argmin` of nothing have no value; the sum of nothing is 0. If the size is only
        known at a call, the call is refused.""",
        Example("max(x, axis=1)", {"x": "f32[M, N]"}, call=("f32[3, 0]",)),
        "Do not call it with arrays that have no elements along that axis.",
        Example("max(x, axis=1)", {"x": "f32[M, N]"}, call=("f32[3, 4]",)),
        ("MT0205",),
    ),
    "MT0301": Page(
        "A call with too many or too few arguments, or with a keyword that is no parameter.",
        Example("a * b + c", {"a": "f32[N]", "b": "f32[N]", "c": "f32[N]"}, call=("f32[4]", "f32[4]")),
        "Pass one argument for each parameter without default.",
        Example("a * b + c", {"a": "f32[N]", "b": "f32[N]", "c": "f32[N]"}, call=("f32[4]", "f32[4]", "f32[4]")),
        ("MT0102", "MT0302"),
    ),
    "MT0302": Page(
        "An argument has more or fewer axes than its type says.",
        Example("softmax(x)", {"x": "f32[M, N]"}, call=("f32[4]",)),
        "Pass an array of the declared rank; or declare `*B`, which is any number of axes.",
        Example("softmax(x)", {"x": "f32[*B, N]"}, call=("f32[4]",)),
        ("MT0304",),
    ),
    "MT0303": Page(
        """An argument has another dtype than its type says, or one that does not exist here (complex numbers, text).
        Arguments are never converted silently: that would cost a copy.""",
        Example("x + 1", {"x": "f32[N]"}, call=("f64[4]",)),
        "Convert it before the call, or declare the dtype that it has.",
        Example("x + 1", {"x": "f64[N]"}, call=("f64[4]",)),
        ("MT0202", "MT0207"),
    ),
    "MT0304": Page(
        """Two arguments contradict each other: a dimension that both have is of one size in one of them and of
        another in the other. Or no argument tells the size of a dimension, or there is no such dimension.""",
        Example("x + y", {"x": "f32[N]", "y": "f32[N]"}, call=("f32[4]", "f32[5]")),
        "Pass arrays whose sizes agree; an axis that is to be repeated has the size 1 in its type.",
        Example("x + y", {"x": "f32[N]", "y": "f32[1]"}, call=("f32[4]", "f32[1]")),
        ("MT0201", "MT0302"),
    ),
    "MT0305": Page(
        """An argument is no array (a list, for example), cannot be read as one (sparse, masked, on a device that is
        neither CPU nor CUDA), or lies on another device than the others.""",
        Example("x + 1", {"x": "f32[N]"}, call=("list",)),
        "Pass numpy arrays, torch tensors or anything with DLPack, all on one device.",
        Example("x + 1", {"x": "f32[N]"}, call=("f32[2]",)),
        ("MT0301", "MT0303"),
    ),
    "MT0306": Page(
        """The reference, which is numpy, refuses the arrays at a place where the types found nothing wrong. Every
        such refusal should have been one of the codes MT02xx, so no program is known that causes this.""",
        None,
        "Please report the program. Until then, look at the shapes at the place that the message shows.",
        None,
        ("MT0201", "MT0205"),
    ),
    "MT0401": Page(
        """The program asks for more than the limits allow: characters, brackets, operations, terms of a size, time,
        generated code, memory. They keep a text that nobody has read from using up the machine.
        docs/reference/language.md lists them.""",
        Example("x + x + x", {"x": "f32[N]"}, limits={"source": 8}),
        "If you trust the program raise the limit, with `mt.limits` or `--limit`; or make it smaller.",
        Example("x + x + x", {"x": "f32[N]"}, limits={"source": 200_000}),
        ("MT0404",),
    ),
    "MT0402": Page(
        """A target, stage or pass that does not exist, or one that cannot be had here: machine code of another
        vendor, a GPU where there is none, Triton where it is not installed. On the command line the first kind is
        exit code 2, the second 3.""",
        Example("x + 1", {"x": "f32[N]"}, lower={"target": "cuda:91"}),
        "`minitri doctor` says what is here and how to get what is missing.",
        Example("x + 1", {"x": "f32[N]"}, lower={"target": "cuda:90"}),
        ("MT0404",),
    ),
    "MT0403": Page(
        """A pass made something that breaks a rule of its IR. The verifier has found it before anything wrong was
        computed; the message names the pass and shows the program before and after it. No program should cause
        this.""",
        None,
        """Please report the program. `--without PASS` leaves out an optional pass, which may avoid it. If you are
        writing a pass: docs/reference/stages.md says what each IR is.""",
        None,
        ("MT0402",),
    ),
    "MT0404": Page(
        """An option that cannot be: a block for an axis that no kernel has, a number of warps that is no power of two,
        a tile larger than Triton takes, more shared memory than a program has, a limit that does not exist.""",
        Example("x + 1", {"x": "f32[N]"}, options={"blocks": {"n": 512}}, lower={"N": 4096}),
        "The axes of a kernel are shown by `--emit=kernels`; blocks are whole numbers, up to 1,048,576 lanes a tile.",
        Example("x + 1", {"x": "f32[N]"}, options={"blocks": {"i": 512}}, lower={"N": 4096}),
        ("MT0401", "MT0402"),
    ),
    "MT0501": Page(
        """The text of a stage (of the graph, the kernels or the tile programs) cannot be read. What is printed can be
        read back; so the mistake is in what was edited.""",
        Example("graph main(x: f32[N]) {\n  %0: f32[N] = exp x x\n  return %0\n}\n", reads="graph"),
        "Compare it with what `minitri compile --emit=graph` prints; operands are separated by commas.",
        Example("graph main(x: f32[N]) {\n  %0: f32[N] = exp x\n  return %0\n}\n", reads="graph"),
        ("MT0502",),
    ),
    "MT0502": Page(
        """The text of a stage can be read, but breaks a rule of its IR: a type that does not follow from the operands,
        a value that is used before it is made, an axis that does not exist.""",
        Example("graph main(x: f32[N]) {\n  %0: f16[N] = exp x\n  return %0\n}\n", reads="graph"),
        "Types are written on every result and are checked: write the one that the operation has.",
        Example("graph main(x: f32[N]) {\n  %0: f32[N] = exp x\n  return %0\n}\n", reads="graph"),
        ("MT0501", "MT0403"),
    ),
    "MT0503": Page(
        """A stage that was read from a text keeps the rules of its IR, but does not run right: it reads or writes out
        of bounds, reads what nothing has written, or writes an element twice or never. On a CPU every access is
        watched before a kernel runs.""",
        Example(TILE.format(load="load x[i] {other = 0}"), call=("f32[5]",), reads="tile.masked"),
        """The message names the statement and the element. Compare the text with what the compiler printed: a mask,
        an index or a block has changed.""",
        Example(TILE.format(load="load x[i] {mask = [i < 5], other = 0}"), call=("f32[5]",), reads="tile.masked"),
        ("MT0501", "MT0502"),
    ),
}
