"""The core: pure. No clock, no I/O, no chance, no environment: everything comes in as an argument.

events, sse      what an upstream sends                 request      what a client asks; is it stateless?
failures         what went wrong, whose fault, codes    replay       THE decision
turn             the machine that decides when          rules        its clocks and limits as data
attempt, hold, delivery    what it knows                messages     what goes in and comes out
money            reservations, prices, what a turn costs             routing    which route next
"""
