-- Contracts and tokens that a person hides: each entry names one of the two, known or not.
CREATE TABLE hidden (
    contract TEXT,
    token_id TEXT,
    reason TEXT,
    source TEXT NOT NULL,
    hidden_at TEXT NOT NULL,
    CHECK ((contract IS NULL) <> (token_id IS NULL)),
    CHECK (source IN ('given', 'file'))
) STRICT;
CREATE UNIQUE INDEX hidden_entries ON hidden (contract, source) WHERE contract IS NOT NULL;
CREATE UNIQUE INDEX hidden_token_entries ON hidden (token_id, source) WHERE token_id IS NOT NULL;
