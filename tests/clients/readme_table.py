"""The README's table of the matrix, made from it: `PYTHONPATH=.:tests python tests/clients/readme_table.py` writes it.

Where all clients show every answer once, a sentence says so; the table has what fails.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Final

from clients.situations import SITUATIONS
from clients.table import CALLED, CLIENTS, EXPECTED, RAN, Cannot, Expected
from e2e.scenarios import PARTIAL_TEXT, TEXT

REPOSITORY: Final = Path(__file__).parents[2]
README: Final = REPOSITORY / "README.md"
BEGIN: Final = "<!-- client table: made from tests/clients/table.py by `deploy/test --clients` -->"
END: Final = "<!-- end of client table -->"

OF_PIP: Final = ("openai", "openai-agents", "websockets", "httpx")
OF_NPM: Final = ("openai", "@openai/codex")

WORDS: Final = {TEXT: "answer", CALLED: "tool", RAN: "tool", PARTIAL_TEXT: "its beginning", "": ""}
CODEX_SAYS: Final = {
    "Reconnecting...": "reconnects",
    "Falling back": "goes over to HTTPS",
    "turn.failed": "fails with the status",
}


def table() -> str:
    """All of it, with its versions."""
    whole = [situation for situation in EXPECTED if not SITUATIONS[situation].code]
    failing = [situation for situation in EXPECTED if situation not in whole]
    titles = [f"{SITUATIONS[situation].title}: `{SITUATIONS[situation].code}`" for situation in failing]
    rows = [
        [row.title, *(shown(EXPECTED[situation][client]) for situation in failing)] for client, row in CLIENTS.items()
    ]
    lines = [["client", *titles], ["---"] * (1 + len(failing)), *rows]
    played = ", ".join(SITUATIONS[situation].title for situation in whole)
    return "\n".join(
        [
            f"All of them show everything, and once: {played}.",
            "Of what fails each shows this:",
            "",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            versions(),
        ]
    )


def shown(expected: Expected) -> str:
    """A cell's words: what came, how often, and how it ended."""
    if isinstance(expected, Cannot):
        return f"– ({expected.why})"
    lines = [in_words(line) for line in expected]
    return ", ".join(counted(word, len(list(same))) for word, same in groupby(lines))


def in_words(line: str) -> str:
    """One turn."""
    text, _, ending = line.partition("[")
    codex = next((words for begin, words in CODEX_SAYS.items() if ending.startswith(begin)), "")
    said = codex or (f"`{ending.split()[0]}`" if ending else "")
    return ", ".join(part for part in (WORDS[text], said) if part)


def counted(word: str, count: int) -> str:
    """As people count."""
    return word if count == 1 else f"{word} ({count})"


def versions() -> str:
    """What was played, from the locks."""
    pinned = (REPOSITORY / "deploy/requirements-dev.lock").read_text("utf-8")
    lock = json.loads((Path(__file__).with_name("node") / "package-lock.json").read_text("utf-8"))["packages"]
    pip = [f"{name} {_version(pinned, name)}" for name in OF_PIP]
    npm = [f"{name} {lock[f'node_modules/{name}']['version']}" for name in OF_NPM]
    return f"From pip: {', '.join(pip)}. From npm: {', '.join(npm)}."


def _version(pinned: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==(\S+)", pinned, re.MULTILINE)
    if found is None:
        raise LookupError(f"{name} is not pinned")
    return found[1]


def with_table(readme: str) -> str:
    """The README with the table in its place."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
