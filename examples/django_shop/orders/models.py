"""Orders."""

from django.db import models


class Order(models.Model):
    """One order of one customer."""

    email = models.EmailField()
    shipped = models.BooleanField(default=False)

    def __str__(self):
        return f"order {self.pk} of {self.email}"
