"""Where books and records last: one database behind one writer (B, L).

    turns --operations--> writer.py --batch--> commit.py --one transaction--> sqlite.py | postgres.py
                             |  the store is away: what must not be lost
                             +--> spool.py, and again until it is back

database.py    what a database is asked; what it raises        money.py     rows of the ledger: load, apply, save
schema.py      versions, and whose database it is              records.py   statements of the records
migrations/    each version's step (Alembic)                   commit.py    a batch, as one transaction
store.py       all of it together; what the config grants      proof.py     that the books balance
backup.py      copies of the SQLite store                      reports.py   what people ask of books and records
retention.py   what has had its time is taken away
"""
