"""Makes the error messages for unknown names, such as a misspelled function.

    softmx(x)     there is no function `softmx`; did you mean `softmax`?

The function `unknown_name` takes a name, the expression around the name, the variables assigned so far, and the
functions of the module. It returns a CompileError MT0101, which suggests a correction. The function `unknown_function`
returns a CompileError MT0101 for a call of an unknown function. The function `unknown_attribute` returns a CompileError
MT0103 for an unknown attribute `x.name`. The one idea: a name that minitri does not know can come from a different
library, such as numpy. A name of a different library is no spelling mistake: a user who writes `median` wants the
median, not `mean`. If the name belongs to another library, the error message says what to write instead
(minitri/language/foreign). If the program has a name that is similar to the unknown name, the error message suggests
the similar name as well.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from minitri.base.diagnostics import CompileError, Edit, listed, suggest
from minitri.base.spans import Span
from minitri.base.types import DTYPES
from minitri.language import ast
from minitri.language.foreign import names as foreign
from minitri.language.foreign.names import LONGEST, is_operand, rewritten_call, substituted
from minitri.language.python_corrections import update
from minitri.language.signatures import function_names

IGNORED = ("inplace", "out", "device", "requires_grad", "pin_memory", "copy")
# For each function that finds values, the function that finds the positions of these values: argmax for max.
PLACES = {"max": "argmax", "min": "argmin", "sort": "argsort"}
NO_PREFIX = "functions need no prefix: `exp(x)`"
ATTRIBUTES = ("T", "mT", "shape", "ndim", "size", "dtype")


# ---- names that nothing has -------------------------------------------------------------------


def unknown_name(node: ast.Name, root: ast.Expr, scope: Iterable[str], functions: Collection[str]) -> CompileError:
    """Returns the error for a name without a value.

    A name that the program does not define has no value. The name of a function, as in `relu + x`, has no value either.

    The argument `scope` has the names of the variables assigned so far, and the argument `functions` has the names of
    the module's functions. The node `root` is the whole expression that contains the name.
    """
    name, own, known = node.id, [*scope, *functions], [*ast.CONSTANTS, *DTYPES, *function_names()]
    if name in functions or name in function_names():
        return _uncalled(node, root)
    error = CompileError("MT0101", f"there is no `{name}` here", node.span)
    if name in foreign.PREFIXES:
        return _explained(error, node, root, {*known})
    if answer := foreign.value(name):
        written = "" if answer.row.arguments else answer.row.instead
        return _advised(error, node.span, written, f"{suggest(name, own)} {answer.sentence(called=False)}".lstrip())
    if isinstance(root, ast.Subscript) and isinstance(root.value, ast.Name) and root.value.id in DTYPES:
        source, start = root.span.source, root.span.start  # `def f(x=f32[N])`
        return error.write(Span(source, source.text.rindex("=", 0, start), start), ": ", "a type follows `:`, not `=`")
    values = [n for n in known if n not in function_names()]
    if guess := suggest(name, [*own, *values]) or suggest(name, known):
        return error.guess(node.span, guess)
    help = "names are parameters, dimensions and assignments above"
    if node.span.source.name == "<expression>":
        help += f'; parameters have types, as in {name[:40]}="f32[N]" or -t {name[:40]}=f32[N]'
    return error.correct(help=help)


def _uncalled(node: ast.Name, root: ast.Expr) -> CompileError:
    """Returns the error for a function name without a call, as in `exp[x]`."""
    name = node.id
    error = CompileError("MT0101", f"`{name}` is a function: call it", help=f"write `{name}(…)`")
    for above in ast.postorder(root):
        match above:
            case ast.Subscript(value=ast.Name() as value, indices=indices) if value is node:
                error.correct(Edit(above.span, f"{name}({', '.join(i.span.text for i in indices)})"))
            case ast.Call(function="map" | "apply", args=[a, b]) if node in (a, b):
                error.correct(Edit(above.span, f"{name}({(b if a is node else a).span.text})"))
    return error


def unknown_function(call: ast.Call, own: Iterable[str], known: Iterable[str], root: ast.Expr) -> CompileError:
    """Returns the error for a call `name(x)` or `x.name()` of an unknown function. The argument `root` is the whole
    expression.
    """
    name, own = call.function, list(own)
    error = CompileError("MT0101", f"there is no function `{name[:40]}`", called_name(call))
    args, keywords = [a.span.text for a in call.args], _keywords(call)
    if answer := foreign.called(name, args, list(keywords), method=is_method(call)):
        written = fitted(rewritten_call(answer.row, args, keywords), call, root)
        return _advised(error, call.span, written, f"{suggest(name, own)} {answer.sentence(True, written)}".lstrip())
    if guess := suggest(name, [*own, *known]):
        return error.guess(called_name(call), guess)
    return _undefined(error, call)


def _keywords(call: ast.Call) -> dict[str, str]:
    """Returns the named arguments of a call. Arguments that change no values, such as `device`, are left out."""
    return {name: value.span.text for name, value in call.keywords if name not in IGNORED}


def _undefined(error: CompileError, call: ast.Call) -> CompileError:
    """Returns the error for an unknown function whose name is similar to no known name."""
    source, name = call.span.source, call.function[:40]
    params = ", ".join("xyzabcuvw"[k : k + 1] or f"x{k}" for k in range(len(call.args)))
    is_module = source.name == "<module>" or source.name.endswith(".mt")
    start = re.search(r"^[ \t]*def\b", source.text, re.MULTILINE) if is_module else None
    if start is None or call.keywords or not params:
        return error.correct(help=f"a program sees its own `def`s and the library: define `{name}` in a module")
    # a module gets a function to complete, such as `def f(x): return x`
    stub = f"def {name}({params}):\n    return x\n\n\n"
    return error.write(Span(source, start.start(), start.start()), stub, f"define it above: `def {name}({params}):`")


def unknown_attribute(node: ast.Attribute, rank: int) -> CompileError:
    """Returns the error for an unknown attribute `x.name`, where `rank` is the rank of x."""
    name, value = node.name, node.value.span.text
    place = replace(node.span, start=node.span.end - len(name))
    error = CompileError("MT0103", f"arrays have no attribute `{name[:40]}`", place)
    if name == "at" and (edit := update(node.span, rank)) is not None:
        return error.correct(edit)
    if answer := foreign.attribute(name):
        written = substituted(answer.row.instead, {"x": value})
        return _advised(error, node.span, written, answer.sentence(False, written))
    if name in function_names():
        return error.write(node.span, f"{node.span.text}()", f"call it: `.{name}()`")
    if name == "indices" and isinstance(pair := node.value, ast.Call) and (arg := PLACES.get(pair.function)):
        start = called_name(pair).start - node.span.start
        return error.write(node.span, f"{value[:start]}{arg}{value[start + len(pair.function) :]}")
    if guess := suggest(name, ATTRIBUTES):
        return error.guess(place, guess)
    return error.correct(help=f"arrays have {listed([f'.{a}' for a in ATTRIBUTES])}")


def _advised(error: CompileError, span: Span, written: str, help: str) -> CompileError:
    """Adds a help text to an error, and a correction of the source if there is one."""
    return error.correct(Edit(span, written) if written else None, help=help)


def is_method(call: ast.Call) -> bool:
    """Checks whether a call is written `x.f()`, not `f(x)`."""
    return bool(call.args) and call.args[0].span.start == call.span.start


def called_name(call: ast.Call) -> Span:
    """Returns the source range (span) of the function's name in a call.

    For both `f(x)` and `x.f()`, the function returns the position of the name `f` in the source text.
    """
    source, start = call.span.source, call.span.start
    if is_method(call):
        start = source.text.index(call.function, call.args[0].span.end)
    return Span(source, start, start + len(call.function))


def fitted(text: str, node: ast.Expr, root: ast.Expr) -> str:
    """Returns the text that replaces a node, in parentheses if the surrounding expression requires them.

    Example: if `a + b` replaces n in `n * 2`, the returned text is `(a + b)`.
    """
    if not text or node is root or is_operand(text):
        return text
    tears = isinstance(_around(node, root), (ast.Binary, ast.Unary, ast.Compare, ast.Attribute, ast.Subscript))
    return f"({text})" if tears else text


def _around(node: ast.Node, root: ast.Expr) -> ast.Node | None:
    """Returns the parent of a node in an expression, or None for the whole expression."""
    return next((n for n in ast.postorder(root) if any(part is node for part in ast.children(n))), None)


def _explained(error: CompileError, node: ast.Name, root: ast.Expr, known: Collection[str]) -> CompileError:
    """Adds a help text to the error for a library prefix, such as `np` in `np.exp(x)`."""
    names, whole = [node.id], node
    while isinstance(above := _around(whole, root), ast.Attribute):
        names.append(above.name)
        whole = above
    call = above if isinstance(above, ast.Call) and is_method(above) and above.args[0] is whole else None
    if call is not None:
        names.append(call.function)
        whole = call
    *path, member = names  # for `np.linalg.norm(x)`: ["np", "linalg"] and "norm"
    if not path:
        return error.correct(help=NO_PREFIX)
    source, start = whole.span.source, whole.span.start
    found = re.compile(rf"\(*(?:\w+[\s)]*\.\s*)+(?={member}\b)").match(source.text, start)
    prefix = Span(source, start, found.end() if found else start)
    error.span = replace(prefix, end=prefix.end + len(member))
    texts = [a.span.text for a in call.args[1:]] if call else []
    keywords = _keywords(call) if call else {}
    answer = foreign.prefixed(path, member, texts if call else None, list(keywords))
    # `known` contains all functions, constants and dtypes of the language
    if answer is None and member in known:
        plain = whole.span.text[prefix.end - start :]
        return error.write(error.span, member, f"write `{plain[:LONGEST]}`: `{member}` is there without a prefix")
    if answer is None:
        return error.correct(help=NO_PREFIX).guess(error.span, suggest(member, known))
    row = answer.row
    written = rewritten_call(row, texts, keywords) if call else "" if row.arguments else row.instead
    help = answer.sentence(call is not None, written)
    if written and row.here and row.name == member and (not call or len(keywords) == len(call.keywords)):
        plain = re.sub(rf"\b{path[0]}\.(?=(\w+))", lambda m: "" if m[1] in known else m[0], written)
        return error.write(prefix, "", help.replace(f"`{written}`", f"`{plain}`", 1))
    return _advised(error, whole.span, fitted(written, whole, root), help)
