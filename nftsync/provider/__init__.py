"""The provider's HTTP API: requests, responses, rate limits, credentials, webhooks.

Throughout this package:

- Waits, timeouts and intervals are in seconds.
- A `path` is the path and query below the base address, already encoded.
- An `effort` counts the requests and retries of a read.
- An `etag` is the validator that the provider sent with a response.
- Reads raise `ReadError` when they fail for good, and `Stopped` when their client is stopped.
- `UnusableAnswer` names the location of the problem as a JSON path; `CutShort` marks a truncated
  body, which is read again.
- `SettingsError` means that an address, a proxy, a certificate or a credential cannot be used.
"""
