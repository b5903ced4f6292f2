"""Batches: jobs that belong together, callbacks when all have ended, and a retry that still brings success: `python examples/batches.py`."""

import time

from dayjob import Admin, Dead, Job, WorkerPool

pool = WorkerPool(namespace="example-batches", concurrency=8)
events: list[str] = []
broken = {7}


@pool.job
def mail(job: Job, user_id: int) -> None:
    if user_id in broken:
        raise Dead("no such address")
    if user_id == 1:
        with job.batch:
            follow_up.enqueue(user_id=user_id)


@pool.job
def follow_up(user_id: int) -> None: ...


@pool.job
def report(job: Job, month: int) -> None:
    progress = job.batch.progress()
    events.append(f"success of month {month}: {progress.completed} of {progress.total}")


@pool.job
def alarm(job: Job, month: int) -> None:
    events.append(f"a mail of month {month} is dead")


def wait_for(number: int) -> None:
    while len(events) < number:
        time.sleep(0.01)


if __name__ == "__main__":
    with pool.batch(
        on_success=report, on_dead=alarm, args={"month": 11}, description="November mails"
    ) as batch:
        mail.enqueue_many([{"user_id": n} for n in range(20)])
    with pool, Admin("example-batches") as admin:
        wait_for(1)
        while batch.progress().left:
            time.sleep(0.01)
        print(admin.batch(batch.id).sentence)
        broken.clear()
        admin.retry_batch(batch.id)
        wait_for(2)
    print("\n".join(events))
