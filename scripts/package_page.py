# ruff: noqa: INP001 - a hook of the build, not a module
"""The README as the page of the package on an index, where its relative links and images would lead nowhere.

pyproject.toml names this file as a hook of the build. With `base`, the address of the repository's files, links become absolute,
and so do images; `images` is their address where a code host shows a page about a file at the first one. Without a base only the
text of links is left, and images are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # tests call the function below without the build tool
    MetadataHookInterface = object

_IMAGE = re.compile(r"!\[[^\]]*\]\((?![a-z]+:)[^)\s]+\)\n*")
_IMAGE_LINK = re.compile(r"(!\[[^\]]*\]\()(?![a-z]+:)([^)\s]+)\)")
_LINK = re.compile(r"(\[([^\]]+)\]\()(?![a-z]+:|#)([^)\s]+)\)")
_WHERE = "\nThe guides and the reference are in the folder `docs` of the source distribution.\n"


def index_page(readme: str, base: str = "", images: str = "") -> str:
    """The README with links that work anywhere."""
    if base:
        shown = _IMAGE_LINK.sub(lambda found: f"{found[1]}{(images or base).rstrip('/')}/{found[2]})", readme)
        return _LINK.sub(lambda found: f"{found[1]}{base.rstrip('/')}/{found[3]})", shown)
    return _LINK.sub(r"\2", _IMAGE.sub("", readme)) + _WHERE


class PackagePage(MetadataHookInterface):  # type: ignore[misc, valid-type, unused-ignore]
    """Sets the long description of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See MetadataHookInterface."""
        readme = Path(self.root, "README.md").read_text("utf-8")
        text = index_page(readme, self.config.get("base", ""), self.config.get("images", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
