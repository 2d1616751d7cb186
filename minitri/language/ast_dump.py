"""Prints the syntax tree, which is the form of a program at the stage `ast` of the compiler.

Each line shows one node and the node's position (line:column) in the source. Children of a node are indented.

The function `format_module` returns the text of every function in a module (a node of ast.py). For example, the name x
in the program `relu(x + y)` becomes the line `name x 1:6`.

    def main(x: f16[M], y: f16[M])  1:1
      return                        1:1
        call relu                   1:1
          binary +                  1:6
            name x                  1:6
            name y                  1:10

minitri cannot make a program from the text of a syntax tree. To change a program, edit its source.
"""

import re
from collections.abc import Iterator, Sequence

from minitri.base.diagnostics import printable
from minitri.language import ast

_DEEP = 60  # levels that are indented; the line of a deeper node has the number of its level instead
_WIDE = 100  # columns before the positions


def format_module(module: ast.Module) -> str:
    """Returns the text of every function of a module."""
    return "".join(f"{text}\n" for text, _ in module_lines(module))


def module_lines(module: ast.Module) -> Iterator[tuple[str, ast.Node | None]]:
    """Yields each line of the printed syntax tree, with the node that the line describes. For an empty line, the node
    is None.
    """
    for number, function in enumerate(module.functions):
        if number:
            yield "", None
        yield from _table([*_function(function)])


def format_type(kind: ast.ArrayType | ast.ScalarType) -> str:
    """Returns the text of a type, such as `f32[*B, N + 1]` or `float`."""
    return kind.kind if isinstance(kind, ast.ScalarType) else f"{kind.dtype}[{', '.join(map(_dim, kind.dims))}]"


_Line = tuple[str, ast.Node]


def _table(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Yields the lines of a printed syntax tree, each with its source position."""
    width = min(_WIDE, max(len(text) for text, _ in lines))
    return (("{:<{}}  {}:{}".format(text, width, *node.span.line_column), node) for text, node in lines)


def _function(function: ast.Function) -> Iterator[_Line]:
    types = ", ".join(map(format_type, function.returns or ()))
    returns = "" if function.returns is None else f" -> {types}" if len(function.returns) == 1 else f" -> ({types})"
    yield f"def {function.name}({', '.join(map(_param, function.params))}){returns}", function
    for statement in function.body:
        targets = ", ".join(target.id for target in statement.targets) if isinstance(statement, ast.Assign) else ""
        yield f"  assign {targets}" if targets else "  return", statement
        yield from _tree(statement.value, 2)


def _param(param: ast.Param) -> str:
    text = param.name if param.annotation is None else f"{param.name}: {format_type(param.annotation)}"
    return text if param.default is None else f"{text} = {printable(' '.join(param.default.span.text.split()))}"


def _tree(root: ast.Expr | ast.Pack, depth: int) -> Iterator[_Line]:
    """Yields the line of a node, and then the lines of its children."""
    # A stack in place of recursion.
    stack: list[tuple[int, str, ast.Expr | ast.Pack]] = [(depth, "", root)]
    while stack:
        depth, role, node = stack.pop()
        margin = "  " * depth if depth <= _DEEP else "  " * _DEEP + f"[{depth}] "
        yield margin + role + _label(node), node
        stack += [(depth + 1, role, child) for role, child in reversed(_children(node))]


def _label(node: ast.Expr | ast.Pack) -> str:
    names = (getattr(node, field, None) for field in ("id", "name", "function", "op"))
    detail = repr(node.value) if isinstance(node, (ast.Number, ast.String)) else next(filter(None, names), "")
    return f"{type(node).__name__.removesuffix('Literal').lower()} {detail}".rstrip()


def _children(node: ast.Expr | ast.Pack) -> list[tuple[str, ast.Expr | ast.Pack]]:
    """Returns a pair for each child of a node: a label such as `axis=`, and the child."""
    match node:
        case ast.Conditional(test=test, body=body, orelse=orelse):
            return [("", body), ("if ", test), ("else ", orelse)]
        case ast.Call(args=args, keywords=keywords):
            return [*(("", arg) for arg in args), *((f"{name}=", value) for name, value in keywords)]
        case ast.Slice(start=start, stop=stop, step=step):
            parts = (("start ", start), ("stop ", stop), ("step ", step))
            return [(role, part) for role, part in parts if part is not None]
    # An operand of `+`, for example, has no label.
    return [("", child) for child in ast.children(node)]  # type: ignore[misc]


def _dim(dim: ast.Expr | ast.Pack) -> str:
    """Returns the source text of a dimension, with blanks around each operator."""
    if isinstance(dim, ast.Pack):
        return f"*{dim.id}"
    return printable(re.sub(r"\s*(//|[-+*%])\s*", r" \1 ", " ".join(dim.span.text.split())))
