"""The Django app: finds the jobs of all apps, and registers the system checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules


class DayjobConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """The app that `"dayjob.django"` in INSTALLED_APPS names."""

    name = "dayjob.django"
    label = "dayjob"
    verbose_name = "dayjob"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the module `jobs` of every app that has one."""
        from dayjob.django import checks  # noqa: F401, PLC0415 - registers them
        from dayjob.django.project import project_pool, settings_of_project  # noqa: PLC0415 - need the settings

        project_pool()
        modules = settings_of_project().modules
        autodiscover_modules(*modules, *(["tasks"] if _runs_tasks() and "tasks" not in modules else []))


def _runs_tasks() -> bool:
    """Whether tasks of Django are jobs here. A worker can run only tasks whose modules are imported."""
    backends = getattr(settings, "TASKS", {})
    return any("dayjob." in str(one.get("BACKEND", "")) for one in backends.values())
