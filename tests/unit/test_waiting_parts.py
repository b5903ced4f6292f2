"""FairLock, ReadyQueue and Slots: the small parts by which the threads of a pool wait for each other."""

from __future__ import annotations

import threading
import time

import pytest

from attempts import new_attempt
from dayjob.worker.running import awake_clock
from dayjob.worker.running.awake_clock import MAX_STEP_SECONDS, AwakeClock
from dayjob.worker.running.ready_queue import ReadyQueue
from dayjob.worker.running.slots import Slots
from dayjob.worker.shared_link import FairLock
from server import wait_until


def test_a_fair_lock_is_handed_over_in_the_order_of_asking():
    lock = FairLock()
    order: list[int] = []

    def ask(number: int) -> None:
        with lock.mine():
            order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    with lock.mine():
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda count=number + 1: len(lock._waiting) == count)
        assert order == []
    for thread in threads:
        thread.join(60)
    assert order == list(range(6))


def test_a_loop_that_uses_a_fair_lock_all_the_time_starves_no_other_thread():
    lock = FairLock()
    served = threading.Event()
    after = 0

    def ask() -> None:
        with lock.mine():
            served.set()

    other = threading.Thread(target=ask)
    with lock.mine():
        other.start()
        wait_until(lambda: lock._waiting)
    while after < 1000 and not served.is_set():
        with lock.mine():
            after += 1
    other.join(60)
    assert after <= 1, "the thread that asked first was overtaken"


def test_a_fair_lock_lets_one_thread_in_at_a_time():
    lock = FairLock()
    inside = 0
    total = 0
    overlaps: list[int] = []
    begin = threading.Barrier(8)

    def work() -> None:
        nonlocal inside, total
        begin.wait(60)
        for _ in range(200):
            with lock.mine():
                inside += 1
                if inside != 1:
                    overlaps.append(inside)
                total += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (total, overlaps) == (1600, [])


def test_a_fair_lock_is_passed_on_after_an_error():
    lock = FairLock()
    with pytest.raises(ValueError, match="broken"), lock.mine():
        raise ValueError("broken")
    entered: list[bool] = []

    def ask() -> None:
        with lock.mine():
            entered.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(60)
    assert entered == [True]


def test_a_ready_queue_keeps_the_order_and_knows_when_the_oldest_was_handed_over():
    ready = ReadyQueue()
    assert ready.oldest is None
    attempts = [new_attempt(number) for number in (1, 2, 3)]
    attempts[0].given_at = 7.0
    ready.put(attempts[:2])
    ready.put(attempts[2:])
    assert list(ready.attempts) == attempts
    assert ready.oldest == 7.0


def test_a_clock_counts_little_of_a_time_in_which_its_process_did_not_run(monkeypatch):
    real = 100.0
    monkeypatch.setattr(awake_clock, "monotonic", lambda: real)
    clock = AwakeClock()
    began = clock.now()
    for _ in range(20):
        real += MAX_STEP_SECONDS / 2
        clock.now()
    assert clock.now() - began == pytest.approx(10 * MAX_STEP_SECONDS), "read often, it is a usual clock"
    began = clock.now()
    real += 60
    assert clock.now() - began == pytest.approx(MAX_STEP_SECONDS)


def test_later_attempts_are_taken_back_together_with_one_that_waits_too_long():
    ready = ReadyQueue()
    attempts = [new_attempt(number) for number in (1, 2, 3)]
    ready.put(attempts)
    for attempt, given_at in zip(attempts, (1.0, 2.0, 3.0), strict=True):
        attempt.given_at = given_at
    assert ready.take_back(0.5) == []
    assert list(ready.attempts) == attempts
    assert ready.take_back(1.0) == attempts
    assert ready.take_back(9.0) == []


def test_each_ready_attempt_is_either_started_or_taken_back():
    ready = ReadyQueue()
    attempts = [new_attempt(number) for number in range(2000)]
    ready.put(attempts)
    begin = threading.Barrier(4)
    taken: list[list[str]] = [[] for _ in range(4)]

    def start(into: list[str]) -> None:
        begin.wait(60)
        while True:
            try:
                into.append(ready.attempts.popleft().token)
            except IndexError:
                return

    def take_back(into: list[str]) -> None:
        begin.wait(60)
        into.extend(attempt.token for attempt in ready.take_back(time.monotonic()))

    targets = (start, start, take_back, take_back)
    threads = [
        threading.Thread(target=target, args=(into,)) for target, into in zip(targets, taken, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sum(taken, [])) == sorted(attempt.token for attempt in attempts)


def test_slots_are_taken_until_none_is_left():
    slots = Slots(2)
    assert slots.free == 2
    first, second = slots.take(), slots.take()
    assert {first, second} == {0, 1}
    assert slots.take() is None
    assert slots.free == 0
    slots.give(first)
    assert slots.free == 1
    assert slots.take() == first


def test_everyone_who_waits_for_a_slot_is_called_when_one_is_free():
    slots = Slots(1)
    seen: list[int] = []
    slots.on_free(lambda: seen.append(slots.free))
    slots.on_free(lambda: seen.append(slots.free))
    slot = slots.take()
    assert seen == []
    slots.give(slot)
    assert seen == [1, 1], "the slot must be free when those who wait are called"


def test_no_slot_is_taken_twice_or_lost():
    slots = Slots(3)
    holders: set[int] = set()
    doubles: list[int] = []
    begin = threading.Barrier(8)

    def work() -> None:
        begin.wait(60)
        for _ in range(500):
            slot = slots.take()
            if slot is None:
                continue
            if slot in holders:
                doubles.append(slot)
            holders.add(slot)
            holders.discard(slot)
            slots.give(slot)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (slots.free, doubles) == (3, [])
    assert {slots.take() for _ in range(3)} == {0, 1, 2}
