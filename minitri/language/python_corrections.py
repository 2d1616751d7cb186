"""Translates Python constructs that the language does not have. The translated program has the same variable names.

    y += a + b                 y = y + (a + b)
    x[x < 0] = 0               x = where(x < 0, 0, x)
    0 < x and not done         logical_and(0 < x, logical_not(done))
    [2 * a for a in x]         2 * x

A function such as `statement` takes the source range (span) of a token that the parser refused. The function returns an
edit, which has a source range and the new text for this range. For a construct without a translation, the function
returns None. The one idea: minitri's parser makes no syntax tree of a wrong line, because it stops at the first wrong
token. Therefore Python's own parser reads the statement, or only the expression around the wrong token. The file
python_corrections.toml has pairs of a Python pattern and a text in minitri's language. If Python's syntax tree matches
the pattern of a pair, the text of the pair is the correction. Long loops and most statements of several lines have no
translation.
"""

import ast as python
import re
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache, reduce
from itertools import pairwise
from textwrap import dedent
from typing import Any

from minitri.base.diagnostics import Edit
from minitri.base.spans import Source, Span
from minitri.base.toml_tables import table_beside

LONGEST = 400  # characters that are handed to Python's parser
DEEPEST = 60  # levels of a tree that is rewritten by recursion
MOST_TURNS = 8  # repetitions of a loop that is written out
Found = dict[str, python.AST]  # what each name of a template stands for
_STOP = re.compile(r"\breturn\b|(?<![=<>!])=(?!=)|[,\n#()\[\]{}]")
_LINE_END = re.compile(r"[\n#()\[\]{}]")
_WITHOUT_EFFECT = re.compile(r"print\(|(import|from|global|nonlocal|assert|del|raise)\b")
_FIRM = (python.Name, python.Constant, python.Call, python.Subscript, python.Attribute, python.Tuple, python.List)


# ---- trees of Python -----------------------------------------------------------------------------


@cache
def _rows(table: str) -> list[tuple[list[python.stmt], str]]:
    """Reads pairs of a Python pattern and a replacement from one table of python_corrections.toml."""
    tables = table_beside(__file__, "python_corrections.toml")
    return [(_parsed(there), here) for there, here in tables.get(table, {}).items()]


def _match(table: str, body: Sequence[python.stmt]) -> tuple[str, Found]:
    """Finds the first pattern that matches Python statements. Returns the replacement text and the matched subtrees."""
    for pattern, text in _rows(table):
        found: Found = {}
        if _fits(pattern, body, found):
            return text, found
    return "", {}  # no pattern matches


def _fits(pattern: Any, value: Any, found: Found) -> bool:
    if isinstance(pattern, python.Name) and pattern.id.isupper():  # such as X, which matches any expression
        known = found.setdefault(pattern.id, value)
        return isinstance(value, python.expr) and python.unparse(known) == python.unparse(value)
    if isinstance(pattern, list):
        return len(pattern) == len(value) and all(_fits(p, v, found) for p, v in zip(pattern, value))
    if not isinstance(pattern, python.AST):
        return pattern == value
    names = [name for name in pattern._fields if name not in ("ctx", "type_comment")]
    return type(pattern) is type(value) and all(_fits(getattr(pattern, n), getattr(value, n), found) for n in names)


class _Filling(python.NodeTransformer):
    """Replaces names in a Python tree by expressions."""

    def __init__(self, found: Mapping[str, python.AST]) -> None:
        self.found = found

    def visit_Name(self, node: python.Name) -> python.AST:
        return deepcopy(self.found.get(node.id, node))


def _filled(text: str, found: Mapping[str, python.AST]) -> Any:
    """Parses a Python expression, and replaces names in it by the syntax trees in `found`."""
    return _Filling(found).visit(python.parse(text, mode="eval").body)


class _Plain(python.NodeTransformer):
    """Rewrites Python statements into simpler ones, such as `y += a` into `y = y + a`."""

    def visit_BoolOp(self, node: python.BoolOp) -> Any:
        self.generic_visit(node)
        # `a and b and c` becomes `(a and b) and c`
        return reduce(lambda a, b: python.BoolOp(node.op, [a, b]), node.values)

    def visit_Compare(self, node: python.Compare) -> Any:
        self.generic_visit(node)
        pairs = zip(node.ops, pairwise([node.left, *node.comparators]))
        compared: list[python.expr] = [python.Compare(a, [op], [b]) for op, (a, b) in pairs]
        # `a < b < c` becomes `(a < b) & (b < c)`
        return reduce(lambda a, b: python.BinOp(a, python.BitAnd(), b), compared)

    def visit_AugAssign(self, node: python.AugAssign) -> Any:
        self.generic_visit(node)
        old = node.target.value if isinstance(node.target, python.Subscript) else node.target
        return python.Assign([node.target], python.BinOp(deepcopy(old), node.op, node.value), lineno=node.lineno)


