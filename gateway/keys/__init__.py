"""Keys (B6): secrets and their digests, what a key may do, and where keys are kept.

secret --digest--> cache.py --not there--> durable.py | memory.py     who it is (ports.KeyBook)
Key --windows.py--> SpendLimits                                       what it may spend, by its own days and months
Key --rates.py--> now, or how many seconds to wait                    how often it may ask
administration.py                                                     create, list, revoke, rotate: for the command line
"""
