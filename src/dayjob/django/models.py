"""The permission of those who may change something in the console."""

from __future__ import annotations

from django.db import models


class Console(models.Model):  # type: ignore[misc]  # noqa: DJ008 - Django has no types; there are no rows to show
    """Has no table. Django makes permissions for models only."""

    class Meta:
        """Django's options of a model."""

        managed = False
        default_permissions = ()
        permissions = (("operate_jobs", "Can retry, delete, pause and change background jobs"),)
