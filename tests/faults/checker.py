"""The checker: does a ledger keep every promise? One function per invariant, over a story made of the events.

I1 to I24 are the invariants of the reliability page; L1 and L2 say that the ledger itself is whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from faults.groups import atomic, batches, workflows
from faults.ledger import Event, torn
from faults.story import Attempt, Life, Rules, Story
from rates import too_many

#: The death that sends a job to dead.
MAX_DEATHS = 3
#: Seconds that a job's unique key may be free before its handler says so: the answer may have been under way.
UNDER_WAY = 10.0
#: Seconds by which two readings of one clock may differ.
READING = 0.005
#: The exchange answers its time in whole milliseconds.
ONE_MILLISECOND = 1000
#: Ends of an attempt after which its job is over.
FINAL = {"ok": "done", "discard": "discarded", "dead": "dead"}
#: Why a job ran again, beside that its handler asked for it.
ASKED_FOR = ("fail", "snooze")
#: What the ledger calls HUP: the parent replaces its children one after the other. And how long a stop may take.
ROLLING_RESTART = "HUP"
ENDING_SECONDS = 15.0

Check = Callable[[Story], Iterator[str]]


# The ledger itself.


def whole(story: Story) -> Iterator[str]:
    """L1: every process wrote all of its events, in order."""
    by_process: dict[int, list[Event]] = defaultdict(list)
    for event in story.events:
        by_process[event.pid].append(event)
    for pid, events in by_process.items():
        for problem in torn(sorted(events, key=lambda event: (event.at, event.seq))):
            yield f"process {pid}: {problem}"


def answered(story: Story) -> Iterator[str]:
    """L2: every call was answered once, and every answer is to a call; every end has its start, at most one each."""
    for life in story.lives.values():
        if life.answers and (life.asked is None or life.answers[0].at < life.asked.at):
            yield f"{life.serial}: an answer without a call"
        if len(life.answers) > 1:
            yield f"{life.serial}: {len(life.answers)} answers to one call"
        unanswered = life.asked is not None and not life.answers and not life.pending
        if unanswered and not _died(story, life.asked.pid):
            yield f"{life.serial}: a call that was never answered"
    for group in story.groups.values():
        if group.answer is None and not _died(story, group.asked.pid):
            yield f"{group.id}: a batch or workflow whose storing was never answered"
    asked = Counter(event.serial for event in story.events if event.kind in ("asked", "pending"))
    for serial, count in asked.items():
        if count > 1:
            yield f"{serial}: asked for {count} times"
    for event in story.stray_ends:
        yield f"{event.serial}: an end without a start ({event.pool}/{event.token})"


def _died(story: Story, pid: int) -> bool:
    process = story.processes.get(pid)
    return process is not None and process.gone is not None


# What the handlers saw.


def no_loss(story: Story) -> Iterator[str]:
    """I1: what was stored has ended, or is in one place."""
    if story.rest is None:
        yield "the ledger does not end with a census at rest"
        return
    end = story.server_time(story.censuses[-1].at)
    for life in story.lives.values():
        if not story.exists(life) or life.deleted is not None or story.was_skipped(life):
            continue
        places = story.places.get(life.serial, [])
        if not places:
            if not any(one.how in ("ok", "discard") for one in life.attempts):
                yield f"{life.serial}: lost: stored as {_id(life)}, {_tale(life)}, and now nowhere"
            continue
        place, _ = places[0]
        if place in ("queue", "held", "retry") or (place == "scheduled" and _due(life) <= end):
            yield f"{life.serial}: left behind in {place} at rest, {_tale(life)}"


def _id(life: Life) -> str:
    return life.stored.job if life.stored is not None else "?"


def _due(life: Life) -> float:
    return life.stored.due if life.stored is not None else 0.0


def _tale(life: Life) -> str:
    if not life.attempts:
        return "never started"
    return ", then ".join(
        f"{one.place} fails={one.start.fails} deaths={one.start.deaths} {one.how or 'no end'}"
        for one in life.chain[:5]
    )


def done_means_ran(story: Story) -> Iterator[str]:
    """I2: Redis counted as done, discarded, dead and failed what the handlers did, and nothing else."""
    if story.rest is None:
        return
    expected: Counter[str] = Counter()
    for life in story.lives.values():
        if not story.exists(life) or life.deleted is not None or life.name in story.rules.counted_apart:
            continue
        fate, fails = _fate(story, life)
        expected[f"{fate}:{life.name}"] += 1
        expected[f"failed:{life.name}"] += fails + sum(one.fails for one in life.revivals)
        expected[f"dead:{life.name}"] += len(life.revivals)
    counters = ("done", "discarded", "dead", "failed")
    totals = story.rest.totals
    apart = story.rules.counted_apart
    labels = {label for label in totals if label.partition(":")[0] in counters} | set(expected)
    for label in sorted(labels):
        if label.partition(":")[2] in apart or label.startswith(("waiting", "skipped")):
            continue
        if totals.get(label, 0) != expected[label]:
            yield f"{label}: Redis counted {totals.get(label, 0)}, the ledger {expected[label]}"


def _fate(story: Story, life: Life) -> tuple[str, int]:
    """How a job ended, and how many fails it had by then."""
    places = story.places.get(life.serial, [])
    if places:
        place, item = places[0]
        return (place if place in ("dead", "done") else "waiting"), item.fails
    last = [one for one in life.chain if one.how in ("ok", "discard")]
    if not last:
        return ("skipped" if story.was_skipped(life) else "lost"), 0
    return FINAL[last[-1].how], last[-1].start.fails


def no_phantom(story: Story) -> Iterator[str]:
    """I3: what runs was asked for before, under that name, with those arguments."""
    for life in story.lives.values():
        for attempt in life.attempts:
            start, asked = attempt.start, life.asked
            if start.name in story.rules.ticks:
                continue
            if asked is None or asked.at > start.at:
                yield f"{life.serial}: started before anybody asked for it"
            elif asked.digest != start.digest:
                yield f"{life.serial}: its arguments changed on the way"
            elif asked.name != start.name:
                yield f"{life.serial}: asked for as {asked.name}, started as {start.name}"


def no_double_enqueue(story: Story) -> Iterator[str]:
    """I4: one call makes one job at most; one that was refused makes none."""
    for life in story.lives.values():
        ids = {one.start.job for one in life.attempts}
        ids.update(one.end.job for one in life.attempts if one.end is not None)
        if life.stored is not None:
            ids.add(life.stored.job)
        ids.update(item.job for _, item in story.places.get(life.serial, []))
        if len(ids) > 1:
            yield f"{life.serial}: {len(ids)} jobs of one call: {', '.join(sorted(ids))}"
        answer = life.answer
        if answer is not None and answer.kind in ("refused", "duplicate") and (ids or life.attempts):
            yield f"{life.serial}: answered {answer.kind}, and yet there is a job"


def cause_of(story: Story, life: Life, before: Attempt, after: Attempt, group: Sequence[Attempt]) -> str:
    """Why a job was started again; "" when nothing that is known explains it.

    `group` are the attempts with the same counts as `before`: one of them is the reason.
    """
    fails = after.start.fails - before.start.fails
    deaths = after.start.deaths - before.start.deaths
    snoozes = after.start.snoozes - before.start.snoozes
    if min(fails, deaths, snoozes) < 0 or fails + snoozes > 1 or deaths > MAX_DEATHS:
        return ""
    by = after.start.at
    pool = after.start.after.partition("/")[0]
    if deaths:
        asked = [one for one in group if _asked_for(life, one, "fail" if fails else "snooze")]
        if (fails or snoozes) and not asked:
            return ""
        # The payload names the attempt whose pool died; where that one never started, another one's did.
        return "death" if pool and story.pool_over(pool, by=by) else ""
    if fails or snoozes:
        how = "fail" if fails else "snooze"
        fits = [one for one in group if one.place == after.start.after or one.start.lost]
        return how if any(_asked_for(life, one, how) for one in fits) else ""
    if before.start.lost or after.start.lost:
        return "zombie"
    if before.place == after.place:
        return ""
    if before.how == "abandoned":
        return "given back"
    return "rescued" if story.lost_its_pool(before, by) else ""


def _asked_for(life: Life, attempt: Attempt, how: str) -> bool:
    """Whether an attempt ended so that its job runs again; one that overruns is failed from outside."""
    overran = how == "fail" and life.plan.startswith("overrun") and attempt.how in ("", "abandoned")
    return attempt.how == how or overran


def repeats(story: Story) -> Iterator[tuple[Life, Attempt, Attempt, str]]:
    """Every second and further start of a job, with its cause."""
    for life in story.lives.values():
        chain = life.chain
        for before, after in zip(chain, chain[1:], strict=False):
            since = life.revived(before)
            if life.revived(after) > since:
                anew = after.start.fails == 0 and after.start.snoozes in (0, before.start.snoozes)
                yield life, before, after, "retried from dead" if anew else ""
                continue
            group = [one for one in chain if one.counts == before.counts and life.revived(one) == since]
            yield life, before, after, cause_of(story, life, before, after, group)


def each_repeat_has_a_cause(story: Story) -> Iterator[str]:
    """I5: a job starts again because it failed, snoozed, was given back, or its pool is over; never without a cause."""
    for life in story.lives.values():
        if not life.attempts:
            continue
        first = life.chain[0].start
        died = first.deaths == 0 or story.pool_over(first.after.partition("/")[0], by=first.at)
        if first.fails or first.snoozes or not died:
            yield f"{life.serial}: its first start was not its first: {_shown(life.chain[0])}"
    for life, before, after, cause in repeats(story):
        if not cause:
            yield (
                f"{life.serial}: started again without a cause: {_shown(before)}, then {_shown(after)} "
                f"(after {after.start.after or 'nothing'})"
            )


def _shown(attempt: Attempt) -> str:
    start = attempt.start
    return (
        f"[{attempt.place} pid={start.pid} fails={start.fails} deaths={start.deaths} snoozes={start.snoozes} "
        f"{attempt.how or 'no end'}{' lost' if start.lost else ''} at {start.at:.3f}]"
    )


def late_is_discarded(story: Story) -> Iterator[str]:
    """I6: an attempt changes its job once at most, and one that ended well changes nothing."""
    for life in story.lives.values():
        changed: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
        for attempt in life.attempts:
            start = attempt.start
            if start.after:
                changed[start.after].add((start.fails, start.deaths, start.snoozes))
        for place, counts in changed.items():
            if len(counts) > 1:
                yield f"{life.serial}: attempt {place} changed its job {len(counts)} times"
        by_place = {one.place: one for one in life.attempts}
        for attempt in life.attempts:
            cause = by_place.get(attempt.start.after)
            if cause is None or cause is attempt:
                continue
            grew = attempt.start.fails + attempt.start.snoozes - cause.start.fails - cause.start.snoozes
            if grew > 0 and cause.how == "ok":
                yield f"{life.serial}: {cause.place} ended well and was yet counted as a fail or a snooze"


def one_end(story: Story) -> Iterator[str]:
    """I7: a job ends once; what its plan says is what happens; it never starts again after an end that was heard."""
    for life in story.lives.values():
        for attempt in life.attempts:
            wanted = expected_end(life.plan, attempt.start)
            if attempt.end is not None and attempt.how not in (*wanted, "abandoned"):
                yield f"{life.serial}: {attempt.place} ended {attempt.how}, not {' or '.join(wanted)}"
            # One that overran was settled from outside; its thread may still be in the call that it cannot leave.
            stuck = life.plan.startswith("overrun") and "" in wanted
            if attempt.end is None and not stuck and not story.lost_its_pool(attempt):
                yield f"{life.serial}: {attempt.place} never ended, though its process lives"
        for attempts in life.lives[:-1]:
            if any(one.how in ("ok", "discard") and not story.lost_its_pool(one) for one in attempts):
                yield f"{life.serial}: ended, and yet was retried from dead"
        for attempts in life.lives:
            final = [one for one in attempts if one.how in FINAL and not story.lost_its_pool(one)]
            if len(final) > 1:
                yield f"{life.serial}: ended {len(final)} times: {', '.join(one.place for one in final)}"
        places = [place for place, _ in story.places.get(life.serial, []) if place != "done"]
        if places and any(
            one.how in ("ok", "discard") and not story.lost_its_pool(one) for one in life.lives[-1]
        ):
            yield f"{life.serial}: ended, and yet in {places[0]}"


def expected_end(plan: str, start: Event) -> tuple[str, ...]:
    """How an attempt of this plan ends; "" stands for no end at all."""
    word, _, number = plan.partition(" ")
    count = int(number or 0)
    if word == "fail" and start.fails < count:
        return ("fail",)
    if word == "snooze" and start.snoozes < count:
        return ("snooze",)
    if word == "poison" and start.deaths < count:
        return ("",)
    if word == "overrun" and start.fails < count:
        return ("", "fail")
    if word in ("discard", "dead"):
        return (word,)
    if word == "mortal":
        return ("dead", "ok")
    return ("ok",)


def exact_counts(story: Story) -> Iterator[str]:
    """I8: fails, deaths and snoozes never go down, and what a job has at the end is what happened to it."""
    for life in story.lives.values():
        pairs = [pair for chain in life.lives for pair in zip(chain, chain[1:], strict=False)]
        for before, after in pairs:
            for count in ("fails", "deaths", "snoozes"):
                if getattr(after.start, count) < getattr(before.start, count):
                    yield f"{life.serial}: its {count} went down, {_shown(before)} then {_shown(after)}"
        for place, item in story.places.get(life.serial, []):
            if place != "dead" or life.name in story.rules.counted_apart:
                continue
            most = story.rules.max_fails.get(life.name)
            reasons = (
                item.deaths >= MAX_DEATHS,
                most is not None and item.fails >= most,
                any(one.how == "dead" for one in life.attempts),
            )
            if not any(reasons):
                yield f"{life.serial}: dead with {item.fails} fails and {item.deaths} deaths, {_tale(life)}"


def never_early(story: Story) -> Iterator[str]:
    """I9: no attempt starts before it is due, first runs and retries alike."""
    for life in story.lives.values():
        due = _due(life)
        if life.name in story.rules.ticks:
            due = float(life.serial.rpartition("/")[2])
        for attempt in life.attempts:
            early = due - story.server_time(attempt.start.at)
            if due and early > READING:
                yield f"{life.serial}: started {early:.3f} s before it was due"
        ends = {one.place: one for one in life.attempts}
        for attempt in life.attempts:
            before = ends.get(attempt.start.after)
            if before is None or before.end is None or before.how not in ASKED_FOR:
                continue
            if life.plan.startswith("overrun"):
                # Its thread ends long after its attempt was settled for it.
                continue
            grew = attempt.start.fails + attempt.start.snoozes - before.start.fails - before.start.snoozes
            early = before.end.at + before.end.seconds - attempt.start.at
            if grew > 0 and early > READING:
                yield f"{life.serial}: ran again {early:.3f} s before its time"


def one_job_per_tick(story: Story) -> Iterator[str]:
    """I10: each tick made one job or was counted as missed."""
    for life in story.lives.values():
        if life.name in story.rules.ticks:
            ids = {one.start.job for one in life.attempts}
            if len(ids) > 1:
                yield f"{life.serial}: {len(ids)} jobs of one tick"
    first = next(
        (one.census for one in story.censuses if one.census is not None and one.census.periodic), None
    )
    last = story.rest
    if first is None or last is None:
        return
    for name, every in story.rules.ticks.items():
        begin, end = first.periodic.get(name), last.periodic.get(name)
        if begin is None or end is None:
            continue
        counted = sum(
            last.totals.get(f"{kind}:{name}", 0) - first.totals.get(f"{kind}:{name}", 0)
            for kind in ("ticked", "missed")
        )
        if counted != (end - begin) // every:
            yield f"{name}: {(end - begin) // every} ticks passed, {counted} were enqueued or counted as missed"


def unique(story: Story) -> Iterator[str]:
    """I11: one job at most waits per unique key, a duplicate was told only while one did, and no key stays behind."""
    by_key: dict[str, list[Life]] = defaultdict(list)
    for life in story.lives.values():
        if life.asked is not None and life.asked.unique:
            by_key[life.asked.unique].append(life)
    for key, lives in by_key.items():
        yield from _unique_key(key, lives, story)
    started = {
        life.serial: min((one.start.at for one in life.attempts), default=float("inf"))
        for life in story.lives.values()
    }
    for event in story.censuses:
        census = event.census
        if census is None:
            continue
        waiting: Counter[str] = Counter()
        for place in ("queue", "scheduled"):
            waiting.update(
                item.unique
                for item in census.places.get(place, [])
                if item.unique
                and not (item.fails or item.deaths or item.snoozes)
                # One that had started let its key go. It can come back without a count: its pool was stopped.
                and started.get(item.serial, float("inf")) > event.at
            )
        for key, count in waiting.items():
            if count > 1:
                yield f"{key}: {count} jobs that never started wait at {event.at:.3f}"
        if census.rest:
            ids = {item.job for items in census.places.values() for item in items}
            for key, holder in census.unique.items():
                if holder not in ids:
                    yield f"{key}: left behind by job {holder}"


def _unique_key(key: str, lives: Sequence[Life], story: Story) -> Iterator[str]:
    kept = [(life, life.stored) for life in lives if life.stored is not None]
    first_start = {
        life.serial: min((one.start.at for one in life.attempts), default=float("inf")) for life in lives
    }
    for life in lives:
        answer, asked = life.answer, life.asked
        if answer is None or asked is None or answer.kind != "duplicate":
            continue
        if not any(
            other.serial != life.serial
            and other.asked is not None
            and other.exists
            and other.asked.at <= answer.at
            and first_start[other.serial] >= asked.at - UNDER_WAY
            for other in lives
        ):
            yield f"{key}: {life.serial} was told a duplicate while no other one waited"
    for one, stored in kept:
        for other, later in kept:
            if one is other or other.asked is None or stored.at > other.asked.at or _was_rescued(one):
                continue
            if later.at < first_start[one.serial] - UNDER_WAY and not _was_held(story, one, later.at):
                yield f"{key}: {other.serial} was stored while {one.serial} waited"


def _was_held(story: Story, life: Life, at: float) -> bool:
    """Whether a pool held the job in the last census before: its key was released, and the answer was on its way."""
    before = [event.census for event in story.censuses if event.census is not None and event.at <= at]
    return bool(before) and any(item.serial == life.serial for item in before[-1].places.get("held", []))


def _was_rescued(life: Life) -> bool:
    """Whether it was about to start, its key let go, when its pool died: it waits again, without the key."""
    return bool(life.attempts) and min(one.start.deaths for one in life.attempts) > 0


def limits(story: Story) -> Iterator[str]:
    """I12: never more attempts of a limited name than its limit, by the census and by the handlers."""
    for event in story.censuses:
        census = event.census
        if census is None:
            continue
        for name, limit in census.limits.items():
            held = {
                f"{pool}/{token}"
                for pool, tokens in census.held.items()
                for token in tokens
                if token.partition(":")[2] == name
            }
            members = set(census.members.get(name, []))
            allowed = story.rules.limits.get(name, limit)
            if max(len(held), len(members)) > max(limit, allowed):
                yield f"{name}: {len(held)} attempts are held at {event.at:.3f}, the limit is {limit}"
            if held != members:
                yield f"{name}: the limit counts {sorted(members)}, held are {sorted(held)}"
        yield from _held_by_key(story, event)
    for name, limit in story.rules.limits.items():
        yield from _overlaps(story, name, limit)
    for name, limit in story.rules.key_limits.items():
        yield from _overlaps(story, name, limit, by_key=True)


def _held_by_key(story: Story, event: Event) -> Iterator[str]:
    """What a limit by key counts in a census, and what pools hold."""
    census = event.census
    assert census is not None
    held: dict[str, set[str]] = defaultdict(set)
    for pool, tokens in census.held.items():
        for token in tokens:
            place = token.partition(":")[2]
            if place.partition("|")[0] in story.rules.key_limits:
                held[place].add(f"{pool}/{token}")
    for place in sorted(held.keys() | census.key_members):
        limit = story.rules.key_limits.get(place.partition("|")[0])
        members = set(census.key_members.get(place, []))
        if limit is None:
            continue
        if max(len(held[place]), len(members)) > limit:
            yield f"{place}: {len(held[place])} attempts are held at {event.at:.3f}, the limit is {limit}"
        if held[place] != members:
            yield f"{place}: the limit counts {sorted(members)}, held are {sorted(held[place])}"


def _overlaps(story: Story, name: str, limit: int, *, by_key: bool = False) -> Iterator[str]:
    """Whether more attempts of a name, or of one of its keys, were held at once than the limit."""
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for life in story.lives.values():
        for attempt in life.attempts:
            if attempt.start.name == name and not attempt.start.lost:
                begin, end = attempt.start.at, _until(story, life, attempt)
                if end > begin:
                    moments[attempt.key if by_key else ""] += ((begin, 1), (end, -1))
    for key, some in moments.items():
        running = 0
        for at, change in sorted(some):
            running += change
            if running > limit:
                yield f"{name} {key}: {running} ran at once at {at:.3f}, the limit is {limit}"
                break


def _until(story: Story, life: Life, attempt: Attempt) -> float:
    """Until when an attempt counted: its end, or before that the moment its pool could be taken from it."""
    moments = [attempt.end.at] if attempt.end is not None else []
    process = story.processes.get(attempt.start.pid)
    if story.lost_its_pool(attempt):
        if process is not None:
            moments += [fault.at for fault in process.faults if fault.at >= attempt.start.at]
            moments += [one.at for one in (process.gone, process.down) if one is not None]
            if process.gone is not None:
                # Another job may have ended the process at any time after the last line that it wrote.
                moments.append(max(process.last, attempt.start.at))
        # Whoever ran it next had it from Redis, so by then this one no longer counted.
        moments += [
            other.start.at
            for other in life.attempts
            if other is not attempt and other.start.at >= attempt.start.at
        ]
        if attempt.start.pool in story.reaped:
            moments.append(attempt.start.at)
    return min(moments, default=float("inf"))


def rate_limits(story: Story) -> Iterator[str]:
    """I20: by the clock of Redis, never more starts than a rate or a window allows.

    An attempt whose answer was lost on the way is not in it: when Redis handed it out is not known.
    """
    for limit, (kind, costs) in story.rules.rates.items():
        starts: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for life in story.lives.values():
            for attempt in life.attempts:
                start, end = attempt.start, attempt.end
                if start.name in costs and start.fetched:
                    used = end.units if end is not None and end.units is not None else costs[start.name]
                    key = attempt.key if limit in story.rules.rates_by_key else ""
                    starts[key].append((round(start.fetched * 1_000_000), used))
        for key, some in starts.items():
            problem = too_many(some, kind, ONE_MILLISECOND)
            if problem:
                yield f"{limit} {key}: {problem}"


def heard_at(story: Story, stop: Event) -> float:
    """When a process could hear that it is to stop: at once, or when a handler that kept the interpreter had ended."""
    ends = [end for start, end in story.deaf.get(stop.target, ()) if start <= stop.at < end]
    return max(ends, default=stop.at)


def stops(story: Story) -> Iterator[str]:
    """I13: a stop ends within its deadline and a second, and nothing starts after it."""
    asked = {event.target: event for event in story.events if event.kind == "stop"}
    ended: set[int] = set()
    for event in story.events:
        if event.kind != "stopped":
            continue
        ended.add(event.target)
        stop = asked.get(event.target)
        if stop is None:
            yield f"process {event.target}: stopped, and nobody had asked"
            continue
        took = event.at - heard_at(story, stop)
        # Time in which the machine ran somebody else is nobody's fault here.
        starved = sum(one.seconds for one in story.late if one.target == event.target and one.at >= stop.at)
        if took > stop.seconds + story.rules.stop + starved:
            yield f"process {event.target}: a stop within {stop.seconds:g} s took {took:.2f} s"
        process = story.processes.get(event.target)
        if process is not None and process.last > event.at:
            yield f"process {event.target}: worked on after it had stopped"
    for pid in set(asked) - ended:
        yield f"process {pid}: was told to stop and never did"


def work_resumes(story: Story) -> Iterator[str]:
    """I15: once the faults of the server and the network are over, work goes on in time."""
    if story.rules.resume is None:
        return
    for how, took, alone in resumptions(story):
        if alone and took > story.rules.resume:
            yield f"{how}: {took:.2f} s until the next job ended well"


def resumptions(story: Story) -> Iterator[tuple[str, float, bool]]:
    """How long it took, after the last fault of the server or the network was over, until a job started and ended well.

    For a fault of a network, a job of the workers behind it. The last figure: whether nothing else was wrong meanwhile.
    """
    group_of = {pid: process.up.how for pid, process in story.processes.items() if process.up is not None}
    good: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for life in story.lives.values():
        for one in life.attempts:
            if one.end is not None and one.how == "ok":
                for group in ("", group_of.get(one.start.pid, "?")):
                    good[group].append((one.start.at, one.end.at))
    for runs in good.values():
        runs.sort()
    last = story.censuses[-1].at if story.censuses else float("inf")
    rests = [event.at for event in story.censuses if event.census is not None and event.census.rest]
    active: Counter[str] = Counter()
    #: When a process was harmed, or told to stop: another one takes seconds to start.
    harms = [
        event.at for event in story.events if event.kind == "stop" or (event.kind == "fault" and event.target)
    ]
    for index, event in enumerate(story.faults):
        if not event.how.startswith(("server", "net")):
            continue
        active[event.how] += 1 if event.kind == "fault" else -1
        if event.kind == "fault" or any(count > 0 for count in active.values()):
            continue
        runs = good[event.name]
        first = min(
            (end for _, end in runs[bisect_right(runs, (event.at, float("inf"))) :][:50]),
            default=float("inf"),
        )
        if first > last or any(event.at < rest < first for rest in rests):
            # Nobody enqueued anything.
            continue
        meanwhile = [other for other in story.faults[index + 1 :] if other.at < first]
        before = [at for at in harms if event.at - 10 < at < first]
        yield event.how, first - event.at, not meanwhile and not before


def poison_is_bounded(story: Story) -> Iterator[str]:
    """I16: a job that kills its process does so three times and is dead; its deaths are its own.

    A parent that stops a child, or kills it because of another job, does not count that as a death of the jobs in it.
    So a job that ends such a child itself, in the same moment, is not counted either.
    """
    for life in story.lives.values():
        word, _, number = life.plan.partition(" ")
        if word != "poison" or not story.exists(life) or life.deleted is not None:
            continue
        ended = {one.place: one for one in life.attempts if one.end is None}
        excused = 0 if len(ended) <= MAX_DEATHS else sum(_was_ending(story, one) for one in ended.values())
        if len(ended) - excused > MAX_DEATHS:
            yield f"{life.serial}: killed {len(ended)} processes, {excused} of them were ending: {_tale(life)}"
        places = story.places.get(life.serial, [])
        if int(number) >= MAX_DEATHS and not (places and places[0][0] == "dead"):
            yield f"{life.serial}: kills its process every time, and is not dead"


def _was_ending(story: Story, attempt: Attempt) -> bool:
    """Whether the process of an attempt was about to be stopped, or to be killed because of another job in it."""
    start, process = attempt.start, story.processes.get(attempt.start.pid)
    if process is not None and process.up is not None:
        for event in story.events:
            asked = event.kind == "stop" or (event.kind == "fault" and event.how == ROLLING_RESTART)
            if asked and event.name == process.up.how and 0 <= start.at - event.at < ENDING_SECONDS:
                return True
    return any(
        life.plan.startswith("overrun") and other.start.pid == start.pid and other.start.at < start.at
        for life in story.lives.values()
        for other in life.attempts
        if other.how in ("", "abandoned")
    )


def nothing_unreadable_is_lost(story: Story) -> Iterator[str]:
    """I17: every entry that is no job is kept, byte for byte, once."""
    if story.rest is None:
        return
    injected = Counter(event.how for event in story.events if event.kind == "injected")
    kept = Counter(story.rest.broken)
    for entry, count in injected.items():
        if kept[entry] != count:
            yield f"an entry that is no job ({entry[:40]}) was put in {count} times and is kept {kept[entry]} times"
    for entry in kept.keys() - injected.keys():
        yield f"an entry in broken that nobody put in ({entry[:40]})"


def structure(story: Story) -> Iterator[str]:
    """I18: in every census a job is in one place, and what is held is held by a pool that is known."""
    for event in story.censuses:
        census = event.census
        if census is None:
            continue
        seen: Counter[tuple[str, str]] = Counter()
        for items in census.places.values():
            seen.update((item.serial, item.job) for item in items)
        for (serial, job), count in seen.items():
            if count > 1:
                yield f"{serial}: job {job} is in {count} places at {event.at:.3f}"
        known = set(census.pools) | set(census.condemned)
        for pool, tokens in census.held.items():
            if tokens and pool not in known:
                yield f"pool {pool} holds {len(tokens)} attempts and is neither live nor condemned"
        for pool in set(census.pools) & set(census.condemned):
            yield f"pool {pool} is both live and condemned"
        if census.rest:
            for name, count in census.waiting.items():
                if count:
                    yield f"{name}: {count} jobs wait at rest"
            if census.condemned:
                yield f"{len(census.condemned)} pools are still condemned at rest"


#: Every check by the name of its invariant.
CHECKS: dict[str, Check] = {
    "L1": whole,
    "L2": answered,
    "I1": no_loss,
    "I2": done_means_ran,
    "I3": no_phantom,
    "I4": no_double_enqueue,
    "I5": each_repeat_has_a_cause,
    "I6": late_is_discarded,
    "I7": one_end,
    "I8": exact_counts,
    "I9": never_early,
    "I10": one_job_per_tick,
    "I11": unique,
    "I12": limits,
    "I13": stops,
    "I15": work_resumes,
    "I16": poison_is_bounded,
    "I17": nothing_unreadable_is_lost,
    "I18": structure,
    "I20": rate_limits,
    "I21": atomic,
    "I22": batches,
    "I23": workflows,
}


@dataclass
class Report:
    """What the checker found: broken promises, and figures."""

    violations: list[str]
    jobs: int
    starts: int
    #: Cause to how many starts it explains; "" for none.
    repeats: Counter[str]
    lost: int
    late: int
    #: Kind of fault to the worst seconds until work went on.
    resumed: dict[str, float]

    @property
    def doubled(self) -> int:
        """Runs of a handler that its job had not asked for, each with a cause."""
        return sum(count for cause, count in self.repeats.items() if cause and cause not in ASKED_FOR)

    @property
    def unexplained(self) -> int:
        return self.repeats[""]


def check(events: Iterable[Event], rules: Rules | None = None) -> Report:
    """Check a whole ledger, which must end with a census at rest."""
    ordered = sorted(events, key=lambda event: (event.at, event.pid, event.seq))
    story = Story(ordered, rules or Rules())
    violations = [f"{name}: {problem}" for name, one in CHECKS.items() for problem in one(story)]
    resumed: dict[str, float] = {}
    for how, took, alone in resumptions(story):
        if alone:
            resumed[how] = max(took, resumed.get(how, 0.0))
    totals = {} if story.rest is None else story.rest.totals
    return Report(
        violations=violations,
        jobs=sum(life.exists for life in story.lives.values()),
        starts=sum(len(life.attempts) for life in story.lives.values()),
        repeats=Counter(cause for *_, cause in repeats(story)),
        lost=sum("lost:" in problem for problem in violations if problem.startswith("I1:")),
        late=sum(count for label, count in totals.items() if label.startswith("late:")),
        resumed=resumed,
    )
