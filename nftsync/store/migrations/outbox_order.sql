-- Which unsent message each message waits for, so that a search for due messages reads no others:
-- `waits_for` is the last earlier unsent message to the destination that shares a key.
-- `scheduled_at` is when `next_attempt_at` was set.
ALTER TABLE messages ADD COLUMN waits_for INTEGER;
ALTER TABLE messages ADD COLUMN scheduled_at TEXT;
UPDATE messages SET scheduled_at = created_at WHERE state IN ('pending', 'failed', 'running');
-- The keys of unsent messages, and for each message a blank key, with which "*" conflicts.
CREATE TABLE message_keys (
    destination TEXT NOT NULL, key TEXT NOT NULL, message_no INTEGER NOT NULL,
    PRIMARY KEY (destination, key, message_no)
) STRICT, WITHOUT ROWID;
INSERT INTO message_keys
    SELECT destination, value, message_no FROM messages, json_each(keys) WHERE state IN ('pending', 'failed', 'running')
    UNION SELECT destination, '', message_no FROM messages WHERE state IN ('pending', 'failed', 'running');
UPDATE messages SET waits_for = (
    SELECT max((
        SELECT max(k.message_no) FROM message_keys k WHERE k.destination = messages.destination
        AND k.key = n.value AND k.message_no < messages.message_no))
    FROM (SELECT value FROM json_each(messages.keys)
        UNION SELECT '*' UNION SELECT '' WHERE instr(messages.keys, '"*"')) n)
    WHERE state IN ('pending', 'failed', 'running');
DROP INDEX unsent_keys;
DROP INDEX unsent_messages;
DROP INDEX messages_by_state;
CREATE INDEX messages_by_state ON messages (state, destination, created_at);
CREATE INDEX free_messages ON messages (destination, next_attempt_at)
    WHERE state IN ('pending', 'failed') AND waits_for IS NULL;
CREATE INDEX newly_scheduled_messages ON messages (destination, scheduled_at)
    WHERE state IN ('pending', 'failed') AND waits_for IS NULL;
CREATE INDEX waiting_messages ON messages (waits_for) WHERE waits_for IS NOT NULL;
-- Triggers keep both right. No line within a trigger ends with a semicolon, which ends a statement.
CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.state IN ('pending', 'failed', 'running') BEGIN
    INSERT OR IGNORE INTO message_keys SELECT new.destination, value, new.message_no
        FROM (SELECT value FROM json_each(new.keys) UNION SELECT '')
    ; UPDATE messages SET waits_for = (
        SELECT max((
            SELECT max(k.message_no) FROM message_keys k WHERE k.destination = new.destination
            AND k.key = n.value AND k.message_no < new.message_no))
        FROM (SELECT value FROM json_each(new.keys)
            UNION SELECT '*' UNION SELECT '' WHERE instr(new.keys, '"*"')) n)
        WHERE message_no = new.message_no
    ; END;
CREATE TRIGGER message_ended AFTER UPDATE OF state ON messages
WHEN new.state IN ('done', 'dead') AND old.state IN ('pending', 'failed', 'running') BEGIN
    DELETE FROM message_keys WHERE destination = new.destination AND message_no = new.message_no
        AND key IN (SELECT value FROM json_each(new.keys) UNION SELECT '')
    ; UPDATE messages SET waits_for = (
        SELECT max((
            SELECT max(k.message_no) FROM message_keys k WHERE k.destination = messages.destination
            AND k.key = n.value AND k.message_no < messages.message_no))
        FROM (SELECT value FROM json_each(messages.keys)
            UNION SELECT '*' UNION SELECT '' WHERE instr(messages.keys, '"*"')) n)
        WHERE waits_for = new.message_no
    ; END;
CREATE TRIGGER message_requeued AFTER UPDATE OF state ON messages
WHEN new.state IN ('pending', 'failed', 'running') AND old.state IN ('done', 'dead') BEGIN
    INSERT OR IGNORE INTO message_keys SELECT new.destination, value, new.message_no
        FROM (SELECT value FROM json_each(new.keys) UNION SELECT '')
    ; UPDATE messages SET waits_for = (
        SELECT max((
            SELECT max(k.message_no) FROM message_keys k WHERE k.destination = new.destination
            AND k.key = n.value AND k.message_no < new.message_no))
        FROM (SELECT value FROM json_each(new.keys)
            UNION SELECT '*' UNION SELECT '' WHERE instr(new.keys, '"*"')) n)
        WHERE message_no = new.message_no
    -- Later messages that wait for none wait for it.
    ; UPDATE messages SET waits_for = new.message_no
        WHERE waits_for IS NULL AND +state IN ('pending', 'failed', 'running')
        AND message_no IN (
            SELECT (
                SELECT min(k.message_no) FROM message_keys k WHERE k.destination = new.destination
                AND k.key = n.value AND k.message_no > new.message_no)
            FROM (SELECT value FROM json_each(new.keys) UNION SELECT '*') n)
    ; UPDATE messages SET waits_for = new.message_no
        WHERE instr(new.keys, '"*"') AND destination = new.destination AND waits_for IS NULL
        AND message_no > new.message_no AND +state IN ('pending', 'failed', 'running')
    ; END;
-- Destinations that are down: since when, and the last error.
CREATE TABLE outages (
    destination TEXT PRIMARY KEY, since TEXT NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
