"""Assertions in the contract show what they compared."""

import pytest

pytest.register_assert_rewrite("records.contract")
