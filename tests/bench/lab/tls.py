"""A TLS upstream: nginx in front of the scripted one, on the core that is not measured, with the lab's certificate.

gateway --TLS--> nginx --> upstream
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from bench.lab.placing import Tree
from bench.lab.programs import CannotMeasure
from bench.lab.systems import free_port, wait_until_listening


@dataclass(frozen=True, slots=True)
class Front:
    """Where it listens, and the certificate of who vouches for it."""

    port: int
    authority: Path


@contextmanager
def tls_front(folder: Path, upstream_port: int, core: int) -> Iterator[Front]:
    """One, for the block. Raises CannotMeasure where there is no nginx."""
    if shutil.which("nginx") is None:
        raise CannotMeasure("there is no nginx to be the TLS end of the upstream; install nginx-light")
    folder.mkdir()
    authority, port = trustme.CA(), free_port()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    (folder / "nginx.conf").write_text(_configuration(folder, port, upstream_port), encoding="utf-8")
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    tree = Tree(command, folder / "log", core)
    try:
        wait_until_listening(tree, port)
        yield Front(port, folder / "authority.pem")
    finally:
        tree.end()


def _configuration(folder: Path, port: int, upstream_port: int) -> str:
    temporary = "".join(
        f"    {name}_temp_path {folder};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 16384; }}
http {{
    access_log off;
{temporary}    upstream lab {{ server 127.0.0.1:{upstream_port}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{port} ssl backlog=4096;
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.pem;
        keepalive_requests 1000000;
        location / {{
            proxy_pass http://lab; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"""
