"""The map of the house. Nothing imports upward; siblings on one floor do not see each other.

floor 5  __main__.py      the command line: one module per command group in cli/
         lock/            the behaviour lock: scenarios, player, transcripts, declarations, mutants
         app.py           composition root: the only module that names concrete classes
         stores.py        which ledger, records and keys a configuration asks for
         routes.py        the adapters of its routes, and the tables they stand in, swapped while it serves
floor 4  server/          Hypercorn, hardened: serving, workers, signals, drain, the admin listener
         downstream/      the two doors (HTTP, WebSocket): bytes <-> turns and events, no decisions
floor 3  turn/            the engine: one nursery per turn, the tasks and the scopes; route selection
         upstream/        one attempt -> upstream events; library errors mapped at this border
         ledger/          money behind its port          records/   turns and attempts behind theirs
         keys/            stored keys and their limits    metrics.py what is counted, for Prometheus
         store/           below these: one database behind one writer, the spool, the proof of the books
floor 2  config/          the configuration file, validated whole
         ports.py         what the engine asks of doors, upstreams, ledger and records
         pending.py       below it: what a store was asked, and has begun
         measures.py      what doors and engine tell whoever counts
         encodings.py     content encodings, of requests and of answers
         beside_asgi.py   what the server lets a door do with a client past ASGI
         aside.py         work on bodies of megabytes, beside the event loop
floor 1  core/            PURE: events, SSE, requests, failures, THE replay decision, the turn machine, money
floor 0  limits.py        every bound, its unit in its name, and why

A turn walks downward once and comes back as frames:

    downstream -> turn.engine -> upstream ... core.sse -> core.events -> core.turn -> frames -> downstream

Read `core/replay.py` for what is replayed and why; `core/turn.py` for when; `turn/engine.py` for how.
"""
