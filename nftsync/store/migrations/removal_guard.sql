-- Removals are counted from the change feed; `removal_rows` keeps only those held for review. An
-- approval makes the last change of each feed the state that later removals are compared with.
DELETE FROM removal_rows WHERE NOT held;
ALTER TABLE removal_rows ADD COLUMN new_name TEXT;
ALTER TABLE mirror_state ADD COLUMN approved_balance_change INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mirror_state ADD COLUMN approved_token_change INTEGER NOT NULL DEFAULT 0;
