-- The tables of this version. A new database gets them from this script; a file of 0.5.0 gets them
-- from `migrations/`. A test compares the two, and the order of columns in both.
--
-- The public views `balances`, `balance_changes`, `token_changes` and `wallet_states` read narrow
-- tables with numbers of wallets and tokens: a third of the bytes, appended in order, and quick to
-- join.

-- Wallets, tokens and balances --------------------------------------------------------------------

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
    sequence INTEGER NOT NULL DEFAULT 0,
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
    sequence INTEGER NOT NULL,
    changed_sequence INTEGER NOT NULL,
    detailed INTEGER NOT NULL DEFAULT 0,
    -- One spelling to group by: lower case, and no leading zeros unless there are 40 digits. It
    -- counts bytes, because length() stops at a NUL. The first condition is true of most addresses,
    -- and needs no check of the digits, which takes ten times as long.
    contract TEXT GENERATED ALWAYS AS (CASE
        WHEN contract_address = lower(contract_address)
            AND length(CAST(contract_address AS BLOB)) = 42 THEN contract_address
        WHEN substr(contract_address, 1, 2) IN ('0x', '0X')
            AND length(CAST(contract_address AS BLOB)) BETWEEN 3 AND 66
            AND length(CAST(contract_address AS BLOB)) = length(contract_address)
            AND ltrim(substr(contract_address, 3), '0123456789abcdefABCDEF') = '' THEN
            iif(length(contract_address) = 42, lower(contract_address),
                '0x' || coalesce(nullif(ltrim(lower(substr(contract_address, 3)), '0'), ''), '0'))
        ELSE contract_address
    END) VIRTUAL,
    -- The name of a new contract until the end of the run, which inserts it into `contracts`.
    contract_short TEXT GENERATED ALWAYS AS (iif(
        length(contract) > 20, substr(contract, 1, 6) || '…' || substr(contract, -4), contract
    )) VIRTUAL
) STRICT;

-- What lists and reads by id last showed of a token; its row merges both.
CREATE TABLE token_sources (
    token_no INTEGER PRIMARY KEY,
    list_sequence INTEGER NOT NULL,
    list_fields TEXT NOT NULL,
    detail_sequence INTEGER NOT NULL,
    detail_fields TEXT NOT NULL
) STRICT;

-- Unreadable parts of tokens, in wallets' lists (0) or in the read by id (1): a JSON object of fields
-- and reasons. The next readable record of the same source ends them.
CREATE TABLE token_faults (
    token_no INTEGER NOT NULL,
    by_id INTEGER NOT NULL,
    faults TEXT NOT NULL,
    observed_at TEXT NOT NULL,
    PRIMARY KEY (token_no, by_id)
) STRICT, WITHOUT ROWID;

-- Fields that the provider's document does not have, or has with another type: the first token or
-- webhook that showed each, at most 200.
CREATE TABLE new_fields (
    field TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    documented_type TEXT,
    example_id TEXT NOT NULL,
    first_seen_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE balance_rows (
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    amount TEXT NOT NULL,
    held_since TEXT,
    first_seen_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (wallet_no, token_no)
) STRICT, WITHOUT ROWID;

-- History -----------------------------------------------------------------------------------------

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

CREATE TABLE token_change_rows (
    change_id INTEGER PRIMARY KEY,
    token_no INTEGER NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    observed_at TEXT NOT NULL,
    run_id INTEGER,
    webhook_id TEXT
) STRICT;

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

-- Times at which the stored state is partial, because a run has stored only some of its changes: a
-- sync that has not ended, or a replay whose removals wait. `as_of` shows the state before them.
CREATE TABLE partial_spans (
    run_id INTEGER NOT NULL,
    began_at TEXT NOT NULL,
    ended_at TEXT NOT NULL DEFAULT '9999-12-31T23:59:59.999999Z'
) STRICT;

-- Removals held for review: missing balances, lowered amounts, emptied metadata. A token that was
-- read by its id has the wallet number 0.
CREATE TABLE removal_rows (
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    old_amount TEXT,
    new_amount TEXT,
    emptied INTEGER NOT NULL,
    held INTEGER NOT NULL,
    observed_at TEXT NOT NULL,
    run_id INTEGER,
    webhook_id TEXT,
    read_at TEXT NOT NULL,
    body_sha256 TEXT,
    new_name TEXT,
    PRIMARY KEY (wallet_no, token_no)
) STRICT, WITHOUT ROWID;

-- Runs --------------------------------------------------------------------------------------------

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
    first_sequence INTEGER NOT NULL DEFAULT 0,
    with_tokens INTEGER NOT NULL DEFAULT 0,
    plan BLOB,
    reads_all INTEGER NOT NULL DEFAULT 0  -- whether the plan has all tracked wallets
) STRICT;

