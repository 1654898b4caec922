-- The public views `balances`, `balance_changes`, `token_changes` and `wallet_states` read narrow
-- tables with numbers of wallets and tokens: a third of the bytes, appended in order, and quick to
-- join.

CREATE TABLE wallets (
    wallet_id TEXT NOT NULL UNIQUE,
    label TEXT,
    wallet_group TEXT,
    tracked INTEGER NOT NULL DEFAULT 1 CHECK (tracked IN (0, 1)),
    first_seen_at TEXT NOT NULL,
    synced_at TEXT,
    status TEXT NOT NULL DEFAULT 'never'
        CHECK (status IN ('never', 'ok', 'incomplete', 'failed')),
    error TEXT,
    wallet_no INTEGER PRIMARY KEY,
    ticket INTEGER NOT NULL DEFAULT 0,
    etag TEXT,
    body_sha256 TEXT,
    state_id INTEGER
) STRICT;

CREATE TABLE tokens (
    token_id TEXT NOT NULL UNIQUE,
    organization_id TEXT,
    contract_address TEXT,
    blockchain_token_id TEXT,
    name TEXT,
    description TEXT,
    image TEXT,
    animation_url TEXT,
    external_url TEXT,
    background_color TEXT,
    edition_id INTEGER,
    total_edition INTEGER,
    creator_name TEXT,
    creator_image_url TEXT,
    creator_external_page_url TEXT,
    extra TEXT,
    first_seen_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    token_no INTEGER PRIMARY KEY,
    ticket INTEGER NOT NULL,
    changed_ticket INTEGER NOT NULL,
    detailed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE token_sources (
    token_no INTEGER PRIMARY KEY,
    list_ticket INTEGER NOT NULL,
    list_fields TEXT NOT NULL,
    detail_ticket INTEGER NOT NULL,
    detail_fields TEXT NOT NULL
) STRICT;

CREATE TABLE balance_rows (
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    amount TEXT NOT NULL,
    held_since TEXT,
    first_seen_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (wallet_no, token_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX balance_rows_by_token ON balance_rows (token_no);

CREATE TABLE balance_change_rows (
    change_id INTEGER PRIMARY KEY,
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    old_amount TEXT,
    new_amount TEXT,
    observed_at TEXT NOT NULL,
    baseline INTEGER NOT NULL,
    run_id INTEGER,
    webhook_id TEXT
) STRICT;
CREATE INDEX balance_change_rows_by_wallet ON balance_change_rows (wallet_no);

CREATE TABLE token_change_rows (
    change_id INTEGER PRIMARY KEY,
    token_no INTEGER NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    observed_at TEXT NOT NULL,
    run_id INTEGER,
    webhook_id TEXT
) STRICT;
CREATE INDEX token_change_rows_by_token ON token_change_rows (token_no);

CREATE TABLE wallet_state_rows (
    state_id INTEGER PRIMARY KEY,
    wallet_no INTEGER NOT NULL,
    first_read_at TEXT NOT NULL,
    last_read_at TEXT NOT NULL,
    reads INTEGER NOT NULL,
    body_sha256 TEXT NOT NULL,
    run_id INTEGER,
    observed_at TEXT NOT NULL
) STRICT;
CREATE INDEX wallet_state_rows_by_wallet ON wallet_state_rows (wallet_no);

CREATE TABLE sync_runs (
    run_id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('sync', 'replay')),
    status TEXT NOT NULL
        CHECK (status IN ('running', 'ok', 'partial', 'failed', 'interrupted')),
    started_at TEXT NOT NULL,
    finished_at TEXT,
    wallets_total INTEGER NOT NULL DEFAULT 0,
    wallets_ok INTEGER NOT NULL DEFAULT 0,
    wallets_unchanged INTEGER NOT NULL DEFAULT 0,
    wallets_failed INTEGER NOT NULL DEFAULT 0,
    tokens_added INTEGER NOT NULL DEFAULT 0,
    tokens_changed INTEGER NOT NULL DEFAULT 0,
    balances_added INTEGER NOT NULL DEFAULT 0,
    balances_changed INTEGER NOT NULL DEFAULT 0,
    balances_removed INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    error TEXT,
    first_ticket INTEGER NOT NULL DEFAULT 0,
    with_tokens INTEGER NOT NULL DEFAULT 0,
    plan BLOB
) STRICT;

CREATE TABLE resources (
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    body TEXT NOT NULL,
    fetched_at TEXT NOT NULL,
    PRIMARY KEY (resource_type, resource_id)
) STRICT;

-- State shared by processes: the offset of sequence numbers to the monotonic clock, the greatest
-- applied number, and the last token in the full-text index.
CREATE TABLE mirror_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    ticket_offset INTEGER NOT NULL DEFAULT 0,
    greatest_ticket INTEGER NOT NULL DEFAULT 0,
    indexed_token_no INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO mirror_state (id) VALUES (1);

CREATE VIEW balances AS
SELECT w.wallet_id, t.token_id, b.amount, b.first_seen_at, b.updated_at
FROM balance_rows b
JOIN wallets w USING (wallet_no)
JOIN tokens t USING (token_no);

CREATE VIEW balance_changes AS
SELECT c.change_id, w.wallet_id, t.token_id, c.old_amount, c.new_amount,
    c.observed_at, c.baseline, c.run_id, c.webhook_id
FROM balance_change_rows c
JOIN wallets w USING (wallet_no)
JOIN tokens t USING (token_no);

CREATE VIEW token_changes AS
SELECT c.change_id, t.token_id, c.before, c.after, c.observed_at, c.run_id, c.webhook_id
FROM token_change_rows c
JOIN tokens t USING (token_no);

CREATE VIEW wallet_states AS
SELECT w.wallet_id, s.first_read_at, s.last_read_at, s.reads, s.body_sha256, s.run_id,
    s.observed_at, s.state_id
FROM wallet_state_rows s
JOIN wallets w USING (wallet_no);

CREATE VIEW holdings AS
SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group,
    t.token_id, t.contract_address, t.blockchain_token_id, b.amount,
    t.name, t.description, t.image, t.animation_url, t.external_url, t.background_color,
    t.edition_id, t.total_edition,
    t.creator_name, t.creator_image_url, t.creator_external_page_url,
    b.held_since, b.updated_at AS balance_updated_at, t.updated_at AS token_updated_at,
    w.synced_at AS wallet_synced_at, w.status AS wallet_status
FROM balance_rows b
JOIN wallets w USING (wallet_no)
JOIN tokens t USING (token_no);

-- Without triggers, which make writes 3.5 times slower: the mirror updates the index itself.
CREATE VIRTUAL TABLE tokens_fts USING fts5 (name, description, creator_name, content="tokens");
