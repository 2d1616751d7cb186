"""What has been tried on the compiler, and how much of it: docs/reliability.md and its figures.

    python tests/reliability.py [SECTION ...] [--budget 30m] [--jobs 2]     runs sections (all but GPU ones)
    python tests/reliability.py --page                                      writes the page from the figures

In: docs/reliability.json, a dictionary for each section, which a run replaces. Out: the same with
new figures, and docs/reliability.md made of it. tests/test_docs.py holds the page to the figures.
A section is a function that runs something and returns figures, and one that says them in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from minitri.cli import Duration
from minitri.cli import main as minitri
from minitri.fuzz import Session, Summary, fuzz
from minitri.reference import table
from minitri.testing import random_program
from minitri.testing.coverage import CONSTRUCTS, coverage

ROOT = Path(__file__).parent.parent
FIGURES, PAGE = ROOT / "docs" / "reliability.json", ROOT / "docs" / "reliability.md"
Figures = dict[str, Any]


@dataclass(frozen=True)
class Options:
    seconds: float
    jobs: int


@dataclass(frozen=True)
class Section:
    """`usual`: part of a run that names no sections."""

    title: str
    run: Callable[[Options], Figures]
    said: Callable[[Figures], str]
    usual: bool = True


# ---- running -----------------------------------------------------------------------------


def fuzzed(on: str, seed: int) -> Callable[[Options], Figures]:
    def run(options: Options) -> Figures:
        def tell(s: Summary) -> None:
            print(f"\r{s.seconds:6.0f} s, {s.programs} programs, {len(s.found)} disagreements", end="", file=sys.stderr)

        summary = fuzz(Session(options.seconds, seed, options.jobs, on, ROOT / "build" / "fuzz"), tell)
        print(file=sys.stderr)
        return summary.as_dict()

    return run


def covered(options: Options) -> Figures:
    """How often each construct occurs in 2,000 random programs."""
    found = coverage(random_program(seed) for seed in range(2000))
    return {group: {name: found[name] for name in names} for group, names in CONSTRUCTS.items()}


def checked(options: Options) -> Figures:
    """`minitri check` of every example and every library function, at its ragged sizes."""
    from test_proofs import LIBRARY

    calls = {path.name: [str(path)] for path in sorted((ROOT / "examples").glob("*.mt"))}
    for name, (text, types) in LIBRARY.items():
        calls[name] = ["-e", text, *(word for n, t in types.items() for word in ("-t", f"{n}={t}"))]
    rows, wrong = 0, list[str]()
    for name, words in calls.items():
        answer = json.loads(CliRunner().invoke(minitri, ["check", *words, "--json"]).stdout)
        rows += sum(len(r["rows"]) for r in answer["rounds"])
        wrong += [] if answer["ok"] else [name]
        print(f"{name:30} {'ok' if answer['ok'] else 'WRONG'}", file=sys.stderr)
    return {"programs": len(calls), "rows": rows, "wrong": wrong}


def planted(options: Options) -> Figures:
    """The gallery of planted bugs, by a process that has not imported the package yet."""
    from mutants import GALLERY

    command = [sys.executable, str(ROOT / "tests" / "mutants.py"), "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {row["name"]: row for row in map(json.loads, lines)}
    named = [m.name for m in GALLERY if found[m.name]["named"] == m.guilty]
    return {"planted": len(found), "noticed": sum(f["noticed"] for f in found.values()), "named": len(named)}


def mutated(options: Options) -> Figures:
    """The scores of tests/mutation.py, which takes hours and keeps what it knows."""
    from mutation import figures

    return {
        file: {k: row[k] for k in ("mutants", "run", "killed", "equivalent", "score")}
        for file, row in figures().items()
    }


def hostile(options: Options) -> Figures:
    from hostile import tried

    counts, faults = tried(100_000, 0, None, keep_going=True)
    outcomes: dict[str, int] = {}
    for (_, outcome), n in counts.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + n
    return {"inputs": sum(outcomes.values()), "outcomes": outcomes, "faults": len(faults)}


# ---- saying ------------------------------------------------------------------------------


def said_of_fuzzing(f: Figures) -> str:
    rows = [
        ("random programs", f"{f['programs']:,}"), ("stages compared with the reference", f"{f['stages']:,}"),
        ("pairs of programs compared with each other", f"{f['pairs']:,}"),
        ("disagreements", f"{len(f['disagreements']):,}"),
    ]  # fmt: skip
    where = f"{f['seconds'] / 60:.1f} minutes in {f['jobs']} processes, from seed {f['seed']}. {f['hardware']}; {f['versions']}."
    return f"{where}\n\n{table(('', ''), rows)}"


def said_of_coverage(f: Figures) -> str:
    rows = [(group, str(len(counts)), f"{min(counts.values())} ({min(counts, key=counts.__getitem__)})",
             f"{max(counts.values())} ({max(counts, key=counts.__getitem__)})") for group, counts in f.items()]  # fmt: skip
    return table(("constructs of 2,000 programs", "how many", "the rarest is in", "the commonest is in"), rows)


def said_of_checks(f: Figures) -> str:
    wrong = ", ".join(f["wrong"]) or "none"
    return f"{f['programs']} programs, {f['rows']:,} stages of passes compared with the reference; wrong: {wrong}.\n"


def said_of_plants(f: Figures) -> str:
    return f"{f['planted']} planted, {f['noticed']} noticed, {f['named']} with the right pass named.\n"


def said_of_mutation(f: Figures) -> str:
    rows = [(f"`{file}`", *(str(row[k]) for k in ("mutants", "run", "killed", "equivalent")),
             "-" if row["score"] is None else f"{row['score']}%") for file, row in f.items()]  # fmt: skip
    return table(("file", "mutants", "run", "killed", "equivalent", "score"), rows)


def said_of_hostility(f: Figures) -> str:
    outcomes = ", ".join(f"{n:,} {name}" for name, n in sorted(f["outcomes"].items()))
    return f"{f['inputs']:,} inputs: {outcomes}; {f['faults']} faults.\n"


SECTIONS: dict[str, Section] = {
    "examples": Section("Examples and the library at every pass", checked, said_of_checks),
    "fuzz": Section("Random programs", fuzzed("cpu", 1_000_000), said_of_fuzzing),
    "fuzz-gpu": Section("Random programs on a GPU", fuzzed("gpu", 2_000_000), said_of_fuzzing, usual=False),
    "coverage": Section("What random programs consist of", covered, said_of_coverage),
    "mutants": Section("Planted bugs", planted, said_of_plants),
    "mutation": Section("Mutation testing", mutated, said_of_mutation),
    "hostile": Section("Hostile input", hostile, said_of_hostility),
}
HEAD = """\
# Reliability

