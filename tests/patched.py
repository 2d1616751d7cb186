"""Runs functions in forked processes in which one file of minitri has another text. The file does not change.

In, for each job: the new text of a file, the name of a function ("module:function") and its arguments.
Out: what the function returned in a child process that imported minitri with that text.

The one idea: this process imports the slow packages (numpy, triton, lark, pytest) and the modules of
minitri that do not import the changed file. Each job is a fork of it. A fork takes 0.1 s, a new process
3 s. It leaves nothing behind. Give jobs of the same file one after another. A child that takes too much
time or memory is killed, and its outcome says so.

The gallery of planted bugs (tests/mutants.py) and mutation testing (tests/mutation.py) use this module.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import json
import linecache
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MEMORY = 8 << 30  # bytes of address space that a child may add to its parent's
PLACE = re.compile(r"([a-z0-9_.]+):[a-z0-9_]+")
SLOW_IMPORTS = (
    "numpy", "ml_dtypes", "networkx", "lark", "triton", "triton.language", "triton.runtime.interpreter",
    "triton.language.extra.libdevice", "click", "rich.console", "jinja2", "hypothesis", "pytest", "_pytest.doctest",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """The function `call` ("module:function") runs while `file` (relative to the repository) has the text `source`."""

    name: str
    file: str
    source: str
    call: str
    args: tuple[Any, ...] = ()
    seconds: int = 30


@dataclass(frozen=True)
class Outcome:
    """`value`: what the function returned (JSON). `error`: why there is no value, in words."""

    job: Job = field(repr=False)
    value: Any
    error: str
    seconds: float


def replaced(text: str, old: str, new: str, what: str) -> str:
    """The text with `old` replaced by `new`. AssertionError unless `old` occurs exactly once."""
    count = text.count(old)
    if count != 1:
        raise ValueError(f"{what}: the text to replace stands {count} times in the file, not once:\n{old}")
    return text.replace(old, new)


def run(jobs: Iterable[Job], workers: int = 1) -> Iterator[Outcome]:
    """Yields outcomes as they are known. `workers` children run at a time; a job is taken when one of them is free."""
    _prepare()
    waiting = iter(jobs)
    running: dict[int, _Child] = {}
    while True:
        for job in itertools.islice(waiting, workers - len(running)):
            if job.file != _shared:
                _share(job.file)
            child = _Child(job)
            running[child.pipe] = child
        if not running:
            return
        ready, _, _ = select.select(list(running), [], [], 0.2)
        for child in [running[p] for p in ready]:
            if not child.read():
                del running[child.pipe]
                yield child.outcome()
        for child in running.values():
            child.stop_if_late()


def _prepare() -> None:
    assert _shared or not _loaded(), "minitri must not be imported before it is patched"
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    sys.path[:0] = [p for p in (str(ROOT), str(ROOT / "tests")) if p not in sys.path]


# ---- modules that all children share -----------------------------------------------------


_shared = ""  # the file that the shared modules do not import


def _share(file: str) -> None:
    """Imports into this process the modules of minitri that do not depend on a file."""
    global _shared
    _shared = file
    changed = _module(_reader(ROOT / file))
    behind = {name for name in _imports() if changed in _dependencies(name)}
    for name in sorted(behind & set(_loaded()), reverse=True):  # modules before the package that has them as attributes
        package, _, own = name.rpartition(".")
        vars(sys.modules.get(package, sys.modules[name])).pop(own, None)
        del sys.modules[name]
    for name in set(_imports()) - behind:
        importlib.import_module(name)
    if (parser := sys.modules.get("minitri.language.parser")) is not None:
        parser._lark()  # building its tables takes as long as all imports together


def _loaded() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "minitri"]


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reader(path: Path) -> Path:
    """The module itself. For a data file: the module of the same folder that names it."""
    if path.suffix == ".py":
        return path
    return next(p for p in path.parent.glob("*.py") if f'"{path.name}"' in p.read_text(encoding="utf-8"))


@functools.cache
def _dependencies(name: str) -> frozenset[str]:
    """A module and all modules that it imports, also indirectly."""
    found, waiting = set[str](), [name]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += _imports()[at]
    return frozenset(found)


@functools.cache
def _imports() -> dict[str, set[str]]:
    """The modules of minitri that each module may import: every name in an import statement anywhere in the file, and
    every place `module:function` of a row of minitri/optimize/pass_table.py.

    `minitri` itself imports modules on demand, so here it imports all of them.
    """
    trees = {_module(p): ast.parse(p.read_text(encoding="utf-8")) for p in (ROOT / "minitri").rglob("*.py")}
    trees.pop("minitri.__main__")
    found = {name: {n if n in trees else "minitri" for n in _named(name, tree)} for name, tree in trees.items()}
    return {**found, "minitri": set(trees)}


def _named(name: str, tree: ast.AST) -> Iterator[str]:
    """The modules of minitri that a module imports, and the packages that contain them and the module itself."""
    if (package := name.rpartition(".")[0]) != "minitri":
        yield package
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "minitri")
        elif isinstance(node, ast.ImportFrom) and (package := node.module or "").partition(".")[0] == "minitri":
            yield from [f"{package}.{a.name}" for a in node.names if _file(f"{package}.{a.name}")] or [package]
        elif (
            isinstance(node, ast.Constant)
            and (place := PLACE.fullmatch(str(node.value)))
            and name.endswith(".pass_table")
        ):
            yield f"minitri.optimize.{place[1]}"


def _file(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


# ---- the parent process ------------------------------------------------------------------


class _Child:
    def __init__(self, job: Job) -> None:
        self.job, self.start, self.late, self.data = job, time.perf_counter(), False, b""
        self.pipe, end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _work(job, end)
        os.close(end)

    def read(self) -> bool:
        """Reads what the child has written. False at the end."""
        new = os.read(self.pipe, 1 << 16)
        self.data += new
        return bool(new)

    def stop_if_late(self) -> None:
        if not self.late and time.perf_counter() - self.start > 4 * self.job.seconds:  # it waits; its limit is CPU time
            self.late = True
            os.kill(self.pid, signal.SIGKILL)

    def outcome(self) -> Outcome:
        os.close(self.pipe)
        status = os.waitpid(self.pid, 0)[1]
        seconds = time.perf_counter() - self.start
        if os.WIFEXITED(status) and self.data:
            answer = json.loads(self.data)
            return Outcome(self.job, answer.get("value"), answer.get("error", ""), seconds)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        late = self.late or killed in (signal.SIGXCPU, signal.SIGKILL)
        return Outcome(
            self.job, None, f"more than {self.job.seconds} s" if late else f"ended by signal {killed}", seconds
        )


# ---- the child process -------------------------------------------------------------------


def _work(job: Job, pipe: int) -> None:
    """Runs the job and ends the process. It never returns."""
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (job.seconds, job.seconds + 2))
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, resource.RLIM_INFINITY))
        answer = json.dumps(_answer(job)).encode()
        while answer:
            answer = answer[os.write(pipe, answer) :]
    finally:
        os._exit(0)


def _answer(job: Job) -> dict[str, Any]:
    module, _, function = job.call.partition(":")
    try:
        if job.file.endswith(".py"):
            sys.meta_path.insert(0, _Patch(ROOT / job.file, job.source))
        else:
            _change_data(ROOT / job.file, job.source)
        return {"value": getattr(importlib.import_module(module), function)(*job.args)}
    except BaseException as error:  # any exception is the answer
        return {"error": "".join(traceback.format_exception_only(error)).strip()[:500]}


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _change_data(path: Path, text: str) -> None:
    """Replaces the text of a data file for everything that reads it."""
    read = Path.read_text
    Path.read_text = lambda self, *args, **more: text if self == path else read(self, *args, **more)


class _Patch(MetaPathFinder):
    """An import hook that gives the module of one file another text."""

    def __init__(self, path: Path, source: str) -> None:
        self.path, self.source = path, source
        linecache.cache[str(path)] = (len(source), None, source.splitlines(True), str(path))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "minitri":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin == str(self.path):
            spec.loader = _Loader(fullname, str(self.path), self.source)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self.text = source

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)
