"""Assertions in what the tests share show what they compared."""

import pytest

pytest.register_assert_rewrite("support.gateways", "properties.invariants")
