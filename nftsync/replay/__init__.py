"""Replay: read the objects that stored webhooks name, and update the mirror.

Terms in this package:

- A job is an object whose pending webhooks are being processed. It waits for reads of wallets,
  tokens or the object itself.
- A webhook is claimed under a lease, acknowledged with its final state, or released: pending again.
- A recheck repeats the read of an object whose first read showed no change.
- `connection`: a connection to the database, and `transaction`: one of the lease.
"""
