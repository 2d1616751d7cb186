"""Python that the language does not have, rewritten in the language with the program's own names.

    y += a + b                 y = y + (a + b)
    x[x < 0] = 0               x = where(x < 0, 0, x)
    0 < x and not done         logical_and(0 < x, logical_not(done))
    [2 * a for a in x]         2 * x

In: a place in a source that the parser refused. Out: the place to replace and its new text, or None. The one idea: the
parser stops at the first wrong token, so there is no tree of the language yet. Python's own parser reads the line, or
the expression around the token. Left out: loops, and other statements of several lines than `if`.
"""

import ast as python
import re
import warnings
from collections.abc import Iterator
from functools import reduce
from textwrap import dedent

from minitri.base.diagnostics import Edit
from minitri.base.spans import Source, Span

LONGEST = 400  # characters that are handed to Python's parser
MOST_TURNS = 8  # of a loop that is written out
_OPERATORS = {
    python.Add: "+", python.Sub: "-", python.Mult: "*", python.Div: "/", python.FloorDiv: "//", python.Mod: "%",
    python.Pow: "**", python.MatMult: "@", python.BitAnd: "&", python.BitOr: "|", python.BitXor: "^",
    python.LShift: "<<", python.RShift: ">>",
}  # fmt: skip
_STOP = re.compile(r"\breturn\b|(?<![=<>!])=(?!=)|[,\n#]")
_LINE_END = re.compile(r"[\n#]")
_FIRM = (python.Name, python.Constant, python.Call, python.Subscript, python.Attribute, python.Tuple, python.List)
_WITHOUT_EFFECT = (
    python.Import,
    python.ImportFrom,
    python.Global,
    python.Nonlocal,
    python.Assert,
    python.Delete,
    python.Raise,
)


# ---- statements ----------------------------------------------------------------------------------


def statement(place: Span) -> Edit | None:
    """The line of the place, rewritten; of an `if`, all its lines. A line without effect becomes an empty one."""
    source = place.source
    start = source.text.rfind("\n", 0, place.start) + 1
    lines = source.text[start : place.end + LONGEST].split("\n")
    block = "\n".join([lines[0], *_branches(lines)])
    indent = block[: len(block) - len(block.lstrip())]
    text = dedent(block).strip()
    tree = _parsed(text, "exec")
    if not isinstance(tree, python.Module) or len(tree.body) != 1:
        return None
    in_module = re.search(r"^[ \t]*def\b", source.text, re.MULTILINE) is not None
    end = start + len(block)
    after = re.compile(rf"\n{indent}return[ \t]+([^\n#]+)").match(source.text, end)
    if after and (made := _early(tree.body[0], text, after[1].strip())):
        end = after.end()
    else:
        made = _statement(tree.body[0], text, indent, source.text if in_module else "")
    return None if made is None else Edit(_stripped(source, start, end), made)


def _branches(lines: list[str]) -> Iterator[str]:
    """The further lines of a block: what is indented more, and the `else` of an `if`, the `except` of a `try`."""
    first = lines[0].lstrip()
    indent = len(lines[0]) - len(first)
    for line in lines[1:] if re.match("(if|for|def|with|try)\\b", first) else ():
        here = len(line) - len(line.lstrip())
        if not (here > indent or (here == indent and re.match("(else|except|finally)\\b", line.lstrip()))):
            return
        yield line


def moved_up(place: Span) -> tuple[Edit, ...]:
    """A `def` or a named lambda inside a function, moved above that function: what to remove, and what to insert."""
    source = place.source
    start = source.text.rfind("\n", 0, place.start) + 1
    lines = source.text[start : place.end + LONGEST].split("\n")
    block = "\n".join([lines[0], *_branches(lines)])
    text = dedent(block).strip()
    match _parsed(text, "exec"):
        case python.Module(body=[python.FunctionDef()]):
            moved = text
        case python.Module(body=[python.Assign(targets=[python.Name(id=name)], value=python.Lambda() as made)]):
            moved = f"def {name}({python.unparse(made.args)}):\n    return {python.get_source_segment(text, made.body)}"
        case _:
            return ()
    above = [m.start() for m in re.compile(r"^(?=(@.*\n)*def\b)", re.MULTILINE).finditer(source.text, 0, start)]
    if not above:
        return ()
    gone = Span(source, start, min(start + len(block) + 1, len(source.text)))
    return Edit(Span(source, above[-1], above[-1]), f"{moved}\n\n\n"), Edit(gone, "")


