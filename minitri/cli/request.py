"""Finds the minitri program, the sizes and the target that the arguments of a command name.

A `Request` names a file, an expression or the text of a stage, with sizes, a target and a schedule. The method
`program` of a `Request` returns a `Program`, as `mt.compile` does. The method `lower` returns the stages of the program
for the given sizes and target. If arguments of the command contradict each other, the functions of this file raise a
usage error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import click

import minitri as mt
from minitri.api import read_source
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.nodes import Record
from minitri.cli.inputs import SCHEDULE, Size, dimensions, parse_schedule, parse_size, require_known
from minitri.language import ast
from minitri.language.program_forms import parse_program, read_module
from minitri.program import Lowered, Program

# The first line of a file that the editor of the explorer has saved.
SHARED = re.compile(r"\A# minitri explore((?: -D \w+=[\d,]*)*)(?: --target ([\w:]+))?\r?\n", re.ASCII)
# The fields that `--compare` may change, besides sizes and schedules.
COMPARED = ("target", "file", "entry", "expression", "without")


class Request(Record):
    """The program that a command line names, with the sizes, the target and the schedule from the command line."""

    file: str | None = None
    expression: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None
    against: str | None = None
    entry: str | None = None
    sizes: Mapping[str, Size] = field(default_factory=dict)
    target: str | None = None
    without: tuple[str, ...] = ()
    schedule: Mapping[str, str] = field(default_factory=dict)  # the keys are in inputs.SCHEDULE

    def program(self, untyped: Sequence[str] = ()) -> Program:
        """Returns the program that the request names.

        If the program is an expression, `untyped` has the names of parameters whose types the option -t does not give.
        The types of the parameters in `untyped` come from the arguments of a later call.
        """
        if self.start is not None:
            return self._loaded(self.start)
        if self.against is not None:
            raise click.UsageError("--against is for the text of a stage, with --from")
        return Program(self._module(untyped), self.entry, without=self.without)

    def _loaded(self, stage: str) -> Program:
        """Returns a program that is loaded from the text of a stage, such as `graph`."""
        if self.file is None or self.expression is not None or self.types or self.entry:
            raise click.UsageError("--from takes the text of a stage: a file, or `-` for standard input, and no more")
        text = _standard_input() + "\n" if self.file == "-" else Path(self.file)
        origin = None if self.against is None else Path(self.against)  # a module, or the text of its graph
        against = origin and (mt.load(origin, "graph") if origin.suffix == ".txt" else mt.compile(origin))
        return mt.load(text, stage, against=against, without=self.without)

    def _module(self, untyped: Sequence[str]) -> ast.Module:
        """Returns the syntax tree of the program's text."""
        if (self.file is None) == (self.expression is None):
            raise click.UsageError("give one program: a file, `-` for standard input, or -e EXPR")
        # Not by `mt.compile`, where the type of a parameter called `entry` would collide with the argument `entry`.
        if self.expression is not None:
            return parse_program(self.expression, "<expression>", {**dict.fromkeys(untyped), **self.types})
        if self.file == "-":
            return parse_program(_standard_input(), "<stdin>", self.types)
        if self.types:
            raise click.UsageError("-t is for -e; a file says the types of its parameters itself")
        return read_module(read_source(Path(str(self.file))), str(self.file))

    def lower(self) -> Lowered:
        target = {} if self.target is None else {"target": self.target}
        options = parse_schedule(self.schedule) if self.schedule else None
        program = self.program()
        return program.lower(**target, options=options, **self.keywords(program))

    def as_shared(self) -> Request:
        """Returns the request with the sizes and the target from the first line of the program's file.

        The editor of the explorer writes sizes and a target into the first line of a file. If the command line also
        gives a size or a target, the value of the command line is used.
        """
        if self.file is None or self.file == "-" or not (line := SHARED.match(read_source(Path(self.file)))):
            return self
        sizes = dict(map(parse_size, line[1].split(" -D ")[1:]))
        return replace(self, sizes={**sizes, **self.sizes}, target=self.target or line[2])

    def shown(self) -> dict[str, Any] | None:
        """Returns the text of the program as a module, with sizes and target, for the editor of a served page.

        Returns None if the request has neither a file nor an expression.
        """
        if self.file is None and self.expression is None:
            return None
        module = self.program().module
        if self.start is not None or self.entry is not None or self.without:
            raise click.UsageError("--serve takes a program from its beginning, with nothing left out")
        text = SHARED.sub("", module.source.text)
        if self.expression is not None and module.functions[0].span.text == text.strip():
            params = ", ".join(f"{name}: {kind}" for name, kind in self.types.items())
            text = f"def main({params}):\n    return ({text.strip()})\n"
        sizes = {n: list(v) if isinstance(v, tuple) else v for n, v in self.sizes.items()}
        return {"text": text, "sizes": sizes, "target": self.target or "cuda:90"}

    def changed(self, other: Mapping[str, str]) -> Request:
        """Returns a copy of the request with the changes that the option --compare gives, such as {"target": "cuda:80",
        "M": "64"}.
        """
        sizes = {n for n in dimensions(self.program().function) if n in other}
        names = (*COMPARED, *SCHEDULE)
        for name in other.keys() - sizes - set(names):
            known = f"{', '.join(names)} and sizes"
            raise click.UsageError(f"--compare takes {known}: {suggest(name, names) or 'as target=cuda:80'}")
        changed: dict[str, Any] = {n: v for n, v in other.items() if n in COMPARED}
        changed["schedule"] = {n: v for n, v in other.items() if n in SCHEDULE}
        changed["sizes"] = {**self.sizes, **dict(parse_size(f"{n}={other[n]}") for n in sizes)}
        if "without" in changed:
            changed["without"] = (*self.without, *changed["without"].split(","))
        if "file" in changed:
            changed.setdefault("expression", None)
        return replace(self, **changed)

    def keywords(self, program: Program) -> dict[str, Any]:
        """Returns the sizes as keyword arguments for the method `lower` of a program.

        If a dimension has the same name as another argument of `lower`, such as `target`, raises a usage error.
        """
        function = program.function
        numbers = [p.name for p in function.params if not isinstance(p.annotation, ast.ArrayType)]
        require_known("dimension", self.sizes, [*dimensions(function), *numbers])
        for name in ("self", "target", "without", "options"):
            if name in self.sizes:
                raise click.UsageError(f"`{name}` cannot have a size here; give the dimension another name")
        return dict(self.sizes)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise CompileError("MT0003", "standard input is not text in UTF-8") from None
