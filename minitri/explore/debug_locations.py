"""Reads the source locations of operations in Triton's own stages, such as PTX.

Each stage has a function, such as `ptx_rows`, which takes the text of one kernel in this stage. The function returns a
`Row` for each line of the text. The `Row` says whether the line is an operation, and which line of the generated Triton
source the operation comes from.

    ttir, ttgir    %3 = arith.addf %1, %2 : tensor<512xf32> loc(#loc17)
    llir           %9 = fadd float %7, %8, !dbg !17
    ptx, amdgcn    .loc 1 19 10   before the instructions of that place
    sass           //## File "<minitri …>", line 19   the same, from nvdisasm

Triton inlines some functions (minitri/triton/rt.py). For an operation of an inlined function, the `Row` has the line of
the call.

On Blackwell GPUs, matrix products are computed in tensor memory. The instructions that allocate and free tensor memory
have no source line. The module treats tensor memory like a register called `TENSOR`: an allocation defines `TENSOR`,
and an access uses `TENSOR`. In triton_provenance.py, an instruction without a source line gets the graph nodes of the
instructions that use its result. Therefore an instruction that allocates tensor memory gets the graph nodes of all
matrix products in tensor memory.

    UTCATOMSWS.FIND_AND_SET UP0, UR4, UR8      allocates columns: defines TENSOR
    ATOMS.OR RZ, [UR6+0x14], R3                records the allocation: defines TENSOR
    UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR9]  uses TENSOR; if the instruction has no source line (Triton before 3.7),
                                               it also defines TENSOR, for the instructions that read its result

The single PTX instruction `tcgen05.alloc` becomes about thirty machine instructions. The code that frees tensor memory
also has traps, which stop the kernel if columns of tensor memory were never allocated. Consecutive instructions without
a source line form a group. If a group contains an instruction that allocates or frees tensor memory, all instructions
of the group count as part of the allocation. A group never contains an instruction that begins or ends every kernel,
such as `LDC R1` or `EXIT`. This module does not find the columns of tensor memory that one matrix product uses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby, pairwise
from typing import NamedTuple

from minitri.base.nodes import grouped
from minitri.explore.instruction_registers import MACHINES, effects

OURS = "<minitri "


class Row(NamedTuple):
    """Facts about one line of a stage, for example its source lines.

    `lines`: the line numbers of the operation in the generated Triton source, counted from 1.
    `defines`, `uses`: the names of the values or registers that the operation defines and uses.
    """

    operation: bool = False
    lines: tuple[int, ...] = ()
    defines: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


NOTHING = Row()
Lines = tuple[int, ...]
Site = tuple[str, ...]  # a file, a line and a column


def _known(line: int) -> Lines:
    """Returns a tuple with the given line number, or an empty tuple if the number is 0."""
    return (line,) if line else ()  # LLVM and NVIDIA's tools write 0 for an instruction without a line


# ---- TTIR and TTGIR --------------------------------------------------------------------------

_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_SITE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+|(#loc\d*)')
_SSA = re.compile(r"%[\w#$.-]+")
_OPERATION = re.compile(r'(?:(%[^=]*?) = )?"?[a-z_]+\.[\w.]+"?[ (<{]?')


def mlir_rows(text: str) -> list[Row]:
    """Returns a `Row` for each line of MLIR.

    The location of an operation with a region, such as a loop with its body, is printed at the end of the region.
    """
    table: dict[str, str] = dict(_LOC.findall(text))
    rows: list[Row] = []
    open_: list[int] = []
    for line in text.split("\n"):
        body = line.strip()
        rows.append(_mlir_row(body, table))
        if body.startswith("}") and open_:
            begin = open_.pop()
            rows[begin] = rows[begin]._replace(lines=rows[begin].lines or _place(body, table))
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


def _place(body: str, table: dict[str, str]) -> Lines:
    """Returns the source line of the location that ends an MLIR line, such as `loc(#loc17)`."""
    return _resolved(body.rpartition(" loc(")[2], table, 0) if " loc(" in body else ()


def _resolved(place: str, table: dict[str, str], depth: int) -> Lines:
    """Returns the first line of the generated source that an MLIR location mentions."""
    # for an inlined function, the place in the function comes before the place of the call
    for file, line, name in _SITE.findall(place):
        if file.startswith(OURS):
            return (int(line),)
        if name and depth < 100 and (found := _resolved(table.get(name, ""), table, depth + 1)):
            return found
    return ()


# ---- LLVM IR ---------------------------------------------------------------------------------

_METADATA = re.compile(r"^(!\d+) = (?:distinct )?!DI\w+\((.*)\)$", re.MULTILINE)
_FIELD = re.compile(r'(\w+): ("[^"]*"|[^,]+)')
_LLVM = re.compile(r"  +(?:(%[\w.\"-]+) = )?(?:tail |notail |musttail )?[a-z]\w*\b")
_LLVM_NAME = re.compile(r"%[\w.-]+")
Metadata = Mapping[str, Mapping[str, str]]  # the fields of each name


def llvm_rows(text: str) -> list[Row]:
    table = {name: dict(_FIELD.findall(body)) for name, body in _METADATA.findall(text)}
    return [_llvm_row(line, table) for line in text.split("\n")]


def _llvm_row(line: str, table: Metadata) -> Row:
    match = _LLVM.match(line)  # only the lines of a function are indented
    if match is None or "#dbg_" in line:
        return NOTHING
    head, _, tail = line.partition(", !dbg ")
    uses = tuple(_LLVM_NAME.findall(head[match.end(1) if match[1] else 0 :]))
    return Row(True, _llvm_place(tail.split(",")[0].strip(), table), (match[1],) if match[1] else (), uses)


def _llvm_place(name: str, table: Metadata) -> Lines:
    """Returns the line of the generated Python source for a debug location in LLVM IR."""
    fields = table.get(name, {})
    while fields and not _file(fields, table).startswith(f'"{OURS}'):
        fields = table.get(fields.get("inlinedAt", ""), {})  # the caller of an inlined function
    return _known(int(fields.get("line", "0")))


def _file(fields: Mapping[str, str], table: Metadata) -> str:
    """Returns the quoted name of the file to which a debug location refers."""
    # a location of LLVM names its scope but not its file, so look at enclosing scopes until one names a file
    while outer := fields.get("file") or fields.get("scope"):
        fields = table.get(outer, {})
    return fields.get("filename", "")


# ---- PTX and AMDGCN --------------------------------------------------------------------------

_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_AT = re.compile(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)\s+(\d+)")


class _Locations:
    """Finds the line of the generated source for each `.loc` directive of an assembly text."""

    def __init__(self, text: str) -> None:
        self.ours = {number for number, name in _FILE.findall(text) if OURS in name}
        self.called: dict[Site, Site] = {}

    def line(self, directive: str) -> Lines:
        sites: list[Site] = _AT.findall(directive)
        # if a function is inlined into an inlined function, a separate directive has the line of the outer call
        self.called.update(pairwise(sites))
        site = sites[0]
        for _ in range(100):
            if site[0] in self.ours:
                return _known(int(site[1]))
            site = self.called.get(site, site)
        chain = re.search(rf"{OURS}[^>]*>:(\d+)", directive)
        return (int(chain[1]),) if chain else ()


def ptx_rows(text: str) -> list[Row]:
    return list(_assembly_rows(straightened(text), "ptx"))


def amdgcn_rows(text: str) -> list[Row]:
    return list(_closed(list(_assembly_rows(text, "amdgcn")), text.split("\n")))


_MASKS = MACHINES["amdgcn"]


def _closed(rows: list[Row], lines: list[str]) -> Iterator[Row]:
    """Adds the source lines and registers that AMD's assembly does not state for some instructions."""
    saved: dict[str, tuple[int, ...]] = {}
    fetched: tuple[str, ...] = ()
    for row, line in zip(rows, lines):
        code = line.strip()
        if save := re.match(_MASKS["save_mask"], code):
            saved[save[1]] = row.lines
        elif (restore := re.match(_MASKS["restore_mask"], code)) and not row.lines:
            # LLVM gives no source line to the instruction that enables all threads again after a branch
            row = row._replace(lines=saved.get(restore[1], ()))
        elif code.startswith("s_waitcnt"):
            # this waits until the loads since the last wait have written their registers, which the text does not name
            row, fetched = row._replace(defines=fetched, uses=fetched), ()
        elif re.match(_MASKS["fetch"], code):
            fetched += row.defines
        yield row


