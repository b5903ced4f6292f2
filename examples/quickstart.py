"""A job, enqueued and run: `python examples/quickstart.py`. Needs no Redis: it uses the embedded server."""

from dayjob import Job, WorkerPool

pool = WorkerPool(namespace="example-quickstart")


@pool.job
def create_watch(job: Job, user_id: int) -> None:
    job.checkin(f"making a watch for {user_id}")
    print(f"a watch for {user_id} in attempt {job.attempt}")


@pool.job
async def send_notice(user_id: int) -> None:
    print(f"notice to {user_id}")


if __name__ == "__main__":
    create_watch.enqueue(user_id=7)
    send_notice.enqueue(user_id=7)
    with pool:
        pool.drain()
