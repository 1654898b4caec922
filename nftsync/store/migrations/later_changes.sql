-- The removal guard reads the day's changes without those of first reads, which may be millions.
CREATE INDEX later_changes ON balance_change_rows (change_id) WHERE NOT baseline;
