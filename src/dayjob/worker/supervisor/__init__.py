"""Supervisor: the parent process of `dayjob worker` and its side of each child."""
