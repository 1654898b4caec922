"""The provider's HTTP API: requests, responses, rate limits, credentials, webhooks."""
