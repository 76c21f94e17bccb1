"""The parts of the README that the code makes: `python tests/support/readme.py` (or `poe readme`) writes them."""

from __future__ import annotations

from pathlib import Path

from gateway.core.replay import NEVER_RULES, REPLAY

README = Path(__file__).parents[2] / "README.md"
START = "<!-- replay table: made from gateway/core/replay.py by `poe readme` -->\n"
END = "<!-- end of replay table -->\n"


def replay_table() -> str:
    """The decision as Markdown: one row for each rule, in its order."""
    rows = ["| rule | reason | when | replay |", "|---|---|---|---|"]
    for rule in NEVER_RULES:
        reasons = ", ".join(f"`{reason.value}`" for reason in rule.reasons)
        rows.append(f"| {rule.id} | {reasons} | {rule.when} | no |")
    rows.append(f"| {REPLAY.rule} | `{REPLAY.reason.value}` | none of these | **once, on another route** |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """The README's text with the table as it must be. ValueError if its marks are missing."""
    before, _, rest = text.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError("the marks around the replay table are missing")
    return before + START + replay_table() + END + after


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
