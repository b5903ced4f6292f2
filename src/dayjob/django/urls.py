"""The console in a urls.py: `path("admin/jobs/", include("dayjob.django.urls"))`."""

from __future__ import annotations

from django.urls import re_path

from dayjob.django.console import console

app_name = "dayjob"
urlpatterns = [re_path(r"^(?P<path>.*)$", console, name="console")]