class _Translation(python.NodeTransformer):
    """Translates a Python tree node by node, with the table `expressions` of python_corrections.toml."""

    def generic_visit(self, node: python.AST) -> Any:
        super().generic_visit(node)  # the innermost nodes first
        text, found = _match("expressions", [python.Expr(node)]) if isinstance(node, python.expr) else ("", {})
        return _filled(text, found) if text else node


def _written(tree: python.AST) -> str:
    return python.unparse(_Translation().visit(tree))


def _parsed(text: str) -> list[python.stmt]:
    """Returns the simplified trees of Python statements, or [] for invalid, too long or too deeply nested text."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = python.parse(text if len(text) <= LONGEST else "")  # parsed, but never executed
        return _Plain().visit(tree).body if _depth(tree) < DEEPEST else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _depth(node: python.AST) -> int:
    return 1 + max(map(_depth, python.iter_child_nodes(node)), default=0)


# ---- statements ----------------------------------------------------------------------------------


def statement(place: Span) -> Edit | None:
    """Returns the edit that rewrites the line in which the source range `place` begins.

    If an `if`, `for`, `with` or `try` begins in the line, the edit rewrites all lines of the statement. A line without
    effect on the result, such as `print(x)`, becomes an empty line.
    """
    text = place.source.text
    start, indent, block = lines_of_statement(place)
    module = text if re.search(r"^[ \t]*def\b", text, re.MULTILINE) else ""
    after = re.compile(rf"\n{indent}return[ \t]+[^\n#]+").match(text, start + len(block))
    for lines in (block + after[0] if after else "", block):  # a `return` after an `if` may belong to it
        body = _parsed(dedent(lines).strip())
        if (made := _statements(body, module) if body else None) is not None:
            return Edit(_stripped(place.source, start, start + len(lines)), made.replace("\n", f"\n{indent}"))
    return None


def lines_of_statement(place: Span) -> tuple[int, str, str]:
    """Returns the start, the indentation and the text of the statement that begins in the line of `place`.

    A compound statement such as `if` includes its indented lines, and its `else` or `except`.
    """
    text = place.source.text
    start = text.rfind("\n", 0, place.start) + 1
    indent = re.sub(r"\S.*", "", text[start : place.end], flags=re.DOTALL)
    further = rf"(?:\n{indent}(?:[ \t]|(?:else|except|finally)\b).*)*"
    lines = re.compile(rf"{indent}\S.*{further}|.*").match(text, start, place.end + LONGEST)
    return start, indent, lines[0] if lines else ""


def moved_up(place: Span) -> tuple[Edit, ...]:
    """Returns the edits that move a nested function above the function that contains it. The nested function is a `def`
    or an assignment such as `f = lambda x: x`.

    One edit removes the nested function, and one edit inserts the function at its new place.
    """
    source = place.source
    start, _, block = lines_of_statement(place)
    text = dedent(block).strip()
    match _parsed(text):
        case [python.FunctionDef()]:
            moved = text
        case [python.Assign([python.Name(name)], python.Lambda(args, body))]:
            moved = f"def {name}({python.unparse(args)}):\n    return {python.unparse(body)}"
        case _:
            return ()
    above = [m.start() for m in re.compile(r"^(?=(@.*\n)*def\b)", re.MULTILINE).finditer(source.text, 0, start)]
    if not above:
        return ()
    gone = Span(source, start, min(start + len(block) + 1, len(source.text)))
    return Edit(Span(source, above[-1], above[-1]), f"{moved}\n\n\n"), Edit(gone, "")


def _statements(body: list[python.stmt], module: str) -> str | None:
    """Translates Python statements into minitri's language. Returns None if no translation is known."""
    # `module` is the text of the program, or "" if the program is no module
    text, found = _match("statements", body)
    if text:
        return _written(_Filling(found).visit(python.parse(text)))
    value, found = _match("elements", body)
    if value:
        made = _where(found, _filled(value, found), module)
        return made and f"{python.unparse(found['X'])} = {made}"
    match body:
        case [python.Assign([python.Name(name)], python.BinOp(python.Name(old)) as value)] if name == old:
            return _written(body[0] if module else value)
        case [python.For(python.Name(name), python.Call(python.Name("range"), [python.Constant(int(turns))]), inside)]:
            names = [{name: python.Constant(turn)} for turn in range(turns if turns <= MOST_TURNS else 0)]
            lines = [_written(_Filling(n).visit(deepcopy(part))) for n in names for part in inside]
            return "\n".join(lines) if all(re.match(r"[A-Za-z_]\w* = ", line) for line in lines) and lines else None
        case [python.With(body=inside) | python.Try(body=inside)]:
            return "\n".join(map(python.unparse, inside))
        case [_, _, *_] if module and len({line.lineno for line in body}) == 1:
            return "\n".join(map(_written, body))
    return "" if len(body) == 1 and _WITHOUT_EFFECT.match(python.unparse(body[0])) else None


