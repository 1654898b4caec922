-- The removal guard reads the day's changes without those of first reads, which may be millions.
CREATE INDEX later_changes ON balance_change_rows (change_id) WHERE NOT baseline;

-- SQLite's integrity_check looks for lost pages only if the newest table or view is a table.
DROP TABLE inbox_checks;
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT;