-- State shared by processes: the offset of sequence numbers to the monotonic clock, the greatest
-- applied number, and the last token in the full-text index. An approval of removals makes the last
-- change of each feed the state that later removals are compared with. Copies of a database keep its
-- id.
CREATE TABLE mirror_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence_offset INTEGER NOT NULL DEFAULT 0,
    greatest_sequence INTEGER NOT NULL DEFAULT 0,
    indexed_token_no INTEGER NOT NULL DEFAULT 0,
    approved_balance_change INTEGER NOT NULL DEFAULT 0,
    approved_token_change INTEGER NOT NULL DEFAULT 0,
    database_id TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO mirror_state (id, database_id) VALUES (1, lower(hex(randomblob(16))));

-- Names and hidden NFTs ---------------------------------------------------------------------------

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
    guessed_name TEXT
) STRICT;

-- The first tokens of each contract, whose present names suggest the collection's name. An index of
-- all tokens would slow a first sync by a tenth.
CREATE TABLE sampled_tokens (
    contract TEXT NOT NULL,
    token_no INTEGER NOT NULL,
    PRIMARY KEY (contract, token_no)
) STRICT, WITHOUT ROWID;

-- Contracts and tokens that a person hides: each entry names one of the two, known or not.
CREATE TABLE hidden (
    contract TEXT,
    token_id TEXT,
    reason TEXT,
    source TEXT NOT NULL,
    hidden_at TEXT NOT NULL,
    CHECK ((contract IS NULL) <> (token_id IS NULL)),
    CHECK (source IN ('given', 'file'))
) STRICT;

-- Webhooks ----------------------------------------------------------------------------------------

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
    look_again_at TEXT,
    request_id TEXT,
    traceparent TEXT
) STRICT;

-- Leases of replay workers. Numbers are never reused, so a worker with an expired lease cannot be
-- mistaken for its successor.
CREATE TABLE leases (
    lease_no INTEGER PRIMARY KEY AUTOINCREMENT,
    expires_at TEXT NOT NULL,
    run_id INTEGER
) STRICT;

CREATE TABLE resources (
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    body TEXT NOT NULL,
    fetched_at TEXT NOT NULL,
    sequence INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (resource_type, resource_id)
) STRICT;

-- Alerts and their outbox -------------------------------------------------------------------------

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
    keys TEXT NOT NULL,  -- a JSON array; "*" is the key of every message
    lease_no INTEGER,
    waits_for INTEGER,   -- see the view `message_waits`
    scheduled_at TEXT    -- when `next_attempt_at` was set
) STRICT;

-- The keys of unsent messages, and for each message a blank key, with which "*" conflicts.
CREATE TABLE message_keys (
    destination TEXT NOT NULL,
    key TEXT NOT NULL,
    message_no INTEGER NOT NULL,
    PRIMARY KEY (destination, key, message_no)
) STRICT, WITHOUT ROWID;

