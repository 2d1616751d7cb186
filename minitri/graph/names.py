"""The names of the language, and what a name in an expression stands for.

    x → the value bound above     pi → 3.14…     f32 → the dtype     exp → an error: it is a function

In: a name, where it stands in its expression, the names bound so far and the functions of the module. Out: its value,
or a CompileError MT0101 or MT0103. The one idea: the program's own names come before those of the language. A name of
another library is no slip of the hand. `median` asks for the median, not for `mean`; what is like it among the
program's own names is said beside the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.types import DTYPES
from minitri.graph.typer import Scope, Value
from minitri.language import ast
from minitri.language.arithmetic import CONSTANTS
from minitri.language.foreign import names as foreign
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, library_functions


def value_of_name(node: ast.Name, functions: Collection[str], scope: Scope, root: ast.Expr) -> Value:
    """What a name stands for that the program has not bound. `root` is the whole expression, for a better message about an unknown name."""
    name = node.id
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name == "newaxis":
        return None
    if name in DTYPES:
        return DTYPES[name]
    if name in functions or name in function_names():
        raise CompileError("MT0101", f"`{name}` is a function: call it", help=f"`{name}(…)`")
    raise unknown_name(node, root, [*scope, *functions], [*CONSTANTS, *DTYPES, *function_names()])


def function_names() -> list[str]:
    """Every function of the language: operators, structured functions, the library, aliases."""
    return [*OPERATORS, *ALIASES, *SIGNATURES, *FUNCTION_ALIASES, *library_functions()]


# ---- names that nothing has -------------------------------------------------------------------


def unknown_name(node: ast.Name, root: ast.Expr, own: Iterable[str], known: Iterable[str]) -> CompileError:
    """For a name that is not called. `own` are the names of the program, `known` those of the language."""
    name = node.id
    own = list(own)
    if name in foreign.PREFIXES and (path := _Path(node, root)).member:
        return CompileError("MT0101", f"there is no `{name}` here", help=path.answer(known))
    help = _both(foreign.value(name), name, own) or suggest(name, [*own, *known])
    if name in foreign.PREFIXES:
        help = "the functions are there without a prefix: `exp(x)`"
    if not help:
        help = "names are parameters, dimensions and assignments above"
        if node.span.source.name == "<expression>":
            help += f'; parameters have types, as in {name[:40]}="f32[N]" or -t {name[:40]}=f32[N]'
    return CompileError("MT0101", f"there is no `{name}` here", help=help)


def unknown_function(call: ast.Call, own: Iterable[str], known: Iterable[str]) -> CompileError:
    """For `name(x)` and `x.name()`."""
    name = call.function
    if name in DTYPES:
        help = f"write `astype(x, {name})`"
    else:
        method = bool(call.args) and call.args[0].span.start == call.span.start
        answer = foreign.called(name, len(call.args), [k for k, _ in call.keywords], method=method)
        help = _both(answer, name, own) or suggest(name, [*own, *known])
    return CompileError("MT0101", f"there is no function `{name[:40]}`", help=help)


def unknown_attribute(name: str, known: Sequence[str], there: str) -> CompileError:
    """For `x.name`. `there` says what attributes there are, or that it is a function."""
    help = foreign.attribute(name) or suggest(name, known) or there
    return CompileError("MT0103", f"arrays have no attribute `{name[:40]}`", help=help)


def _both(answer: str, name: str, own: Iterable[str]) -> str:
    """The answer of the table, after a name of the program that is much like the unknown one."""
    near = suggest(name, own) if answer else ""
    return f"{near} {answer}" if near else answer


class _Path:
    """`np.linalg.norm(x)` around `np`: the path `np`, `linalg`, its member `norm`, and how it is used."""

    def __init__(self, node: ast.Expr, root: ast.Expr) -> None:
        parents = {id(child): parent for parent in ast.postorder(root) for child in ast.children(parent)}
        names, here = [node.id] if isinstance(node, ast.Name) else [], node
        while isinstance(above := parents.get(id(here)), ast.Attribute):
            names.append(above.name)
            here = above
        self.call = above if isinstance(above, ast.Call) and _is_receiver(here, above) else None
        if self.call is not None:
            names.append(self.call.function)
        *self.path, self.member = names if len(names) > 1 else [*names, ""]

    def answer(self, known: Iterable[str]) -> str:
        count = None if self.call is None else len(self.call.args) - 1
        keywords = [] if self.call is None else [k for k, _ in self.call.keywords]
        answer = foreign.prefixed(self.path, self.member, count, keywords)
        if answer or self.member in known:
            return answer or f"`{self.member}` is there without a prefix"
        return suggest(self.member, known) or "the functions are there without a prefix: `exp(x)`"


def _is_receiver(node: ast.Expr, call: ast.Call) -> bool:
    """Whether the call is a method of the node: `x.f()`, not `f(x)`."""
    return bool(call.args) and call.args[0] is node and node.span.start == call.span.start
