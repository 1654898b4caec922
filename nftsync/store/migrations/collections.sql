-- Names of contracts: labels, names from the collections file, and guesses from the tokens' names.
CREATE TABLE contracts (
    contract TEXT NOT NULL PRIMARY KEY,
    contract_address TEXT NOT NULL,
    name TEXT GENERATED ALWAYS AS (coalesce(given_name, file_name, guessed_name)) VIRTUAL,
    name_source TEXT GENERATED ALWAYS AS (CASE
        WHEN given_name IS NOT NULL THEN 'given'
        WHEN file_name IS NOT NULL THEN 'file'
        WHEN guessed_name IS NOT NULL THEN 'guessed'
    END) VIRTUAL,
    collection TEXT GENERATED ALWAYS AS (coalesce(given_name, file_name, guessed_name, iif(
        length(contract) > 20, substr(contract, 1, 6) || '…' || substr(contract, -4), contract
    ))) VIRTUAL,
    given_name TEXT,
    file_name TEXT,
    guessed_name TEXT,
    names_seen TEXT
) STRICT;

-- The first tokens of each contract, whose names suggest the collection's name. An index of all
-- tokens would slow a first sync by a tenth.
CREATE TABLE sampled_tokens (
    contract TEXT NOT NULL,
    token_no INTEGER NOT NULL,
    PRIMARY KEY (contract, token_no)
) STRICT, WITHOUT ROWID;

-- One spelling to group by. It counts bytes, because length() stops at a NUL. Most addresses are in
-- lower case and need no check of their digits, which takes ten times as long.
ALTER TABLE tokens ADD COLUMN contract TEXT GENERATED ALWAYS AS (iif(
    contract_address <> lower(contract_address) AND length(CAST(contract_address AS BLOB)) = 42
        AND substr(contract_address, 1, 2) IN ('0x', '0X')
        AND ltrim(substr(contract_address, 3), '0123456789abcdefABCDEF') = '',
    lower(contract_address), contract_address
)) VIRTUAL;
-- The name of a new contract until the end of the run, which inserts it into `contracts`.
ALTER TABLE tokens ADD COLUMN contract_short TEXT GENERATED ALWAYS AS (iif(
    length(contract) > 20, substr(contract, 1, 6) || '…' || substr(contract, -4), contract
)) VIRTUAL;

DROP VIEW holdings;
-- Ordered as on disk; otherwise SQLite uses the index of tokens, with a look-up for each row.
CREATE VIEW holdings AS
SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group,
    t.token_id, t.contract_address, coalesce(c.contract, t.contract) AS contract,
    coalesce(c.collection, t.contract_short) AS collection,
    t.blockchain_token_id, b.amount,
    t.name, t.description, t.image, t.animation_url, t.external_url, t.background_color,
    t.edition_id, t.total_edition,
    t.creator_name, t.creator_image_url, t.creator_external_page_url,
    b.held_since, b.updated_at AS balance_updated_at, t.updated_at AS token_updated_at,
    w.synced_at AS wallet_synced_at, w.status AS wallet_status
FROM balance_rows b
JOIN wallets w USING (wallet_no)
JOIN tokens t USING (token_no)
LEFT JOIN contracts c ON c.contract = t.contract
ORDER BY b.wallet_no, b.token_no;
