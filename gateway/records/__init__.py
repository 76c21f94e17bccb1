"""Turns and attempts behind their port."""
