-- Messages to destinations. Messages of a destination that share a key in `keys` are sent in order.
CREATE TABLE messages (
    message_id TEXT NOT NULL UNIQUE,
    rule TEXT NOT NULL,
    destination TEXT NOT NULL,
    created_at TEXT NOT NULL,
    body BLOB,
    state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT,
    last_error TEXT,
    finished_at TEXT,
    message_no INTEGER PRIMARY KEY,
    keys TEXT NOT NULL,          -- a JSON array; "*" is the key of every message
    lease_no INTEGER
) STRICT;
CREATE INDEX messages_by_state ON messages (state, created_at);
CREATE INDEX unsent_messages ON messages (destination, message_no)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX unsent_keys ON messages (destination, keys, message_no)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX sent_messages ON messages (destination, finished_at) WHERE state = 'done';
-- The last change, token change and webhook that each rule or forward has processed. Planning starts
-- from a version, and ends by raising it, so that two processes never plan the same changes.
CREATE TABLE watch_cursors (
    rule TEXT PRIMARY KEY, change_id INTEGER NOT NULL, token_change_id INTEGER NOT NULL,
    webhook_no INTEGER NOT NULL, version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- States that rules report: one that lasts has no `ended_at`.
CREATE TABLE watch_states (
    state_no INTEGER PRIMARY KEY, rule TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    data TEXT NOT NULL, began_at TEXT NOT NULL, ended_at TEXT, reported_at TEXT
) STRICT;
CREATE UNIQUE INDEX lasting_states ON watch_states (rule, kind, subject) WHERE ended_at IS NULL;
-- Destinations that answered 410 (Gone).
CREATE TABLE stopped_destinations (
    destination TEXT PRIMARY KEY, stopped_at TEXT NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- Copies of a database keep its id.
ALTER TABLE mirror_state ADD COLUMN database_id TEXT NOT NULL DEFAULT '';
UPDATE mirror_state SET database_id = lower(hex(randomblob(16)));
