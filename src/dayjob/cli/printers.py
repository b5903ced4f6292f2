"""`dayjob systemd`, `compose`, `kubernetes`: print files that run workers there, for you to edit."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])

#: Seconds to settle and close, in addition to the time for running jobs.
_SPARE_SECONDS = 10
#: The port on which the parent of a worker answers probes.
_HEALTH_PORT = 8080


def _not_of_file(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The worker reads pyproject.toml itself; printed as an option, the file's namespace would override the pool's."""
    filed = ctx.get_parameter_source(parameter.name or "") == ParameterSource.DEFAULT_MAP
    return None if filed else value


def _options(fn: F) -> F:
    fn = click.option(
        "--namespace",
        envvar="DAYJOB_NAMESPACE",
        callback=_not_of_file,
        help="The namespace. Default: DAYJOB_NAMESPACE, the pool's, pyproject.toml, dayjob.",
    )(fn)
    fn = click.option(
        "--timeout", type=click.IntRange(0), default=25, show_default=True, help="Seconds that running jobs may take to end at a stop.",
    )(fn)  # fmt: skip
    fn = click.option("--processes", type=click.IntRange(1), default=1, show_default=True)(fn)
    return click.argument("pool", metavar="MODULE:POOL")(fn)


def _worker(pool: str, processes: int, timeout: int, namespace: str | None) -> list[str]:
    words = ["worker", pool, "--processes", str(processes), "--timeout", str(timeout)]
    return [*words, "--namespace", namespace] if namespace else words


def _short(pool: str) -> str:
    """A name that systemd, Docker and Kubernetes all accept."""
    return re.sub(r"[^a-z0-9]+", "-", pool.partition(":")[0].lower()).strip("-") or "jobs"


@click.command(epilog="Example: dayjob systemd app.jobs:pool > /etc/systemd/system/jobs.service")
@_options
def systemd(pool: str, processes: int, timeout: int, namespace: str | None) -> None:
    """Print a unit file for systemd, for this folder, user and interpreter."""
    command = " ".join([sys.executable, "-m", "dayjob", *_worker(pool, processes, timeout, namespace)])
    click.echo(
        f"""\
[Unit]
Description=dayjob workers of {pool}
After=network-online.target
Wants=network-online.target

[Service]
# The worker reports when it is ready, and that its parent process still runs.
Type=notify
WatchdogSec=60
User={getpass.getuser()}
WorkingDirectory={Path.cwd()}
# Keep passwords in a file that only root can read: EnvironmentFile=/etc/{_short(pool)}.env
Environment=DAYJOB_REDIS_URL=redis://localhost:6379/0
# Without a server, fail instead of starting an embedded one.
Environment=DAYJOB_EMBEDDED=never{_settings("Environment={}={}")}
ExecStart={command}
# HUP replaces the processes one by one, with the current code.
ExecReload=/bin/kill -HUP $MAINPID
# The parent forwards the signal; jobs that do not end in time are given back.
KillMode=mixed
TimeoutStopSec={timeout + _SPARE_SECONDS}
# A crash exits with a signal or a code other than 0. `dayjob pools stop` exits with 0, so the workers stay stopped.
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target"""
    )


@click.command(epilog="Example: dayjob compose app.jobs:pool > compose.yaml")
@_options
@click.option("--image", default="my-app", show_default=True, help="The image that contains your program.")
def compose(pool: str, processes: int, timeout: int, namespace: str | None, image: str) -> None:
    """Print a file for Docker Compose: a server that keeps its data, and workers."""
    words = ", ".join(f'"{word}"' for word in ["dayjob", *_worker(pool, processes, timeout, namespace)])
    where = _named(namespace) or ["--app", pool]
    probe = ", ".join(f'"{word}"' for word in ["CMD", "dayjob", "health", "--here", *where])
    click.echo(
        f"""\
services:
  redis:
    image: valkey/valkey:8
    # Jobs survive a restart, and a full server refuses new ones instead of deleting old ones.
    command: ["valkey-server", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]
    volumes: ["redis-data:/data"]
    healthcheck:
      test: ["CMD", "valkey-cli", "ping"]
      interval: 5s

  worker:
    image: {image}
    init: true
    command: [{words}]
    environment:
      DAYJOB_REDIS_URL: redis://redis:6379/0
      # Without a server, fail instead of starting an embedded one.
      DAYJOB_EMBEDDED: never{_settings("      {}: {}")}
    depends_on:
      redis: {{condition: service_healthy}}
    stop_grace_period: {timeout + _SPARE_SECONDS}s
    # A crash exits with a code other than 0. `dayjob pools stop` exits with 0, so the workers stay stopped. Docker does
    # not start them after a reboot of the machine: run `docker compose up` there.
    restart: on-failure
    healthcheck:
      test: [{probe}]
      interval: 30s
      timeout: 10s
      start_period: 20s

volumes:
  redis-data: {{}}"""
    )


@click.command(epilog="Example: dayjob kubernetes app.jobs:pool --image registry/app:1 | kubectl apply -f -")
@_options
@click.option(
    "--image", default="my-app:latest", show_default=True, help="The image that contains your program."
)
@click.option("--replicas", type=click.IntRange(1), default=2, show_default=True)
def kubernetes(
    pool: str, processes: int, timeout: int, namespace: str | None, image: str, replicas: int
) -> None:
    """Print a deployment for Kubernetes. The server's URL comes from a secret."""
    name = f"{_short(pool)}-worker"
    port = ["--health-port", str(_HEALTH_PORT)]
    words = ", ".join(
        f'"{word}"' for word in ["dayjob", *_worker(pool, processes, timeout, namespace), *port]
    )
    click.echo(
        f"""\
# kubectl create secret generic {name} --from-literal=url=redis://redis:6379/0
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  strategy:
    rollingUpdate: {{maxUnavailable: 0}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      # Longer than --timeout, so that jobs that do not end are given back before the pod is killed.
      terminationGracePeriodSeconds: {timeout + _SPARE_SECONDS}
      # Kubernetes always restarts these pods. To stop the workers, scale to 0 instead of using `dayjob pools stop`.
      containers:
        - name: worker
          image: {image}
          command: [{words}]
          env:
            - name: DAYJOB_REDIS_URL
              valueFrom:
                secretKeyRef: {{name: {name}, key: url}}{_settings("            - {{name: {}, value: {}}}")}
          # The parent process answers by itself. An outage of Redis makes a pod not ready, and restarts nothing.
          livenessProbe:
            httpGet: {{path: /healthz, port: {_HEALTH_PORT}}}
            initialDelaySeconds: 10
            periodSeconds: 20
          readinessProbe:
            httpGet: {{path: /readyz, port: {_HEALTH_PORT}}}
            periodSeconds: 10"""
    )


def _settings(form: str) -> str:
    """A line that names the settings of a Django project, which its workers need; else ""."""
    name = "DJANGO_SETTINGS_MODULE"
    return "\n" + form.format(name, os.environ[name]) if os.environ.get(name) else ""


def _named(namespace: str | None) -> list[str]:
    return ["--namespace", namespace] if namespace else []
