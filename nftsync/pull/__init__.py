"""The sync: read wallets and tokens into the mirror, from the plan to the result."""
