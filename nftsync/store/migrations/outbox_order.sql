-- Which unsent message each message waits for; `schema.sql` has the reasons.
ALTER TABLE messages ADD COLUMN waits_for INTEGER;
ALTER TABLE messages ADD COLUMN scheduled_at TEXT;
CREATE TABLE message_keys (
    destination TEXT NOT NULL, key TEXT NOT NULL, message_no INTEGER NOT NULL,
    PRIMARY KEY (destination, key, message_no)
) STRICT, WITHOUT ROWID;
INSERT INTO message_keys
    SELECT destination, value, message_no FROM messages, json_each(keys)
    WHERE state IN ('pending', 'failed', 'running')
    UNION SELECT destination, '', message_no FROM messages
    WHERE state IN ('pending', 'failed', 'running');
CREATE VIEW message_waits AS
SELECT m.message_no, (
    SELECT max((
        SELECT max(k.message_no) FROM message_keys k
        WHERE k.destination = m.destination AND k.key = own.value AND k.message_no < m.message_no))
    FROM (SELECT value FROM json_each(m.keys)
        UNION SELECT '*' UNION SELECT '' WHERE instr(m.keys, '"*"')) own) AS waits_for
FROM messages m;
UPDATE messages SET scheduled_at = created_at, waits_for = (
    SELECT p.waits_for FROM message_waits p WHERE p.message_no = messages.message_no)
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
CREATE TABLE outages (
    destination TEXT PRIMARY KEY, since TEXT NOT NULL, reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
