"""Makes minitri programs from texts, from files and from Python functions.

    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    g = mt.compile("model.mt", entry="attention")
    mt.evaluate("a * b + c", a=a, b=b, c=c)

    @mt.jit
    def scaled(x: "f32[N]", k: float):
        return x * k

The function `compile` takes the text of a program or the name of a file, and returns a `Program`. The decorator `jit`
makes a `Program` from a Python function. The function `evaluate` returns the result of an expression instead of a
`Program`. The file language/linking.py puts a Python function and the functions that it calls into one module.
"""

import inspect
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, ensure, together
from minitri.base.resource_limits import using
from minitri.base.tracebacks import hides_frames, hides_frames_of_methods
from minitri.base.types import DType
from minitri.graph.lower_ast import errors_in
from minitri.language import program_forms
from minitri.language.linking import Definition, link, of_module, of_python
from minitri.program import Program
from minitri.tiles.schedule import Options


@hides_frames
def compile(
    text: str | Path, /, *, types: Mapping[str, str | None] | str = {}, entry: str | None = None,
    name: str | None = None, options: Options = Options(), effort: str = "none", optimize: bool = True,
    **parameters: str | None,
) -> Program:  # fmt: skip
    """Makes a program from a text or a file. The argument `text` is an expression, the text of a module, or the path of
    a file.

        compile("a * b + c", a="f32[N]", b="f32[N]", c="f32[N]")
        compile("a * b", types={"a": "f32[N]", "b": "f32[N]"})
        compile("a * b")
        compile("model.mt", entry="attention")

    If the caller gives no types, the names in the expression are the parameters, in the order of their first
    occurrence. A parameter without a type gets its type from the arguments of each call. The program keeps compiled
    kernels for each combination of dtypes and ranks of the arguments.

    `types`: a dict from the names of parameters to their types, instead of keywords such as `a="f32[N]"`.
    `entry`: the name of the function to compile. By default, the last function of the module is compiled.
    `name`: the name that error messages show for the text of the program.
    `options`: block sizes and other schedule options of the kernels. `mt.tune` returns measured options.
    `effort`: "none" chooses schedules by rules. "quick" and "full" measure schedules on a GPU, at the first call of
        each shape.
    `optimize`: whether optimisations run. `optimize=False` has the effect of the command line's option `-O0`.

    A parameter of the program may have the name of a keyword of `compile`, such as `entry`. If the value of `entry` is
    a type, as in `entry="f32[N]"`, the program's parameter `entry` has this type. Raises ParseError for a text that is
    not in the language, and CompileError for any other error in the program.
    """
    message = f"a program is a text or a path, not {type(text).__name__}"
    ensure(isinstance(text, (str, Path)), "MT0003", message, "`@mt.jit` compiles functions")
    is_path = isinstance(text, Path) or (text.endswith(".mt") and "\n" not in text and "(" not in text)
    text, path = (read_source(Path(text)), str(text)) if is_path else (str(text), "")
    settings: dict[str, Any] = {
        "types": types, "entry": entry, "name": name, "options": options, "effort": effort, "optimize": optimize,
    }  # fmt: skip
    shared = program_forms.shared_names(text, settings)
    settings |= {key: DEFAULTS[key] for key in shared}
    kinds = program_forms.all_types({**parameters, **shared}, settings["types"])
    if (is_path or program_forms.is_module(text)) and not kinds:
        module = program_forms.read_module(text, settings["name"] or path or "<module>")
    else:
        named = settings["name"] or path or "<expression>"
        module = program_forms.parse_program(text, named, kinds or program_forms.untyped_parameters(text, named))
        if not kinds and (errors := errors_in(module)):  # that need no types, such as an unknown function
            raise together(errors)
    without = () if settings["optimize"] else ("all",)
    return Program(module, settings["entry"], without=without, options=settings["options"], effort=settings["effort"])


DEFAULTS: dict[str, Any] = inspect.unwrap(compile).__kwdefaults__ or {}


