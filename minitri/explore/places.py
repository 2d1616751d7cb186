"""Where Triton's own stages say that their operations come from.

In: the text of a stage of one kernel. Out: for each line a `Row`: whether it is an operation, and the
line of the generated source that its location leads to.

    ttir, ttgir    %3 = arith.addf %1, %2 : tensor<512xf32> loc(#loc17)
    llir           %9 = fadd float %7, %8, !dbg !17
    ptx, amdgcn    .loc 1 19 10   before the instructions of that place
    sass           //## File "<minitri …>", line 19   the same, from nvdisasm

A location may be in a function that Triton has inlined (minitri/backend/device.py): then the call in
the generated source counts. 0 stands for an operation without a place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

OURS = "<minitri "


@dataclass(frozen=True, slots=True)
class Row:
    """`line` is 1-based, of the module text; 0 if unknown. `defines` and `uses` are names of values."""

    operation: bool = False
    line: int = 0
    defines: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


NOTHING = Row()


# ---- TTIR and TTGIR --------------------------------------------------------------------------

_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_SITE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+|(#loc\d*)')
_SSA = re.compile(r"%[\w#$.-]+")
_OPERATION = re.compile(r'(?:(%[^=]*?) = )?"?[a-z_]+\.[\w.]+"?[ (<{]?')


def mlir_rows(text: str) -> list[Row]:
    """Operations of MLIR. One with a region has its location where the region ends."""
    table = {name: body for name, body in _LOC.findall(text)}
    rows: list[Row] = []
    open_: list[int] = []
    for line in text.split("\n"):
        body = line.strip()
        rows.append(_mlir_row(body, table))
        if body.startswith("}") and open_:
            begin = open_.pop()
            place = _place(body, table)
            if not rows[begin].line:
                rows[begin] = replace(rows[begin], line=place)
        if body.endswith("{") and not body.startswith("#"):
            open_.append(len(rows) - 1)
    return rows


def _mlir_row(body: str, table: dict[str, str]) -> Row:
    match = _OPERATION.match(body)
    if not match or body.startswith(("tt.func", "module")):
        return NOTHING
    defines = tuple(n.partition(":")[0] for n in _SSA.findall(match[1] or ""))
    head = body.partition(" loc(")[0]
    uses = tuple(n.partition("#")[0] for n in _SSA.findall(head[len(match[1] or "") :]))
    return Row(True, _place(body, table), defines, uses)


def _place(body: str, table: dict[str, str]) -> int:
    """The line that the location at the end of a line leads to."""
    _, found, place = body.rpartition(" loc(")
    return _resolved(place, table, 0) if found else 0


def _resolved(place: str, table: dict[str, str], depth: int) -> int:
    """The first place of ours in a location: of a call site that of the callee comes first."""
    for file, line, name in _SITE.findall(place):
        if file.startswith(OURS):
            return int(line)
        if name and depth < 100 and (found := _resolved(table.get(name, ""), table, depth + 1)):
            return found
    return 0


# ---- LLVM IR ---------------------------------------------------------------------------------

_METADATA = re.compile(r"^(!\d+) = (?:distinct )?!(DILocation|DI\w+)\((.*)\)$", re.MULTILINE)
_LLVM = re.compile(r"(?:(%[\w.\"-]+) = )?(?:tail |notail |musttail )?[a-z]\w*\b")


def llvm_rows(text: str) -> list[Row]:
    table = {name: (kind, _fields(body)) for name, kind, body in _METADATA.findall(text)}
    rows: list[Row] = []
    inside = False
    for line in text.split("\n"):
        body = line.strip()
        inside = inside and line != "}"
        match = _LLVM.match(body) if inside and line.startswith("  ") and not body.startswith(";") else None
        rows.append(_llvm_row(body, match, table) if match and "#dbg_" not in body else NOTHING)
        inside = inside or line.startswith("define ")
    return rows


def _llvm_row(body: str, match: re.Match[str], table: dict[str, tuple[str, dict[str, str]]]) -> Row:
    head, _, tail = body.partition(", !dbg ")
    place = _llvm_place(tail.split(",")[0].strip(), table) if tail else 0
    uses = tuple(_LLVM_NAME.findall(head[match.end(1) if match[1] else 0 :]))
    return Row(True, place, (match[1],) if match[1] else (), uses)


_LLVM_NAME = re.compile(r"%[\w.-]+")


def _fields(body: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+): ("[^"]*"|[^,]+)', body))


def _llvm_place(name: str, table: dict[str, tuple[str, dict[str, str]]]) -> int:
    """Outwards along `inlinedAt` to the first place in the generated source."""
    for _ in range(100):
        kind, fields = table.get(name, ("", {}))
        if kind != "DILocation":
            return 0
        if _file(fields.get("scope", ""), table).startswith(f'"{OURS}'):
            return int(fields.get("line", "0"))
        name = fields.get("inlinedAt", "")
    return 0


def _file(scope: str, table: dict[str, tuple[str, dict[str, str]]]) -> str:
    for _ in range(100):
        kind, fields = table.get(scope, ("", {}))
        if kind == "DIFile":
            return fields.get("filename", "")
        scope = fields.get("file", "") or fields.get("scope", "")
    return ""


# ---- PTX and AMDGCN --------------------------------------------------------------------------

_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_AT = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)\s+(\d+)")
_Site = tuple[str, str, str]


class _Locations:
    """What `.loc` directives lead to. A call that was inlined into an inlined function has a directive
    of its own, which says where that one was called."""

    def __init__(self, text: str) -> None:
        self.ours = {number for number, name in _FILE.findall(text) if OURS in name}
        self.called: dict[_Site, _Site] = {}

    def line(self, directive: str) -> int:
        at = _AT.search(directive)
        if at is None:
            return 0
        site: _Site = (at[1], at[2], at[3])
        if inlined := _INLINED.search(directive):
            self.called[site] = (inlined[1], inlined[2], inlined[3])
        chain = re.findall(rf"{OURS}[^>]*>:(\d+)", directive)
        for _ in range(100):
            if site[0] in self.ours:
                return int(site[1])
            if site not in self.called:
                break
            site = self.called[site]
        return int(chain[0]) if chain else 0


def ptx_rows(text: str) -> list[Row]:
    return list(_assembly_rows(text, _ptx_row))


def amdgcn_rows(text: str) -> list[Row]:
    return list(_assembly_rows(text, _amdgcn_row))


def _assembly_rows(text: str, row: Callable[[str, int], Row]) -> Iterator[Row]:
    """Instructions are those lines in a function that are no label, directive or comment."""
    locations, place, more = _Locations(text), 0, False
    for line in text.split("\n"):
        body = line.strip()
        if body.startswith(".loc"):
            place = locations.line(body)
        instruction = line.startswith("\t") and not re.match(r"[.$/;{})(]|//|[\w$.]+:", body) and bool(body)
        yield row(body, place) if instruction and not more else NOTHING
        more = row is _ptx_row and (instruction or more) and not body.partition("//")[0].rstrip().endswith((";", "}"))


_PTX_NAME = re.compile(r"%[\w.]+")


def _ptx_row(body: str, place: int) -> Row:
    names = tuple(_PTX_NAME.findall(body.partition("//")[0]))
    return Row(True, place, (), names)


def _amdgcn_row(body: str, place: int) -> Row:
    return Row(True, place)


# ---- SASS ------------------------------------------------------------------------------------

_AT_FILE = re.compile(r'//## File "([^"]*)", line (\d+)')


def sass_rows(text: str, disassembly: str) -> list[Row]:
    """`disassembly`: the same instructions, as `nvdisasm --print-line-info-inline` shows them."""
    places = iter(_sass_places(disassembly))
    return [Row(True, next(places, 0)) if "\t" in line else NOTHING for line in text.split("\n")]


def _sass_places(disassembly: str) -> Iterator[int]:
    """The place of each instruction: lines before it say it, innermost first, and hold until there are others."""
    place, chain = 0, False
    for line in disassembly.split("\n"):
        if at := _AT_FILE.search(line):
            place = place if chain else 0
            place, chain = place or int(at[2]) * at[1].startswith(OURS), True
        elif re.match(r"\s*/\*[0-9a-f]{4,}\*/", line):
            chain = False
            yield place
