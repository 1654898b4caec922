-- The numbers that order reads have one name: `sequence`, as in the code and the documentation.
ALTER TABLE wallets RENAME COLUMN ticket TO sequence;
ALTER TABLE tokens RENAME COLUMN ticket TO sequence;
ALTER TABLE tokens RENAME COLUMN changed_ticket TO changed_sequence;
ALTER TABLE token_sources RENAME COLUMN list_ticket TO list_sequence;
ALTER TABLE token_sources RENAME COLUMN detail_ticket TO detail_sequence;
ALTER TABLE sync_runs RENAME COLUMN first_ticket TO first_sequence;
ALTER TABLE resources RENAME COLUMN ticket TO sequence;
ALTER TABLE mirror_state RENAME COLUMN ticket_offset TO sequence_offset;
ALTER TABLE mirror_state RENAME COLUMN greatest_ticket TO greatest_sequence;