def _statement(node: python.stmt, line: str, indent: str, module: str) -> str | None:
    """`module` is the text around the line if that is a module, else ""."""

    def text(part: python.expr) -> str:
        return python.get_source_segment(line, part) or ""

    match node:
        case python.AugAssign(target=python.Name(id=name), op=op, value=value):
            total = f"{name} {_OPERATORS[type(op)]} {_operand(value, line)}"
            return f"{name} = {total}" if module else total
        case python.AugAssign(target=python.Subscript() as target, op=op, value=value):
            x = text(target.value)
            total = f"{x} {_OPERATORS[type(op)]} {_operand(value, line)}"
            made = _where(x, target.slice, total, line, _rank(x, module), _is_number(value))
            return made and f"{x} = {made}"
        case python.Assign(targets=[python.Subscript() as target], value=value):
            x = text(target.value)
            made = _where(x, target.slice, text(value), line, _rank(x, module), _is_number(value))
            return made and f"{x} = {made}"
        case python.For(target=python.Name(id=name), iter=python.Call(func=python.Name(id="range"), args=[count])):
            steps = _written_out(node.body, name, count, module)
            return f"\n{indent}".join(steps) if steps else None
        case python.Assign(targets=[*first, last], value=value) if first:
            lines = [f"{text(last)} = {text(value)}", *(f"{text(target)} = {text(last)}" for target in first)]
            return f"\n{indent}".join(lines)
        case python.AnnAssign(target=target, value=python.expr() as value):
            return f"{text(target)} = {text(value)}"
        case python.If(
            test=test, body=[python.Return(value=python.expr() as a)], orelse=[python.Return(value=python.expr() as b)]
        ):
            return f"return where({_logic(test, line)}, {text(a)}, {text(b)})"
        case python.If(test=test, body=[python.Assign(targets=[python.Name(id=name)], value=a)], orelse=orelse):
            match orelse:
                case [python.Assign(targets=[python.Name(id=other)], value=b)] if other == name:
                    return f"{name} = where({_logic(test, line)}, {text(a)}, {text(b)})"
                case []:
                    return f"{name} = where({_logic(test, line)}, {text(a)}, {name})"
            return None
        case python.Expr(value=python.Call(func=python.Name(id="print"))):
            return ""
        case python.With(body=body) | python.Try(body=body):
            return f"\n{indent}".join(map(python.unparse, body))
        case _:
            return "" if isinstance(node, _WITHOUT_EFFECT) else None


def _early(node: python.stmt, line: str, after: str) -> str | None:
    """`if c: return a` and `return b` on the line after it → `return where(c, a, b)`."""
    match node:
        case python.If(test=test, body=[python.Return(value=python.expr() as a)], orelse=[]) if after:
            return f"return where({_logic(test, line)}, {python.get_source_segment(line, a)}, {after})"
    return None


def _written_out(body: list[python.stmt], name: str, count: python.expr, module: str) -> list[str] | None:
    """The lines of a loop of a few turns; None if they are more than assignments."""
    turns = count.value if isinstance(count, python.Constant) else None
    if not isinstance(turns, int) or not 0 < turns <= MOST_TURNS:
        return None
    lines: list[str] = []
    for turn in range(turns):
        for part in body:
            line = re.sub(rf"\b{name}\b", str(turn), python.unparse(part))
            tree = _parsed(line, "exec")
            match tree:
                case python.Module(body=[python.Assign(targets=[python.Name()])]):
                    lines.append(line)
                case python.Module(body=[python.AugAssign(target=python.Name()) as changed]):
                    lines.append(_statement(changed, line, "", module) or "")
                case _:
                    return None
    return lines


def _where(x: str, index: python.expr, value: str, line: str, rank: int, is_number: bool) -> str | None:
    """What x is after `x[mask] = value`, `x[3] = value` or `x[:, 1:] = 0`. `rank` is that of x, or 0 if unknown."""
    match index:
        case (
            python.Compare()
            | python.BinOp(op=python.BitAnd() | python.BitOr())
            | python.UnaryOp(op=python.Invert() | python.Not())
        ):
            return f"where({_logic(index, line)}, {value}, {x})"
    items = index.elts if isinstance(index, python.Tuple) else [index]
    if not rank and len(items) == 1:
        return None  # `x[0]` may be an element or a row
    conditions: list[str] = []
    from_end = 0
    for k, item in enumerate(items):
        if isinstance(item, python.Constant) and item.value is ...:
            from_end = len(items)
            continue
        size = f"{x}.shape[{k - from_end}]"
        inside = _inside(item, f"arange({size})", size)
        if inside is None:
            return None
        below = from_end - k - 1 if from_end else (rank or len(items)) - k - 1
        conditions += [f"({part})[:{', None' * below}]" if below else part for part in inside]
    if not conditions or not (is_number or len(items) == len(conditions) == 1):
        return f"full_like({x}, {value})" if is_number and not conditions else None
    mask = conditions[0] if len(conditions) == 1 else " & ".join(f"({part})" for part in conditions)
    return f"where({mask}, {value}, {x})"


