"""A database at one moment as typed columns: the base of frames, charts, gallery, exports and lake.

Wallets and tokens are identified by their number within the database. Times as text are in the
stored form; in columns they are datetimes in UTC. Errors are those of `nftsync.frames`.
"""
