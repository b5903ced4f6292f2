"""The program of a chaos run: one pool with all its jobs."""

from __future__ import annotations

from chaos import families
from chaos.jobs import pool

__all__ = ["families", "pool"]
