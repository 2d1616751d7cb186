"""The gallery: planted compiler bugs, each a small patch, and what notices it.

    python tests/mutants.py [NAME ...] [--thorough]       plants them and prints what noticed

A row of tests/mutants.toml says where a bug stands (`file`), what is changed (`old`, which must stand
there once, into `new`), which pass is wrong because of it (`guilty`), and the program of
tests/oracle_quick.py that shows it (`case`, run with the schedule `schedule`). Nothing is written: tests/patched.py imports the package
with the changed text in a fork. tests/test_mutants.py holds every row to its word, and `Program.check`
to naming the pass. When the compiler changes under a row the row must follow.

`lowered`: thresholds that are lower while the case runs (tests/lowered_thresholds.py). `unseen`: why `check` cannot name the pass here, where that is so; such bugs are killed by `text`, a
piece of the Triton source that must be there.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patched import ROOT, Job, replaced, run

USUAL = ("interpreter", "cuda", "cuda general")


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    guilty: str
    case: str
    schedule: str = "own"
    text: str = ""
    unseen: str = ""
    lowered: Mapping[str, int] = field(default_factory=dict)

    def job(self, call: str, *args: Any) -> Job:
        source = (ROOT / self.file).read_text(encoding="utf-8")
        seconds = 300 if True in args else 30  # thorough
        return Job(self.name, self.file, replaced(source, self.old, self.new, self.name), call, args, seconds)


def _gallery() -> tuple[Mutant, ...]:
    rows = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    return tuple(Mutant(**row) for row in rows)


GALLERY = _gallery()


# ---- planting --------------------------------------------------------------------------


def noticed(name: str, thorough: bool = False) -> dict[str, Any]:
    """In a child: whether the oracle notices the bug, and which pass `check` names.

    `thorough`: any case may notice it, and `check` runs every variant, as `Program.check` does.
    """
    import oracle_quick as oracle
    from lowered_thresholds import lowered

    m = next(m for m in GALLERY if m.name == name)
    anywhere = thorough and not m.lowered  # a threshold is lowered for one case
    with lowered(m.lowered):
        failure = (
            oracle.first_failure() if anywhere else oracle.first_failure([m.case], [m.schedule], after=("mask", "emit"))
        )
        found = {"noticed": failure is not None, "what": failure and f"{failure.case}: {failure.what}".splitlines()[0]}
        if m.text and m.text not in oracle.program(m.case).lower()["triton"]:
            found |= {"noticed": True, "what": f"no {m.text} in the source"}
        return {**found, "named": oracle.named(m.case, m.schedule, USUAL if thorough else ())}


def plant(
    mutants: Sequence[Mutant] = GALLERY, thorough: bool = False, workers: int = 1
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    """The mutants with what was found, as it comes. A child that dies has been noticed, too."""
    by_name = {m.name: m for m in mutants}
    by_file = sorted(mutants, key=lambda m: m.file)
    for outcome in run((m.job("mutants:noticed", m.name, thorough) for m in by_file), workers):
        found = outcome.value or {"noticed": True, "named": None, "what": outcome.error}
        yield by_name[outcome.job.name], found


def main() -> None:
    parser = argparse.ArgumentParser(description="Plants the bugs of the gallery.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--thorough", action="store_true", help="any case may notice, every variant is checked")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")
    options = parser.parse_args()
    chosen = [m for m in GALLERY if not options.names or m.name in options.names]
    for m, found in plant(chosen, options.thorough):
        if options.json:
            print(json.dumps({"name": m.name, **found}), flush=True)
        else:
            expected = None if m.unseen else m.guilty
            mark = "ok" if found["noticed"] and found["named"] == expected else "WRONG"
            print(f"{mark:5} {m.name:55} {m.guilty:10} {found['named'] or '-':10} {found['what']}", flush=True)


if __name__ == "__main__":
    main()
