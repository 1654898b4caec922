-- The known tokens that are hidden, by their contract or their id. The view comes before the table,
-- because integrity_check of SQLite 3.40 finds no unused pages if the newest object is a view.
CREATE VIEW hidden_tokens AS
SELECT token_no, token_id FROM tokens
WHERE contract IN (SELECT contract FROM hidden WHERE contract IS NOT NULL)
    OR token_id IN (SELECT token_id FROM hidden WHERE token_id IS NOT NULL);

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
