"""Jobs of the app `mail`."""

from dayjob.django import pool
from mail.models import Message


@pool.job("mail.send", max_fails=5)
async def send(to: str, subject: str) -> None:
    """Record a mail, with Django's async ORM. A real shop would send it."""
    await Message.objects.acreate(to=to, subject=subject)
