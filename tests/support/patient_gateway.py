"""`python patient_gateway.py ARGUMENTS`: the gateway's commands, in a house that leaves no route alone for its faults.

For programs that see the same route fail again and again: what they see is to be the failure, not that it is spared.
"""

import gateway.app
from gateway.__main__ import main
from gateway.turn.house import PatientHouse

vars(gateway.app)["StandingHouse"] = PatientHouse
main()
