"""The article's two client programs, changed in base URL, key and model only, against a real gateway process."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios import CODE, KEY, MESSAGE, PARTIAL_TEXT, TEXT, Stage
from support.processes import run

PROGRAMS = Path(__file__).parent / "programs"

LEFT_TO_THE_LONG_TIER = ("broken-then-replayed", "overloaded-before-output", "broken-before-output")
"""To a program they are a second case of another one."""


def scenarios(known: Iterable[str]) -> list[Any]:
    """As parameters."""
    return [pytest.param(name, marks=pytest.mark.long if name in LEFT_TO_THE_LONG_TIER else ()) for name in known]


ANSWERED = {"plain": (1, 0), "replayed": (1, 1), "broken-then-replayed": (1, 1)}
"""Scenarios that end well, and how often each upstream is called."""

SSE_FAILURES = {
    # scenario: (calls, what was printed before, the exception that ended the program)
    "failed-before-output": ((1, 1), "", r"RuntimeError: response\.failed after_output=False"),
    "overloaded-before-output": ((1, 1), "", rf"openai\.APIError: {re.escape(MESSAGE)}"),
    "broken-before-output": ((1, 1), "", r"openai\.InternalServerError: Error code: 502 - the upstream connection"),
    "failed-after-output": ((1, 0), PARTIAL_TEXT, r"RuntimeError: response\.failed after_output=True"),
    "broken-after-output": ((1, 0), PARTIAL_TEXT, r"openai\.APIError: the upstream connection failed"),
}

WEBSOCKET_FAILURES = {
    "failed-before-output": ((1, 1), rf"RuntimeError: response\.failed after_output=False: .*{CODE}"),
    "overloaded-before-output": ((1, 1), rf"RuntimeError: response\.failed after_output=False: .*{CODE}"),
    "broken-before-output": ((1, 1), r"RuntimeError: error after_output=False: .*\"stream_read_error\""),
    "failed-after-output": ((1, 0), r"RuntimeError: response\.failed after_output=True: "),
    "broken-after-output": ((1, 0), r"RuntimeError: error after_output=True: .*\"stream_read_error\""),
}


def play(stage: Stage, program: str, model: str) -> tuple[subprocess.CompletedProcess[str], tuple[int, int]]:
    """Run the program; what it did, and how many calls each upstream got of it."""
    extra = {"BASE_URL": stage.base_url, "WEBSOCKET_URL": stage.websocket_url, "TOKENLAB_API_KEY": KEY, "MODEL": model}
    before = stage.calls(model)
    result = run(sys.executable, str(PROGRAMS / program), extra=extra)
    after = stage.calls(model)
    return result, (after[0] - before[0], after[1] - before[1])


@pytest.mark.parametrize("program", ["sse_program.py", "websocket_program.py"])
@pytest.mark.parametrize("model", scenarios(ANSWERED))
def test_the_program_prints_one_clean_answer(stage: Stage, program: str, model: str) -> None:
    result, calls = play(stage, program, model)
    assert (result.returncode, result.stdout, calls) == (0, f"{TEXT}\n", ANSWERED[model]), result.stderr


@pytest.mark.parametrize("model", scenarios(SSE_FAILURES))
def test_the_sse_program_reports_the_failure_once(stage: Stage, model: str) -> None:
    calls_expected, printed, error = SSE_FAILURES[model]
    result, calls = play(stage, "sse_program.py", model)
    assert (result.returncode, result.stdout, calls) == (1, printed, calls_expected), result.stderr
    assert re.search(error, result.stderr), result.stderr


@pytest.mark.parametrize("model", scenarios(WEBSOCKET_FAILURES))
def test_the_websocket_program_reports_the_failure_once(stage: Stage, model: str) -> None:
    calls_expected, error = WEBSOCKET_FAILURES[model]
    result, calls = play(stage, "websocket_program.py", model)
    assert (result.returncode, result.stdout, calls) == (1, "", calls_expected), result.stderr
    assert re.search(error, result.stderr), result.stderr
