"""Writes docs/reference/rooms.md: each optimisation with an example, its size, and its measured speedup.

    python tests/room_pages.py > docs/reference/rooms.md

In: the table of optimisations (rooms), the docstrings of their modules, the examples of tests/rooms.toml, and the
results of `minitri bench --ablate`. Out: the page as Markdown. The examples are compiled each time, so the
differences on the page are always the present ones.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import reading_list
from markdown_tables import markdown_table

import minitri as mt
from minitri.bench import ablation
from minitri.optimize.pass_table import ROOMS, Room
from minitri.optimize.schedules import rule_table

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "docs" / "log" / "ablation.json"
WORTH = 1.03  # an optimisation is worthwhile if a case without it takes this many times as much
HEAD = """# Rooms: the optimisations, one by one

*Made by `python tests/room_pages.py` from the table of rooms. Do not edit.*

The plain path compiles every program. A *room* is one optimisation. It makes some programs faster. You can leave it
out, or print the program after it:

```sh
minitri compile -e "softmax(x)" -t x="f32[M, N]" --without fusion
minitri compile -e "softmax(x)" -t x="f32[M, N]" --print-after fusion
```

[Options](options.md#what-does-one-optimisation-buy) says how to measure the speedup of a room. Each section below
explains a room, with the text of its docstring. Then it shows an example: `-` marks lines of the stage without the
room, `+` marks lines of the stage with it.

A room is a file or a folder of `minitri/optimize/`. These files in that folder are no rooms, but help several rooms:
{helpers}.
"""


@cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """A program for each room, by the room's name."""
    return tomllib.loads((ROOT / "tests" / "rooms.toml").read_text(encoding="utf-8"))


def page() -> str:
    head = HEAD.format(helpers=", ".join(f"`{file.name}`" for file in helpers()))
    return "\n".join([head, overview(), *(section(room) for room in ROOMS)])


def overview() -> str:
    rows = [(f"[{r.name}](#{r.name})", idea(r)[0], f"{lines(r):,}", speedup(r)) for r in ROOMS]
    table = markdown_table(("room", "what it does", "lines of code", "speedup"), rows)
    note = "Lines of code leave out blank lines, comments and docstrings."
    return f"{table}\n\n{note} {measured()}\n"


def section(room: Room) -> str:
    example = examples()[room.name]
    types = ", ".join(f"`{name}: {type}`" for name, type in example["types"].items())
    sizes = "".join(f", {name} = {size}" for name, size in example.get("sizes", {}).items())
    first, rest = idea(room)
    stage = example.get("stage", room.stage)
    return "\n".join([
        f"## {room.name}\n", f"{first}\n", f"{rest}\n",
        f"`{example['program']}` with {types}{sizes}, stage `{stage}`:\n",
        "```diff", *difference(room), "```\n", f"Code: {code(room)}.\n",
    ])  # fmt: skip


def difference(room: Room) -> Iterator[str]:
    """The stage of a room's example without the room and with it, as lines of a diff."""
    example = examples()[room.name]
    program = mt.compile(example["program"], **example["types"])
    stage = example.get("stage", room.stage)
    before, after = (
        p.lower(target=example.get("target", "cuda:90"), **example.get("sizes", {}))
        .compilation.text(stage)
        .splitlines()
        for p in (program.configured(without=[room.name]), program)
    )
    for k, line in enumerate(list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]):
        if not line.startswith("@@"):
            yield line.rstrip()
        elif k:
            yield " …"


def idea(room: Room) -> tuple[str, str]:
    """The first sentence of a room's docstring without `IR → IR`, and the rest."""
    first, _, rest = docstring(room).partition("\n\n")
    sentence = first.partition(" → ")[2].partition(": ")[2] or first
    return sentence[:1].upper() + sentence[1:].replace("\n", " "), fenced(rest)


def docstring(room: Room) -> str:
    """The docstring of a room's module. A rule in the module of the rule table has only a docstring of its own."""
    if room.module == rule_table.__name__:
        return inspect.getdoc(rule_table.RULES[room.name]) or ""
    return ast.get_docstring(ast.parse(file_of(room).read_text(encoding="utf-8"))) or ""


def fenced(text: str) -> str:
    """Indented lines as fenced blocks. Markdown would read them as prose directly below a line of prose."""
    lines: list[str] = []
    inside = listed = False
    for line in text.splitlines():
        listed = line.startswith("  - ") or listed and line.startswith("    ")
        if (code := line.startswith("    ") and not listed) != inside and line:
            lines += ["", "```text"] if code else ["```", ""]
            inside = code
        lines.append(line.removeprefix("    ") if inside else line)
    return "\n".join([*lines, "```"] if inside else lines)


def file_of(room: Room) -> Path:
    return ROOT / (room.module.replace(".", "/") + ".py")


def files(room: Room) -> list[Path]:
    """All files of a room: the files of its folder if no other room is in that folder."""
    file = file_of(room)
    alone = [file_of(r).parent for r in ROOMS].count(file.parent) == 1
    return sorted(file.parent.glob("*.py")) if alone else [file]


def helpers() -> list[Path]:
    """The files of minitri/optimize/ that are no rooms. The table of passes is not one of them."""
    rooms = {file_of(room) for room in ROOMS}
    there = sorted((ROOT / "minitri" / "optimize").glob("*.py"))
    return [file for file in there if file not in rooms and file.stem not in ("__init__", "pass_table")]


def lines(room: Room) -> int:
    if room.module == rule_table.__name__:
        return reading_list.lines_of_code(inspect.getsource(rule_table.RULES[room.name]))
    return sum(reading_list.lines_of_code(file.read_text(encoding="utf-8")) for file in files(room))


def code(room: Room) -> str:
    paths = [str(f.relative_to(ROOT)) for f in files(room) if f.name != "__init__.py"]
    return ", ".join(f"[{path}](../../{path})" for path in paths)


# ---- the measured value of rooms ---------------------------------------------------------------


@cache
def results() -> ablation.Ablation | None:
    """The latest results of `minitri bench --ablate`; None before the first run."""
    return from_dict(json.loads(MEASURED.read_text(encoding="utf-8"))) if MEASURED.exists() else None


def from_dict(found: Mapping[str, Any]) -> ablation.Ablation:
    """The ablation from a dictionary that `dataclasses.asdict` made."""
    return ablation.Ablation(found["device"], found["optimisations"], [ablation.Cell(**c) for c in found["cells"]])


def measured() -> str:
    found = results()
    if found is None:
        return "The speedups have not been measured yet (`minitri bench --ablate`)."
    return (
        f"Speedup: the time without the room, divided by the time with it. `minitri bench --ablate` measures several "
        f"cases for each room. The table has the case with the largest speedup. The cases ran on {found.device}. Only "
        f"cases with `interpreted` in their name ran in Triton's interpreter, on a CPU."
    )


def speedup(room: Room) -> str:
    found = results()
    cells = found.of(room.name) if found else []
    if not cells:
        return "not measured"
    if cells[0].note:
        return f"needed: {cells[0].case}"
    kinds = {"time": "times as fast", "memory": "times less memory", "first": "times as fast to the first result"}
    # time comes first, because memory and first results vary more
    most = {kind: max(cells, key=lambda cell: getattr(cell, kind)) for kind in kinds}
    kind = next((k for k, cell in most.items() if getattr(cell, k) >= WORTH), "time")
    return f"{getattr(most[kind], kind):.2f} {kinds[kind]}: {most[kind].case}"


if __name__ == "__main__":
    print(page(), end="")
