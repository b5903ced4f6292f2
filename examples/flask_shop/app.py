"""A small Flask app: an order enqueues a job, the job runs in the app's context, and the console is at /ops/jobs.

pip install 'dayjob[flask,server]'
flask --app app run
flask --app app dayjob worker
curl -X POST http://127.0.0.1:5000/orders/7
"""

from typing import Literal

from flask import Flask, current_app, request

from dayjob import WorkerPool
from dayjob.flask import init_app

app = Flask(__name__)
app.config["SENDER"] = "shop@example.org"

pool = WorkerPool(namespace="flask-shop")


@pool.job(keep=3600)
def confirm(order: int) -> str:
    return f"order {order} confirmed by {current_app.config['SENDER']}"


def role() -> Literal["viewer", "operator"] | None:
    """Who may use the console. A real app asks its login."""
    return "operator" if request.headers.get("x-user") == "ada" else None


init_app(app, pool, console="/ops/jobs", role=role)


@app.post("/orders/<int:order>")
def place(order: int) -> dict[str, str]:
    return {"job": confirm.enqueue(order).id}


@app.get("/jobs/<job>")
def answer(job: str) -> dict[str, str]:
    return {"result": confirm.result(job, timeout=20)}