# ---- changed elements ----------------------------------------------------------------------------


def update(place: Span, rank: int = 0) -> Edit | None:
    """Rewrites jax's `x.at[x < 0].set(0)` as `where(x < 0, 0, x)`.

    The argument `place` is the source range (span) of `x.at`. The argument `rank` is the rank of x, or 0 if the rank is
    unknown.
    """
    text = place.source.text[place.start : place.start + LONGEST]
    ends = (match.end() for match in re.compile(r"\)").finditer(text, len(place.text)))
    body, end = next(((b, e) for e in ends if (b := _parsed(text[:e]))), ([], 0))
    value, found = _match("elements", body)
    made = _where(found, _filled(value, found), rank=rank) if value else None
    return Edit(Span(place.source, place.start, place.start + end), made) if made else None


def _where(found: Found, value: python.expr, module: str = "", rank: int = 0) -> str | None:
    """Rewrites an assignment such as `x[x < 0] = 0` as `where(x < 0, 0, x)`."""
    x, index = python.unparse(found["X"]), found["I"]
    if _is_mask(index, module) and _rank(python.unparse(index), module) in (0, _rank(x, module)):
        masked = rf"(?<=[\w)\]])\[{re.escape(python.unparse(index))}\]"
        if any(isinstance(n, python.Call) and re.search(masked, python.unparse(n)) for n in python.walk(value)):
            return None  # `sum(x[m])` adds only the selected elements
        new = re.sub(masked, "", python.unparse(value))  # `x[m] = y[m]`
        return _written(_filled("where(I, A, X)", {**found, "A": _filled(new, {})}))
    # The declared type of the array, as in `x: f32[M, N]`, gives the rank. The rank is 0 if it is unknown.
    rank = _rank(x, module) or rank
    items = index.elts if isinstance(index, python.Tuple) else [index]
    if not rank and len(items) == 1:
        return None  # `x[0]` may be an element or a row
    conditions: list[Any] = []
    dots = next((k for k, item in enumerate(items) if python.unparse(item) == "..."), len(items))
    for k, item in enumerate(items):
        axis, rank = (k - len(items), 0) if k > dots else (k, rank or len(items))
        inside, below = _inside(item, f"{x}.shape[{axis}]"), rank - axis - 1
        if inside is None:
            return None
        if python.unparse(inside) != "True":
            conditions.append(_filled(f"A[:{', None' * below}]" if below else "A", {"A": inside}))
    is_number = isinstance(value.operand if isinstance(value, python.UnaryOp) else value, python.Constant)
    fits_anywhere = is_number or isinstance(value, python.BinOp) and python.unparse(value.left) == x
    if not fits_anywhere and (len(items) > 1 or not conditions or isinstance(conditions[0], python.BinOp)):
        return None
    if not conditions:
        return f"full_like({x}, {python.unparse(value)})" if is_number else python.unparse(value)
    mask = reduce(lambda a, b: python.BinOp(a, python.BitAnd(), b), conditions)
    return _written(_filled("where(I, A, X)", {**found, "I": mask, "A": value}))


def _is_mask(index: python.AST, module: str) -> bool:
    """Checks whether an index is an array of booleans, such as a comparison."""
    text = python.unparse(index)
    if isinstance(index, (python.Compare, python.BoolOp)) or re.match(r"~|not |.* [&|] ", text):
        return True
    # the text of the program may show the type or the value of a name
    made = re.search(rf"\b{re.escape(text)}(?: = (.*)|\s*:\s*[\"']?bool\b)", module)
    lines = _parsed(made[1] or "True == True") if made else []
    return any(isinstance(line, python.Expr) and _is_mask(line.value, "") for line in lines)


def _rank(name: str, module: str) -> int:
    """Returns the declared rank of a parameter: 2 for `x: f32[M, N]`, 0 if unknown."""
    declared = re.search(rf"\b{re.escape(name)}\s*:\s*[\"']?\w+\[([^\]*]*)\]", module)
    return declared[1].count(",") + 1 if declared else 0


