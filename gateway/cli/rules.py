"""`gateway rules`: what the rule ids in code, tests, logs and this program's words mean."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources

import click

Rulebook = Mapping[str, Mapping[str, str]]


def rulebook() -> Rulebook:
    """The chapters by their letter: a title, and each rule by its id."""
    return tomllib.loads(resources.files("gateway").joinpath("rulebook.toml").read_text(encoding="utf-8"))


def rule_lines(book: Rulebook, wanted: str | None) -> list[str]:
    """The whole book, or what `wanted` (a letter or an id, in any case) names; empty if nothing does."""
    lines: list[str] = []
    for letter, chapter in book.items():
        named = [f"  {name:<5}{text}" for name, text in chapter.items() if name != "title" and _is_wanted(name, wanted)]
        if named:
            lines += [f"{letter}  {chapter['title']}", *named]
    return lines


def _is_wanted(name: str, wanted: str | None) -> bool:
    if wanted is None:
        return True
    asked = wanted.upper()
    return name.upper() == asked or (asked.isalpha() and name.upper().startswith(asked))


@click.command()
@click.argument("rule", required=False)
def rules(rule: str | None) -> None:
    """Explain the rules of behaviour: all of them, a chapter (R), or one (R9)."""
    lines = rule_lines(rulebook(), rule)
    if not lines:
        raise click.UsageError(f"there is no rule {rule!r}; `gateway rules` lists them all")
    click.echo("\n".join(lines))
