"""Money behind its port: accounts, reservations, the house account."""
