"""What lies in deploy/ for a service manager, a container and a TLS front fits the gateway, and the tools take it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from gateway import limits
from gateway.lock.driver import connect
from gateway.lock.virtual import virtual_run
from gateway.metrics import PrometheusMeter
from gateway.server.place import DRAIN_MARGIN_SECONDS
from gateway.server.supervisor import END_MARGIN_SECONDS
from support.gateways import world
from support.runbook import RUNBOOK, bounds, with_limits
from support.voices import A

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")
CADDY = (DEPLOY / "Caddyfile").read_text("utf-8")

DRAIN_BOUND_SECONDS = 5.0
"""T7: what a process may take beyond its drain."""
"""What a supervisor gives a worker beyond the worker's own margin, before it kills it."""
TOOL_SECONDS_MAX = 60.0


def tool(name: str) -> str:
    """A program on PATH or beside the interpreter; skips the test where there is none."""
    places = ":".join([str(Path(sys.executable).parent), "/usr/sbin", "/usr/bin", "/usr/local/bin"])
    found = shutil.which(name) or shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def ran(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )


# --- systemd ----------------------------------------------------------------------------------------------------


def settings(unit: Path) -> dict[str, list[str]]:
    """A unit's settings; one that is given several times has several values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([A-Za-z]+)=(.*)$", unit.read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_drains_and_has_the_time_for_it(unit: Path) -> None:
    """T7."""
    given = settings(unit)
    needed = limits.DRAIN_SECONDS_MAX + DRAIN_BOUND_SECONDS
    assert (given["KillSignal"], given["KillMode"]) == (["SIGTERM"], ["mixed"])
    assert int(given["TimeoutStopSec"][0]) > needed
    assert (given["Restart"], given["RestartPreventExitStatus"]) == (["on-failure"], ["2"])


def test_a_worker_that_hangs_is_killed_within_the_bound() -> None:
    """T7: whatever a worker does, its supervisor has ended in time."""
    assert DRAIN_MARGIN_SECONDS + END_MARGIN_SECONDS < DRAIN_BOUND_SECONDS


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_grants_descriptors_for_every_turn_and_its_upstream(unit: Path) -> None:
    assert int(settings(unit)["LimitNOFILE"][0]) >= limits.SOCKETS_MAX + 2 * limits.TURNS_MAX


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_takes_from_the_process_what_it_does_not_need(unit: Path) -> None:
    given = settings(unit)
    yes = ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome", "RestrictNamespaces")
    assert [name for name in yes if given.get(name) != ["yes"]] == []
    assert (given["ProtectSystem"], given["CapabilityBoundingSet"]) == (["strict"], [""])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_a_folder_of_its_own_for_the_control_socket(unit: Path) -> None:
    """The gateway takes none that others can enter, and systemd makes folders that they can."""
    given = settings(unit)
    (folder,) = given["RuntimeDirectory"]
    assert given["RuntimeDirectoryMode"] == ["0700"]
    assert f"XDG_RUNTIME_DIR=%t/{folder}" in given["Environment"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_leaves_the_process_its_own_metrics(unit: Path) -> None:
    """Without /proc/stat, prometheus-client tells nothing of memory, CPU and descriptors."""
    assert "ProcSubset" not in settings(unit)


def test_both_units_are_hardened_alike() -> None:
    one, many = (unit.read_text("utf-8").partition("# What it does not need")[2] for unit in UNITS)
    assert one
    assert one == many


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    """`verify` wants the program to be there."""
    command = tool("systemd-analyze")
    copy = tmp_path / unit.name.replace("@.", "@1.")
    copy.write_text(unit.read_text("utf-8").replace("/opt/gateway/bin/gateway", "/bin/true"), encoding="utf-8")
    result = ran(command, "verify", str(copy), folder=tmp_path)
    assert (result.returncode, [line for line in result.stderr.splitlines() if copy.name in line]) == (0, [])


# --- the container ----------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    result = ran(tool("hadolint"), str(DEPLOY / "Dockerfile"), folder=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_container_is_made_from_the_lock_and_keeps_nothing_that_builds() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "--require-hashes --requirement deploy/requirements.lock" in DOCKERFILE
    assert "pip install" not in last
    assert "COPY --from=build /opt/gateway /opt/gateway" in last


def test_the_container_does_not_run_as_root_and_says_whether_it_is_ready() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None
    assert "0" not in user.groups()
    assert re.search(r"HEALTHCHECK .*\\\n +CMD \[\"python\", .*GATEWAY_READY_URL", last)
    assert "GATEWAY_READY_URL=http://127.0.0.1:9464/readyz" in last


def test_every_file_that_the_container_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    files = [file for line in copied for file in line.split()]
    assert files
    assert [file for file in files if not (REPOSITORY / file).exists()] == []


def test_every_build_tool_of_the_lock_leaves_the_container() -> None:
    """The backend, and what is in the lock only for its sake."""
    lock = (DEPLOY / "requirements.lock").read_text("utf-8")
    entries = re.findall(r"^([a-z0-9._-]+)==[^#]+\n((?:    #.*\n?)+)", lock, re.MULTILINE)
    for_the_backend = {
        name for name, via in entries if set(re.findall(r"[a-z][a-z0-9-]+", via)) == {"via", "hatchling"}
    }
    removed = re.search(r"pip uninstall --yes (.+) pip$", DOCKERFILE, re.MULTILINE)
    assert removed is not None
    assert set(removed[1].split()) == {"hatchling", *for_the_backend}


# --- TLS in front -----------------------------------------------------------------------------------------------


def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    """As it is, but for what a test may not touch: the certificate's place, the port, the system's folders."""
    command = tool("nginx")
    certificate = trustme.CA().issue_cert("gateway.example.com")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "fullchain.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    text = re.sub(r" *listen \[::\].*\n", "", NGINX).replace("listen 443", "listen 127.0.0.1:8443")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"    {kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
    text = text.replace("/etc/ssl/gateway/", f"{tmp_path}/").replace("http {\n", f"http {{\n{folders}", 1)
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/nginx.pid;\n{text}", encoding="utf-8")
    result = ran(command, "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(file), folder=tmp_path)
    assert result.returncode == 0, result.stderr


def test_caddy_takes_its_configuration(tmp_path: Path) -> None:
    file = str(DEPLOY / "Caddyfile")
    result = ran(tool("caddy"), "validate", "--adapter", "caddyfile", "--config", file, folder=tmp_path)
    assert result.returncode == 0, result.stderr


def nginx_value(name: str) -> str:
    found = re.search(rf"^ *{name} ([^;]+);", NGINX, re.MULTILINE)
    assert found is not None, name
    return found[1]


def caddy_value(name: str) -> str:
    found = re.search(rf"^\s*{name} (\S+)$", CADDY, re.MULTILINE)
    assert found is not None, name
    return found[1]


def number(value: str) -> int:
    return int(re.sub(r"\D", "", value))


def test_a_front_waits_longer_than_the_gateway() -> None:
    """So that it is the gateway that ends a turn, and knows it."""
    waits = [
        number(nginx_value("proxy_read_timeout")),
        *(number(caddy_value(n)) for n in ("read_timeout", "stream_timeout")),
    ]
    writes = [number(nginx_value("proxy_send_timeout")), number(caddy_value("write_timeout"))]
    assert min(waits) > limits.CONNECTION_SECONDS_MAX
    assert min(writes) > limits.WRITE_SECONDS_MAX


def test_a_front_lets_through_what_the_gateway_takes() -> None:
    """H3: it is the gateway that refuses a body, in JSON."""
    sizes = [number(nginx_value("client_max_body_size")), number(caddy_value("max_size"))]
    assert min(sizes) * limits.MIB > limits.BODY_BYTES_MAX


def test_a_front_neither_buffers_nor_sends_twice() -> None:
    """R11: a second request would be a second run of the turn."""
    assert (nginx_value("proxy_buffering"), nginx_value("proxy_next_upstream")) == ("off", "off")
    assert (caddy_value("flush_interval"), caddy_value("lb_retries")) == ("-1", "0")


def test_a_front_names_the_client_and_passes_upgrades_on() -> None:
    assert nginx_value("proxy_set_header X-Forwarded-For") == "$proxy_add_x_forwarded_for"
    assert nginx_value("proxy_set_header Upgrade") == "$http_upgrade"
    assert all("trusted_hops = 1" in text for text in (NGINX, CADDY))


# --- the runbook ------------------------------------------------------------------------------------------------


def test_the_limits_in_the_runbook_are_the_codes_own() -> None:
    text = RUNBOOK.read_text("utf-8")
    assert text == with_limits(text), "run `poe runbook`"


def test_every_limit_has_its_reason() -> None:
    named = [name for bound in bounds() for name in bound.names]
    constants = [name for name in vars(limits) if name.isupper() and name != "MIB"]
    assert sorted(named) == sorted(constants)


def logged_events() -> Iterator[str]:
    """What the gateway logs, as far as the sources say it in a word."""
    for path in (REPOSITORY / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                event = node.args[0]
                if ast.unparse(node.func.value) == "logger" and isinstance(event, ast.Constant):
                    yield str(event.value)


def test_the_runbook_explains_every_log_line() -> None:
    explained = set(re.findall(r"`([a-z_]+)`", RUNBOOK.read_text("utf-8").partition("## Log lines")[2]))
    assert sorted(set(logged_events()) - explained) == []


@pytest.mark.trio(run=virtual_run)
async def test_the_runbook_explains_every_metric_and_no_other() -> None:
    w = world(A.answer())
    async with connect(w.app, "http"):
        pass
    text = RUNBOOK.read_text("utf-8")
    made = {family.name for family in w.gateway.meter.registry.collect() if family.name.startswith("gateway_")}
    made = {f"{name}_total" if f"{name}_total" in text else name for name in made}
    table = text.partition("## Metrics")[2].partition("## Alerts")[0]
    assert set(re.findall(r"^\| `(gateway_\w+)`", table, re.MULTILINE)) == made


def test_every_metric_that_an_alert_reads_is_there() -> None:
    text = RUNBOOK.read_text("utf-8").partition("## Alerts")[2].partition("## Log lines")[0]
    exposed = PrometheusMeter().exposition().decode()
    named = {name.removesuffix("_bucket").removesuffix("_total") for name in re.findall(r"\bgateway_\w+", text)}
    watched = {"gateway_open_turns", "gateway_open_sockets", "gateway_draining", "gateway_store_away"}
    watched |= {"gateway_files_unusable"}
    watched |= {"gateway_open_attempts", "gateway_route_cooling"}
    watched |= {"gateway_leases_expired", "gateway_late_settlements"}
    assert {name for name in named - watched if f"# HELP {name}" not in exposed} == set()
