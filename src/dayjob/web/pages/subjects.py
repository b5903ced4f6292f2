"""Subjects: the page of what an operator's action was applied to, from the words of the audit."""

from __future__ import annotations

import re
from typing import Any

#: A label, the path of a page, and its query.
Link = tuple[str, str, dict[str, Any]]

#: The words of the audit, and the page; the groups of the pattern are its query.
_PAGES = (
    (re.compile(r"job (?P<id>\S+) \((?P<name>[^,)]+)(?:, \w+)?\)$"), "/job"),
    (re.compile(r"queue (?P<name>\S+)(?: \(key .*\))?$", re.DOTALL), "/queue"),
    (re.compile(r"pool (?P<id>\S+)(?: \(.*\))?$", re.DOTALL), "/pool"),
    (re.compile(r"schedule (?P<name>.+)$", re.DOTALL), "/schedule"),
    (re.compile(r"batch (?P<id>\S+)$"), "/batch"),
    (re.compile(r"workflow (?P<id>\S+)(?: node \d+)?$"), "/workflow"),
    # The audit keeps the first 200 characters of an error; a cut one finds no group.
    (re.compile(r"failures of (?P<name>\S+): (?P<kind>.{1,199})$", re.DOTALL), "/failure"),
)


def link_of(subject: str) -> Link | None:
    """The page about the subject of an action; None if it is about no single thing that has one."""
    for pattern, path in _PAGES:
        if found := pattern.match(subject):
            query = found.groupdict()
            return query.get("name") or query["id"], path, query
    return None
