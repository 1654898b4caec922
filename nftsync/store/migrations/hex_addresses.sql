-- One spelling of hex addresses that do not have 40 digits, too: without leading zeros. A generated
-- column is never stored, so this is quick.
DROP VIEW holdings;
ALTER TABLE tokens DROP COLUMN contract_short;
ALTER TABLE tokens DROP COLUMN contract;
-- It counts bytes, because length() stops at a NUL. The first condition is true of most addresses,
-- and needs no check of the digits, which takes ten times as long.
ALTER TABLE tokens ADD COLUMN contract TEXT GENERATED ALWAYS AS (CASE
    WHEN contract_address = lower(contract_address)
        AND length(CAST(contract_address AS BLOB)) = 42 THEN contract_address
    WHEN substr(contract_address, 1, 2) IN ('0x', '0X')
        AND length(CAST(contract_address AS BLOB)) BETWEEN 3 AND 66
        AND length(CAST(contract_address AS BLOB)) = length(contract_address)
        AND ltrim(substr(contract_address, 3), '0123456789abcdefABCDEF') = '' THEN
        iif(length(contract_address) = 42, lower(contract_address),
            '0x' || coalesce(nullif(ltrim(lower(substr(contract_address, 3)), '0'), ''), '0'))
    ELSE contract_address
END) VIRTUAL;
-- The name of a new contract until the end of the run, which inserts it into `contracts`.
ALTER TABLE tokens ADD COLUMN contract_short TEXT GENERATED ALWAYS AS (iif(
    length(contract) > 20, substr(contract, 1, 6) || '…' || substr(contract, -4), contract
)) VIRTUAL;
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
-- Names and hidden contracts of earlier spellings; `contract_key` is a function of nftsync.
INSERT INTO contracts (contract, contract_address, given_name, file_name)
SELECT contract_key(contract), min(contract_address), min(given_name), min(file_name)
FROM contracts WHERE contract <> contract_key(contract) GROUP BY 1
ON CONFLICT (contract) DO UPDATE SET given_name = coalesce(given_name, excluded.given_name),
    file_name = coalesce(file_name, excluded.file_name);
DELETE FROM contracts WHERE contract <> contract_key(contract);
DELETE FROM sampled_tokens WHERE contract <> contract_key(contract);
UPDATE OR IGNORE hidden SET contract = contract_key(contract)
WHERE contract IS NOT NULL AND contract <> contract_key(contract);
DELETE FROM hidden WHERE contract IS NOT NULL AND contract <> contract_key(contract);