def read_source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError("MT0003", f"cannot read {str(path)[:200]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CompileError("MT0003", f"{str(path)[:200]} is not text in UTF-8") from None
    except ValueError:
        raise CompileError("MT0003", f"{str(path)[:200]} cannot be the name of a file") from None


@hides_frames
def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """A decorator that turns a function in the language's subset of Python into a `Program`.

        @mt.jit
        def rms(x: "f32[*B, D]"):
            return sqrt(mean(x * x, axis=-1, keepdims=True) + EPS)

    The decorated function may call other programs. The decorated function may also use constants of its module or of an
    enclosing function (`EPS`, `other.EPS`). A constant is a number, a dtype, or a tuple that contains only numbers and
    dtypes. If the value of a constant changes, the next call compiles the function again.

    `options`: keyword arguments for the class `Program`: `without`, `options` and `effort`.

    Raises CompileError MT0003 if the text of the function cannot be found, and ParseError if the text is not in the
    language.
    """
    if function is None:
        return partial(jit, **options)
    parsed = program_forms.from_function(function).functions[-1]
    return FunctionProgram(of_python(program_forms.plain_function(function), parsed), **options)


@hides_frames
def evaluate(text: str, /, **arguments: Any) -> Any:
    """Returns the result of an expression for given arguments, as in `evaluate("a * b", a=x, b=y)`.

    The arguments determine the types of the parameters.
    """
    ensure(isinstance(text, str), "MT0003", f"an expression is a text, not {type(text).__name__}")
    return Program(program_forms.parse_program(text, "<expression>", {name: None for name in arguments}))(**arguments)


# ---- programs made from Python functions ------------------------------------------------------


def definition(value: Any) -> Definition | None:
    """Returns the definition of a compiled program, so that another program can call this program. If `value` is
    not a program, returns None.

    Also returns None for a program that `mt.load` made from the text of a compiler stage.
    """
    if isinstance(value, FunctionProgram):
        return value.definition
    if isinstance(value, Program) and value.start is None:
        return of_module(value.module, value.name)
    return None


@hides_frames_of_methods
class FunctionProgram(Program):
    """A minitri program made from a Python function.

    If a function or constant of the program changes, the program is compiled again. At every use, the program checks
    whether its functions and constants have changed. Apart from this check, a repeated call on a GPU takes as long as a
    call of an ordinary `Program`. The constructor takes the settings that the class `Program` takes.
    """

    def __init__(self, definition: Definition, **settings: Any) -> None:
        self.definition, self.settings, self.lock = definition, settings, threading.RLock()
        self._link()

    def _link(self) -> None:
        self.linked = link(self.definition, definition)
        super().__init__(self.linked.module, **self.settings)

    def _check_signature(self) -> None:
        """Finds errors when the function is defined, before any call."""
        self.watched = self.linked.reads  # not earlier: a thread that finds these values uses the new module
        text = self.definition.function.span.source.text
        # a function that calls one from further down in the file is checked at its first call
        if not any(re.search(rf"^\s*def\s+{name}\b", text, re.MULTILINE) for name in self.linked.missing):
            super()._check_signature()

    def refresh(self) -> None:
        """Makes the module of the program again if a function or a constant that the program uses has changed."""
        with self.lock, using(self.limits):
            now = [(read, read()) for read, _ in self.watched]
            if all(_same(old, new) for (_, old), (_, new) in zip(self.watched, now)):
                self.watched = now
            else:
                self._link()

    @property
    def _source(self) -> str:
        return "\n\n".join(f.span.text.rstrip() for f in self.module.functions)

    def _made(self, **settings: Any) -> Program:
        return FunctionProgram(self.definition, **settings)


def _same(old: Any, new: Any) -> bool:
    """Checks whether two values are the same constant: 1, 1.0 and True differ."""
    constant = isinstance(new, (int, float, tuple, DType)) and type(old) is type(new)
    return old is new or (constant and repr(old) == repr(new))
