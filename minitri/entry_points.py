"""How a program is made: from a text, a file, a Python function, or once for given arrays.

    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    g = mt.compile("model.mt", entry="attention")
    mt.evaluate("a * b + c", a=a, b=b, c=c)

    @mt.jit
    def scaled(x: "f32[N]", k: float):
        return x * k

In: text or a function. Out: a `Program`, or of `evaluate` a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.language.front_end import all_types, from_function, is_module, parse_program, shared_names
from minitri.language.parser import parse_module
from minitri.program import Program
from minitri.tiles.schedule import Options


def compile(
    text: str | Path, /, *, types: Mapping[str, str | None] | str = {}, entry: str | None = None,
    name: str | None = None, options: Options = Options(), effort: str = "none", optimize: bool = True,
    **parameters: str | None,
) -> Program:  # fmt: skip
    """A program from an expression with parameter types, the text of a module, or a path.

    compile("a * b + c", a="f32[N]", b="f32[N]", c="f32[N]")
    compile("a * b", types={"a": "f32[N]", "b": "f32[N]"})
    compile("model.mt", entry="attention")

    A module says the types of its parameters itself; `entry` is its last function if none is named.
    `name` is what diagnostics call the text. `options` says how kernels are scheduled; `mt.tune` returns such options.
    With an `effort` ("quick", "full") schedules are measured at the first call of each shape on a GPU.
    `optimize=False` leaves out every optional pass, as `-O0` does.
    An expression may have a parameter called like one of these keywords: its value is then the type, `entry="f32[N]"`.
    Raises CompileError (ParseError for what is not the language).
    """
    if not isinstance(text, (str, Path)):
        message = f"a program is a text or a path, not {type(text).__name__}"
        raise CompileError("MT0003", message, help="`@mt.jit` compiles functions")
    is_path = isinstance(text, Path) or (text.endswith(".mt") and "\n" not in text and "(" not in text)
    text, path = (read_source(Path(text)), str(text)) if is_path else (str(text), "")
    settings = {
        "types": types, "entry": entry, "name": name, "options": options, "effort": effort, "optimize": optimize,
    }  # fmt: skip
    shared = shared_names(text, settings)
    settings |= {key: DEFAULTS[key] for key in shared}
    kinds = all_types({**parameters, **shared}, settings["types"])
    if kinds or not (is_path or is_module(text)):
        module = parse_program(text, settings["name"] or path or "<expression>", kinds)
    else:
        module = parse_module(text, settings["name"] or path or "<module>")
    without = () if settings["optimize"] else ("all",)
    return Program(module, settings["entry"], without=without, options=settings["options"], effort=settings["effort"])


DEFAULTS: dict[str, Any] = compile.__kwdefaults__ or {}


def read_source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError("MT0003", f"cannot read {str(path)[:200]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CompileError("MT0003", f"{str(path)[:200]} is not text in UTF-8") from None
    except ValueError:
        raise CompileError("MT0003", f"{str(path)[:200]} cannot be the name of a file") from None


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: a Python function in the language's subset of Python becomes a Program."""
    if function is None:
        return lambda f: jit(f, **options)
    return Program(from_function(function), **options)


def evaluate(text: str, /, **arguments: Any) -> Any:
    """Evaluates an expression once; parameters take their types from the arrays."""
    if not isinstance(text, str):
        raise CompileError("MT0003", f"an expression is a text, not {type(text).__name__}")
    return Program(parse_program(text, "<expression>", {name: None for name in arguments}))(**arguments)
