-- Unreadable parts of tokens, in wallets' lists (0) or in the read by id (1): a JSON object of fields
-- and reasons. The next readable record of the same source ends them.
CREATE TABLE token_faults (
    token_no INTEGER NOT NULL, by_id INTEGER NOT NULL, faults TEXT NOT NULL,
    observed_at TEXT NOT NULL, PRIMARY KEY (token_no, by_id)
) STRICT, WITHOUT ROWID;
