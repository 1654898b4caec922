-- Webhooks have a number that stays theirs, their body's SHA-256 (which outlives it), a lease that
-- they are worked on under, and when their object is to be read once more. The first version had a
-- table of this name, but nothing that wrote it.
DROP TABLE IF EXISTS webhooks;
CREATE TABLE webhooks (
    webhook_id TEXT NOT NULL UNIQUE,
    organization_id TEXT,
    action TEXT,
    resource_type TEXT,
    resource_id TEXT,
    created_at_utc TEXT,
    changes TEXT,
    body BLOB,
    received_at TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN
        ('pending', 'running', 'done', 'failed', 'dead', 'unrouted', 'quarantined')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT,
    last_error TEXT,
    finished_at TEXT,
    deliveries INTEGER NOT NULL DEFAULT 1,
    run_id INTEGER,
    body_sha256 TEXT,
    webhook_no INTEGER PRIMARY KEY,
    lease_no INTEGER,
    look_again_at TEXT
) STRICT;
-- What is due, how much waits in each state, and since when: one index answers all three.
CREATE INDEX webhooks_by_state ON webhooks (state, next_attempt_at, received_at);
CREATE INDEX webhooks_by_object ON webhooks (resource_id, resource_type, state)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX webhooks_to_look_again ON webhooks (look_again_at) WHERE look_again_at IS NOT NULL;

-- A worker's right to the webhooks that name it. A number is never used twice, so a worker whose
-- lease was taken away cannot be mistaken for its successor.
CREATE TABLE leases (
    lease_no INTEGER PRIMARY KEY AUTOINCREMENT,
    expires_at TEXT NOT NULL,
    run_id INTEGER
) STRICT;

ALTER TABLE resources ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;

-- Written to find out whether the database takes writes.
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT;
