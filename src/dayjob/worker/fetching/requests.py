"""RequestSequence: builds and numbers the exchange requests of one pool id."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dayjob.store.keys import Keys
from dayjob.store.op import Op
from dayjob.store.ops import consume
from dayjob.store.ops.consume import Entry, Reply, Request, Want
from dayjob.store.ops.history import Records
from dayjob.store.ops.member_groups import MemberGroup
from dayjob.worker.fetching.budget import FetchBudget
from dayjob.worker.fetching.keys_with_jobs import KeysWithJobs
from dayjob.worker.fetching.rules import RuleBook
from dayjob.worker.state import PoolState


class PreparedRequest(NamedTuple):
    """A request and the op that sends it. The op is built once, so that a resend is byte-identical."""

    request: Request
    op: Op[Reply]


class RequestSequence:
    """The requests of one pool id: the current one, the next number, and one that is prepared while the pool is idle.

    A request stays current until Redis answers it. After an error the same bytes are sent again, and the script
    recognises the repeated number.
    """

    def __init__(
        self,
        keys: Keys,
        state: PoolState,
        rules: RuleBook,
        keys_with_jobs: KeysWithJobs,
        *,
        lease: float,
        rng: random.Random,
    ) -> None:
        self._keys = keys
        self._keys_with_jobs = keys_with_jobs
        self._rules = rules
        self._state = state
        self._lease = lease
        self._rng = rng
        self._number = 0
        #: The number of the first token that the next exchange gives to a job.
        self.first_token = 1
        self.current: PreparedRequest | None = None
        self._idle: PreparedRequest | None = None

    def start_over(self) -> None:
        """Begin at the first number, because the pool registered under a new id."""
        self._number, self.first_token = 0, 1
        self.current = self._idle = None

    def build(
        self,
        weights: Mapping[str, int],
        budget: FetchBudget,
        resting: Collection[str] = (),
        entries: Sequence[Entry] = (),
        done: Mapping[str, Sequence[str]] = MappingProxyType({}),
        figures: Mapping[str, int] = MappingProxyType({}),
        records: Sequence[Records] = (),
        members: Sequence[MemberGroup] = (),
    ) -> PreparedRequest:
        """The next request. It fetches the names with a weight above 0 that are not `resting`."""
        order = list(weights)
        self._rng.shuffle(order)
        wants = [
            Want(name, max(1, weights[name]), weights[name] > 0 and name not in resting, name in budget.fast)
            for name in order
        ]
        rules = self._rules.of(order)
        keyed = self._keys_with_jobs.of(rules, entries, done, budget.free, budget.extra) if rules else {}
        request = Request(
            self._state.pool_id, self._number + 1, self.first_token, wants,
            room=budget.free, extra=budget.extra, entries=entries, done=done, members=members,
            minute=int(self._state.clock.now() // 60), figures=figures, records=records,
            rules=rules, limits=self._rules.kinds(rules, entries, keyed) if rules or self._rules else {}, keyed=keyed,
        )  # fmt: skip
        return PreparedRequest(
            request, consume.exchange(self._keys, request, lease=self._lease, u=self._rng.random())
        )

    def send(self, prepared: PreparedRequest) -> None:
        """Make this the current request."""
        self.current = prepared
        self._number = prepared.request.number

    def answered(self) -> None:
        """Note that Redis answered the current request."""
        self.current = None

    def prepare_idle(self, weights: Mapping[str, int], budget: FetchBudget) -> None:
        """Build the request that an idle pool sends when a bell rings, to save time then."""
        self._idle = self.build(weights, budget)

    def take_idle(self) -> PreparedRequest | None:
        """The request that was prepared while idle, if its number is still the next one. It is returned once."""
        idle, self._idle = self._idle, None
        if idle is None:
            return None
        request = idle.request
        expected = (self._state.pool_id, self._number + 1, self.first_token)
        return idle if (request.pool_id, request.number, request.first_token) == expected else None
