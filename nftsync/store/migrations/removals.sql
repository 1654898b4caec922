-- What reads showed to be gone: NFTs no longer listed, amounts that fell, metadata that was emptied.
-- Those of the last day that count (`held` 0) say how much more may go at once; those held back
-- (`held` 1) do not count until somebody accepts them, or a later read shows otherwise. A token that
-- was read by its id stands under no wallet (0).
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