def _inside(item: python.AST, size: str) -> Any:
    """Returns a condition for the positions that an index or slice selects: `arange(n) < 5` for `:5`."""
    text, found = _match("places", [python.Expr(python.Subscript(python.Name("X"), item))])  # type: ignore[arg-type]
    bounds = {name: python.unparse(bound) for name, bound in found.items() if name != "X"}
    # the index, or a bound of the slice, must be a number
    if not all(re.fullmatch(r"-?\d+", bound) for bound in bounds.values()):
        return None
    bounds = {name: f"{size} - {bound[1:]}" if bound[0] == "-" else bound for name, bound in bounds.items()}
    # `P` stands for the position on the axis: the condition of `2:5` is `(P >= 2) & (P < 5)`
    names = {"P": f"arange({size})", **bounds}
    return _filled(text, {name: python.parse(of, mode="eval").body for name, of in names.items()})


# ---- expressions ---------------------------------------------------------------------------------


def expression(place: Span) -> Edit | None:
    """Returns an edit that rewrites operators such as `and` and `in` in the expression that contains `place`.

    The operator `&&` is read as `and`, and `||` is read as `or`.
    """
    source = place.source
    here = _stripped(source, _around(source.text, place.start, -1), _around(source.text, place.end, +1))
    text = here.text.replace("&&", " and ").replace("||", " or ")
    match _parsed(text.strip()):
        case [python.Expr(value=value)]:
            same, made = python.unparse(value), _written(value)
            return Edit(here, made) if made != same else None
    return None


def refused(code: str, text: str) -> str | None:
    """Returns how to correct an expression with the error `code`, such as MT0102.

    Returns None if no row in the table for the error code `code` matches the expression.
    """
    made, found = _match(code, _parsed(text))
    return python.unparse(_filled(made, found)) if made else None


def comprehension(place: Span) -> Edit | None:
    """Returns an edit that rewrites a comprehension: `[2 * a for a in x]` becomes `2 * x`.

    The argument `place` is the source range (span) of the word `for` in the comprehension.
    """
    text = place.source.text
    ends = _around(text, place.start, -1, _LINE_END), _around(text, place.end, +1, _LINE_END)
    here = _stripped(place.source, *ends)
    made, found = _match("comprehensions", _parsed(f"({here.text})"))
    arrays = _arrays(found["T"], found["O"]) if made else {}
    if not arrays:
        return None
    kept = _filled(made, found)
    made = python.unparse(_Filling(arrays).visit(kept))
    start, end = here.start - 1, here.end + 1
    if text[start:end] != f"[{here.text}]":
        return Edit(here, made)
    before = re.search(r"(^|[(,=]|\breturn)\s*$", text[:start])
    alone = before is not None and text[end:].lstrip(" ")[:1] in ("", "\n", ")", ",")
    return Edit(Span(place.source, start, end), made if alone or isinstance(kept, _FIRM) else f"({made})")


def _arrays(target: Any, over: Any) -> Found:
    """Returns the array that each loop variable runs over: {a: x, b: y} for `for a, b in zip(x, y)`."""
    # the table has forms such as `a, b in zip(x, y)`, `a in x` and `k in range(n)`; other loops give {}
    text, found = _match("loops", [python.Expr(python.Compare(target, [python.In()], [over]))])
    match target, _filled(text, found):
        case python.Name(name), array:
            return {name: array}
        case python.Tuple(names), python.Call(python.Name("zip"), arrays) if len(names) == len(arrays):
            return dict(zip(map(python.unparse, names), arrays))
    return {}


def _around(text: str, at: int, step: int, stop: re.Pattern[str] = _STOP) -> int:
    """Returns where the expression around the position `at` ends, or, if `step` is -1, where this expression starts."""
    # `step` is -1 for the start and 1 for the end. The expression ends at an unmatched bracket, or where `stop`
    # matches: by default at a comma, a `=`, a comment, a line end or the word `return`.
    opening = "([{" if step > 0 else ")]}"
    start, end = (at, min(at + LONGEST, len(text))) if step > 0 else (max(at - LONGEST, 0), at)
    depth = 0
    for found in list(stop.finditer(text, start, end))[::step]:
        if depth == 0 and found[0] not in opening:
            return found.start() if step > 0 else found.end()
        depth += 1 if found[0] in opening else -1 if found[0] in "()[]{}" else 0
    return end if step > 0 else start


def _stripped(source: Source, start: int, end: int) -> Span:
    text = source.text[start:end]
    return Span(source, start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip()))
