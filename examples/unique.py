"""One like it waits already: `python examples/unique.py`."""

from dayjob import WorkerPool

pool = WorkerPool(namespace="example-unique", concurrency=1)


@pool.job
def rebuild_index(shop: str, full: bool = False) -> None:
    print("rebuilding", shop)


if __name__ == "__main__":
    print("first:", rebuild_index.enqueue_unique(shop="paris") is not None)
    print("second:", rebuild_index.enqueue_unique(shop="paris") is not None)
    rome = rebuild_index.using(unique_key={"shop": "rome"})
    print("by key:", rome.enqueue_unique(shop="rome", full=True) is not None)
    print("again:", rome.enqueue_unique(shop="rome", full=False) is not None)
    with pool:
        pool.drain()
    print("after it ran:", rebuild_index.enqueue_unique(shop="paris") is not None)
    with pool:
        pool.drain()
