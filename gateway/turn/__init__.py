"""The engine of a turn: the only package that starts tasks for one."""
