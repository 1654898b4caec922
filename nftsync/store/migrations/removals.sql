-- Removals in reads: missing balances, lowered amounts, emptied metadata. Applied removals of the last
-- day (`held` 0) count against the limit; removals held for review (`held` 1) count once approved. A
-- token that was read by its id has the wallet number 0.
CREATE TABLE removal_rows (
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    old_amount TEXT,
    new_amount TEXT,
    emptied INTEGER NOT NULL,
    held INTEGER NOT NULL,
    observed_at TEXT NOT NULL,
    run_id INTEGER,
    webhook_id TEXT,
    read_at TEXT NOT NULL,
    body_sha256 TEXT,
    PRIMARY KEY (wallet_no, token_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX removal_rows_by_time ON removal_rows (held, observed_at, wallet_no);
