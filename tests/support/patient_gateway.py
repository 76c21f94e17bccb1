"""`python patient_gateway.py ARGUMENTS`: the gateway's commands, in a house that leaves no route alone for its faults
and has replays for all of them.

For programs that see the same route fail again and again, faster than a house would allow: what they see is to be the
failure and its replay, not that the route is spared (C3) or the budget spent (C4).
"""

import gateway.app
from gateway.__main__ import main
from gateway.turn.house import PatientHouse


class UnboundedHouse(PatientHouse):
    """A patient house without a replay budget."""

    def is_throttled(self) -> bool:
        """Only if somebody says so."""
        return self.throttled


vars(gateway.app)["StandingHouse"] = UnboundedHouse
main()
