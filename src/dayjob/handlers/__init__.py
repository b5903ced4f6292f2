"""Handlers: their signatures, and converting their arguments to and from JSON."""
