"""Every bound of the gateway: its unit is the last word of its name, its reason the comment beside it.

A limit that a rule of the behaviour names carries the rule's id. Sizes are bytes, durations seconds.
"""

from typing import Final

MIB: Final = 1024 * 1024

# --- timing (T) -------------------------------------------------------------------------------------------------
HOLD_SECONDS_MAX: Final = 10.0
"""T1: lifecycle events wait this long, counted per turn: a hold may never cost a turn more."""
FIRST_EVENT_SECONDS: Final = 25.0
"""T2: below the 30 s after which common clients give up on a silent request."""
CONNECT_SECONDS: Final = 5.0
"""T3: a TCP and TLS handshake that takes longer is a route at fault."""
RESPONSE_SECONDS: Final = 600.0
"""H1: a response that comes whole says nothing until it is done; clients give up on one after ten minutes."""
IDLE_SECONDS: Final = 300.0
"""T4: reasoning models fall silent for minutes; clients give up at about five."""
CONNECTION_SECONDS_MAX: Final = 3600.0
"""T5: the published life of one WebSocket connection."""
WRITE_SECONDS_MAX: Final = 60.0
"""T6: a client that takes nothing for a minute is gone, whatever its socket says."""
HEAD_SECONDS_MAX: Final = 15.0
"""From a request head's first byte to its end: heads are some KiB, sent at once; three retransmissions fit."""
BODY_PAUSE_SECONDS_MAX: Final = 20.0
"""What a request body may lag behind the slowest pace: a phone in a tunnel, not a peer that counts its bytes out."""
BODY_BYTES_PER_SECOND_MIN: Final = 500
"""The slowest pace of a request body: below that of any network that carries TLS."""
BODY_SECONDS_MAX: Final = 600.0
"""How long a request body may take to arrive, at whatever pace: 32 MiB over a slow line."""
DRAIN_SECONDS_MAX: Final = 30.0
"""T7: what a service manager grants between SIGTERM and SIGKILL, less a margin."""
FAILURE_GRACE_SECONDS: Final = 0.25
"""T9/E6: `response.failed` follows `error` in the same burst, or not at all."""
START_LATEST_SECONDS: Final = 27.0
"""H9: after the first-event limit (so that it is still a real status), before clients give up at 30 s."""
KEEPALIVE_SECONDS: Final = 15.0
"""H6: below the 30–60 s after which proxies cut a silent response."""
PING_SECONDS: Final = 20.0
"""W7: how often the gateway asks whether a WebSocket peer is still there."""

# --- sizes (P7, R7, H3, W1, W3) ---------------------------------------------------------------------------------
HOLD_BYTES_MAX: Final = 4 * MIB
HOLD_EVENTS_MAX: Final = 1024
"""R7: lifecycle events are a few KiB each; a prefix beyond this is an upstream gone wrong."""
EVENT_BYTES_MAX: Final = 32 * MIB
"""P7: above the base64 of the largest generated image."""
BODY_BYTES_MAX: Final = 32 * MIB
"""H3/W1: a request body or frame, decoded: above what agents send with images, below what hurts."""
INBOUND_BYTES_MAX: Final = 1024 * MIB
"""Bodies and messages that a process holds at once, whole or not, until their turn has ended: 32 of the largest, ten
thousand of the usual 100 KiB; a worker's part is never less than one of the largest. The text that is kept of each is
one to four times its bytes."""
BODY_VALUES_MAX: Final = 1_000_000
"""JSON values in a request body or frame: they cost time and memory by their number, fifty bytes for each of two. An
agent's longest conversation has some ten thousand items of ten values, its tools as many again."""
BODY_MEMBERS_MAX: Final = 64
"""Members of a compressed request body, one behind the other: compressors write one, parallel ones some."""
INLINE_BODY_BYTES_MAX: Final = 262_144
"""Up to here a body, a frame or an event is worked on on the event loop (some 5 ms at worst), above it in a thread
beside it: to read one of 30 MB takes 0.4 s, to expand or splice it 0.1 s, in which no other turn would go on."""
WAITING_CREATES_MAX: Final = 16
WAITING_BYTES_MAX: Final = 64 * MIB
"""W3: creates that may wait on one connection, in number and in bytes."""
UNANSWERED_REFUSALS_MAX: Final = 64
"""W5: refused frames that may await their answer; a client beyond it is not one that reads answers."""
STREAM_ID_CHARACTERS_MAX: Final = 256
"""W8."""
REMEMBERED_BYTES_MAX: Final = 32 * MIB
"""W10: what one connection remembers of its latest responses: as much as a client may send in one request."""
ALL_REMEMBERED_BYTES_MAX: Final = 512 * MIB
"""W10: what all connections of a process remember: a conversation of an agent takes some 100 KiB to a few MiB. Whose
response made room sends its whole input again."""
REMEMBERED_LANES_MAX: Final = 33
"""W10: of one connection: upstreams know 32 lanes with a name, and the one without."""
ERROR_BODY_BYTES_MAX: Final = MIB
"""An upstream's error body is kept whole up to here, to be delivered unchanged; beyond it, it is no error object."""

