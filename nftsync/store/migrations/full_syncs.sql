-- Whether a run was to read every tracked wallet, noted as it begins.
ALTER TABLE sync_runs ADD COLUMN reads_all INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS sync_runs_syncs;
CREATE INDEX sync_runs_of_all ON sync_runs (started_at) WHERE reads_all;
