-- Whether the run's plan has all tracked wallets.
ALTER TABLE sync_runs ADD COLUMN reads_all INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS sync_runs_syncs;
CREATE INDEX sync_runs_of_all ON sync_runs (started_at) WHERE reads_all;
