"""`poe lab`: measure the gateway, with --peers beside others, and write a page, a picture and the figures.

poe lab             ourselves: some ten minutes
poe lab --peers     beside six others, which are installed first: some forty
poe lab --quick     a slice, a minute or two: whether a change gains anything
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from bench.lab.conditions import conditions
from bench.lab.course import Order, measure
from bench.lab.loads import ENTRANTS, QUICK, STEADY
from bench.lab.ours import REPOSITORY
from bench.lab.peers import PEERS
from bench.lab.plot import picture
from bench.lab.programs import CannotMeasure
from bench.lab.report import page
from bench.lab.results import Results
from bench.lab.targets import failing

PUBLISHED: Final = REPOSITORY / "tests" / "bench" / "results"
UNPUBLISHED: Final = REPOSITORY / "build" / "bench"
ROUNDS: Final = 3
NAMES: Final = [peer.name for peer in PEERS]


@click.command()
@click.option("--peers", "beside_all", is_flag=True, help="Install six other gateways, and measure them beside ours.")
@click.option(
    "--peer", "beside", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only this one."
)
@click.option("--quick", is_flag=True, help="A slice: one round of few loads.")
@click.option("--rounds", type=click.IntRange(1, 20), help=f"Rounds of each load; {ROUNDS} if left out.")
@click.option("--load", "loads", multiple=True, type=click.Choice([*STEADY]), help="Only this load, or several.")
@click.option("--server", multiple=True, metavar="KEY=VALUE", help="A further key of the gateway's [server], in TOML.")
@click.option("--python", default=sys.executable, help="What runs the gateway, if not this; e.g. .venv/bin/python.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where the results go.")
def main(
    beside_all: bool,
    beside: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    loads: tuple[str, ...],
    server: tuple[str, ...],
    python: str,
    out: Path | None,
) -> None:
    """Measure the gateway. A whole run beside all peers is written to tests/bench/results, any other to build/bench.

    Exits with 1 if a target is failed.
    """
    peers = [name for name in NAMES if beside_all or name in beside]
    grid = QUICK if quick and not loads else ENTRANTS
    entrants = {load: names for load, names in grid.items() if not loads or load in loads}
    is_whole = not (quick or loads)
    keys = dict(pair.partition("=")[::2] for pair in server)
    try:
        results = Results(about=conditions(python, keys), rounds=rounds or (1 if quick else ROUNDS))
        measure(Order(entrants, peers, keys, python, is_whole), results, say)
    except CannotMeasure as reason:
        raise click.ClickException(str(reason)) from None
    write(results, out or (PUBLISHED if is_whole and beside_all else UNPUBLISHED))
    failed = failing(results)
    click.echo("\n".join(f"FAILS its target: {target.what}" for target in failed) or "no measured target fails")
    sys.exit(1 if failed else 0)


def say(text: str) -> None:
    """What happens now, for whoever waits."""
    click.echo(f"{datetime.now(UTC):%H:%M:%S} {text}", err=True)


def write(results: Results, out: Path) -> None:
    """The page, the picture and the figures."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "speed.md").write_text(page(results, "speed.svg"), encoding="utf-8")
    (out / "speed.svg").write_text(picture(results), encoding="utf-8")
    results.write(out / "speed.json")
    say(f"written: {out / 'speed.md'}")


if __name__ == "__main__":
    main(prog_name="poe lab")
