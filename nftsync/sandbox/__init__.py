"""A local stand-in for the provider: its state, its calls and a server for them."""

#: What waits between attempts may be multiplied by at most: the longest is over a year then.
GREATEST_TIME_SCALE = 1000