def _inside(item: python.expr, place: str, size: str) -> list[str] | None:
    """The conditions for a place to be inside an index or a slice; None for an index that is not a number."""

    def bound(node: python.expr | None) -> str | None:
        match node:
            case python.Constant(value=int(number)):
                return str(number)
            case python.UnaryOp(op=python.USub(), operand=python.Constant(value=int(number))):
                return f"{size} - {number}"
        return None

    match item:
        case python.Slice(lower=lower, upper=upper, step=None):
            tests = [(">=", lower), ("<", upper)]
            found = [f"{place} {sign} {bound(end)}" for sign, end in tests if end is not None]
            return None if any(end is not None and bound(end) is None for _, end in tests) else found
        case python.Slice(lower=None, upper=None, step=step) if (by := bound(step)) is not None:
            return [f"{place} % {by} == 0"]
        case _:
            at = bound(item)
            return None if at is None else [f"{place} == {at}"]


def _rank(x: str, module: str) -> int:
    """How many axes a parameter is declared to have; 0 if that is not known."""
    declared = re.search(rf"\b{re.escape(x)}\s*:\s*[\"']?\w+\[([^\]*]*)\]", module)
    return declared[1].count(",") + 1 if declared else 0


def _is_number(node: python.expr) -> bool:
    return isinstance(node.operand if isinstance(node, python.UnaryOp) else node, python.Constant)


def _operand(node: python.expr, line: str) -> str:
    text = python.get_source_segment(line, node) or ""
    return text if isinstance(node, _FIRM) else f"({text})"


# ---- expressions ---------------------------------------------------------------------------------


def expression(place: Span, python_words: tuple[tuple[str, str], ...] = ()) -> Edit | None:
    """The expression around the place, without `and`, `or`, `not`, `is` and `in`.

    `python_words` are what other languages write for them, and these: ("&&", " and ").
    """
    source = place.source
    start, end = _around(source.text, place.start, -1), _around(source.text, place.end, +1)
    here = _stripped(source, start, end)
    text = here.text
    for other, word in python_words:
        text = text.replace(other, word)
    text = text.strip()
    tree = _parsed(text, "eval")
    made = _expression(tree.body, text) if isinstance(tree, python.Expression) else None
    return Edit(here, made) if made else None


def comprehension(place: Span) -> Edit | None:
    """`[2 * a for a in x]` → `2 * x`. `place` is the word `for`."""
    source = place.source
    ends = _around(source.text, place.start, -1, _LINE_END), _around(source.text, place.end, +1, _LINE_END)
    here = _stripped(source, *ends)
    text = f"({here.text})"
    tree = _parsed(text, "eval")
    match tree:
        case python.Expression(
            body=python.GeneratorExp(
                elt=element, generators=[python.comprehension(target=target, iter=over, ifs=tests)]
            )
        ) if len(tests) < 2:
            arrays = _arrays(target, over, text)
        case _:
            return None
    if arrays is None:
        return None
    made, *conditions = (python.get_source_segment(text, node) or "" for node in (element, *tests))
    if conditions:
        made = f"where({conditions[0]}, {made}, 0)"
    made = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: arrays.get(word[0], word[0]), made)
    start, end = here.start - 1, here.end + 1
    if source.text[start:end] != f"[{here.text}]":
        return Edit(here, made)
    before = re.search(r"(^|[(,=]|\breturn)\s*$", source.text[:start])
    alone = before is not None and source.text[end:].lstrip(" ")[:1] in ("", "\n", ")", ",")
    is_firm = alone or conditions or isinstance(element, _FIRM)
    return Edit(Span(source, start, end), made if is_firm else f"({made})")


