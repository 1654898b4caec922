-- A name is guessed from the present names of a contract's first tokens, not from a stored summary.
CREATE TABLE IF NOT EXISTS sampled_tokens (
    contract TEXT NOT NULL,
    token_no INTEGER NOT NULL,
    PRIMARY KEY (contract, token_no)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO sampled_tokens (contract, token_no)
SELECT contract, token_no FROM (
    SELECT contract, token_no, row_number() OVER (PARTITION BY contract ORDER BY token_no) AS place
    FROM tokens
    WHERE contract IS NOT NULL AND token_no <= (SELECT indexed_token_no FROM mirror_state)
) WHERE place <= 200;
ALTER TABLE contracts DROP COLUMN names_seen;