<!-- Made by `python tests/reliability.py` from reliability.json. Do not edit. -->

What has been tried, and what came of it. How the checks work is said elsewhere: what `check`
compares in [semantics.md](semantics.md#what-check-compares), stages that run in
[architecture.md](architecture.md#running-a-stage).

- `minitri check FILE` runs every pass of one program at ragged sizes, for the interpreter and for a
  GPU's schedules, and names the first pass that is wrong, with the smallest call that shows it.
- `minitri fuzz --budget 10m -o DIR` does so for random programs. Each is also held against programs
  that must compute the same: with an optional pass left out, with the operands of commutative
  operators in the other order, with dead code, with other names. Programs run in processes of their
  own, so that a crash or a hang is a finding. What fails is shrunk and saved as one file, which is a
  program like any other; `minitri fuzz --replay FILE` runs it again.
- `minitri.testing` is what the random programs are made by, for tests of your own:

  ```python excerpt
  from hypothesis import given, strategies as st
  from minitri.testing import arrays, programs

  @given(programs(max_ops=6), st.integers(0, 99))
  def test(example, seed):
      assert example.compile().check(*example.arguments(seed)).ok
  ```

`make full` draws 200 examples for every operator or function and dtype, at every stage. Its tests of
operators and functions (`tests/test_operators.py`, `tests/test_functions.py`) took 6 minutes on 16
cores: 1,474 passed (x86_64, Python 3.12.3, numpy 2.5.2, triton 3.6.0).

`python tests/reliability.py` makes all figures of this page anew (but those of a GPU), and
`python tests/reliability.py fuzz --budget 30m` those of one section; its name stands in its title.
`fuzz-gpu` needs a GPU. What is trusted: numpy, lark, Triton and its interpreter, and NVIDIA's assembler.
"""


def page(figures: Figures) -> str:
    """docs/reliability.md."""
    parts = [f"## {s.title} (`{name}`)\n\n{s.said(figures[name])}" for name, s in SECTIONS.items() if name in figures]
    return "\n".join([HEAD, *parts])


def known() -> Figures:
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the figures of docs/reliability.md.")
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    parser.add_argument("--budget", default="30m", help="of each section of random programs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    given = parser.parse_args()
    options = Options(Duration().convert(given.budget, None, None), given.jobs)
    wanted = [] if given.page else given.sections or [n for n, s in SECTIONS.items() if s.usual]
    for name in wanted:
        start = time.monotonic()
        figures = SECTIONS[name].run(options)
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        FIGURES.write_text(json.dumps({**known(), name: figures}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(known()), encoding="utf-8")


if __name__ == "__main__":
    main()
