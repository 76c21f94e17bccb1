"""Everything that an upstream does over SSE or a WebSocket, it does the same on either data plane, and for a turn that
takes what it can without a wait."""

import pytest

from upstream.stage import Planes

PLANES = ("fast", "fast, at once", "plain")


@pytest.fixture(autouse=True)
def _plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    plane, _, at_once = parameters.get("plane", Planes.chosen).partition(", ")
    monkeypatch.setattr(Planes, "chosen", plane)
    monkeypatch.setattr(Planes, "takes_at_once", at_once != "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The modules that are about streams run on all of them."""
    if metafunc.module.__name__.rpartition(".")[2].startswith(("test_sse", "test_websocket")):
        metafunc.fixturenames.append("plane")
        metafunc.parametrize("plane", PLANES)
