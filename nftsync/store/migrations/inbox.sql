-- A webhook has a permanent number, the SHA-256 of its body, the lease of the worker that processes
-- it, and the time of its recheck. The first version never wrote its table of this name.
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
-- One index for due webhooks, their number in each state, and the oldest.
CREATE INDEX webhooks_by_state ON webhooks (state, next_attempt_at, received_at);
CREATE INDEX webhooks_by_object ON webhooks (resource_id, resource_type, state)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX webhooks_to_look_again ON webhooks (look_again_at) WHERE look_again_at IS NOT NULL;

-- Leases of replay workers. Numbers are never reused, so a worker with an expired lease cannot be
-- mistaken for its successor.
CREATE TABLE leases (
    lease_no INTEGER PRIMARY KEY AUTOINCREMENT,
    expires_at TEXT NOT NULL,
    run_id INTEGER
) STRICT;

ALTER TABLE resources ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;

-- Written to test whether the database is writable.
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT;
