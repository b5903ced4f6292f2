"""Fetching: one exchange at a time gets jobs and reports finished attempts."""
