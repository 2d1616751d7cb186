"""Checks whether the parts that minitri needs, such as triton, work on this machine, and shows how to repair them.

    ok      numpy         2.4.1
    missing triton        needed for kernels, on a CPU too
                          fix: pip install "triton>=3.6"

The function `examine` returns a row for each part, such as numpy, torch or the GPU. Each row of the report has the
state of one part, such as numpy, and a detail, such as its version. If a part such as numpy is missing, old or broken,
its row has a fix: a command for the user. A child process with a time limit imports torch and runs compilers, because
both can be slow, and can crash. Because of the child process, a broken installation of torch results in a row of the
report, not in a traceback. The version of a package is read from its metadata, without importing the package.

The command `minitri doctor` only shows the command that repairs a part, and the user runs this command.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from minitri.base.json_child_process import environment
from minitri.base.json_disk_cache import configured_folder
from minitri.base.nodes import Record
from minitri.base.toml_tables import table_beside
from minitri.cli.terminal import echo, progress, show_json

TIME_LIMIT = 120  # seconds, for each child process


class Row(Record):
    """A row of the report: the state of one part that minitri needs, such as numpy or the GPU.

    `state`: the state of the part: "ok", "old", "missing" or "broken".
    `essential`: true if minitri cannot run without the part. If an essential part is not ok, the exit code of `doctor`
        is 1.
    """

    name: str
    state: str
    detail: str
    fix: str = ""
    essential: bool = False


LOOKED_FOR = table_beside(__file__, "doctor.toml")


def doctor(as_json: bool = False) -> int:
    """Prints a row for each part that minitri needs. Returns the exit code, 1 if an essential part is not ok."""
    with progress("doctor"):
        rows = examine()
    ok = all(row.state == "ok" for row in rows if row.essential)
    if as_json:
        show_json({"ok": ok, "rows": [asdict(r) for r in rows]})
    else:
        for row in rows:
            colour = "green" if row.state == "ok" else "red" if row.essential else "yellow"
            echo(f"{click.style(row.state.ljust(8), fg=colour)}{row.name:<14}{row.detail}".rstrip())
            if row.fix:
                echo(f"{'':<22}fix: {row.fix}")
    return int(not ok)


def examine() -> list[Row]:
    """Returns a report row for each part that minitri needs, such as numpy, in the order in which a user should repair
    the parts.

    The child processes that examine the parts run at the same time.
    """
    trials = LOOKED_FOR["trials"]
    with ThreadPoolExecutor(len(trials)) as pool:
        found = dict(zip(trials, pool.map(probe, (row["script"] for row in trials.values()))))
    seen = gpu(found["torch build"])
    torch, *others = (trial(name, found[name]) for name in trials)
    # This module needs the oldest Python that minitri supports, so the Python that runs it is new enough.
    here = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    python = Row("python", "ok", here, essential=True)
    own = Row("minitri", "ok", version("minitri") or "not installed, runs from its source folder", essential=True)
    packages = (package(name, **row) for name, row in LOOKED_FOR["packages"].items())
    return [python, own, *packages, torch, seen, *others, cache()]


# ---- versions --------------------------------------------------------------------------------


def package(name: str, why: str, minimum: str = "", essential: bool = False, also_called: Sequence[str] = ()) -> Row:
    """Returns the row of a Python package in the report of `minitri doctor`, with the version from the package's
    metadata.

    `minimum`: the oldest version that minitri supports. "" allows every version.
    `also_called`: the names of other distributions that contain the same module.
    """
    wanted = f"{name}>={minimum}" if minimum else name
    found = next(filter(None, map(version, (name, *also_called))), None)
    if found is None:
        elsewhere = name == "triton" and platform.system() != "Linux"
        fix = "triton is for Linux; every stage down to its source works without it" if elsewhere else ""
        fix = fix or f'pip install "{wanted}"'
        return Row(name, "missing", f"needed for {why}", fix, essential)
    if _numbers(found) < _numbers(minimum):
        fix = f'pip install --upgrade "{wanted}"'
        return Row(name, "old", f"{found}, older than {minimum}", fix, essential)
    supported = f" (supported from {minimum})" if minimum else ""
    return Row(name, "ok", found + supported, essential=essential)


def version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, such as (3, 6) for "3.6.0+git1a2b"."""
    return tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:2])  # () for an empty text


# ---- what runs -------------------------------------------------------------------------------


def probe(script: str) -> dict[str, Any]:
    """Runs a script in a child process, and returns the data that the script prints.

    The child process imports modules from the same folders as this process.

    If the script fails, the result is {"problem": the last line of the script's error message}. The result also has the
    key "problem" if the script takes longer than `TIME_LIMIT`.
    """
    command = [sys.executable, "-P", "-c", f"{script}\nimport json\nprint(json.dumps(found))"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment())
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        lines = done.stderr.strip().splitlines()
        return {"problem": lines[-1][:200] if lines else f"ended with code {done.returncode}"}
    except subprocess.TimeoutExpired:
        return {"problem": f"took longer than {TIME_LIMIT} s"}
    except (OSError, ValueError, IndexError) as error:
        return {"problem": type(error).__name__}


def trial(name: str, found: Mapping[str, Any]) -> Row:
    """Returns the row of the report about one part, such as the GPU. The argument `found` is the output of the script
    that doctor.toml has for this part.
    """
    known = LOOKED_FOR["trials"][name]
    if "problem" in found:
        return Row(name, "broken" if version(known["needs"]) else "missing", found["problem"], known["fix"])
    return Row(name, found["state"], found["detail"], found.get("fix", ""))


def gpu(torch: Mapping[str, Any]) -> Row:
    """Returns the row about the GPU for the report of `minitri doctor`.

    The command `nvidia-smi` is run first, because it finds a GPU even if the installed torch supports only CPUs.
    """
    smi, seen = _nvidia_smi(), torch.get("sees")
    if smi and not seen and "problem" not in torch:
        return Row("GPU", "broken", f"{smi}; torch does not see it", "install a CUDA build of torch")
    if smi or seen:
        return Row("GPU", "ok", smi or torch["sees"])
    fix = "none needed to compile or to run on the CPU; to launch, install a GPU and its driver"
    return Row("GPU", "missing", "no GPU or no driver", fix)


def _nvidia_smi() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        shown = subprocess.run(query, check=True, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    first, *others = shown.splitlines() or [""]
    found = re.match(r"([^,]+), *([^,]+), *([^,]+)", first)
    more = f" (and {len(others)} more)" if others else ""
    return f"{found[1]}, driver {found[2]}, compute capability {found[3]}{more}" if found else ""


def cache() -> Row:
    """Returns the row of the cache folder in the report of `minitri doctor`. The row says whether minitri can write
    files in the cache folder.

    If the cache folder does not exist yet, the function checks whether minitri could create the folder, but creates
    nothing.
    """
    directory = configured_folder()
    existing = next((p for p in (directory, *directory.absolute().parents) if p.exists()), Path("/"))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Row("cache", "ok", str(directory))
    return Row("cache", "broken", f"cannot write {directory}", "set MINITRI_CACHE_DIR to a folder you own")
