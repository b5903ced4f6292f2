"""The operator's console in a browser: pages, a JSON API, probes and metrics, as one ASGI app."""

from dayjob.web.app import create_app
from dayjob.web.options import WebOptions

__all__ = ["WebOptions", "create_app"]
