"""The provider's HTTP API: requests, responses, rate limits, credentials, webhooks.

- Times are in seconds. A `path` is encoded, and includes the query.
- `effort` counts the requests of a read; `etag` is a response's validator.
- Reads raise `ReadError` if they fail for good, and `Stopped` if their client is stopped.
- `UnusableResponse` names the location as a JSON path; `CutShort` means a truncated body.
- `SettingsError` means that an address, proxy, certificate or credential is unusable.
"""
