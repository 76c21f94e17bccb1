from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from gateway.upstream.trust import openssl_authorities, trusted


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """The one of this process is neither known nor kept."""
    trusted.cache_clear()
    yield
    trusted.cache_clear()


def built_to_find(monkeypatch: pytest.MonkeyPatch, file: Path, directory: Path) -> None:
    """Have OpenSSL look there."""
    told = ssl.get_default_verify_paths()._replace(openssl_cafile=str(file), openssl_capath=str(directory))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: told)


def test_upstreams_are_trusted_by_whom_the_http_client_trusts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the environment says: a variable must not decide whom the credentials are sent to."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mine.pem"))
    ours, theirs = trusted(), httpx2.create_ssl_context(trust_env=False)
    assert ours.get_ca_certs() == theirs.get_ca_certs()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (ours.minimum_version, ours.options) == (theirs.minimum_version, theirs.options)


def test_it_is_loaded_once() -> None:
    assert trusted() is trusted()


def test_a_file_and_a_directory_of_hashed_names_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    (tmp_path / "0a1b2c3d.0").touch()
    built_to_find(monkeypatch, tmp_path / "cert.pem", tmp_path)
    assert openssl_authorities() == (str(tmp_path / "cert.pem"), str(tmp_path))


def test_where_openssl_finds_none_the_http_client_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Python that was built elsewhere, in an image that keeps its authorities at another place."""
    (tmp_path / "README").touch()
    built_to_find(monkeypatch, tmp_path / "cert.pem", tmp_path)
    assert openssl_authorities() == (None, None)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda *, trust_env: None if trust_env else theirs)
    assert trusted() is theirs
