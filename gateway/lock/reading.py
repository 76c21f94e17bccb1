"""A scenario as it is read to be played: of one with mistakes those of its `config` are told, too.

What `config` makes of the house's configuration shows only when that is built (world.py), which a scenario has to be
read for. So it is built around a scenario that has nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config import Problem
from gateway.lock.files import text_of
from gateway.lock.scenario import ROUTES, Scenario, ScenarioError, read_scenario
from gateway.lock.world import configured


def read_playable(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError with all that is wrong with it, or nothing but its config."""
    try:
        return read_scenario(path)
    except ScenarioError as error:
        raise ScenarioError([*error.problems, *_of_config(path)]) from None


def _of_config(path: Path) -> Sequence[Problem]:
    try:
        written = tomllib.loads(text_of(path))
        alone = {
            "about": "its config",
            "rules": ["C1"],
            "config": written.get("config", {}),
            "upstream": _replies(written),
        }
        configured(Scenario.model_validate(alone), path.name)
    except ScenarioError as error:
        return error.problems
    except (ValidationError, ValueError, RecursionError):  # what its own reading has told of
        return ()
    return ()


def _replies(written: dict[str, Any]) -> list[dict[str, str]]:
    """One of each route that replies; of every route where one has a name that no route has."""
    replies = written.get("upstream", [])
    named = (
        {reply.get("route") for reply in replies if isinstance(reply, dict)} if isinstance(replies, list) else {None}
    )
    return [{"route": route} for route in ROUTES if route in named or not named <= set(ROUTES)]
