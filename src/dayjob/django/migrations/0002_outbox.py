"""The tables of the outbox."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """See `dayjob.outbox`."""

    dependencies: ClassVar[list[tuple[str, str]]] = [
        ("dayjob", "0001_initial"),
    ]

    operations: ClassVar[list[object]] = [
        migrations.CreateModel(
            name="DoneMark",
            fields=[
                ("id", models.CharField(max_length=300, primary_key=True, serialize=False)),
                ("at", models.FloatField()),
            ],
            options={
                "db_table": "dayjob_done",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("id", models.CharField(max_length=200, unique=True)),
                ("namespace", models.CharField(max_length=200)),
                ("name", models.CharField(max_length=200)),
                ("payload", models.BinaryField()),
                ("due", models.FloatField(null=True)),
                ("unique_key", models.TextField(null=True)),
                ("unique_for", models.FloatField(null=True)),
                ("expires", models.FloatField(null=True)),
                ("created", models.FloatField()),
                ("sent", models.FloatField(null=True)),
            ],
            options={
                "db_table": "dayjob_outbox",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("sent", None)), fields=["seq"], name="dayjob_outbox_unsent"
                    ),
                    models.Index(
                        condition=models.Q(("sent__isnull", False)),
                        fields=["sent"],
                        name="dayjob_outbox_sent",
                    ),
                ],
            },
        ),
    ]
