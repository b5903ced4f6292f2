"""Mail that was sent."""

from django.db import models


class Message(models.Model):
    """One mail to one address."""

    to = models.EmailField()
    subject = models.CharField(max_length=200)

    def __str__(self):
        return f"{self.subject} to {self.to}"
