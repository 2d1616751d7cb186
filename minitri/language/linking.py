"""Links a function with the functions and constants that it uses, as a linker joins object files.

    EPS = 1e-5

    @mt.jit
    def squares(x):
        return sum(x * x)

    @mt.jit
    def unit(x):                                    Module(squares, unit)
        return x / sqrt(squares(x) + EPS)     →     with 1e-05 instead of EPS

The function `link` takes a `Definition`, which has the syntax tree of a function and the scope around the function. The
returned `Linked` has a module without free variables, and the value of each variable that linking has read. Each later
call of the program checks whether a variable such as EPS has changed. If a variable has changed, the function is linked
again.

A name is looked up in the order of Python: first in the function, then in the functions around it, then in the
function's Python module. A name with a dot, such as `other.EPS` or `other.squares`, is looked up in the Python module
`other`. The language's own names, such as `sum`, are looked up after the names in Python modules. Types are not linked:
in `"f32[N]"`, N is a dimension, even if a variable N exists outside the function. If several linked functions have the
same name, they get different names in the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.nodes import Record
from minitri.base.spans import Source, Span
from minitri.base.types import BY_NUMPY_NAME, DTYPES, DType
from minitri.language import ast
from minitri.language.foreign.names import PREFIXES
from minitri.language.interpreter_base import NAMED_VALUES
from minitri.language.signatures import function_names

MISSING = object()  # the value of a name that is not in the scope
Read = tuple[Callable[[], Any], Any]  # how to look a value up, and what it was


class Definition(Record, eq=False):
    """A function, and the scope in which linking looks up the function's free variables.

    `reader`: a function that takes the name of a free variable. The `reader` returns another function, which looks up
        the current value of the variable. For a function in the text of a program, the `reader` returns None.
    `siblings`: the definitions of all functions in the same text, by name.
    `defaults`: the default values of a Python function's parameters, by name.
    """

    function: ast.Function
    reader: Callable[[str], Callable[[], Any] | None] = lambda name: None
    siblings: Mapping[str, Definition] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


class Linked(Record, eq=False):
    """A module of linked functions. The last function of the module is the function for which `link` was called.

    `reads`: the values of free variables, which the linker looked up in Python scopes. Each item is a pair: a function
        that looks up the value again, and the value.
    `missing`: names of functions that nothing defines yet.
    """

    module: ast.Module
    reads: tuple[Read, ...]
    missing: frozenset[str]


def of_module(module: ast.Module, name: str) -> Definition:
    """Returns the definition of the function `name` of a module.

    The function can call the other functions of the same text.
    """
    siblings: dict[str, Definition] = {}
    siblings |= {f.name: Definition(f, siblings=siblings) for f in module.functions}
    return siblings[name]


def of_python(function: FunctionType, tree: ast.Function) -> Definition:
    """Returns the definition of a Python function.

    The Python function can use the variables of the functions that contain it, and the names of its Python module.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def reader(name: str) -> Callable[[], Any]:
        return partial(_content, cells[name]) if name in cells else partial(function.__globals__.get, name, MISSING)

    parameters = inspect.signature(function).parameters.values()
    return Definition(tree, reader, defaults={p.name: p.default for p in parameters if p.default is not p.empty})


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return MISSING


def link(entry: Definition, definition: Callable[[Any], Definition | None]) -> Linked:
    """Returns a module that contains the function `entry` and all functions that `entry` calls.

    `definition`: a function from a minitri program to its `Definition`. For any value that is not a minitri program,
        the function returns None.

    Raises CompileError MT0101 for a name whose value cannot be part of a program, such as an array.
    """
    linker = _Linker(definition)
    made = linker.functions(entry)
    if len(made) > 1 and entry.function.name in function_names():  # the other functions call the language's function
        linker = _Linker(definition, own_names=False)
        made = linker.functions(entry)
    module = ast.Module(entry.function.span, entry.function.span.source, tuple(reversed(made)))
    return Linked(module, tuple(linker.reads), frozenset(linker.missing))