# --- routes (C3, C4) --------------------------------------------------------------------------------------------
ROUTE_FAULTS_MAX: Final = 5
"""C3: so many faults in a row are no accident."""
ROUTE_COOLING_SECONDS_MIN: Final = 1.0
ROUTE_COOLING_SECONDS_MAX: Final = 60.0
"""C3: a route that opened is left alone for a second, each time it fails its probe for twice as long, never for longer
than a minute: then one turn finds out whether it is back."""
ROUTE_WAIT_SECONDS_MAX: Final = 300.0
"""C3: what a `retry-after` of an upstream may ask for; beyond it a probe costs less than the wait."""
RETRY_ROUTE_SECONDS_MAX: Final = 60
"""What a client is told to wait when no route is available: clients that are told more give up or guess."""
REPLAYS_PERCENT_MAX: Final = 20
"""C4: of the turns of the window: in an outage of all routes upstreams see a fifth more than without replays."""
REPLAY_WINDOW_SECONDS: Final = 10.0
"""C4: long enough to smooth bursts, short enough to follow the load."""
REPLAYS_PER_SECOND_MIN: Final = 10
"""C4: where a gateway serves few turns, a share of them would be none; a worker's part is at least 1."""
BUDGET_TURNS_MAX: Final = 65_536
"""Turns of the window that are remembered: above what one core serves in it; of more the share would be less."""

# --- how many at once (C6: each of N workers has its N-th part) -------------------------------------------------
CONNECTIONS_MAX: Final = 8192
"""Requests and WebSockets served at once. Each costs two descriptors and some 25 KB; deploy/systemd grants 65,536
descriptors."""
SOCKETS_MAX: Final = 2 * CONNECTIONS_MAX
"""TCP connections open at once, whoever is behind them: one for each of the above, and as many that idle between two
requests or have not said anything yet. Without it strangers could take every descriptor that an upstream needs."""
CONNECTIONS_PER_KEY_MAX: Final = 4096
"""WebSockets of one key: half, so that no key can keep all others out."""
TURNS_MAX: Final = 8192
"""Turns that run at once, and on HTTP those whose body still arrives: above what one core paces (about 1,100 streams at
50 events a second) and what it holds silent."""
TURNS_PER_KEY_MAX: Final = 4096
"""Turns of one key: half, as above."""
REQUESTS_PER_MINUTE_MAX: Final = 600_000
"""A key's own limit may be this: more than a host of many workers serves, so a larger one bounds nothing."""
TRUSTED_HOPS_MAX: Final = 16
"""Proxies in front of the gateway that add to `x-forwarded-for`; a longer chain is a mistake in the configuration."""

