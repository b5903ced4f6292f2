"""A job that emits its text while it writes it, and a reader that comes back in the middle: `python examples/streaming.py`."""

import time

from dayjob import Job, WorkerPool

pool = WorkerPool(namespace="example-streaming")


@pool.job
def write_story(job: Job, about: str) -> None:
    # In a real program these are the parts that a language model sends.
    for word in f"Once upon a time there was a {about}. The end.".split():
        job.emit(word + " ")
        time.sleep(0.02)


if __name__ == "__main__":
    with pool:
        job = write_story.enqueue(about="worker")
        place = ""
        for part in pool.enqueuer.stream(job, timeout=60):
            print(part.value, end="", flush=True)
            place = part.id
            if part.value == "time ":
                break
        print("| the reader comes back |", end=" ")
        for part in pool.enqueuer.stream(job.id, after=place, timeout=60):
            print(part.value, end="", flush=True)
        print()
