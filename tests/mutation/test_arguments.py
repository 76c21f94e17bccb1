"""What `poe mutants` is asked for."""

from click.testing import CliRunner

from mutation.__main__ import main, modules_of


def test_a_module_that_is_none_is_named_with_those_that_are() -> None:
    """It was passed over in silence, and nothing was tested."""
    asked = CliRunner().invoke(main, ["core.sse"])
    assert asked.exit_code == 2
    assert "'core.sse' is none of" in asked.output
    assert all(name in asked.output for name in modules_of("core"))
