"""One pipeline for all log lines: what a reader of stderr sees."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway.server.logs import configure_logs
from support.logging_state import kept_logging_state


@pytest.fixture(autouse=True)
def _logging_state() -> Iterator[None]:
    with kept_logging_state():
        yield


def test_a_line_is_json_that_leads_with_time_level_and_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "info")
    structlog.get_logger("gateway.turn").info("turn", turn_id="req_1", seconds=0.5, outcome="completed")
    line = capsys.readouterr().err
    assert list(json.loads(line)) == ["timestamp", "level", "event", "turn_id", "seconds", "outcome", "logger"]
    assert json.loads(line)["timestamp"].endswith("Z")
    assert json.loads(line) | {"timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "event": "turn",
        "turn_id": "req_1",
        "seconds": 0.5,
        "outcome": "completed",
        "logger": "gateway.turn",
    }


def test_the_level_is_the_gateways_own_and_libraries_are_heard_from_warning_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("json", "debug")
    structlog.get_logger("gateway.turn").debug("a_detail")
    logging.getLogger("httpx2").info("a request that nobody needs to see")
    logging.getLogger("hypercorn.error").warning("what went %s", "wrong")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["a_detail", "what went wrong"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_every_line_of_a_worker_has_its_number_also_a_librarys(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(log_format, "debug", worker=3)
    structlog.get_logger("gateway.turn").info("turn")
    logging.getLogger("hypercorn.error").warning("what went %s", "wrong")
    logging.getLogger("quart.app").error("what went wrong, too")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    if log_format == "json":
        assert [(list(json.loads(line))[3], json.loads(line)["worker"]) for line in lines] == [("worker", 3)] * 3
    else:
        assert ["worker" in line for line in lines] == [True] * 3


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "error")
    structlog.get_logger("gateway.turn").warning("books_not_closed")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_variables(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    """L1: they are prompts and keys."""
    configure_logs(log_format, "info")
    try:
        _fail("a prompt" + " of the client")
    except ValueError:
        structlog.get_logger("gateway.turn").exception("internal_error")
        logging.getLogger("quart.app").exception("internal_error")
    written = capsys.readouterr().err
    assert written.count("ValueError: broken") == 2
    assert "a prompt of the client" not in written


def _fail(prompt: str) -> None:
    if prompt:
        raise ValueError("broken")


def test_configuring_twice_writes_each_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "info")
    configure_logs("console", "info")
    structlog.get_logger("gateway.turn").info("turn")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_line_that_cannot_be_written_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """X: whoever read stderr may be gone, and turns go on."""
    monkeypatch.setattr("sys.stderr", gone := io.StringIO())
    configure_logs("json", "info")
    gone.close()
    logger = structlog.get_logger("gateway.turn")
    for say in (logger.debug, logger.info, logger.warning, logger.error, logger.critical, logger.exception):
        say("turn")


def test_the_level_can_be_changed_while_it_serves(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json", "info")
    logger = structlog.get_logger("gateway.turn")
    for level in ("WARNING", "DEBUG"):
        logging.getLogger("gateway").setLevel(level)
        logger.info("turn", level_is=level)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["level_is"] == "DEBUG"
