"""`gateway serve` without workers answers at a control socket as well: what it shows, and what it cannot do."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from e2e.scenarios import BEGINNING, KEY, write_configuration
from gateway.upstream.scripted import Reply, Script, Silence
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process, run

AUTHORIZED = {"authorization": f"Bearer {KEY}"}


@contextmanager
def single(folder: Path, *options: str, server: str = "", **environment: str) -> Iterator[tuple[Process, str]]:
    """A gateway whose model `endless` begins and never ends: its process and its URL."""
    scripts = [Script(name, [Reply((*BEGINNING, Silence()))]) for name in ("endless-1", "endless-2")]
    with LoopbackUpstreams(scripts) as upstreams:
        file = write_configuration(folder, {one.name: upstreams.base_url(one.name) for one in scripts}, ["endless"])
        file.write_text(file.read_text().replace("[server]\n", f"[server]\nmetrics_port = 0\n{server}\n"))
        with gateway_process("serve", "--config", str(file), "--port", "0", *options, **environment) as process:
            yield process, process.wait_for(r'"event": "listening".*"url": "(http://[^"]+)"')[1]


def test_its_status_is_one_row_from_its_start_to_its_drain(tmp_path: Path) -> None:
    with single(tmp_path, "--workers", "1", server='control_socket = "gw.sock"') as (process, url):
        path = process.wait_for('"event": "control_listening".*"path": "(.*?)"')[1]
        assert path == str(tmp_path / "gw.sock")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        ask = (sys.executable, "-m", "gateway", "status", "--json", "--control", path)
        with (
            httpx2.Client(headers=AUTHORIZED, timeout=PATIENCE_SECONDS) as client,
            client.stream("POST", f"{url}/v1/responses", json={"model": "endless", "input": "x", "stream": True}) as on,
        ):
            lines = on.iter_lines()  # letting go of it would hang up
            next(lines)
            (row,) = json.loads(run(*ask).stdout)["workers"]
            assert (row["number"], row["state"], row["restarts"], row["turns"]) == (0, "ready", 0, 1)
            assert row["pid"] == process.pid
            process.signal(signal.SIGTERM)
            process.wait_for('"draining"')
            (row,) = json.loads(run(*ask).stdout)["workers"]
            assert row["state"] == "draining"
            process.signal(signal.SIGTERM)
        assert process.wait() == 1
    assert not Path(path).exists()


def test_it_cannot_be_rolled_and_says_what_can(tmp_path: Path) -> None:
    """The one gateway of this user is found without being named."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    with single(tmp_path, XDG_RUNTIME_DIR=str(folder)) as (process, url):
        process.wait_for(re.escape(f'"path": "{folder}/gateway-{url.rpartition(":")[2]}.sock"'))
        refused = run(sys.executable, "-m", "gateway", "restart", extra={"XDG_RUNTIME_DIR": str(folder)})
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "a single process cannot be restarted without a cut" in refused.stderr
        assert "start it with `gateway serve --workers 2`" in refused.stderr


def test_without_a_place_for_a_socket_that_nobody_has_named_it_serves_all_the_same(tmp_path: Path) -> None:
    """A container whose file system cannot be written to."""
    with single(tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "none/inner")) as (process, url):
        process.wait_for('"event": "control_not_available".*inner cannot be made: No such file or directory')
        assert httpx2.get(f"{url}/readyz").status_code == 200


def test_a_named_socket_that_cannot_be_opened_is_told_and_nothing_is_served(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, {"m-1": "http://u.test/v1", "m-2": "http://u.test/v1"}, ["m"])
    file.write_text(file.read_text().replace("[server]\n", '[server]\nmetrics_port = 0\ncontrol_socket = "no/gw"\n'))
    refused = run(sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f"the control socket {tmp_path}/no/gw cannot be opened: No such")


def test_its_routes_are_swapped_as_those_of_workers_are(tmp_path: Path) -> None:
    """C2."""
    with single(tmp_path, server='control_socket = "gw.sock"') as (process, _):
        path = process.wait_for('"event": "control_listening".*"path": "(.*?)"')[1]
        file = tmp_path / "gateway.toml"
        command = (sys.executable, "-m", "gateway", "routes")
        new = tmp_path / "new.toml"
        new.write_text('[routes.r]\nbase_url = "http://u.test/v1"\ncredential = "none"\nprice = "free"\n')
        refused = run(*command, "apply", str(new), "--control", path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"{new}: would take the place of no file; move routes and models from {file}")
        file.write_text(file.read_text().replace("price", "response_timeout = 60\nprice"))
        process.signal(signal.SIGHUP)
        table = process.wait_for('"routes_applied".*"table": "(.*?)"')[1]
        (row,) = json.loads(run(*command, "show", "--json", "--control", path).stdout)["workers"]
        assert (row["state"], row["table"][: len(table)]) == ("ready", table)