-- The last change, token change and webhook that each rule or forward has processed. Planning starts
-- from a version, and ends by raising it, so that two processes never plan the same changes.
CREATE TABLE watch_cursors (
    rule TEXT PRIMARY KEY,
    change_id INTEGER NOT NULL,
    token_change_id INTEGER NOT NULL,
    webhook_no INTEGER NOT NULL,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- States that rules report: one that lasts has no `ended_at`.
CREATE TABLE watch_states (
    state_no INTEGER PRIMARY KEY,
    rule TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT NOT NULL,
    began_at TEXT NOT NULL,
    ended_at TEXT,
    reported_at TEXT
) STRICT;

-- Destinations that are down: since when, and the last error.
CREATE TABLE outages (
    destination TEXT PRIMARY KEY,
    since TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Destinations that answered 410 (Gone).
CREATE TABLE stopped_destinations (
    destination TEXT PRIMARY KEY,
    stopped_at TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Full-text index, without triggers, which make writes 3.5 times slower: the mirror updates it.
CREATE VIRTUAL TABLE tokens_fts USING fts5 (name, description, creator_name, content="tokens");

-- Indexes -----------------------------------------------------------------------------------------

CREATE INDEX balance_rows_by_token ON balance_rows (token_no);
CREATE INDEX balance_change_rows_by_wallet ON balance_change_rows (wallet_no);
-- The removal guard reads the day's changes without those of first reads, which may be millions.
CREATE INDEX later_changes ON balance_change_rows (change_id) WHERE NOT baseline;
CREATE INDEX token_change_rows_by_token ON token_change_rows (token_no);
CREATE INDEX wallet_state_rows_by_wallet ON wallet_state_rows (wallet_no);
CREATE INDEX partial_spans_by_end ON partial_spans (ended_at, began_at);
CREATE INDEX removal_rows_by_time ON removal_rows (held, observed_at, wallet_no);
CREATE INDEX sync_runs_of_all ON sync_runs (started_at) WHERE reads_all;
CREATE UNIQUE INDEX hidden_entries ON hidden (contract, source) WHERE contract IS NOT NULL;
CREATE UNIQUE INDEX hidden_token_entries ON hidden (token_id, source) WHERE token_id IS NOT NULL;

-- One index for due webhooks, their number in each state, and the oldest.
CREATE INDEX webhooks_by_state ON webhooks (state, next_attempt_at, received_at);
CREATE INDEX webhooks_by_object ON webhooks (resource_id, resource_type, state)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX webhooks_to_look_again ON webhooks (look_again_at) WHERE look_again_at IS NOT NULL;

CREATE INDEX messages_by_state ON messages (state, destination, created_at);
CREATE INDEX free_messages ON messages (destination, next_attempt_at)
    WHERE state IN ('pending', 'failed') AND waits_for IS NULL;
CREATE INDEX newly_scheduled_messages ON messages (destination, scheduled_at)
    WHERE state IN ('pending', 'failed') AND waits_for IS NULL;
CREATE INDEX waiting_messages ON messages (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX sent_messages ON messages (destination, finished_at) WHERE state = 'done';
CREATE UNIQUE INDEX lasting_states ON watch_states (rule, kind, subject) WHERE ended_at IS NULL;

-- Views -------------------------------------------------------------------------------------------

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

-- The unsent message that each message waits for: the last earlier one to its destination that shares
-- a key. Triggers store it in `waits_for`, so that a search for due messages reads no others.
CREATE VIEW message_waits AS
SELECT m.message_no, (
    SELECT max((
        SELECT max(k.message_no) FROM message_keys k
        WHERE k.destination = m.destination AND k.key = own.value AND k.message_no < m.message_no))
    FROM (SELECT value FROM json_each(m.keys)
        UNION SELECT '*' UNION SELECT '' WHERE instr(m.keys, '"*"')) own) AS waits_for
FROM messages m;

-- Triggers ----------------------------------------------------------------------------------------

CREATE TRIGGER message_added AFTER INSERT ON messages
WHEN new.state IN ('pending', 'failed', 'running') BEGIN
    INSERT OR IGNORE INTO message_keys SELECT new.destination, value, new.message_no
        FROM (SELECT value FROM json_each(new.keys) UNION SELECT '');
    UPDATE messages SET waits_for = (
        SELECT p.waits_for FROM message_waits p WHERE p.message_no = new.message_no)
        WHERE message_no = new.message_no;
END;

CREATE TRIGGER message_ended AFTER UPDATE OF state ON messages
WHEN new.state IN ('done', 'dead') AND old.state IN ('pending', 'failed', 'running') BEGIN
    DELETE FROM message_keys WHERE destination = new.destination AND message_no = new.message_no
        AND key IN (SELECT value FROM json_each(new.keys) UNION SELECT '');
    UPDATE messages SET waits_for = (
        SELECT p.waits_for FROM message_waits p WHERE p.message_no = messages.message_no)
        WHERE waits_for = new.message_no;
END;

-- Later messages that wait for none wait for a requeued one. Of those that share a key with it, only
-- the first can be free; with the key "*", any.
CREATE TRIGGER message_requeued AFTER UPDATE OF state ON messages
WHEN new.state IN ('pending', 'failed', 'running') AND old.state IN ('done', 'dead') BEGIN
    INSERT OR IGNORE INTO message_keys SELECT new.destination, value, new.message_no
        FROM (SELECT value FROM json_each(new.keys) UNION SELECT '');
    UPDATE messages SET waits_for = (
        SELECT p.waits_for FROM message_waits p WHERE p.message_no = new.message_no)
        WHERE message_no = new.message_no;
    UPDATE messages SET waits_for = new.message_no WHERE waits_for IS NULL AND message_no IN (
        SELECT (
            SELECT min(k.message_no) FROM message_keys k WHERE k.destination = new.destination
            AND k.key = own.value AND k.message_no > new.message_no)
        FROM (SELECT value FROM json_each(new.keys) UNION SELECT '*') own
        UNION SELECT message_no FROM message_keys k WHERE instr(new.keys, '"*"')
            AND k.destination = new.destination AND k.key = '' AND k.message_no > new.message_no);
END;

-- Written to test whether the database is writable. SQLite's integrity_check looks for lost pages only if
-- the newest table or view is a table, so this one comes last.
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT;
