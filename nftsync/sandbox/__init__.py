"""The sandbox: a local provider with state, an API and a server.

An edit that raises InputError changes nothing. Amounts are integers or their digits.
"""

#: The greatest factor for waits between attempts; the longest wait is then over a year.
GREATEST_TIME_SCALE = 1000