def _arrays(target: python.expr, over: python.expr, text: str) -> dict[str, str] | None:
    """What each name of a comprehension goes over: `a in x`, `k in range(n)`, `a, b in zip(x, y)`."""
    match target, over:
        case python.Name(id=name), python.Call(func=python.Name(id="range"), args=args):
            return {name: f"arange({', '.join(python.get_source_segment(text, a) or '' for a in args)})"}
        case python.Name(id=name), _:
            return {name: _operand(over, text)}
        case python.Tuple(elts=names), python.Call(func=python.Name(id="zip"), args=args) if len(names) == len(args):
            return {python.unparse(name): _operand(a, text) for name, a in zip(names, args)}
        case python.Tuple(elts=[k, a]), python.Call(func=python.Name(id="enumerate"), args=[x]):
            array = _operand(x, text)
            return {python.unparse(k): f"arange({array}.shape[0])", python.unparse(a): array}
    return None


def update(place: Span, rank: int = 0) -> Edit | None:
    """jax's `x.at[x < 0].set(0)` → `where(x < 0, 0, x)`. `place` is `x.at`, `rank` that of x."""
    text = place.source.text[place.start : place.start + LONGEST]
    ends = (match.end() for match in re.compile(r"\)").finditer(text, len(place.text)))
    tree, end = next(((t, e) for e in ends if (t := _parsed(text[:e], "eval")) is not None), (None, 0))
    match tree:
        case python.Expression(
            body=python.Call(
                func=python.Attribute(
                    attr="set" | "add" | "multiply" as name,
                    value=python.Subscript(value=python.Attribute(value=array, attr="at"), slice=index),
                ),
                args=[value],
            )
        ):
            x = python.get_source_segment(text, array) or ""
            written = python.get_source_segment(text, value) or ""
            sign = {"add": "+", "multiply": "*"}.get(name)
            total = f"{x} {sign} {_operand(value, text)}" if sign else written
            made = _where(x, index, total, text, rank, _is_number(value))
            return Edit(Span(place.source, place.start, place.start + end), made) if made else None
    return None


def _logic(node: python.expr, text: str) -> str:
    """An expression of Python in the language."""
    return _expression(node, text) or python.get_source_segment(text, node) or ""


def _expression(node: python.expr, text: str) -> str | None:
    def part(child: python.expr) -> str:
        return _logic(child, text)

    match node:
        case python.BoolOp(op=op, values=values):
            name = "logical_and" if isinstance(op, python.And) else "logical_or"
            return reduce(lambda a, b: f"{name}({a}, {b})", map(part, values))
        case python.UnaryOp(op=python.Not(), operand=operand):
            return f"logical_not({part(operand)})"
        case python.Compare(left=left, ops=[python.Is()], comparators=[right]):
            return f"{part(left)} == {part(right)}"
        case python.Compare(left=left, ops=[python.IsNot()], comparators=[right]):
            return f"{part(left)} != {part(right)}"
        case python.Compare(left=left, ops=[python.In()], comparators=[right]):
            return f"any({part(right)} == {part(left)})"
        case python.Compare(left=left, ops=[python.NotIn()], comparators=[right]):
            return f"logical_not(any({part(right)} == {part(left)}))"
        case python.Compare(left=left, ops=[first, second], comparators=[middle, right]):
            parts = part(left), part(middle), part(right)
            sign = {python.Lt: "<", python.LtE: "<=", python.Gt: ">", python.GtE: ">=", python.Eq: "=="}
            if type(first) in sign and type(second) in sign:
                return f"({parts[0]} {sign[type(first)]} {parts[1]}) & ({parts[1]} {sign[type(second)]} {parts[2]})"
    return None


def _around(text: str, at: int, step: int, stop: re.Pattern[str] = _STOP) -> int:
    """Where the expression around a place begins (step -1) or ends (+1): at a bracket, a comma, a `=` or a line end."""
    opening, closing = ("([{", ")]}") if step > 0 else (")]}", "([{")
    depth = 0
    stops = {k for m in stop.finditer(text, max(at - LONGEST, 0), at + LONGEST) for k in range(m.start(), m.end())}
    k = at if step > 0 else at - 1
    while 0 <= k < len(text) and abs(k - at) < LONGEST:
        if depth == 0 and (text[k] in closing or k in stops):
            break
        depth += (text[k] in opening) - (text[k] in closing)
        k += step
    return k if step > 0 else k + 1


def _stripped(source: Source, start: int, end: int) -> Span:
    text = source.text[start:end]
    return Span(source, start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip()))


def _parsed(text: str, mode: str) -> python.AST | None:
    """Python's tree of a short text; None if it is no Python. Nothing is executed."""
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            return python.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
