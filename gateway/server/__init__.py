"""Hypercorn: the process's listeners, signals, logs and way down. It serves any ASGI app and knows none.

one process    serve.py       listen, serve, drain          accepting.py   accept connections, stop in two steps
               deferred.py    an app for Hypercorn's own    admin.py       a second listener: metrics, health, log level
                              command                       logs.py        one pipeline for all log lines
               tls.py         certificates                  hardened/      what of Hypercorn's is replaced, and why
several        supervisor.py  N single processes            posts.py       a worker's place, its sockets, its restarts
               worker.py      a worker's line to it         reuseport.py   one socket for each worker on one port
               control.py     the control socket            lines.py       bounded lines of JSON
               commands.py    `gateway status`, `restart`
routes         reloading.py   when files are read again     routes_desk.py `gateway routes show`, `apply`, `rollback`
               routes_file.py the file replaced, its past
"""
