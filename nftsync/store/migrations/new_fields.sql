-- Fields that the provider's document does not have, or has with another type. The stored ones are as
-- old as the first token or webhook that has them, so that they are no news after an upgrade.
CREATE TABLE new_fields (
    field TEXT PRIMARY KEY, type TEXT NOT NULL, documented_type TEXT, example_id TEXT NOT NULL,
    first_seen_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO new_fields
WITH types (sqlite, type) AS (VALUES
        ('text', 'text'), ('integer', 'integer'), ('real', 'number'), ('true', 'true or false'),
        ('false', 'true or false'), ('null', 'null'), ('array', 'list'), ('object', 'object')),
    documented (type, names) AS (VALUES
        ('text', '["token.id", "token.organizationId", "token.contractAddress",
            "token.blockchainTokenId", "metadata.name", "metadata.description", "metadata.image",
            "metadata.animationUrl", "metadata.externalUrl", "metadata.backgroundColor",
            "metadata.creatorName", "metadata.creatorImageUrl", "metadata.creatorExternalPageUrl",
            "webhook.organizationId", "webhook.action", "webhook.id", "webhook.resourceId",
            "webhook.resourceType", "webhook.createdAtUtc"]'),
        ('integer', '["metadata.editionId", "metadata.totalEdition"]'),
        ('object', '["token.metadata", "webhook.changes"]')),
    extras AS (SELECT token_id, first_seen_at, iif(json_valid(extra), extra, '{}') AS extra
        FROM tokens WHERE extra IS NOT NULL),
    bodies AS (SELECT webhook_id, received_at, CAST(body AS TEXT) AS body
        FROM webhooks WHERE body IS NOT NULL),
    shown (field, type, id, at) AS (
        SELECT 'token.' || substr(j.key, 1, 80), j.type, token_id, first_seen_at
        FROM extras, json_each(extra) j WHERE NOT (j.key = 'metadata' AND j.type = 'object')
        UNION ALL SELECT 'metadata.' || substr(j.key, 1, 80), j.type, token_id, first_seen_at
        FROM extras, json_each(extra, '$.metadata') j
        WHERE j.path = '$.metadata' AND typeof(j.key) = 'text'
        UNION ALL SELECT 'webhook.' || substr(j.key, 1, 80), j.type, webhook_id, received_at
        FROM bodies, json_each(iif(json_valid(body), body, '{}')) j),
    -- The other columns are from the row of min(); each type is a group, as null may be documented.
    by_type AS (SELECT field, t.type, id, min(at) AS at FROM shown s JOIN types t ON sqlite = s.type
        GROUP BY field, t.type),
    typed AS (SELECT *, (SELECT d.type FROM documented d, json_each(d.names) WHERE value = field)
        AS due FROM by_type)
SELECT field, type, due, id, min(at) FROM typed WHERE due IS NULL OR type NOT IN (due, 'null')
GROUP BY field ORDER BY 5 LIMIT 200;
