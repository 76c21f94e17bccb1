"""Ways to an upstream: one attempt in, stamped inputs out; every library's errors are mapped to failures here."""
