"""The gallery of planted compiler bugs: each is a small patch that the oracle must notice.

    python tests/mutants.py [NAME ...] [--thorough]       plants the bugs and prints what noticed them

A row of tests/mutants.toml describes a bug:

    file        the file that it changes
    old, new    the changed text, which must occur in the file exactly once, and its replacement
    guilty      the pass that is wrong because of the bug
    case        the program of tests/oracle_quick.py that shows the bug
    schedule    the schedule that the case is run with
    lowered     thresholds that are lower while the case runs (tests/lowered_thresholds.py)
    unseen      why `check` cannot name the pass, for bugs that it does not see
    text        a piece of the Triton source that must be there; it detects the bugs that are `unseen`

No file is changed: tests/patched.py imports the package with the changed text in a forked process.
tests/test_mutants.py tests every row, and tests that `Program.check` names the pass. If a change of the
compiler moves a quoted line, change the row too.
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
AFTER = ("mask", "emit")  # a bug shows after one of these passes; the results after the others take longer


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
    """In a forked process: whether the oracle notices the bug, and which pass `check` names.

    With `thorough`, any case may notice it, and `check` runs every variant, as `Program.check` does.
    """
    import oracle_quick as oracle
    from lowered_thresholds import lowered

    m = next(m for m in GALLERY if m.name == name)
    anywhere = thorough and not m.lowered  # a threshold is lowered for one case only
    with lowered(m.lowered):
        failure = oracle.first_failure() if anywhere else oracle.first_failure([m.case], [m.schedule], after=AFTER)
        found = {"noticed": failure is not None, "what": failure and f"{failure.case}: {failure.what}".splitlines()[0]}
        if m.text and m.text not in oracle.program(m.case).lower()["triton"]:
            found |= {"noticed": True, "what": f"no {m.text} in the source"}
        return {**found, "named": oracle.named(m.case, m.schedule, USUAL if thorough else ())}


def plant(
    mutants: Sequence[Mutant] = GALLERY, thorough: bool = False, workers: int = 1
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    """Yields each mutant with its result as soon as it is known. A forked process that dies counts as noticed."""
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
