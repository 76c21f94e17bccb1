"""Hypercorn: the process's listeners, signals, logs and way down. It serves any ASGI app and knows none.

serve.py   listen, serve, drain          pings.py   pings that end with their connection
logs.py    one pipeline for all log lines

What is patched of Hypercorn's private names is patched here, for the one version that pyproject.toml pins.
"""
