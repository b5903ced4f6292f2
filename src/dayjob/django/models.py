"""The permission of those who may change something in the console, and the tables of the outbox."""

from __future__ import annotations

from django.db import models


class Console(models.Model):  # type: ignore[misc]  # noqa: DJ008 - Django has no types; there are no rows to show
    """Has no table. Django makes permissions for models only."""

    class Meta:
        """Django's options of a model."""

        managed = False
        default_permissions = ()
        permissions = (("operate_jobs", "Can retry, delete, pause and change background jobs"),)


class OutboxEntry(models.Model):  # type: ignore[misc]  # Django has no types
    """A job that was enqueued in a transaction. See `dayjob.outbox.tables`, which has all SQL on it."""

    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=200, unique=True)
    namespace = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    payload = models.BinaryField()
    due = models.FloatField(null=True)
    unique_key = models.TextField(null=True)  # noqa: DJ001 - a key may not be empty
    unique_for = models.FloatField(null=True)
    expires = models.FloatField(null=True)
    created = models.FloatField()
    sent = models.FloatField(null=True)

    class Meta:
        """Django's options of a model."""

        db_table = "dayjob_outbox"
        default_permissions = ()
        indexes = (
            models.Index(fields=["seq"], name="dayjob_outbox_unsent", condition=models.Q(sent=None)),
            models.Index(fields=["sent"], name="dayjob_outbox_sent", condition=models.Q(sent__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


class DoneMark(models.Model):  # type: ignore[misc]  # Django has no types
    """Something that was done once, such as a job that called `job.once()`."""

    id = models.CharField(max_length=300, primary_key=True)
    at = models.FloatField()

    class Meta:
        """Django's options of a model."""

        db_table = "dayjob_done"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.id)
