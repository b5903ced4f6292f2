"""The table of mail that was sent."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Made by makemigrations."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Message",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("to", models.EmailField(max_length=254)),
                ("subject", models.CharField(max_length=200)),
            ],
        ),
    ]
