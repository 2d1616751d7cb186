"""Makes a page about each error code.

A page says what an error code means. Each page shows a program that causes an error with the page's error code, and the
corrected program.

The function `as_text` takes an error code and its `Page`. It returns the page as text for a terminal. The script
tests/reference.py writes all pages to docs/reference/errors.md. The file pages.toml has the texts and the programs of
the pages. The one idea: the error message on a page is always up to date. Whenever the page is made, minitri compiles
the program with the mistake, and shows the error.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from minitri.api import compile
from minitri.base.diagnostics import BUILTIN, CODES, CompileError, listed, render
from minitri.base.nodes import Record
from minitri.base.resource_limits import limits
from minitri.base.toml_tables import table_beside
from minitri.base.types import dtype
from minitri.language.program_forms import is_module
from minitri.program_from_stage import load
from minitri.tiles.schedule import Options

WIDTH = 88


# ---- the program of a page --------------------------------------------------------------------


class Example(Record):
    """An example program on the page of an error code. The example can also call the program, or the method `lower` of
    the program.

    `text`: the text of the program, usually an expression or a module. If `reads` is the name of a stage, `text` is the
        text of this stage.
    `types`: the types of an expression's parameters. If the type of a parameter is None, the call's argument decides
        the type.
    `call`: the types of the arguments of a call. If `call` is None, the program is not called. The type "f32[3]" stands
        for an array of zeros, and "list" stands for a list of numbers.
    `lower`: keyword arguments for the method `lower`. None if `lower` is not called. After the call of `lower`, the
        example reads the stage that the field `stage` names.
    `options`: the keyword arguments of the program's `Options`.
    `limits`: the limits for compiling the program, as keyword arguments of `mt.limits`.
    """

    text: str
    types: Mapping[str, str | None] = field(default_factory=dict)
    call: Sequence[str] | None = None
    lower: Mapping[str, Any] | None = None
    stage: str = "triton"
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    reads: str = ""

    def run(self) -> None:
        """Compiles the program of this `Example`. If the field `call` is set, calls the program. If the field `lower`
        is set, lowers the program. If the program is wrong, its CompileError is raised.
        """
        types: dict[str, Any] = dict(self.types)
        with limits(**self.limits):
            program = load(self.text, self.reads) if self.reads else compile(self.text, **types)
        if self.options:
            program = program.configured(options=Options(**self.options))
        if self.call is not None:
            program(*[_argument(a) for a in self.call])
        if self.lower is not None:
            program.lower(**self.lower)[self.stage]

    def error(self) -> CompileError:
        """Returns the CompileError that compiling or using the program causes."""
        try:
            self.run()
        except CompileError as error:
            return error
        raise AssertionError("this program of an error page is right")

    def shown(self) -> str:
        """Returns the example program as Python code."""
        text, name = self.text.strip("\n"), "f"
        if self == Example(self.text):
            return text
        options = f"(options=mt.Options({_keywords(self.options)}))" if self.options else ""
        if self.reads:
            made = f'f = mt.load("""\\\n{text}\n""", "{self.reads}")'
        elif is_module(text):
            made, name = f"@mt.jit{options}\n{text}", text.split("def ")[-1].split("(")[0]
        else:
            types = _keywords({name: type for name, type in self.types.items() if type is not None})
            quoted = f"'{text}'" if '"' in text else f'"{text}"'
            made = f"f = mt.compile({', '.join(filter(None, (quoted, types)))})"
            made += f"\nf = f.configured{options}" * bool(options)
        if self.limits:
            made = f"with mt.limits({_keywords(self.limits)}):\n{_indented(made)}"
        called = [] if self.call is None else [f"{name}({', '.join(_written(_argument(a)) for a in self.call)})"]
        lowered = [] if self.lower is None else [f'{name}.lower({_keywords(self.lower)})["{self.stage}"]']
        return "\n".join([made, *called, *lowered])


def _argument(spec: str) -> Any:
    if spec == "list":
        return [0.0, 0.0]
    name, _, sizes = spec.rstrip("]").partition("[")
    return np.zeros([int(n) for n in sizes.split(",")], dtype(name).numpy)


def _written(value: Any) -> str:
    """Returns the Python text of an argument, such as `np.zeros((3, 4), np.float32)`."""
    if isinstance(value, list):
        return str(value)
    return f"np.zeros({value.shape if value.ndim > 1 else value.size}, np.{value.dtype})"


def _keywords(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in given.items())


# ---- pages ---------------------------------------------------------------------------------------


class Page(Record):
    """The texts and the example programs on the page of an error code.

    `meaning`: the meaning of the error code, in a few sentences.
    `advice`: advice on how to correct the program.
    `related`: the error codes of similar mistakes.
    `wrong`: a program that causes the error. None if only a bug of minitri or an edited stage can cause the error.
    `right`: the corrected program, or None.
    """

    meaning: str
    advice: str
    related: Sequence[str]
    wrong: Example | None = None
    right: Example | None = None


PAGES = {
    code: Page(**row | {side: Example(**row[side]) for side in ("wrong", "right") if side in row})
    for code, row in table_beside(__file__, "pages.toml").items()
}


def as_text(code: str, page: Page) -> str:
    """Returns a page as text for a terminal."""
    wrong, right, related = page.wrong, page.right, ", ".join(f"{c} ({CODES[c]})" for c in page.related)
    parts = [
        f"{code}: {CODES[code]}",
        _wrapped(page.meaning),
        python_names(code, ""),
        *(("For example", _indented(wrong.shown()), "gives", _indented(render(wrong.error()))) if wrong else ()),
        _wrapped(page.advice),
        _indented(right.shown()) if right else "",
        f"See also {related}." if related else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def python_names(code: str, quote: str) -> str:
    """Returns a sentence that lists the built-in exception classes of an error, such as ValueError.

    Returns "" if no built-in exception of Python is a base class of the error.
    """
    names = [f"{'an' if name.startswith('I') else 'a'} {quote}{name}{quote}" for name in BUILTIN.get(code, ())]
    return f"In Python it is {listed(names)} too." if names else ""


def _wrapped(text: str) -> str:
    return textwrap.fill(joined(text), WIDTH, break_long_words=False, break_on_hyphens=False)


def joined(text: str) -> str:
    return " ".join(text.split())


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")
