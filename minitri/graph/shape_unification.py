"""Checks the arrays of a call against the declared types of parameters, and finds the sizes of dimension names.

    def scaled(x: f32[N, N]) ...

    scaled(a)   with a: f32[M, K]   →   x is a with the type f32[M, M], on the condition M == K

The function `typed_arguments` takes a called function and the arrays of the call. It gives each array the sizes that
the parameter's annotation declares. The functions `array_argument` and `typed_arguments` find the sizes of the
dimension names of the called function. The one idea: a declared size N and an actual size M may be different
expressions at compile time. The equality of the declared size and the actual size becomes a condition that the compiled
program checks at each call. A wrong shape or dtype raises CompileError MT0207. A size that no argument determines
raises CompileError MT0304.
"""

from collections.abc import Callable, Iterator, Sequence

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.types import DTYPES
from minitri.graph.ir import Shape
from minitri.graph.parameter_binding import Sizes, array_type, eval_dim, typed
from minitri.graph.typing_rules import Scope, Typer, Value
from minitri.language import ast


def array_argument(t: Typer, param: ast.Param, value: Value, sizes: Sizes, function: ast.Function) -> Value:
    """Converts the argument for a parameter with an array type to an array.

    Binds the callee's dimension names to the sizes of the array. A weak scalar (a number without a fixed dtype) is
    converted to the dtype of the annotation. Raises CompileError MT0207 for a wrong rank.
    """
    declared = param.annotation
    assert isinstance(declared, ast.ArrayType)
    array = t.cast(value, DTYPES[declared.dtype]) if t.promoted([value])[1] else t.array(value)
    match_sizes(declared, array.shape, sizes, lambda: CompileError(
        "MT0207", f"argument `{param.name}` of {function.name} has rank {array.rank}: {array}"))  # fmt: skip
    return array


def typed_arguments(t: Typer, function: ast.Function, scope: Scope, sizes: Sizes) -> Scope:
    """Returns the array arguments by name, each with the sizes that its annotation declares.

    The function also finds the sizes of dimension names that occur only in expressions such as `2 * N`.
    """
    arrays = [(p, p.annotation) for p in function.params if isinstance(p.annotation, ast.ArrayType)]
    arguments = [(p, type, t.array(scope[p.name]), f"argument `{p.name}` of {function.name} is") for p, type in arrays]
    for k, _, size, divisor in solve_sizes([(type, array.shape) for _, type, array, _ in arguments], sizes):
        _, declared, array, what = arguments[k]
        message = f"{what} {array}, too small for {declared.span.text}"
        t.require(size, ">=", dims.ZERO, "MT0207", message)
        t.require(divisor, ">=", dims.ONE, "MT0207", message)
    found: Scope = {}
    for param, declared, array, what in arguments:
        for name in (n for d in declared.dims for n in unbound(d, sizes)):
            help = "use the dimension alone in the type of some parameter"
            raise CompileError("MT0304", f"no argument tells the size of `{name.id}`", name.span, help=help)
        found[param.name] = typed(t, array, array_type(declared, sizes), what, param.span)
    return found


def match_sizes(declared: ast.ArrayType, shape: Shape, sizes: Sizes, wrong_rank: Callable[[], CompileError]) -> None:
    """Binds the dimension names and packs (such as `*B`) of an annotation to the sizes of an actual shape."""
    packs = any(isinstance(d, ast.Pack) for d in declared.dims)
    extra = len(shape) - len(declared.dims) + packs
    if extra < 0 or (extra and not packs):
        raise wrong_rank()
    for d, extents in ast.with_sizes(declared, shape):
        if isinstance(d, ast.Name):
            sizes.setdefault(d.id, extents[0])
        elif isinstance(d, ast.Pack) and len(sizes.setdefault(d.id, extents)) != len(extents):  # type: ignore[arg-type]
            raise wrong_rank()


def solve_sizes(
    arrays: Sequence[tuple[ast.ArrayType, Shape]], sizes: Sizes
) -> Iterator[tuple[int, str, dims.Dim, dims.Dim]]:
    """If exactly one name in a dimension has an unknown size, finds this size. Example: if G is 3 and `G * H + 1` is 7,
    then H is 2.

    `arrays` has a pair for each array: the annotation and the shape of the array. A size that is found from one array
    can determine a size of another array. So the search continues until it finds no new size.

    Yields, for each size that is found: the position in `arrays`, the name, the size, and a divisor. Each call must
    check that the size is at least 0, and the divisor at least 1.
    """
    before = -1
    while before != len(sizes):
        before = len(sizes)
        for k, (declared, shape) in enumerate(arrays):
            for d, extents in ast.with_sizes(declared, shape):
                unknown = unbound(d, sizes)
                if isinstance(d, ast.Pack) or len({n.id for n in unknown}) != 1:
                    continue
                if (found := _solved(d, unknown[0].id, extents[0], sizes)) is not None:
                    sizes[unknown[0].id] = found[0]
                    yield k, unknown[0].id, *found


def unbound(d: ast.Node, sizes: Sizes) -> list[ast.Name]:
    """Returns the names of unknown size in a dimension expression."""
    return [n for n in ast.postorder(d) if isinstance(n, ast.Name) and n.id not in sizes]


def _solved(d: ast.Expr, name: str, extent: dims.Dim, sizes: Sizes) -> tuple[dims.Dim, dims.Dim] | None:
    """Solves a linear equation such as `2 * N + 1 == 9` for the size N."""
    # d is a * name + b; the results are the size (extent - b) // a, and abs(a)
    x = dims.value("?")
    split = eval_dim(d, {**sizes, name: x}).coefficient(next(iter(x.symbols())))
    sign = dims.sign(split[0]) if split is not None else None
    if split is None or not sign or split[0] == 0:
        return None  # d is not linear in `name`, or the sign of the factor is unknown
    return sign * (extent - split[1]) // (sign * split[0]), sign * split[0]
