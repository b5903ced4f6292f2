"""Chores: what one pool, the leader, does for all."""
