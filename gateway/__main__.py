"""`gateway` and `python -m gateway`: the command line, one module per command group in cli/."""

from __future__ import annotations

from gateway.cli import gateway


def main() -> None:
    """Run the command line; exits the process."""
    gateway(prog_name="gateway")


if __name__ == "__main__":
    main()
