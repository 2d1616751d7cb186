"""Metamorphic tests: changed programs that must compute the same result as the original.

Each function in the dictionary `RELATIONS` takes the text of a random program, and returns a changed program. The
changed program is called with the same arguments as the original program. If a result of the original program is exact,
the changed program must return the same bits. If a result of the original program is not exact, the changed program's
result must lie within the original's error bounds. A program with added dead code must have the same generated source
as the original program.

`without NAME`: the optional pass NAME, such as `simplify`, is left out.
`permuted`: the operands of commutative operators are exchanged.
`dead code`: statements are added whose results are not used.
`renamed`: parameters, variables and dimensions get other names, so that their alphabetical order changes.
`small blocks`: tiles have few elements, so small arrays need many programs and loops.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minitri.language import ast
from minitri.language.parser import parse_module
from minitri.optimize.pass_table import OPTIONAL
from minitri.program import Program
from minitri.tiles.schedule import Options, axis_names

COMMUTATIVE = {"+", "*", "&", "|", "^", "==", "!="}
COMMUTATIVE_CALLS = {"maximum", "minimum", "hypot", "logical_and", "logical_or", "logical_xor"}
OWN_NAMES = re.compile(r"[NMKD]|v\d+|p\d+|s|[xywzabcdefgh]")
SIGNATURE = re.compile(r"^def program\((?P<first>\w+):(?P<rest>.*)\):$", re.MULTILINE)
DEAD = ("unused = concat([reshape({x}, -1), reshape({x}, -1)], axis=0)", "unused_too = sum(unused == unused)")


def without(name: str) -> Callable[[str], Program]:
    return lambda text: parsed(text).configured(without=(name,))


def parsed(text: str) -> Program:
    return Program(parse_module(text, "<random>"))


# ---- permuted --------------------------------------------------------------------------


def permuted(text: str) -> Program:
    return Program(ast.rewritten(parse_module(text, "<permuted>"), _exchanged))


def _exchanged(node: Any) -> Any:
    """Exchanges the operands of a commutative operator in the syntax tree."""
    match node:
        case ast.Binary(left=ast.Tuple()) | ast.Binary(right=ast.Tuple()):  # shapes are joined in their order
            return node
        case ast.Binary(op=op) | ast.Compare(op=op) if op in COMMUTATIVE:
            return replace(node, left=node.right, right=node.left)
        case ast.Call(function=name, args=(a, b)) if name in COMMUTATIVE_CALLS:
            return replace(node, args=(b, a))
    return node


# ---- dead code, other names ----------------------------------------------------------------


def with_dead_code(text: str) -> Program:
    found = SIGNATURE.search(text)
    if found is None:  # without parameters there is no array for dead code
        return parsed(text)
    lines = "".join(f"    {line.format(x=found['first'])}\n" for line in DEAD)
    return parsed(f"{text[: found.end()]}\n{lines}{text[found.end() + 1 :]}")


def renamed(text: str) -> Program:
    """Renames a program's own names, so that their alphabetical order changes."""
    start = text.index("def program(")
    own = dict.fromkeys(w for w in re.findall(r"(?<![\w.])[A-Za-z_]\w*", text[start:]) if OWN_NAMES.fullmatch(w))
    other = {name: f"{'N' if name.isupper() else 'q'}{len(own) - k}" for k, name in enumerate(own)}
    return parsed(text[:start] + re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: other.get(m[0], m[0]), text[start:]))


def in_small_blocks(text: str) -> Program:
    program = parsed(text)
    names = axis_names(program.lower().compilation.value("kernels"))
    return program.configured(options=Options(blocks={name: 8 if name in "ijr" else 2 for name in names}))


RELATIONS: dict[str, Callable[[str], Program]] = {
    **{f"without {name}": without(name) for name in OPTIONAL},
    "permuted": permuted,
    "dead code": with_dead_code,
    "renamed": renamed,
    "small blocks": in_small_blocks,
}
