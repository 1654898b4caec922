-- Headers of the last delivery, by which the provider's support finds it.
ALTER TABLE webhooks ADD COLUMN request_id TEXT;
ALTER TABLE webhooks ADD COLUMN traceparent TEXT;
