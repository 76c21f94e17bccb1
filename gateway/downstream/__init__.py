"""The doors: bytes to turns, events to bytes. They decide nothing about a turn."""
