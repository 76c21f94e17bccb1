"""TLS in the gateway itself: both doors, the drain, and files that cannot be used."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import trustme
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from e2e.scenarios import ANSWER, BEGINNING, KEY, write_configuration
from gateway.cli import gateway
from gateway.upstream.scripted import Reply, Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process

AUTHORIZED = {"authorization": f"Bearer {KEY}"}
CREATE = '{"type": "response.create", "model": "slow", "input": "hello", "store": false}'
SOON_SECONDS = 15.0


@dataclass(frozen=True)
class Files:
    """A certificate for 127.0.0.1, its key, and what a client trusts."""

    certificate: Path
    key: Path
    trust: ssl.SSLContext


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    return written(folder)


def written(folder: Path, name: str = "gw") -> Files:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key, trust = folder / f"{name}.pem", folder / f"{name}.key", ssl.create_default_context()
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(certificate, append=number > 0)
    issued.private_key_pem.write_to_path(key)
    authority.configure_trust(trust)
    return Files(certificate, key, trust)


@contextmanager
def serving_tls(folder: Path, *options: str, table: str = "") -> Iterator[tuple[Process, str]]:
    """A gateway whose one model `slow` takes 2 s: its process, and the URL it serves at."""
    reply = Reply((*BEGINNING, 2.0, *ANSWER.steps[len(BEGINNING) :]))
    with LoopbackUpstreams([Script("slow-1", [reply]), Script("slow-2", [reply])]) as upstreams:
        file = write_configuration(folder, {name: upstreams.base_url(name) for name in ("slow-1", "slow-2")}, ["slow"])
        file.write_text(file.read_text().replace("[server]\n", f"[server]\nmetrics_port = 0\n{table}"))
        with gateway_process("serve", "--config", str(file), "--port", "0", *options) as process:
            yield process, process.wait_for(r'"event": "listening".*"url": "(https://.*?)"')[1]


def protocol_of(url: str, trust: ssl.SSLContext, *offered: str) -> str | None:
    """What is negotiated with a client that offers these."""
    parts = urlsplit(url)
    trust.set_alpn_protocols(list(offered))
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_SECONDS) as plain,
        trust.wrap_socket(plain, server_hostname=parts.hostname) as wrapped,
    ):
        return wrapped.selected_alpn_protocol()


def test_both_doors_are_served_and_a_drain_lets_them_end(files: Files, tmp_path: Path) -> None:
    """T7, W6, over TLS: the busy finish, the idle are told, and the process ends."""
    request = {"model": "slow", "input": "hello", "stream": True}
    options = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    with serving_tls(tmp_path, *options) as (process, url):
        at = f"{url.replace('https', 'wss', 1)}/v1/responses"
        with (
            connect(at, additional_headers=AUTHORIZED, ssl=files.trust) as idle,
            connect(at, additional_headers=AUTHORIZED, ssl=files.trust) as busy,
            httpx2.Client(headers=AUTHORIZED, timeout=PATIENCE_SECONDS, verify=files.trust) as client,
            client.stream("POST", f"{url}/v1/responses", json=request) as response,
        ):
            busy.send(CREATE)
            busy.recv(PATIENCE_SECONDS)
            process.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as raised:
                idle.recv(PATIENCE_SECONDS)
            assert raised.value.rcvd is not None
            assert raised.value.rcvd.code == 1012
            assert response.http_version == "HTTP/1.1"
            assert "event: response.completed\n" in response.read().decode()
            frames = list(frames_of(busy))
            assert '"response.completed"' in frames[-1]
        assert process.wait(SOON_SECONDS) == 0, process.output


def frames_of(websocket: object) -> Iterator[str]:
    try:
        while True:
            yield websocket.recv(PATIENCE_SECONDS)  # type: ignore[attr-defined]  # what `connect` gives
    except ConnectionClosed:
        return


def test_only_http_1_1_is_negotiated_and_no_peer_harms_another(files: Files, tmp_path: Path) -> None:
    """The files are named in the configuration, beside which they lie. A peer that speaks no TLS, or nothing, is its
    own loss."""
    (tmp_path / "gw.pem").write_bytes(files.certificate.read_bytes())
    (tmp_path / "gw.key").write_bytes(files.key.read_bytes())
    table = 'tls_certificate = "gw.pem"\ntls_key = "gw.key"\n'
    with serving_tls(tmp_path, table=table) as (process, url):
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or 0)
        with socket.create_connection(address), socket.create_connection(address, PATIENCE_SECONDS) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: gateway\r\n\r\n")
            while plain.recv(4096):
                pass
            assert protocol_of(url, files.trust, "h2", "http/1.1") == "http/1.1"
            assert protocol_of(url, files.trust, "h2") is None
            with httpx2.Client(timeout=PATIENCE_SECONDS, verify=files.trust) as client:
                assert client.get(f"{url}/readyz").json() == {"status": "ready"}
            process.signal(signal.SIGTERM)
            assert process.wait(SOON_SECONDS) == 0, process.output


# --- files that cannot be used ----------------------------------------------------------------------------------


def refused(folder: Path, *options: str) -> Result:
    file = write_configuration(folder, {"m-1": "http://u.test/v1", "m-2": "http://u.test/v1"}, ["m"])
    result = CliRunner().invoke(gateway, ["serve", "--config", str(file), "--port", "0", *options])
    assert (result.exit_code, result.stdout) == (2, "")
    return result


def test_a_certificate_without_its_key_is_refused(files: Files, tmp_path: Path) -> None:
    said = refused(tmp_path, "--tls-cert", str(files.certificate)).stderr
    assert said == "TLS needs a certificate and its key; give both (--tls-cert and --tls-key), or neither\n"


def test_a_file_that_cannot_be_read_is_named(files: Files, tmp_path: Path) -> None:
    said = refused(tmp_path, "--tls-cert", str(files.certificate), "--tls-key", str(tmp_path / "none")).stderr
    assert said.startswith(f"the TLS key {tmp_path}/none cannot be read: No such file or directory; check the path")


def test_a_key_of_another_certificate_is_named(files: Files, tmp_path: Path) -> None:
    other = written(tmp_path, "other")
    said = refused(tmp_path, "--tls-cert", str(files.certificate), "--tls-key", str(other.key)).stderr
    assert said == (
        f"the TLS key {other.key} is not the one of the certificate {files.certificate}; "
        "name the two that belong together\n"
    )


def test_a_file_that_holds_something_else_is_named(files: Files, tmp_path: Path) -> None:
    (tmp_path / "poem").write_text("roses are red\n")
    said = refused(tmp_path, "--tls-cert", str(tmp_path / "poem"), "--tls-key", str(files.key)).stderr
    assert said.startswith(f"{tmp_path}/poem and {files.key} are no TLS certificate and key; name files in PEM format")


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(files: Files, tmp_path: Path) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame"))
    (tmp_path / "locked").write_bytes(locked)
    said = refused(tmp_path, "--tls-cert", str(files.certificate), "--tls-key", str(tmp_path / "locked")).stderr
    assert said.startswith(f"the TLS key {tmp_path}/locked is encrypted; store it without a password")