def _assembly_rows(text: str, machine: str) -> Iterator[Row]:
    """Yields a `Row` for each line of assembly."""
    locations, place, more = _Locations(text), (), False
    for line in text.split("\n"):
        body = line.strip()
        if body.startswith(".loc"):
            place = locations.line(body)
        code = re.split(r"//|; ", body)[0].rstrip()
        # not a label, a directive or a comment
        instruction = line.startswith("\t") and bool(code) and not re.match(r"[.$/;{})(]|[\w$.]+:", code)
        yield Row(True, place, *effects(code, machine)) if instruction and not more else NOTHING
        more = machine == "ptx" and (instruction or more) and not code.endswith((";", "}"))


def straightened(ptx: str) -> str:
    """Returns the PTX text with only the first `.loc` directive of each block of inline assembly.

    LLVM increases the line number after each line of inline assembly, although the whole inline assembly comes from one
    line of the source.
    """

    def first_only(block: re.Match[str]) -> str:
        seen = count()
        return re.sub(r"(?m)^[ \t]*\.loc.*", lambda line: "" if next(seen) else line[0], block[0])

    return re.sub(r"(?s)// begin inline asm.*?// end inline asm", first_only, ptx)


# ---- SASS ------------------------------------------------------------------------------------

_AT_FILE = re.compile(r'//## File "([^"]*)", line (\d+)')


