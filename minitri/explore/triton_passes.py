"""Triton's passes, one after another.

In: a compilation for a GPU. Out: a `Step` for each pass that Triton runs over each kernel, from its own
IR to its GPU dialect, with the text before and after it. Locations are left out of the texts: their
numbers change with each print.

Triton prints its IR before every pass where the environment says MLIR_ENABLE_DUMP, to standard error.
So that is done in a process of its own, which this file is too: it gets the source and what kernels
take as JSON on standard input, and has a time limit. Left out: LLVM's passes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minitri.base.child_process import environment
from minitri.base.dims import ONE
from minitri.base.types import DTYPES
from minitri.explore.passes import Step
from minitri.hardware.targets import StageUnavailable, Target
from minitri.kernels.ir import Buffer
from minitri.pipeline import Compilation
from minitri.triton.artifacts import lowered_to_ttgir, require_triton
from minitri.triton.descriptors import Descriptor
from minitri.triton.emit import EmittedKernel

MOST = 64 << 20  # characters of a dump that are read
_HEAD = re.compile(
    r"^// -----// IR Dump Before (\S+)(?::? *(.*?))?(?: \('[\w.]+' operation(?:: @(\S+))?\))? //----- //$", re.M
)
_LOCATION = re.compile(r' loc\((?:[^()"]|"[^"\n]*"|\((?:[^()"]|"[^"\n]*"|\([^()\n]*\))*\))*\)')
_KERNEL = re.compile(r"tt\.func public @(\w+)\(")
_MARK = "// minitri: "


def triton_steps(compiled: Compilation, seconds: float = 60) -> tuple[Step, ...]:
    """Triton's passes over every kernel, made in a process of its own that has `seconds`; StageUnavailable
    if it does not come to an end."""
    target = compiled.context.target
    if not target.stages:
        return ()
    require_triton()
    text = _printed(_job(compiled.module_text, compiled.value("triton"), target), seconds)
    return tuple(_steps(text))


# ---- the process -----------------------------------------------------------------------------


def _job(text: str, kernels: Sequence[EmittedKernel], target: Target) -> dict[str, Any]:
    return {"text": text, "target": str(target), "kernels": [
        {"name": k.name, "pointers": [b.dtype.name for b in k.pointers], "sizes": len(k.sizes),
         "scalars": [b.dtype.name for b in k.scalars], "descriptors": [(d.name, d.pointer, d.block) for d in k.descriptors],
         "warps": k.warps, "stages": k.stages, "registers": k.registers, "relaxed": k.relaxed} for k in kernels]}  # fmt: skip


def _printed(job: Mapping[str, Any], seconds: float) -> str:
    """What Triton prints while it compiles."""
    path = os.pathsep.join(filter(None, sys.path))
    dumping = environment("TRITON_", "MLIR_", MLIR_ENABLE_DUMP="1", PYTHONPATH=path)
    command = [sys.executable, "-m", "minitri.explore.triton_passes"]
    request = json.dumps(job).encode()
    try:
        done = subprocess.run(command, input=request, capture_output=True, env=dumping, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"Triton's passes cannot be shown: {type(error).__name__}"
        raise StageUnavailable("MT0402", message, help="the stages ttir and ttgir are there") from None
    return done.stderr[:MOST].decode("utf-8", "replace")


def main() -> None:
    """The process: compiles what comes in on standard input."""
    job = json.loads(sys.stdin.buffer.read())
    for k in job["kernels"]:
        pointers = tuple(Buffer(f"p{n}", DTYPES[d], (), (), "input") for n, d in enumerate(k["pointers"]))
        scalars = tuple(Buffer(f"a{n}", DTYPES[d], (), (), "scalar") for n, d in enumerate(k["scalars"]))
        described = tuple(Descriptor(name, n, pointers[n], tuple(block), (), ()) for name, n, block in k["descriptors"])
        sizes = (ONE,) * k["sizes"]
        kernel = EmittedKernel(
            k["name"], "", pointers, sizes, scalars, ONE, k["warps"], k["stages"], k["registers"], k["relaxed"],
            False, described, (),
        )  # fmt: skip
        for stage, text in lowered_to_ttgir(job["text"], kernel, Target.parse(job["target"])):
            print(f"{_MARK}{stage} {k['name']}\n{text}", file=sys.stderr, flush=True)


# ---- what it prints --------------------------------------------------------------------------


def _steps(text: str) -> Iterator[Step]:
    """The text between the heads; after a pass stands what is before the next one, or the stage itself."""
    pending: list[tuple[str, str, str]] = []
    for part in re.split(rf"(?=^// -----// |^{_MARK})", text, flags=re.M):
        head, _, body = part.partition("\n")
        if head.startswith(_MARK):
            stage, _, kernel = head.removeprefix(_MARK).partition(" ")
            after = [before for _, _, before in pending[1:]] + [plain(body)]
            rows = zip(pending, after)
            yield from (Step("triton", n, kernel, stage, o, f"triton pass {n}", b, a) for (n, o, b), a in rows)
            pending = []
        elif (match := _HEAD.match(head)) and _KERNEL.search(body):
            name, options = _named(match[2] or match[1])
            pending.append((name, options, plain(body)))


def _named(words: str) -> tuple[str, str]:
    """`canonicalize{top-down=true}`: the name on the command line, and the options. Older: `(canonicalize)`."""
    name, _, options = words.strip("()").partition("{")
    return name.strip(), " ".join(options.rstrip("} ").split())


def plain(text: str) -> str:
    """MLIR without locations."""
    lines = [line for line in text.split("\n") if not line.startswith("#loc")]
    return _LOCATION.sub("", "\n".join(lines)).strip() + "\n"


if __name__ == "__main__":
    main()
