"""`poe mutants`: change gateway/core and gateway/turn in thousands of small ways; tests must find each change.

poe mutants                                                      all of both floors
poe mutants gateway.core.money                                   a module
poe mutants gateway.core.money --test tests/core/test_money.py   whether these tests alone find its mutants
poe mutants --again                                              what survived the last time, after a test was written
poe mutants --rest                                               what the last run was ended before it came to

mutmut makes the mutants (making.py), a pytest plugin tests them (session.py). One that no test finds is listed in
equivalent.toml with the reason why it changes nothing that anybody can see, or it is named, and the run fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mutation.judging import equivalents, judge
from mutation.making import REPOSITORY, TREE, change, make_tree

FLOORS: Final = {
    "core": [
        *("tests/core", "tests/ledger/test_memory.py"),
        *("-k", "not linear_time and not costs_no_more and not costs_less"),
    ],
    "turn": ["tests/turn", "tests/downstream/test_by_id.py", "tests/limits", "tests/metrics"],
}
"""The tests that must find a floor's mutants: its own, but for those that look at the clock, and those of what only one
door asks of it."""

QUICK: Final = ["-q", "-s", "--tb=native", "--assert=plain"]
"""That a test fails is all there is to know: to show why takes pytest longer than the test, in a file of thousands of
mutants."""


@dataclass(frozen=True, slots=True)
class Runs:
    """What is tested of what there is, and how many at once."""

    again: bool
    rest: bool
    children: int


@click.command()
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@click.option("--test", "tests", multiple=True, metavar="PATH", help="Only these tests, in the place of the floor's.")
@click.option("--again", is_flag=True, help="Only what survived the last time.")
@click.option("--rest", is_flag=True, help="Only what the last run was ended before it came to.")
@click.option("--children", default=2, help="How many mutants are tested at once.")
def main(modules: tuple[str, ...], tests: tuple[str, ...], again: bool, rest: bool, children: int) -> None:
    """Test the mutants of these modules, or of all. Exits with 1 if one survived that is not listed."""
    known = [name for floor in FLOORS for name in modules_of(floor)]
    for name in set(modules).difference(known):
        raise click.BadArgumentUsage(f"{name!r} is none of {', '.join(known)}")
    chosen = {floor: [name for name in modules_of(floor) if not modules or name in modules] for floor in FLOORS}
    is_clean = [
        examine(floor, names, tests or FLOORS[floor], Runs(again, rest, children))
        for floor, names in chosen.items()
        if names
    ]
    sys.exit(0 if is_clean and all(is_clean) else 1)


def modules_of(floor: str) -> list[str]:
    """A floor's modules, by their full names."""
    return [f"gateway.{floor}.{path.stem}" for path in sorted((REPOSITORY / "gateway" / floor).glob("[a-z]*.py"))]


def examine(floor: str, modules: list[str], tests: Sequence[str], runs: Runs) -> bool:
    """Some of a floor. Whether all its survivors are listed, and all that is listed survived."""
    began = time.monotonic()
    click.echo(f"{make_tree(modules)} mutants of {floor}")
    outcomes = tested(TREE / f"{floor}.jsonl", tests, runs)
    report(outcomes, time.monotonic() - began)
    listed = [row for row in equivalents() if row.function.rpartition(".")[0] in modules]
    unlisted, gone = judge({name: change(name) for name in surviving(outcomes)}, listed)
    for name in unlisted:
        was, becomes = change(name)
        click.echo(f"\n{outcomes[name]}: {name}\n  - {was}\n  + {becomes}")
    for row in gone:
        click.echo(f"\nlisted, but it did not survive: {row.function}\n  + {row.becomes}")
    return bool(outcomes) and not unlisted and not gone


def tested(outcomes: Path, tests: Sequence[str], runs: Runs) -> dict[str, str]:
    """Each mutant's outcome."""
    plugin = ["-p", "mutation.session", "--mutants", f"--outcomes={outcomes}", f"--children={runs.children}"]
    if runs.again:
        among = outcomes.with_suffix(".again")
        among.write_text("\n".join(surviving(read(outcomes))), "utf-8")
        plugin.append(f"--among={among}")
    if not runs.rest:
        outcomes.write_text("")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *QUICK, *plugin, *tests],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": ".:tests"},
        stdout=subprocess.DEVNULL,
        check=False,  # a test that fails without a mutant is named, and tells nothing of any
    )
    return read(outcomes)


def read(outcomes: Path) -> dict[str, str]:
    """What the session has written."""
    return {row["mutant"]: row["outcome"] for row in map(json.loads, outcomes.read_text("utf-8").splitlines())}


def surviving(outcomes: dict[str, str]) -> list[str]:
    """Those that no test has found."""
    return [name for name, outcome in outcomes.items() if outcome in ("survived", "untested")]


def report(outcomes: dict[str, str], seconds: float) -> None:
    """How many of each module, and how they ended."""
    modules = sorted({name.rpartition(".")[0] for name in outcomes})
    for module in modules:
        own = [outcome for name, outcome in outcomes.items() if name.rpartition(".")[0] == module]
        ends = Counter(outcome if outcome in ("survived", "untested", "endless") else "found" for outcome in own)
        told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        click.echo(f"  {module}: {len(own)}: {told}")
    click.echo(f"  {len(outcomes)} mutants in {seconds:.0f} s")


if __name__ == "__main__":
    main()
