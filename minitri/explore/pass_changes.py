"""Records what each pass changed, which rules of the pass made the changes, and where the rules are defined.

The function `our_steps` returns a `Step` for each of minitri's passes, from the syntax tree to the Triton source. The
function `triton_steps` returns a `Step` for each of Triton's own passes over each kernel, down to Triton's GPU dialect.
To find the rules that a pass of minitri applied, the pass runs once more on the same input. During the second run of a
pass, minitri/base/pass_logs.py records each application of a rule.

If the environment variable MLIR_ENABLE_DUMP is set, Triton prints its IR to standard error before every pass. Triton's
passes run in a separate process, in which MLIR_ENABLE_DUMP is set. The separate process runs the function `main` of
this module. The separate process has a time limit, and reads the tile programs from standard input, as the text of the
stage `tile.target`. Locations are removed from the printed IR, because the numbers of locations change with each print.
This module does not record LLVM's passes.

The functions `our_passes` and `triton_passes` turn each `Step` into a dict with the keys name, group, stage, about,
where, patch, rules and fresh.

The key `patch` describes the difference between the texts before and after a pass. A patch is a list [[start, end, new
lines, renumbered], …]: the new lines replace the old lines from `start` up to `end`. A patch does not repeat unchanged
text, and the page shows a patch as a diff. The flag `renumbered` is true if the lines differ only in the numbers of
values, such as `%3` and `%4`. The key `fresh` is true if there is no earlier text. There is no earlier text for the
pass `parse`, and for the text of a kernel before Triton's first pass. The key `rules` lists the rules that the pass
applied (`Step.rules`).
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NamedTuple

from minitri.base.json_child_process import environment
from minitri.base.nodes import grouped
from minitri.base.pass_logs import Firing, recorded
from minitri.base.resource_limits import using
from minitri.explore.machine_code import MachineCode
from minitri.graph.ir import Const, Node, children
from minitri.graph.text import format_number
from minitri.hardware.targets import StageUnavailable, Target
from minitri.kernels.ir import Axis, Compute, Constant, Op
from minitri.pipeline import Compilation
from minitri.tiles.ir import Programs
from minitri.tiles.text import format_programs, parse_programs
from minitri.triton.compiled_stages import lowered_to_ttgir, require_triton
from minitri.triton.emit import emit
from minitri.triton.source import module_text


class Step(NamedTuple):
    """A pass that ran, with the rules that it applied.

    `group`: the text "minitri" for a pass of minitri. For a pass of Triton, the text also names the kernel, as in
        "triton k0".
    `about`: one sentence that says what the pass does. For a pass of Triton, `about` has the options of the pass.
    `where`: the file and line of a pass of minitri, such as `minitri/optimize/simplify.py:43`.
    `rules`: the rules that the pass applied, each a dict {name, about, where, count, cases}. `about` says in one
        sentence what the rule does. `where` is the file and line of the rule. `count` is how often the rule was
        applied. `cases` has some applications of the rule, each as a pair of texts (before, after).
    """

    group: str
    name: str
    stage: str
    about: str
    where: str
    before: str
    after: str
    rules: tuple[dict[str, Any], ...] = ()


def our_steps(compiled: Compilation) -> Iterator[Step]:
    """Returns a step for every pass of minitri, with the rules that the pass applied."""
    before = None
    for record, p in zip(compiled.passes, compiled.steps):
        with using(compiled.context.limits), recorded() as firings:
            if before is not None:
                p.made(before, compiled.context)
        before = compiled.value(p.stage)
        about, rules = first_sentence(inspect.getmodule(p.function)), tuple(_rules(firings))
        yield Step("minitri", p.name, p.stage, about, defined(p.function), record.before, record.after, rules)


def defined(function: Callable[..., Any]) -> str:
    """Returns the file and line where a function is defined, such as `minitri/optimize/simplify.py:43`."""
    plain: Any = inspect.unwrap(getattr(function, "__func__", function))
    return f"{plain.__module__.replace('.', '/')}.py:{plain.__code__.co_firstlineno}"


def first_sentence(documented: Any) -> str:
    """Returns the first sentence of the docstring of a pass's module or of a rule's function.

    If the sentence ends with a colon, a full stop replaces the colon.
    """
    paragraph = " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
    text = re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0].rstrip(":.")
    return f"{text}." if text else ""


def _rules(firings: Sequence[Firing]) -> Iterator[dict[str, Any]]:
    """Yields each applied rule once, in the order of first application."""
    for where, found in grouped((defined(f.rule), f) for f in firings).items():
        function, cases = found[0].rule, dict.fromkeys((_shown(f.before), _shown(f.after)) for f in found)
        yield {"name": function.__name__.lstrip("_"), "about": first_sentence(function), "where": where,
               "count": len(found), "cases": list(cases)[:MAX_CASES]}  # fmt: skip


def _shown(item: Any, depth: int = 2) -> str:
    """Returns a node or an axis as short text, such as `cast(view(x)): f16[M]`."""
    match item:
        case Const() | Constant():
            return format_number(item.value)
        case Axis():
            return f"{item.name}: {item.extent}"
        case tuple():
            return ", ".join(_shown(i, depth) for i in item)
    return _call(item, depth)


def _call(item: Node | Op, depth: int) -> str:
    op, kind = getattr(item, "op", ""), type(item).__name__.lower()
    name = getattr(item, "name", "") or (f"{kind}.{op}" if op and kind not in ("apply", "compute") else op or kind)
    below = item.args if isinstance(item, Compute) else children(item) if not isinstance(item, Op) else ()
    inner = ", ".join(_shown(o, depth - 1) for o in below) if depth else "…" * bool(below)
    text = f"{name}({inner})" if below else name
    shape = getattr(item, "shape", None) if not isinstance(item, Op) else item.axes
    return f"{text}: {item.dtype}[{', '.join(map(str, shape or ()))}]" if depth == 2 else text


# ---- Triton's passes ----------------------------------------------------------------------------


MOST = 64 << 20  # characters of a dump that are read
_HEAD = re.compile(
    r"^// -----// IR Dump Before (\S+)(?::? *(.*?))?(?: \('[\w.]+' operation(?:: @(\S+))?\))? //----- //$", re.M
)
_LOCATION = re.compile(r' loc\((?:[^()"]|"[^"\n]*"|\((?:[^()"]|"[^"\n]*"|\([^()\n]*\))*\))*\)')
_KERNEL = re.compile(r"tt\.func public @(\w+)\(")
_MARK = "// minitri: "


def triton_steps(machine: MachineCode, seconds: float | None = None) -> tuple[Step, ...]:
    """Returns one `Step` for each pass of Triton and each different kernel.

    A separate process runs Triton's passes and prints the IR before each pass. Raises StageUnavailable if the process
    has not ended after `seconds`, by default after 30 seconds plus 10 seconds for each kernel.
    """
    if not machine.target.stages:
        return ()
    require_triton()
    names = {k.name for k in machine.kernels}
    programs: Programs = machine.compilation.value("tile.target")
    distinct = Programs(programs.plan, tuple(p for p in programs if p.name in names))
    return tuple(_steps(_printed(format_programs(distinct), str(machine.target), seconds or 30 + 10 * len(names))))


# ---- the process -----------------------------------------------------------------------------


def _printed(programs: str, target: str, seconds: float) -> str:
    """Returns the text that Triton prints while compiling tile programs."""
    dumping = environment("TRITON_", "MLIR_", MLIR_ENABLE_DUMP="1")
    command = [sys.executable, "-m", "minitri.explore.pass_changes", target]
    try:
        given = programs.encode()
        done = subprocess.run(command, input=given, capture_output=True, env=dumping, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"Triton's passes cannot be shown: {type(error).__name__}"
        raise StageUnavailable("MT0402", message, help="the stages ttir and ttgir are there") from None
    return done.stderr[:MOST].decode("utf-8", "replace")


def main(programs: str, target: str) -> None:
    """Runs in a separate process: compiles tile programs, given as the text of the stage `tile.target`."""
    parsed = parse_programs(programs, masked=True)
    kernels = [emit(p) for p in parsed]
    text = module_text(parsed.plan, kernels)
    for kernel in kernels:
        for stage, lowered in lowered_to_ttgir(text, kernel, Target.parse(target)):
            print(f"{_MARK}{stage} {kernel.name}\n{lowered}", file=sys.stderr, flush=True)


# ---- what it prints --------------------------------------------------------------------------


def _steps(text: str) -> Iterator[Step]:
    """Splits the printed output of Triton into one step for each pass."""
    pending: list[tuple[str, str, str]] = []
    for part in re.split(rf"(?=^// -----// |^{_MARK})", text, flags=re.M):
        head, _, body = part.partition("\n")
        if head.startswith(_MARK):
            stage, _, kernel = head.removeprefix(_MARK).partition(" ")
            # The IR after a pass is the IR before the next pass; after the last pass, it is the text of the stage.
            after = [before for _, _, before in pending[1:]] + [plain(body)]
            rows = zip(pending, after)
            yield from (Step(f"triton {kernel}", name, stage, about, "", b, a) for (name, about, b), a in rows)
            pending = []
        elif (match := _HEAD.match(head)) and _KERNEL.search(body):
            name, options = _named(match[2] or match[1])
            pending.append((name, options, plain(body)))


def _named(words: str) -> tuple[str, str]:
    """Splits a text such as `canonicalize{top-down=true}` into the pass name and the options."""
    name, _, options = words.strip("()").partition("{")  # older versions print `(canonicalize)`
    return name.strip(), " ".join(options.rstrip("} ").split())


def plain(text: str) -> str:
    """Returns the text of MLIR without locations."""
    return _LOCATION.sub("", re.sub(r"(?m)^#loc.*\n?", "", text)).strip() + "\n"


# ---- passes as data for the page ----------------------------------------------------------------


MAX_CASES = 6  # pairs of texts of a rule that are shown
MAX_COMPARED = 4000  # lines of a text that are compared one by one

# The name of a value or of a layout, whose number moves with every line above it: %3, v3, %v1_21, #blocked6.
VALUE = re.compile(r"(?<![\w.])(v|%(?:[A-Za-z]\w*?_)?|#[a-z]+)\d+\b")


def our_passes(compiled: Compilation) -> list[dict[str, Any]]:
    """Returns every pass of minitri as data, in order."""
    return [_record(s, s.name == "parse") for s in our_steps(compiled)]


def triton_passes(machine: MachineCode) -> list[dict[str, Any]]:
    """Returns Triton's passes as data, kernel by kernel.

    Returns an empty list if Triton cannot print its passes.
    """
    try:
        steps = triton_steps(machine)
    except StageUnavailable:
        return []
    records: list[dict[str, Any]] = []
    for _, group in groupby(steps, key=lambda s: s.group):
        first, *rest = group
        source = first._replace(name="(source)", about="what Triton reads", before="", after=first.before)
        records += [_record(source, True), *(_record(s, False) for s in (first, *rest))]
    return records


def _record(s: Step, fresh: bool) -> dict[str, Any]:
    facts = {name: getattr(s, name) for name in ("name", "group", "stage", "about", "where", "rules")}
    return facts | {"patch": patch(s.before, s.after), "fresh": fresh}


def patch(before: str, after: str) -> list[tuple[int, int, list[str], bool]]:
    """Returns which lines of the text `before` must be replaced to get the text `after`."""
    old, new = lines(before), lines(after)
    if max(len(old), len(new)) > MAX_COMPARED:
        return [(0, len(old), new, False)]
    without_numbers = [[VALUE.sub(r"\1", line) for line in text] for text in (old, new)]
    parts = SequenceMatcher(None, *without_numbers, autojunk=False).get_opcodes()
    return [(a, b, new[c:d], tag == "equal") for tag, a, b, c, d in parts if old[a:b] != new[c:d]]


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text else []


if __name__ == "__main__":
    main(sys.stdin.buffer.read().decode(), sys.argv[1])
