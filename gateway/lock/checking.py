"""The check: every scenario played and compared with its transcript, both doors with each other, the files with what
was declared. Whatever is found names a file.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.lock.declarations import read_history, undeclared
from gateway.lock.files import Unreadable, text_of
from gateway.lock.finding import Finding
from gateway.lock.pack import NAME, Pack
from gateway.lock.parity import disparities
from gateway.lock.player import Crashed, play
from gateway.lock.reading import read_playable
from gateway.lock.scenario import ScenarioError
from gateway.lock.told import told_otherwise
from gateway.lock.transcript import differences, from_text, read_transcript, to_text


def check(pack: Pack, names: Iterable[str]) -> list[Finding]:
    """Everything that is wrong with the pack; of the scenarios only those named are played."""
    return [*check_files(pack), *(finding for name in names for finding in check_scenario(pack, name))]


def check_files(pack: Pack) -> list[Finding]:
    """The declarations, what the changelog tells of them, and the files against them."""
    history = read_history(pack)
    irregular = [Finding(name, "is no regular file") for name in pack.irregular()]
    return [
        *history.findings,
        *told_otherwise(pack, history),
        *irregular,
        *undeclared(pack, history),
        *_misnamed(pack),
    ]


def _misnamed(pack: Pack) -> list[Finding]:
    return [
        Finding(f"{name}.toml", "is not a usable name; use lower-case words joined by hyphens")
        for name in pack.names
        if NAME.fullmatch(name) is None
    ]


def check_scenario(pack: Pack, name: str) -> list[Finding]:
    """One scenario: played as it was recorded, and alike on both doors."""
    try:
        scenario = read_playable(pack.scenario(name))
        played = play(scenario, f"{name}.toml")
    except ScenarioError as error:
        return [Finding(problem.file, str(problem).removeprefix(f"{problem.file}: ")) for problem in error.problems]
    except Crashed as error:
        return [Finding(f"{name}.toml", str(error))]
    return [*_compared(pack, name, to_text(played)), *disparities(name, scenario, played)]


def _compared(pack: Pack, name: str, played: str) -> list[Finding]:
    """Byte for byte; told by column and entry."""
    file = pack.transcript(name)
    try:
        recorded = read_transcript(file)
        if text_of(file) == played:
            return []
    except Unreadable as error:
        return [Finding(error.file, error.problem)]
    details = differences(recorded, from_text(played)) or ["the layout of the file"]
    return [Finding(file.name, "the gateway behaves in another way than is recorded", tuple(details))]
