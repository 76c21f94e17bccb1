"""`python short_minute.py ARGUMENTS`: the gateway's commands, with ten seconds in the place of a rate limit's minute.

For a client that waits as long as it is told and then goes on.
"""

import gateway.keys.rates
from gateway.__main__ import main

vars(gateway.keys.rates)["MINUTE_SECONDS"] = 10.0
main()