def sass_rows(text: str, disassembly: str) -> list[Row]:
    """Returns a `Row` for each line of SASS.

    `disassembly` is the output of `nvdisasm --print-line-info-inline`, which has the source lines of the instructions.
    """
    places, lines = iter(_sass_places(disassembly)), text.split("\n")
    codes = [line.partition("\t")[2] for line in lines]
    rows = [Row(True, next(places, ()), *effects(code, "sass")) if code else NOTHING for code in codes]
    return _without_padding(rows, lines)


def _without_padding(rows: list[Row], lines: list[str]) -> list[Row]:
    """Returns the rows of a kernel's machine code, with empty rows for padding instructions."""
    # padding: a jump to itself, which never runs, and NOPs that fill a line of the instruction cache
    own = [k for k, line in enumerate(lines) if "\t" in line and not line.endswith("\tNOP;")]
    if own and re.match(rf".*\tBRA {lines[own[-1] - 1].rstrip(':')};$", lines[own[-1]]):
        own.pop()
    last = max(own, default=-1)
    return [row if k <= last else NOTHING for k, row in enumerate(rows)]


def _sass_places(disassembly: str) -> Iterator[tuple[int, ...]]:
    """Yields the source lines of each instruction of a disassembly."""
    instructions = list(_instructions(disassembly))
    # a routine that the assembler added, such as a division, has the source lines of all its calls
    callers = grouped((called, place) for place, routine, called in instructions if called and not routine)
    for place, routine, _ in instructions:
        yield tuple(dict.fromkeys(callers[routine])) if routine else _known(place)


def _instructions(disassembly: str) -> Iterator[tuple[int, str, str]]:
    """For each instruction, yields the source line, the enclosing routine, and the routine that the instruction
    calls.
    """
    # A routine is a function that the assembler added, such as a division; "" stands for no routine.
    place, chain, routine = 0, False, ""
    for line in disassembly.split("\n"):
        if at := _AT_FILE.search(line):
            # Of several comments before an instruction, the first names the line in the innermost inlined function.
            # They apply to all instructions before the next such comments.
            place = place if chain else 0
            place, chain = place or int(at[2]) * at[1].startswith(OURS), True
        elif re.match(r"\s*/\*[0-9a-f]{4,}\*/", line):
            chain = False
            call = re.search(r"CALL\S* `\((\S+?)\)", line)
            yield place, routine, call[1] if call else ""
        elif label := re.match(r"(\$__internal\S*):$", line):
            routine = label[1]


# ---- the readers by stage -----------------------------------------------------------------


READERS = {"ttir": mlir_rows, "ttgir": mlir_rows, "llir": llvm_rows, "ptx": ptx_rows, "amdgcn": amdgcn_rows}


# ---- tensor memory of Blackwell -----------------------------------------------------------------


TENSOR = "tensor memory"
_ROLES = {role: re.compile(pattern) for role, pattern in MACHINES[TENSOR].items()}


def with_tensor_memory(rows: Sequence[Row], text: str, head: int) -> list[Row]:
    """Returns the given rows, and adds the name `TENSOR` to the rows of instructions that use tensor memory.
    Instructions that allocate tensor memory define the name `TENSOR`. Instructions that access tensor memory use this
    name.

    `head`: the number of the kernel's first line. An instruction at line `head` is treated like an instruction without
    a source line.
    """
    lines = text.split("\n")
    users = [k for k, line in enumerate(lines) if rows[k].operation and _ROLES["user"].search(line)]
    writers = {k for k in users if _ROLES["writer"].search(lines[k]) and set(rows[k].lines) <= {head}}
    made = list(rows)
    for k in writers.union(_of_the_allocator(rows, lines, head) if users else ()):
        made[k] = made[k]._replace(defines=(*made[k].defines, TENSOR))
    for k in users:
        made[k] = made[k]._replace(uses=(*made[k].uses, TENSOR))
    return made


def _of_the_allocator(rows: Sequence[Row], lines: Sequence[str], head: int) -> Iterator[int]:
    """Yields the indices of the instructions that allocate or free tensor memory."""

    def without_line(k: int) -> bool:
        return not rows[k].operation or (set(rows[k].lines) <= {head} and not _ROLES["frame"].search(lines[k]))

    # groups of consecutive instructions without a source line
    for unplaced, numbers in groupby(range(len(rows)), without_line):
        run = [k for k in numbers if rows[k].operation]
        if unplaced and any(_ROLES["allocator"].search(lines[k]) for k in run):
            yield from run
