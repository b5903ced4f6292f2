"""Runs jobs. Knows the store and the domain, never the console."""