# --- money and records (B7, O1) ---------------------------------------------------------------------------------
LEASE_SECONDS: Final = 60.0
"""B7: how long a reservation outlives the process that made it; renewed every third of it."""
ORIGIN_DAYS_MAX: Final = 31
"""O1: a day longer than upstreams keep a response."""
BACKGROUND_POLL_SECONDS: Final = 30.0
"""B9: how long nobody has asked about a background response when the gateway does."""
BACKGROUND_LOOK_SECONDS: Final = 10.0
"""B9: how often each process looks for background turns, and takes over their leases: well within a lease."""
SHOWN_END_SECONDS: Final = 60.0
"""B9: how long a background response's end that a by-id call has shown waits for its turn to be on record: a client may
ask before its turn's row is written, which takes milliseconds, or as long as the store is away. Well above a look."""
SHOWN_ENDS_MAX: Final = 1_000
"""B9: how many of them a process remembers, the newest: some 300 bytes each. Who is forgotten is polled."""
BACKGROUND_ANSWER_SECONDS_MAX: Final = 10.0
"""B9: what a poll waits for its answer; a route that does not answer is asked again at the next look."""
BACKGROUND_SECONDS_MAX: Final = 86_400.0
"""B9: a day after it began a background turn is charged by its estimate."""
BACKGROUND_TURNS_MAX: Final = 10_000
"""B9: how many open background turns are looked after at once, the oldest first; reading them takes some 30 ms."""
WAYS_EVER_MAX: Final = 256
"""B9: upstreams that a process remembers behind its routes' names, so that turns which began on one that is gone are
asked after there: more than a day's changes."""
RECENT_ORIGINS_MAX: Final = 20_000
"""Origins that a process remembers beside the records, for an hour: some 400 bytes each, eight megabytes."""
TURN_MARKS_MAX: Final = 512
"""O3: what is learned of one turn's items, two rows for each: an agent's turn has some ten of them."""
TRACED_ITEM_BYTES_MAX: Final = MIB
"""O3: an item above it is not parsed as it streams by (a megabyte takes some 5 ms); the terminal event names it."""
RECORD_DAYS: Final = 90
"""How long turns and attempts are kept if nothing else is configured; entries are kept for ever."""

# --- HTTP upstreams (C5) ----------------------------------------------------------------------------------------
UPSTREAM_HEAD_BYTES_MAX: Final = 65_536
"""An answer's head, and whatever else stands around its body: a server's is some hundred bytes to a few thousand."""
UPSTREAM_CONNECTION_IDLE_SECONDS_MAX: Final = 4.0
"""Below the 5 s after which common servers close a connection that idles: one that closes as it is used is a read
error, and costs a turn its replay."""
UPSTREAM_IDLE_CONNECTIONS_MAX: Final = 1024
"""Of one route: as many as a burst of turns leaves behind. Each costs a descriptor for the time above."""

# --- WebSocket upstreams (C5) -----------------------------------------------------------------------------------
WEBSOCKET_REQUEST_BYTES_MAX: Final = 16 * MIB
"""C5: what OpenAI takes in one message, to the byte; above it, it closes 1009."""
UPSTREAM_FRAGMENT_CHARACTERS: Final = 65_536
"""A create goes up in pieces of this size, so that a pong need not wait for megabytes before it."""
UPSTREAM_BUFFER_BYTES_MAX: Final = MIB
"""Frames that were read ahead of a slow client: while there is room, pings behind them are seen and answered."""
UPSTREAM_SOCKET_SECONDS_MAX: Final = 3300.0
"""55 minutes: an upstream ends a connection at 60, and a turn that begins on it should have time to end."""
UPSTREAM_SOCKET_IDLE_SECONDS_MAX: Final = 240.0
"""Below the five minutes after which gateways in between close what is idle."""
UPSTREAM_IDLE_SOCKETS_MAX: Final = 64
"""Of one route: each costs a descriptor and some 70 KB here, and a place among the connections of the account."""
UPSTREAM_PONG_SECONDS_MAX: Final = 10.0
"""A ping's answer takes a round trip; what has not come by then will not come."""
UPSTREAM_GOODBYE_SECONDS_MAX: Final = 0.1
"""A close frame is a courtesy: to a peer that reads, its write takes no time."""
UPGRADE_BYTES_MAX: Final = 65_536 + ERROR_BODY_BYTES_MAX
"""An answer to a handshake: its head, and the body where it is a refusal."""

