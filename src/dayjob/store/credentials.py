"""Credentials that expire, such as IAM tokens: a URL or DAYJOB_CREDENTIALS names an object that gives the current ones."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from dayjob.errors import BadOption
from dayjob.store.urls import Address

#: The variable that names the provider, as MODULE:OBJECT.
VARIABLE = "DAYJOB_CREDENTIALS"


class Provider:
    """The named object, with the two methods that the client library calls."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def get_credentials(self) -> Any:
        """User and password, for a new connection."""
        return self._found.get_credentials()

    async def get_credentials_async(self) -> Any:
        """The same, awaited if the object can be."""
        own = getattr(self._found, "get_credentials_async", None)
        return self._found.get_credentials() if own is None else await own()


def provider_for(address: Address, environ: Mapping[str, str] | None = None) -> Provider | None:
    """The object whose `get_credentials()` gives user and password for each new connection; None if there is none.

    The option `credentials` of the URL comes before the variable. A URL that has a password of its own uses that. Raises
    BadOption if the object cannot be found.
    """
    option = address.options.get("credentials")
    if option and address.password:
        raise BadOption("the Redis URL has both a password and credentials: leave one out")
    if option:
        return _load(f"credentials={option}", str(option))
    named = (os.environ if environ is None else environ).get(VARIABLE, "")
    return _load(f"{VARIABLE}={named}", named) if named and not address.password else None


def _load(where: str, named: str) -> Provider:
    """The object, or an instance of the class. `where` is for errors. Raises BadOption."""
    module, _, name = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadOption(f"{where}: give MODULE:OBJECT: {error}") from None
    if isinstance(found, type):
        found = found()
    if not callable(getattr(found, "get_credentials", None)):
        raise BadOption(f"{where}: it has no method get_credentials(), which returns user and password")
    return Provider(found)


def login(address: Address) -> dict[str, Any]:
    """How a connection logs in, as options of the client library. Raises BadOption."""
    provider = provider_for(address)
    if provider is None:
        return {"username": address.username, "password": address.password}
    return {"credential_provider": provider}
