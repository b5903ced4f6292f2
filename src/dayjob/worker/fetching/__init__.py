"""Fetching: gets jobs from Redis and reports finished attempts, in one exchange at a time."""
