"""The jobs of the shop. `dayjob worker shop:pool` runs them."""

import asyncio
import time

from dayjob import GiveBack, Job, WorkerPool

pool = WorkerPool(namespace="shop", concurrency=8)


@pool.job(max_fails=5)
def charge(order: int, amount: float) -> None:
    if order % 7 == 0:
        raise ConnectionError(f"the bank did not answer for order {order}")
    time.sleep(0.05)


@pool.job
async def send_mail(to: str, subject: str) -> None:
    await asyncio.sleep(0.1)


@pool.job(max_concurrency=1, timeout=300, keep=3600)
def export(job: Job, rows: int) -> int:
    for row in range(0, rows, 100):
        if job.checkin(f"row {row} of {rows}", done=row, total=rows):
            raise GiveBack("stopping")
        time.sleep(0.1)
    return rows


pool.periodic("*/5 * * * *", export, {"rows": 2000})
