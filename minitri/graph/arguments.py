"""The arguments and results of a function meet what its signature says.

    def scaled(x: f32[N, N], by: float = 2.0) ...

    scaled(a)   with a: f32[M, K]   →   x is a seen as f32[M, M], on the condition M == K; by is 2.0

In: the parameters of a function and the values of a call. Out: a value for each parameter, and sizes
for the dimension names of the callee. The one idea: a declared size that differs from the derived one
is no error yet. It becomes a condition, which each call checks. CompileErrors: MT0102 for arguments
that are missing or of the wrong kind, MT0207 for shapes and dtypes, MT0304 for a size nothing tells.
"""

from __future__ import annotations

from functools import lru_cache

from minitri.base import dims
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dims import Dim
from minitri.base.spans import Span
from minitri.base.types import DTYPES, ArrayType
from minitri.graph.functions.registry import view
from minitri.graph.ir import axis
from minitri.graph.names import Scope
from minitri.graph.parameters import Sizes, array_type, match_sizes, solve_sizes, unbound
from minitri.graph.typer import Array, Typer, Value, describe
from minitri.language import ast


def bind_arguments(function: ast.Function, args: tuple[Value, ...], keywords: Scope) -> Scope:
    """The value of each parameter that a call gives, by name; `dim` and `keepdim` are torch's `axis` and `keepdims`."""
    names = [p.name for p in function.params]
    if len(args) > len(names):
        raise CompileError("MT0102", f"{function.name} takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args))
    for key, value in keywords.items():
        key = "axis" if key == "dim" and "axis" in names else "keepdims" if key == "keepdim" else key
        if key not in names:
            raise CompileError("MT0102", f"{function.name} has no argument `{key[:40]}`", help=suggest(key, names))
        if key in given:
            raise CompileError("MT0102", f"{function.name} got `{key}` twice")
        given[key] = value
    return given


def static_argument(param: ast.Param, value: Value, function: ast.Function) -> Value:
    """A value for a parameter that takes a number or an option, if it is one that it takes."""
    wanted = {"float": (int, float, Dim, Array), "int": (int, Dim), "bool": (bool,)}
    if isinstance(param.annotation, ast.ScalarType) and not isinstance(value, wanted[param.annotation.kind]):
        kind = param.annotation.kind
        message = (
            f"`{param.name}` of {function.name} takes {'an' if kind == 'int' else 'a'} {kind}, not {describe(value)}"
        )
        raise CompileError("MT0102", message)
    words = _options(function, param)
    if len(words) > 1 and value not in words:  # one word alone: any other is the other case
        shown = listed([f'"{w}"' for w in words], "or")
        given = f'"{value[:40]}"' if isinstance(value, str) else describe(value)
        raise CompileError("MT0102", f"`{param.name}` of {function.name} is {shown}, not {given}")
    return value


def array_argument(t: Typer, param: ast.Param, value: Value, sizes: Sizes, function: ast.Function) -> Value:
    """The argument as its annotation wants it; binds the callee's dimension names."""
    declared = param.annotation
    if not isinstance(declared, ast.ArrayType):
        return value
    wanted = DTYPES[declared.dtype]
    array = t.cast(value, wanted) if t.promoted([value])[1] else t.array(value)
    match_sizes(declared, array.shape, sizes, lambda: CompileError(
        "MT0207", f"argument `{param.name}` of {function.name} has rank {len(array.shape)}: {array}"))  # fmt: skip
    return array


def solve_arguments(t: Typer, function: ast.Function, scope: Scope, sizes: Sizes) -> None:
    """Binds what no dimension of the callee says alone; a name may need what another parameter says."""
    before = -1
    while before != len(sizes):
        before = len(sizes)
        for param in function.params:
            if isinstance(param.annotation, ast.ArrayType):
                array = t.array(scope[param.name])
                what = f"argument `{param.name}` of {function.name} is {array}"
                message = f"{what}, too small for {param.annotation.span.text}"
                for size, least in solve_sizes(param.annotation, array.shape, sizes):
                    t.require(size, ">=", Dim.of(least), "MT0207", message)


def typed_arguments(t: Typer, function: ast.Function, scope: Scope, sizes: Sizes) -> Scope:
    """The array arguments, seen with the sizes that their annotations declare."""
    typed: Scope = {}
    for param in function.params:
        if isinstance(param.annotation, ast.ArrayType):
            what = f"argument `{param.name}` of {function.name} is"
            missing = [n for d in param.annotation.dims for n in unbound(d, sizes)]
            if missing:
                help = "use the dimension alone in the type of some parameter"
                raise CompileError(
                    "MT0304", f"no argument tells the size of `{missing[0].id}`", missing[0].span, help=help
                )
            type = array_type(param.annotation, sizes)
            typed[param.name] = _typed(t, t.array(scope[param.name]), type, what, param.span)
    return typed


def declared_result(t: Typer, array: Array, function: ast.Function, k: int, sizes: Sizes) -> Array:
    """The k-th result as its type says it."""
    declared = None if function.returns is None else function.returns[k]
    if not isinstance(declared, ast.ArrayType):
        return array
    return _typed(t, array, array_type(declared, sizes), f"{function.name} returns", declared.span)


def require_count(function: ast.Function, given: int) -> None:
    """CompileError MT0207 if a function returns another number of results than it declares."""
    if function.returns is not None and len(function.returns) != given:
        message = f"{function.name} declares {len(function.returns)} results and returns {given}"
        raise CompileError("MT0207", message, function.body[-1].span)


def _typed(t: Typer, array: Array, type: ArrayType, what: str, span: Span) -> Array:
    """The array with the sizes that its type declares. Where others were derived, the call checks that they are equal."""
    message = f"{what} {array}, which is declared as {type}"
    if array.dtype != type.dtype:
        help = f"convert it: `astype(…, {type.dtype})`"
        raise CompileError("MT0207", message, span, help=help)
    if len(array.shape) != len(type.shape):
        raise CompileError("MT0207", message, span)
    t.span = span
    for a, b in zip(array.shape, type.shape):
        t.require(a, "==", b, "MT0207", message)
    if array.shape == type.shape:
        return array
    index = [dims.ZERO if e == 1 else axis(k) for k, e in enumerate(array.shape)]
    return view(t, array, type.shape, index)


@lru_cache(maxsize=256)
def _options(function: ast.Function, param: ast.Param) -> tuple[str, ...]:
    """The words that an option may be: its default and those it is compared with; () if it is used otherwise."""
    if param.annotation is not None or not isinstance(param.default, ast.String):
        return ()
    words = [param.default.value]
    compared = 0
    nodes = [node for statement in function.body for node in ast.postorder(statement)]
    for node in nodes:
        match node:
            case (
                ast.Compare(left=ast.Name(id=name), right=ast.String(value=word))
                | ast.Compare(left=ast.String(value=word), right=ast.Name(id=name))
            ) if name == param.name:
                words.append(word)
                compared += 1
    used = sum(isinstance(node, ast.Name) and node.id == param.name for node in nodes)
    return tuple(dict.fromkeys(words)) if used == compared else ()
