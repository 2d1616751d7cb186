"""A program of an error page, as data: the page shows it as a reader would write it, and runs it.

In: a text with types, or a module; perhaps a call, a target, options. Out: the text to show, or
the diagnostic that the program really gives. The one idea: nothing is typed twice, so what a page
shows is what happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.limits import limits
from minitri.base.types import dtype
from minitri.entry_points import compile
from minitri.language.expression_programs import is_module
from minitri.language.parser import parse_type
from minitri.program import Program
from minitri.program_from_stage import load
from minitri.tiles.schedule import Options


@dataclass(frozen=True)
class Example:
    """A program and what is done with it.

    text     an expression, a module, or the text of the stage `reads`
    types    of an expression's parameters; None leaves a type to the call
    call     what it is called with, None for no call: types of arrays of zeros, or "list" for a list
    lower    keywords of `lower`; `stage` asks for that stage
    options  keywords of `Options`
    limits   keywords of `mt.limits`
    """

    text: str
    types: Mapping[str, str | None] = field(default_factory=dict)
    call: Sequence[str] | None = None
    lower: Mapping[str, Any] | None = None
    stage: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    reads: str = ""

    def run(self) -> None:
        """Compiles it, and does with it what the page says; the diagnostic passes through."""
        with limits(**self.limits):
            program = load(self.text, self.reads) if self.reads else self._program()
        if self.call is not None:
            program(*[_argument(a) for a in self.call])
        if self.lower is not None:
            low = program.lower(**self.lower)
            low[self.stage or "triton"]

    def _program(self) -> Program:
        types: dict[str, Any] = dict(self.types)
        program = compile(self.text, **types)
        return program.configured(options=Options(**self.options)) if self.options else program

    def error(self) -> CompileError:
        """The diagnostic that it gives."""
        try:
            self.run()
        except CompileError as error:
            return error
        raise AssertionError("this program of an error page is right")

    def shown(self) -> str:
        """As a reader would write it in Python."""
        if self.reads:
            made = [f'f = mt.load("""\\\n{self.text.strip()}\n""", "{self.reads}")']
        elif (self.call, self.lower) == (None, None) and not (self.options or self.limits or self.types):
            return self.text.strip("\n")
        else:
            made = [*([f"with mt.limits({_keywords(self.limits)}):"] if self.limits else []), *self._made()]
        return "\n".join([*made, *self._used()])

    def _made(self) -> list[str]:
        """`f = mt.compile(...)`, or the `def` itself under its decorator."""
        indent = "    " if self.limits else ""
        if is_module(self.text):
            options = f"(options=mt.Options({_keywords(self.options)}))" if self.options else ""
            return [f"{indent}{line}".rstrip() for line in (f"@mt.jit{options}", *self.text.strip("\n").split("\n"))]
        types = _keywords({name: type for name, type in self.types.items() if type is not None})
        made = f"{indent}f = mt.compile({', '.join(filter(None, (_quoted(self.text), types)))})"
        if not self.options:
            return [made]
        return [made, f"{indent}f = f.configured(options=mt.Options({_keywords(self.options)}))"]

    def _used(self) -> list[str]:
        name = self._program_name()
        lines: list[str] = []
        if self.call is not None:
            lines.append(f"{name}({', '.join(_written(a) for a in self.call)})")
        if self.lower is not None:
            lines.append(f'{name}.lower({_keywords(self.lower)})["{self.stage or "triton"}"]')
        return lines

    def _program_name(self) -> str:
        return self.text.split("def ")[-1].split("(")[0] if is_module(self.text) else "f"


def _argument(spec: str) -> Any:
    if spec == "list":
        return [0.0, 0.0]
    kind = parse_type(spec)
    shape = [int(d.span.text) for d in getattr(kind, "dims", ())]
    return np.zeros(shape, dtype(spec.split("[")[0]).numpy)


def _written(spec: str) -> str:
    """`np.zeros((3, 4), np.float32)`."""
    if spec == "list":
        return "[0.0, 0.0]"
    name, _, inside = spec.partition("[")
    sizes = [s.strip() for s in inside.rstrip("]").split(",")]
    shape = sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"
    return f"np.zeros({shape}, np.{dtype(name).numpy.name})"


def _keywords(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={_literal(v)}" for n, v in given.items())


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'
