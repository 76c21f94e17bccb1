"""Assertions in the contract show what they compared."""

import pytest

pytest.register_assert_rewrite("ledger.contract", "ledger.by_hand", "ledger.leases", "ledger.books")
