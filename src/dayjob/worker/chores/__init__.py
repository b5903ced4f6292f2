"""Chores: the work that one pool, the leader, does for all pools."""