class _Linker:
    """Links all functions that a program calls into one module, and gives each function a unique name."""

    def __init__(self, definition: Callable[[Any], Definition | None], own_names: bool = True) -> None:
        # `own_names`: the entry function keeps its name even if a function of the language has the same name
        self.definition, self.own_names = definition, own_names
        self.names: dict[ast.Function, str] = {}
        self.definitions: list[Definition] = []
        self.reads: list[Read] = []
        self.missing: set[str] = set()

    def functions(self, entry: Definition) -> list[ast.Function]:
        """Links the entry function and all functions that it calls, and returns the linked functions.

        In the returned list, the entry function is the first. The called functions follow in the order in which the
        linker found them.
        """
        self.name(entry)
        # Linking a function may add further functions to the list, and the loop then links these too.
        return [self.linked(found) for found in self.definitions]

    def name(self, found: Definition) -> str:
        """Returns the name that a function gets in the linked module.

        A function keeps its own name, unless another function of the module or of the language has the same name. If
        another function has the same name, a number is added to the name, as in `squares_2`.
        """
        function = found.function
        if function not in self.names:
            taken, name, number = {*self.names.values()}, function.name, 2
            while name in taken or (name in function_names() and (taken or not self.own_names)):
                name, number = f"{function.name}_{number}", number + 1
            self.names[function] = name
            self.definitions.append(found)
        return self.names[function]

    # ---- one function ----------------------------------------------------------------

    def linked(self, found: Definition) -> ast.Function:
        """Returns the function with new names for the functions that it calls, and with values for constants."""
        function = found.function
        names = _Names(self, found)
        body = tuple(replace(s, value=ast.rewritten(s.value, names.node)) for s in function.body)
        params = tuple(names.param(p) for p in function.params)
        return replace(function, name=self.names[function], params=params, body=body)


class _Names:
    """Finds what the names in one function mean."""

    def __init__(self, linker: _Linker, found: Definition) -> None:
        self.linker, self.found = linker, found
        self.bound = _bound(found.function)
        self.known: dict[tuple[str, ...], Any] = {}

    def node(self, node: Any) -> Any:
        """Replaces a free variable by its value. Replaces the name of a called function by the function's name in the
        module. The names in the children of the node must already be replaced.
        """
        match node:
            case ast.Name() | ast.Attribute():
                path = _path(node)
                value = self.value(path) if path else MISSING
                return node if value is MISSING else self.constant(node, path, value)
            case ast.Call():
                return self.call(node)
        return node

    def value(self, path: tuple[str, ...]) -> Any:
        """Returns the value of a name from outside the function, such as `EPS` or `module.EPS`.

        Returns MISSING if the name has no value.
        """
        if path not in self.known:
            reader = self.reader(path)
            self.known[path] = MISSING if reader is None else reader()
            if reader is not None:
                self.linker.reads.append((reader, self.known[path]))
        return self.known[path]

    def reader(self, path: tuple[str, ...]) -> Callable[[], Any] | None:
        """Returns a function without parameters that looks up the current value of the name. Returns None if the name
        is not in the scope.
        """
        *parents, name = path
        if parents:
            parent = self.value(tuple(parents))
            is_known = isinstance(parent, ModuleType) and hasattr(parent, name)
            return partial(getattr, parent, name, MISSING) if is_known else None
        if name in self.bound or name == self.found.function.name:
            return None
        reader = self.found.reader(name)
        return None if reader and reader() is MISSING and _is_language_name(name) else reader

    def constant(self, node: ast.Expr, path: tuple[str, ...], value: Any) -> ast.Expr:
        if (literal := _literal(value, node.span)) is not None:
            return literal
        if isinstance(value, ModuleType) or _is_language_name(path[-1]) or path[0] in PREFIXES:
            return node
        shown = node.span.text
        if self.linker.definition(value) is not None:
            raise CompileError("MT0101", f"`{shown}` is a function: call it", node.span, help=f"`{shown}(…)`")
        message = f"`{shown}` is outside the program, and {_kind(value)} cannot be a part of it"
        raise CompileError("MT0101", message, node.span, help=_way_out(path[-1], value))

    # ---- calls -----------------------------------------------------------------------

    def call(self, node: ast.Call) -> ast.Call:
        """In a call `f(x)` or `module.f(x)`, replaces the name of the function by the function's name in the linked
        module.

        In the syntax tree, the call `module.f(x)` is `f(module, x)`.
        """
        name, args = node.function, node.args
        receiver = _path(node.args[0]) if node.args and node.args[0].span.start == node.span.start else ()
        if receiver and isinstance(self.value(receiver), ModuleType):
            found, args = self.callee(node, (*receiver, name)), args[1:]
        elif name == self.found.function.name or name in self.found.siblings:
            found = self.found.siblings.get(name, self.found)
        else:
            found = None if name in self.bound else self.callee(node, (name,))
        return node if found is None else replace(node, function=self.linker.name(found), args=args)

    def callee(self, node: ast.Call, path: tuple[str, ...]) -> Definition | None:
        """Returns the definition of the function that a call node calls.

        Returns None if the program calls a function of minitri's language. Returns None if no function of this name
        exists.
        """
        value = self.value(path)
        found = None if value is MISSING else self.linker.definition(value)
        if found is not None or path[-1] in function_names() or path[0] in PREFIXES:
            return found
        if value is MISSING:
            self.linker.missing.add(path[-1])
        elif callable(value) and not isinstance(value, type):
            message = f"`{'.'.join(path)}` is {_kind(value)} of Python, not a function of the language"
            help = f"decorate `{path[-1]}` with `@mt.jit`" if isinstance(value, FunctionType) else ""
            raise CompileError("MT0101", message, node.span, help=help)
        return None

    # ---- parameters ------------------------------------------------------------------

    def param(self, param: ast.Param) -> ast.Param:
        """Replaces names in the default of a parameter by their values.

        A default is the value that Python computed when Python defined the function. The default `eps=EPS` keeps the
        value that EPS had at the definition, even if EPS changes later.
        """
        if param.default is None or param.name not in self.found.defaults:
            return param
        names = {n.id for n in ast.postorder(param.default) if isinstance(n, ast.Name)}
        if names <= NAMED_VALUES.keys():
            return param
        value = self.found.defaults[param.name]
        place = Span(Source(f"<default of {param.name}>", repr(value)), 0, len(repr(value)))
        literal = _literal(value, place)
        return param if literal is None else replace(param, default=literal)


