"""Jobs that wait for one another and take one another's results: `python examples/workflow.py`."""

import threading

from dayjob import WorkerPool

pool = WorkerPool(namespace="example-workflow", concurrency=4)
stored = threading.Event()


@pool.job
def fetch(url: str) -> list[int]:
    return list(range(len(url)))


@pool.job
def double(numbers: list[int], part: int) -> int:
    return numbers[part] * 2


@pool.job
def store(rows: list[int]) -> None:
    print("stored", rows)
    stored.set()


if __name__ == "__main__":
    flow = pool.workflow("import")
    page = flow.add(fetch, url="shop")
    parts = [flow.add(double, numbers=page.result, part=n) for n in range(4)]
    flow.add(store, rows=[part.result for part in parts])
    flow.start()
    with pool:
        stored.wait(timeout=60)