# --- routes (C1, C2) --------------------------------------------------------------------------------------------
ROUTES_FILE_BYTES_MAX: Final = MIB
"""A route takes some 200 bytes: thousands of them. A larger file is another one."""
TABLE_DIGITS: Final = 12
"""Of a table's hash, where it is shown: two of a file's tables are never alike in so many."""
ROUTES_KEPT_MAX: Final = 16
"""Tables that were applied and can be gone back to; the oldest makes room."""
ROUTES_LOOK_SECONDS: Final = 0.5
"""How often a process looks whether its files have changed: two calls that touch no disk."""
ROUTES_STEADY_SECONDS: Final = 1.0
"""A file that was not touched for so long is not half written; an editor's or a copy's pauses are shorter."""

# --- the gateway's own waits and bursts -------------------------------------------------------------------------
CLOSE_BOOKS_SECONDS_MAX: Final = 5.0
"""T10: money and record of an ended turn, shielded from cancellation."""
CLOSE_BOOKS_AFTER_DRAIN_SECONDS_MAX: Final = 1.0
"""T7, T10: after the drain's end nobody waits longer for a store: what it has not answered is spooled, and the process
ends within its 5 s. A store that is well answers in milliseconds."""
HAND_OVER_BOOKS_SECONDS: Final = 0.25
"""What is left of a wait that may last no longer: for the store's writer to take over all that is to be written."""
WRITE_BATCH_SECONDS_MAX: Final = 6.0
"""A write to the store that has not returned by then hangs, and the store counts as away. Above the 5 s that SQLite and
PostgreSQL wait for another's lock, or for a connection: where the store itself can say what is wrong, it is heard."""
BY_ID_SECONDS_MAX: Final = 60.0
"""H2: a by-id call that is no stream reads or changes one row upstream; what has not come by then will not come."""
UPSTREAM_CLOSE_SECONDS_MAX: Final = 1.0
"""H7: a close handshake with an upstream; after it the socket is dropped."""
UPSTREAM_DRAIN_SECONDS_MAX: Final = 0.1
"""E9: the end of an upstream body comes with its terminal event; waiting that long for it saves a new connection."""
INSTANT_PASSES: Final = 4
"""Scheduler passes that bring in all that was sent at one instant: behind a WebSocket's end the frames that crossed the
server's task, the connection's and the door's reader; before a line upstream is used again, its end."""
LAST_LOOKS_MAX: Final = 256
"""Passes that an idle WebSocket's last words are waited for, where some are there: with so many the sockets of sixteen
thousand streams are read once."""
READY_SOCKETS_MAX: Final = 64
"""Upstream sockets read one after another, without a wait, before others have their turn: some milliseconds."""
BATCH_EVENTS_MAX: Final = 512
"""Events handed on at once: one read of 64 KiB holds about 300 deltas; a larger run yields to other turns between."""

# --- the admin listener -----------------------------------------------------------------------------------------
ADMIN_BODY_BYTES_MAX: Final = 1024
"""What `POST /log-level` may send: the name of a level."""
ADMIN_RETRY_SECONDS: Final = 1.0
"""How often a taken metrics port is asked for again: during a rolling restart the old worker still has it."""
LOOP_LAG_PROBE_SECONDS: Final = 0.25
"""How often the event loop's lag is measured: four wake-ups a second cost nothing, and a stall of a second is seen."""
