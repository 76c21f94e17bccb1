"""The behaviour lock (K): no behaviour of a turn changes silently.

    scenario.py      a turn as data; its steps are written in notation.py
       v
    player.py        drives the whole app (world.py, with stores.py) in memory: driver.py on the clock of virtual.py
       v
    transcript.py    what was seen, in four columns; parity.py compares the two doors
       v
    checking.py      compares it with what was recorded (pack.py), the files with what is declared (declarations.py),
                     and that with what CHANGELOG.md tells of it (told.py); files.py reads, or refuses to

Every rule can be flipped by name (mutants/), and each flip must break a scenario (mutating.py). theirs.py plays the
pack with an operator's settings; pages.py and table.py write what documents say. `gateway lock` is the command.
"""
