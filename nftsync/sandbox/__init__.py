"""The sandbox: a local provider with state, an API and a server."""

#: What waits between attempts may be multiplied by at most: the longest is over a year then.
GREATEST_TIME_SCALE = 1000
