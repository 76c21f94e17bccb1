"""Ways to an upstream: one attempt in, stamped inputs out; every library's errors are mapped to failures here.

    transport   an attempt, its events                 on the fast plane                       on the plain plane
    SSE         sse.py, streaming.py                   direct.py: http1.py                     httpx_calls.py
    WebSocket   websocket.py, frame_stream.py,         direct_conversation.py: frames.py,      library_conversation.py:
                line.py (a socket's life), pool.py     upgrade.py                              wire.py

On the fast plane sockets.py has the connections, and readiness.py reads them all in one task. calls.py and
conversation.py say what the two planes have in common; scripted*.py are upstreams that play a script.
"""
