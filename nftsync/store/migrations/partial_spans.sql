-- Times at which the stored state is partial, because a run has stored only some of its changes: a
-- sync that has not ended, or a replay whose removals wait. `as_of` shows the state before them.
CREATE TABLE partial_spans (
    run_id INTEGER NOT NULL, began_at TEXT NOT NULL,
    ended_at TEXT NOT NULL DEFAULT '9999-12-31T23:59:59.999999Z'
) STRICT;
CREATE INDEX partial_spans_by_end ON partial_spans (ended_at, began_at);
-- Approved removals have the id of the run that held them, so a run's end bounds its changes.
INSERT INTO partial_spans
SELECT run_id, first_at, coalesce(
    iif(status IN ('ok', 'partial') OR (status = 'failed' AND error IS NULL),
        min(last_at, finished_at), NULL),
    (SELECT min(n.finished_at) FROM sync_runs n
        WHERE n.run_id > r.run_id AND n.kind = 'sync' AND n.status IN ('ok', 'partial')),
    '9999-12-31T23:59:59.999999Z')
FROM (SELECT run_id, min(observed_at) AS first_at, max(observed_at) AS last_at FROM (
        SELECT run_id, observed_at FROM balance_change_rows
        UNION ALL SELECT run_id, observed_at FROM token_change_rows) GROUP BY run_id)
    JOIN sync_runs r USING (run_id) WHERE kind = 'sync';