_USABLE = "numbers, tuples of numbers, dtypes and functions with `@mt.jit` can be used as they are"


def _way_out(name: str, value: Any) -> str:
    """Returns the help text of the error for a value that a program cannot use."""
    instead: Any = {float: "mt.f64", int: "mt.i64", bool: "mt.bool_"}.get(value) if isinstance(value, type) else None
    if isinstance(value, list) and len(value) < 10 and all(isinstance(v, (int, float)) for v in value):
        instead = tuple(value)
    return f"write `{name} = {instead}`" if instead else f"make `{name}` a parameter; {_USABLE}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def _path(node: ast.Node) -> tuple[str, ...]:
    """Returns the names in an expression such as `a.b.c`, or () for other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.name)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _bound(function: ast.Function) -> frozenset[str]:
    """Returns the names that a function binds: parameters, dimensions and assigned names."""
    dims = [n for p in function.params if isinstance(p.annotation, ast.ArrayType) for n in ast.postorder(p.annotation)]
    names = [n.id for n in dims if isinstance(n, (ast.Name, ast.Pack))]
    targets = [t.id for s in function.body if isinstance(s, ast.Assign) for t in s.targets]
    return frozenset([*names, *targets, *(p.name for p in function.params)])


def _is_language_name(name: str) -> bool:
    return name in NAMED_VALUES or name in function_names()


def _literal(value: Any, place: Span) -> ast.Expr | None:
    """Returns the syntax tree of a Python number, dtype or tuple. Returns None for other values."""
    match value:
        case bool() | np.bool_():
            return ast.Number(place, bool(value))
        case np.timedelta64():  # numpy counts it among the integers
            return None
        case int() | float() | np.integer() | np.floating():
            number = int(value) if isinstance(value, (int, np.integer)) else float(value)
            made = ast.Number(place, abs(number))
            return ast.Unary(place, "-", made) if str(number)[0] == "-" else made  # also -0.0
        case _ if (dtype := _dtype(value)) is not None:
            return ast.Name(place, dtype.name)
        case tuple():
            parts = [_literal(v, place) for v in value]
            return ast.Tuple(place, tuple(p for p in parts if p is not None)) if None not in parts else None
    return None


def _dtype(value: Any) -> DType | None:
    """Converts a dtype of numpy or torch to a dtype of minitri, or returns None."""
    is_scalar_class = isinstance(value, type) and issubclass(value, np.generic)
    if is_scalar_class or isinstance(value, (DType, np.dtype)) or str(type(value)) == "<class 'torch.dtype'>":
        name = str(value).rpartition(".")[2].strip("'>")  # `<class 'numpy.float32'>`, `float32`, `torch.float32`
        return DTYPES.get(name) or BY_NUMPY_NAME.get(name)
    return None
