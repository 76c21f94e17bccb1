"""Everything that an SSE upstream does, it does the same on either data plane."""

import pytest

from upstream.stage import Planes

PLANES = ("fast", "plain")


@pytest.fixture(autouse=True)
def _plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    monkeypatch.setattr(Planes, "chosen", parameters.get("plane", Planes.chosen))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The modules that are about SSE upstreams run on both."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_sse"):
        metafunc.fixturenames.append("plane")
        metafunc.parametrize("plane", PLANES)
