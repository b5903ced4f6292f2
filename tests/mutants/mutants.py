"""Mutants: deliberate breakages of the product, each with the tests that must notice it.

One is a text that is replaced by another in one file, where it must be exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: The repository.
ROOT = Path(__file__).parents[2]
SCRIPTS = "src/dayjob/store/scripts"
WORKER = "src/dayjob/worker"


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `file`; one of `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Break the copy of the repository at `root`. Raises ValueError where the text is not there once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has its text {text.count(self.old)} times, not once")
        path.write_text(text.replace(self.old, self.new))


EXCHANGE = "tests/scripts/test_exchange.py"
RATES = "tests/scripts/test_rates.py"
RATED_POOLS = "tests/integration/test_rates.py"
SETTLE = "tests/scripts/test_exchange_settle.py"
RESCUE = "tests/integration/test_rescue.py"
HISTORY = "tests/scripts/test_history.py"
CHILDREN = "tests/scripts/test_children.py"
BATCHES = "tests/scripts/test_batches.py"
BATCH_OPERATORS = "tests/integration/test_batch_operators.py"
WORKFLOWS = "tests/scripts/test_workflows.py"
WORKFLOW_OPERATORS = "tests/integration/test_workflow_operators.py"
WORKFLOW_MACHINE = "tests/property/test_workflow_machine.py::test_any_history_releases_each_node_once_for_the_states_that_it_needs"
ATOMIC = "tests/integration/test_atomic.py"
MACHINE = "tests/property/test_machine.py"
CRASHES = "tests/faults/test_crash_points.py"
NETWORK = "tests/faults/test_pool_network.py"
BIN = "tests/scripts/test_bin.py"
WAVES = "tests/integration/test_waves.py"
CLOCK = "tests/faults/test_host_clock.py"
LOGGING = "tests/integration/test_logging_that_raises.py"
EVENTS = "tests/scripts/test_events.py"
OTEL = "tests/integration/test_otel.py"
OUTBOX = "tests/integration/test_outbox.py"
DEEP_LOOKUP = "tests/integration/test_deep_lookup.py"
KEYS = "tests/scripts/test_keys.py"
KEY_CHANGES = "tests/scripts/test_key_changes.py"

ALL = (
    Mutant(
        "a deep search leaves out the dead jobs",
        "src/dayjob/store/ops/find.py",
        "for place in (_find_scheduled, _find_ended) if names else ():",
        "for place in (_find_scheduled,) if names else ():",
        (DEEP_LOOKUP,),
    ),
    # The history.
    Mutant(
        "a late failure is recorded",
        f"{SCRIPTS}/prelude/entries.lua",
        "if settled[token] then follow(",
        "if not again then follow(",
        (f"{HISTORY}::test_a_late_failure_is_not_recorded_and_its_neighbour_is",),
    ),
    Mutant(
        "a late completion is recorded",
        f"{SCRIPTS}/exchange.lua",
        "if exchange.late == 0 then",
        "if true then",
        (f"{HISTORY}::test_a_late_completion_is_not_recorded_as_completed",),
    ),
    Mutant(
        "a sample does not say for how many attempts it stands",
        f"{WORKER}/fetching/history.py",
        "sample.seen / len(sample.kept)",
        "1",
        ("tests/unit/test_history.py::test_under_load_an_even_sample_is_kept_that_stands_for_all",),
    ),
    # Batches.
    Mutant(
        "the end of a member is noted though its outcome was late",
        f"{SCRIPTS}/prelude/entries.lua",
        "if settled[token] then follow(kind,",
        "if settled[token] or kind == 'member' then follow(kind,",
        (f"{BATCHES}::test_a_late_outcome_ends_no_member",),
    ),
    Mutant(
        "a callback is sent twice",
        f"{SCRIPTS}/prelude/membership.lua",
        "redis.call('HEXISTS', batch, 'sent:' .. event) == 0 and ",
        "",
        ("tests/integration/test_batches.py::test_a_death_is_called_at_once_and_a_retry_of_the_member_still_brings_success",),
    ),
    Mutant(
        "a batch ends before its last member",
        f"{SCRIPTS}/prelude/membership.lua",
        "or all < total then",
        "or all < total - 1 then",
        (f"{BATCHES}::test_the_last_end_enqueues_the_callbacks_once",),
    ),
    Mutant(
        "a batch with a dead member succeeds",
        f"{SCRIPTS}/prelude/membership.lua",
        "if known[3] or bad > 0 then",
        "if known[3] then",
        (f"{BATCHES}::test_a_member_that_ends_as_a_failure_keeps_success_away",),
    ),
    Mutant(
        "a sweep ends no member",
        f"{SCRIPTS}/sweep.lua",
        "if in_batch > 0 then note_member",
        "if false then note_member",
        (f"{BATCHES}::test_a_sweep_ends_members_and_calls_back",),
    ),
    Mutant(
        "a retried member stays ended",
        f"{SCRIPTS}/prelude/membership.lua",
        "    redis.pcall('SETBIT', ended, n, 0)\n",
        "",
        (f"{BATCHES}::test_a_batch_goes_up_to_the_one_above_when_it_ends_and_opens_it_again",),
    ),
    Mutant(
        "a member that is unreadable when it falls due keeps its batch waiting",
        f"{SCRIPTS}/requeue.lua",
        "if ARGV[i + 3] ~= '0' then note_member",
        "if false then note_member",
        ("tests/integration/test_batches.py::test_a_member_that_is_unreadable_when_it_falls_due_has_ended",),
    ),
    Mutant(
        "an audit takes running members for lost",
        "src/dayjob/admin/walks.py",
        "    count += yield from over_held(keys, put)\n",
        "",
        (f"{BATCH_OPERATORS}::test_a_batch_names_what_it_waits_for_and_its_dead_members_are_retried",),
    ),
    Mutant(
        "an audit takes nested batches for lost",
        "src/dayjob/admin/batch_audit.py",
        "if one is not None and one.ended_at is None:",
        "if False:",
        (f"{BATCH_OPERATORS}::test_nested_batches_are_shown_audited_and_lead_to_each_other",),
    ),
    Mutant(
        "a repair ends no member",
        "src/dayjob/admin/batch_audit.py",
        '{"lost": "completed", "died": "dead", "alive": "reopened"}',
        '{"lost": "check", "died": "dead", "alive": "reopened"}',
        (f"{BATCH_OPERATORS}::test_members_that_another_program_deleted_are_found_and_end_on_request",),
    ),
    Mutant(
        "an audit believes that what has ended is not alive",
        "src/dayjob/admin/batch_audit.py",
        "before & after & live",
        "0",
        (
            f"{BATCH_OPERATORS}::test_members_that_are_alive_or_dead_against_what_the_batch_believes_are_corrected",
        ),
    ),
    # Workflows.
    Mutant(
        "a node is released though it needs one that is dead",
        f"{SCRIPTS}/prelude/workflow.lua",
        "elseif state == 'c' or state == 'n' then",
        "elseif state == 'c' or state == 'n' or state == 'd' then",
        (f"{WORKFLOWS}::test_each_end_of_a_node_decides_what_waits_for_it",),
    ),
    Mutant(
        "a node that was cancelled ends as if it had not been",
        f"{SCRIPTS}/prelude/node.lua",
        "elseif old ~= 'r' and old ~= 'f' then",
        "elseif old ~= 'r' and old ~= 'f' and old ~= 'x' then",
        (f"{WORKFLOWS}::test_a_cancelled_node_takes_what_needs_it_along_and_stays_cancelled",),
    ),
    Mutant(
        "a node that is skipped leaves those behind it waiting",
        f"{SCRIPTS}/prelude/workflow.lua",
        "          one.following(n, list)\n",
        "",
        (WORKFLOW_MACHINE,),
    ),
    Mutant(
        "a retry of a node keeps what needs it as it was",
        f"{SCRIPTS}/change_workflow.lua",
        "  while list[at] and what ~= 'skip' do",
        "  while list[at] and what == 'cancel' do",
        (f"{WORKFLOWS}::test_a_retry_runs_a_node_again_and_then_what_needs_it",),
    ),
    Mutant(
        "a retry of a workflow runs what has completed again",
        f"{SCRIPTS}/change_workflow.lua",
        "if first >= 0 or what ~= 'retry' or state == 'd' or state == 'x' then",
        "if true then",
        (f"{WORKFLOW_OPERATORS}::test_a_failed_workflow_names_the_dead_node_and_a_retry_lets_it_go_on",),
    ),
    Mutant(
        "a retry leaves the dead job of its node",
        f"{SCRIPTS}/change_workflow.lua",
        "redis.call('ZREM', dead, ARGV[at + 1])",
        "redis.call('ZCARD', dead)",
        (f"{WORKFLOW_OPERATORS}::test_a_failed_workflow_names_the_dead_node_and_a_retry_lets_it_go_on",),
    ),
    Mutant(
        "a retry does not see that a node has changed since it was read",
        f"{SCRIPTS}/change_workflow.lua",
        "if seen ~= '' and",
        "if false and",
        (f"{WORKFLOWS}::test_a_change_of_what_was_read_meanwhile_is_refused",),
    ),
    Mutant(
        "a cancelled node runs again while its job is still there",
        "src/dayjob/admin/workflows.py",
        "        if place in wanted:",
        "        if place in ():",
        (f"{WORKFLOW_OPERATORS}::test_a_cancelled_node_does_not_run_again_before_its_job_has_ended",),
    ),
    # Atomic jobs.
    Mutant(
        "the children of an attempt that is gone are stored",
        f"{SCRIPTS}/prelude/entries.lua",
        "if present and not again then note_children(kind, i, token, payload, key, value, more) end",
        "note_children(kind, i, token, payload, key, value, more) children.store(token)",
        (f"{CHILDREN}::test_an_attempt_that_is_gone_has_no_children", MACHINE),
    ),
    Mutant(
        "an attempt is settled though its children cannot be stored",
        f"{SCRIPTS}/prelude/entries.lua",
        "elseif settler.can(kind, i, token) and (not children or children.fit(token)) then",
        "elseif settler.can(kind, i, token) then",
        (f"{CHILDREN}::test_an_attempt_whose_staged_list_is_incomplete_is_not_settled_and_stages_again",),
    ),
    Mutant(
        "an attempt that completes leaves its children behind",
        f"{SCRIPTS}/prelude/entries.lua",
        "if children then children.store(token) end",
        "",
        (f"{CHILDREN}::test_the_step_that_completes_an_attempt_stores_its_children_and_fetches_them",),
    ),
    Mutant(
        "a unique child is stored though its key is taken",
        f"{SCRIPTS}/prelude/children.lua",
        "or unique and redis.call('EXISTS', unique) == 1\n",
        "or false\n",
        (f"{CHILDREN}::test_a_unique_child_is_stored_only_if_its_key_is_free_at_the_end",),
    ),
    Mutant(
        "a staged list expires though its job completed",
        f"{SCRIPTS}/prelude/children.lua",
        "redis.call('PERSIST', list)",
        "redis.call('TTL', list)",
        (f"{CHILDREN}::test_staged_children_are_released_in_order_by_the_step_that_completes_the_attempt",),
    ),
    Mutant(
        "a release leaves what it moved",
        f"{SCRIPTS}/release.lua",
        "redis.call('LTRIM', list, #payloads, -1)",
        "redis.call('LTRIM', list, 1, -1)",
        (f"{CHILDREN}::test_two_leaders_release_each_job_once",),
    ),
    Mutant(
        "a failed attempt keeps its children",
        f"{WORKER}/running/settler.py",
        "if attempt.children is None or not isinstance(outcome, Done | Kept):",
        "if attempt.children is None:",
        (f"{ATOMIC}::test_an_attempt_that_does_not_complete_leaves_no_children",),
    ),
    Mutant(
        "hooks of an async atomic job keep their jobs",
        f"{WORKER}/running/attempt.py",
        "            if self.over:\n                return False",
        "            if False:\n                return False",
        (f"{ATOMIC}::test_hooks_send_at_once_whatever_the_colour",),
    ),
    # The exchange: who asks, and was it heard before?
    Mutant(
        "a late copy is applied",
        f"{SCRIPTS}/exchange.lua",
        "if number < last then",
        "if false then",
        (f"{EXCHANGE}::test_a_late_copy_of_an_earlier_request_is_refused_without_effect",),
    ),
    Mutant(
        "a resend is applied again",
        f"{SCRIPTS}/exchange.lua",
        "local again = number == last",
        "local again = false",
        (f"{EXCHANGE}::test_a_resend_applies_nothing_twice_and_brings_the_same_jobs",),
    ),
    Mutant(
        "a condemned pool is not refused",
        f"{SCRIPTS}/exchange.lua",
        "if not call('ZSCORE', pools, pool) then",
        "if false then",
        ("tests/scripts/test_condemn.py::test_a_condemned_pool_is_refused_and_keeps_what_it_holds_frozen",),
    ),
    Mutant(
        "a rewind is ignored",
        f"{SCRIPTS}/exchange.lua",
        "(number > last + 1 and 'rewound' or 'ok')",
        "'ok'",
        (f"{EXCHANGE}::test_a_gap_in_the_numbers_is_applied_and_called_rewound",),
    ),
    Mutant(
        "the number of a request is not noted",
        f"{SCRIPTS}/exchange.lua",
        "  call('HSET', state, 'last', format('%d', number))\n",
        "",
        (f"{EXCHANGE}::test_a_resend_applies_nothing_twice_and_brings_the_same_jobs", MACHINE),
    ),
    # The exchange: settling.
    Mutant(
        "a late outcome is applied",
        f"{SCRIPTS}/prelude/entries.lua",
        "    local present = redis.call('HEXISTS', held, token) == 1\n",
        "    local present = true\n",
        (f"{SETTLE}::test_the_outcome_of_an_attempt_that_is_gone_changes_nothing_but_the_count",),
    ),
    Mutant(
        "what was settled stays held",
        f"{SCRIPTS}/prelude/settle.lua",
        "    redis.call('HDEL', held, token)\n",
        "",
        (f"{SETTLE}::test_a_retry_waits_in_retry_and_wakes_the_leader",),
    ),
    Mutant(
        "an outcome keeps its place in the limit",
        f"{SCRIPTS}/prelude/settle.lua",
        "    if exchange.limit[i] then redis.pcall('SREM', key_of(i, 3), member) end\n",
        "",
        (f"{SETTLE}::test_every_outcome_frees_its_place_in_the_limit",),
    ),
    Mutant(
        "a completion keeps its place in the limit",
        f"{SCRIPTS}/prelude/groups.lua",
        "if limit[i] and not exchange.uncounted[i] then redis.pcall('SREM', key_of(i, 3), member) end",
        "",
        (f"{EXCHANGE}::test_what_is_settled_makes_room_in_the_same_exchange", MACHINE),
    ),
    Mutant(
        "late completions count as done",
        f"{SCRIPTS}/prelude/groups.lua",
        "if dropped > 0 then add('done', i, dropped) end",
        "if dropped > 0 then add('done', i, count) end",
        (f"{SETTLE}::test_late_completions_are_counted_beside_timely_ones",),
    ),
    Mutant(
        "a give-back goes to the end of the queue",
        f"{SCRIPTS}/prelude/settle.lua",
        "call('RPUSH', key_of(i, 1), back)",
        "call('LPUSH', key_of(i, 1), back)",
        (f"{SETTLE}::test_what_is_given_back_in_descending_order_comes_first_again",),
    ),
    Mutant(
        "a result never expires",
        f"{SCRIPTS}/prelude/answer.lua",
        "redis.pcall('SET', key, value, 'PX', kept, 'GET')",
        "redis.pcall('SET', key, value, 'GET')",
        (f"{SETTLE}::test_a_kept_job_goes_to_done_until_it_is_dropped_and_its_result_expires_then",),
    ),
    Mutant(
        "a unique key is released by whoever asks",
        f"{SCRIPTS}/prelude/entries.lua",
        "    if holder == id then\n",
        "    if holder then\n",
        (f"{SETTLE}::test_a_unique_key_is_released_by_its_owner_only",),
    ),
    Mutant(
        "a suspect is not named",
        f"{SCRIPTS}/exchange.lua",
        "  call('HSET', state, 'suspect', exchange.named)\n",
        "",
        (f"{SETTLE}::test_a_suspect_is_named_in_the_state_and_cleared_when_it_ends",),
    ),
    # The exchange: fetching.
    Mutant(
        "a rate is not charged",
        f"{SCRIPTS}/prelude/charges.lua",
        "one.due = (one.due or 0) + amount",
        "one.due = nil",
        (f"{RATES}::test_a_rate_lets_its_burst_start_and_the_rest_stays_in_its_place",),
    ),
    Mutant(
        "what never started is not refunded",
        f"{SCRIPTS}/prelude/charges.lua",
        "one.changed = true",
        "one.changed = false",
        (f"{RATES}::test_what_never_started_is_refunded",),
    ),
    Mutant(
        "a refund gives back what later jobs used",
        f"{SCRIPTS}/prelude/charges.lua",
        "one.full_at = math.min(one.full_at, math.max(one.full_at - amount, least))",
        "one.full_at = one.full_at - amount",
        (f"{RATES}::test_a_refund_never_makes_a_bucket_fuller_than_without_the_attempt",),
    ),
    Mutant(
        "a hold is ignored",
        f"{SCRIPTS}/prelude/limiters.lua",
        "if each.held_until > at_us then return 0 end",
        "",
        (f"{RATES}::test_throttled_holds_the_limit_for_every_name_that_has_it",),
    ),
    Mutant(
        "a burst has one unit more",
        f"{SCRIPTS}/prelude/limiters.lua",
        "one.room = one.burst * one.interval",
        "one.room = (one.burst + 1) * one.interval",
        (f"{RATES}::test_a_rate_lets_its_burst_start_and_the_rest_stays_in_its_place",),
    ),
    Mutant(
        "a window has one start more",
        f"{SCRIPTS}/prelude/limiters.lua",
        "most = math.min(most, each.n - each.size)",
        "most = math.min(most, each.n - each.size + 1)",
        (f"{RATES}::test_a_window_counts_starts_whatever_they_cost",),
    ),
    Mutant(
        "a window is shorter than it should be",
        f"{SCRIPTS}/prelude/limiters.lua",
        "math.max(at_us - one.per, reset or 0)",
        "math.max(at_us - one.per * 0.9, reset or 0)",
        (f"{RATES}::test_a_window_counts_a_start_for_its_whole_time_and_no_longer",),
    ),
    Mutant(
        "a window forgets starts that count",
        f"{SCRIPTS}/prelude/charges.lua",
        "redis.call('ZREMRANGEBYSCORE', state, '-inf', string.format('%.0f', at_us - one.per))",
        "redis.call('ZREMRANGEBYSCORE', state, '-inf', string.format('%.0f', at_us - one.per / 2))",
        (f"{RATES}::test_a_window_counts_a_start_for_its_whole_time_and_no_longer",),
    ),
    Mutant(
        "a window keeps what was given back",
        f"{SCRIPTS}/prelude/charges.lua",
        "redis.call('ZREM', starts, member)",
        "",
        (f"{RATES}::test_a_window_forgets_what_never_started",),
    ),
    Mutant(
        "a name that waits for a limit does not wake the leader",
        f"{SCRIPTS}/prelude/park.lua",
        "if not first.err and not (first[2] and tonumber(first[2]) * 1000 <= at) then redis.pcall('ZADD', due, 0, '1') end",
        "",
        (f"{RATES}::test_a_name_that_waits_is_parked_until_its_next_job_fits",),
    ),
    Mutant(
        "a pool does not refund what never started",
        f"{WORKER}/running/attempt.py",
        "return Spent(-charge.cost, charge.marks, undone=True)",
        "return None",
        (f"{RATED_POOLS}::test_what_never_started_is_refunded_when_a_pool_stops",),
    ),
    Mutant(
        "a refund does not wake the other names of a limit",
        f"{WORKER}/fetching/rules.py",
        "if entry.spent is not None and entry.spent.units < 0",
        "if False",
        (f"{RATED_POOLS}::test_what_a_job_did_not_use_lets_another_name_of_its_limit_start",),
    ),
    Mutant(
        "an attempt that Redis lost is not charged again",
        f"{WORKER}/fetching/replies.py",
        "self._charge_again(held[token])",
        "pass",
        (f"{RATED_POOLS}::test_an_attempt_that_redis_lost_is_charged_again",),
    ),
    Mutant(
        "a deleted rate is restored twice",
        f"{SCRIPTS}/restore_starts.lua",
        " or epoch == restored then",
        " then",
        ("tests/scripts/test_restore_starts.py::test_a_limit_whose_key_was_deleted_counts_what_all_pools_hold",),
    ),
    Mutant(
        "what an operator reset is restored",
        f"{SCRIPTS}/restore_starts.lua",
        "if at > after then",
        "if at > 0 then",
        ("tests/scripts/test_restore_starts.py::test_what_an_operator_reset_stays_reset",),
    ),
    Mutant(
        "a testing block ignores a hold",
        "src/dayjob/testing/limits.py",
        "            self._held_until.get(_place(limit, partition), 0.0) <= now\n            and self._count",
        "            self._count",
        ("tests/unit/test_testing_limits.py::test_a_throttled_job_waits_at_the_head_of_its_queue_and_its_limit_is_held_for_all",),
    ),
    Mutant(
        "a pool fetches under limits that it does not know",
        f"{SCRIPTS}/prelude/count.lua",
        "        unknown[#unknown + 1] = i\n        left[i] = 0\n",
        "        unknown[#unknown + 1] = i\n        rule[i] = nil\n",
        (f"{RATES}::test_a_pool_that_does_not_know_the_limits_of_a_name_fetches_nothing_of_it",),
    ),
    Mutant(
        "the limit is not counted",
        f"{SCRIPTS}/prelude/fetchable.lua",
        "return math.min(waiting, math.max((tonumber(limit) or tonumber(string.match(limit, '^%S*')) or 0) - running, 0))",
        "return waiting",
        (f"{EXCHANGE}::test_a_limit_is_counted_in_the_step_that_takes",),
    ),
    Mutant(
        "a paused queue is fetched",
        f"{SCRIPTS}/prelude/fetchable.lua",
        "  if redis.call('EXISTS', KEYS[base + 2]) == 1 then return 0 end\n",
        "",
        (f"{EXCHANGE}::test_a_paused_queue_is_left_alone_until_it_is_resumed",),
    ),
    Mutant(
        "bytes do not end a fetch",
        f"{SCRIPTS}/prelude/fetch.lua",
        "      bytes = bytes - #payloads[p]\n",
        "",
        (f"{EXCHANGE}::test_fetching_stops_at_one_mebibyte",),
    ),
    Mutant(
        "a name without jobs is answered as one with jobs",
        f"{SCRIPTS}/prelude/fetch.lua",
        "  if #group > empty then exchange.jobs[#exchange.jobs + 1] = group end\n",
        "  exchange.jobs[#exchange.jobs + 1] = group\n",
        (f"{EXCHANGE}::test_the_bytes_are_counted_over_all_names",),
    ),
    Mutant(
        "jobs are unpacked by the thousand",
        f"{SCRIPTS}/prelude/fetch.lua",
        "chunk = math.min(chunk * 4, 32)",
        "chunk = chunk * 4",
        (f"{EXCHANGE}::test_no_read_of_a_queue_asks_for_more_than_32_jobs",),
    ),
    Mutant(
        "the bell is not passed on",
        f"{SCRIPTS}/exchange.lua",
        "    ring(bell)\n",
        "",
        (f"{EXCHANGE}::test_a_bell_that_somebody_popped_is_passed_on_without_room", MACHINE),
    ),
    Mutant(
        "memory that is full stops the consumers",
        f"{SCRIPTS}/exchange.lua",
        "#!lua flags=allow-oom\n",
        "#!lua\n",
        ("tests/scripts/test_memory_full.py::test_a_backlog_drains_while_memory_is_full",),
    ),
    # Enqueueing.
    Mutant(
        "an enqueue whose answer was lost is stored again",
        f"{SCRIPTS}/prelude/sent.lua",
        "< tonumber(number) then",
        "< tonumber(number) + 9 then",
        ("tests/integration/test_enqueue_faults.py::test_a_cut_at_any_point_makes_one_job_of_one_enqueue",),
    ),
    Mutant(
        "every request of a slot has the same number",
        "src/dayjob/enqueue/request.py",
        "        self.number += 1\n",
        "        self.number = 1\n",
        ("tests/contract/test_enqueuers.py", CRASHES),
    ),
    Mutant(
        "a unique key is not taken",
        f"{SCRIPTS}/prelude/admitted.lua",
        "    redis.call('SET', unique, one.id, 'PX', string.format('%d', life))\n",
        "",
        ("tests/scripts/test_admit.py::test_a_second_one_is_not_stored_and_learns_who_holds_the_key",),
    ),
    Mutant(
        "a job expires by the clock of its producer",
        f"{SCRIPTS}/enqueue.lua",
        "if span > 0 then",
        "if false then",
        ("tests/faults/test_host_clock.py::test_the_first_job_of_a_process_expires_by_redis_time",),
    ),
    Mutant(
        "a chosen id is forgotten",
        f"{SCRIPTS}/prelude/admitted.lua",
        "  if chosen then\n",
        "  if false then\n",
        ("tests/scripts/test_admit.py::test_an_id_chosen_by_the_caller_is_stored_once_from_any_connection",),
    ),
    Mutant(
        "an enqueue does not ring",
        f"{SCRIPTS}/prelude/enqueued.lua",
        "redis.pcall('ZADD', bell, 0, '1')\n",
        "",
        ("tests/scripts/test_enqueue.py::test_it_rings_the_bell_of_its_name_and_says_the_time",),
    ),
    Mutant(
        "an unknown answer is called not stored",
        "src/dayjob/enqueue/request.py",
        "            self.doubtful = self.doubtful or error.sent\n",
        "",
        ("tests/integration/test_enqueue_faults.py::test_an_answer_that_never_comes_is_unknown_and_repeat_is_safe",),
    ),
    Mutant(
        "a delay is counted by the clock of the host",
        "src/dayjob/store/ops/produce.py",
        '(slot.number, name if introduce else "", when.mode, when.milliseconds, span(expires), *payloads)',
        '(slot.number, name if introduce else "", "at", when.milliseconds + int(__import__("time").time() * 1000),'
        " span(expires), *payloads)",
        (CLOCK,),
    ),
    Mutant(
        "the time of Redis is taken for that of the host",
        f"{WORKER}/state.py",
        "        self._offset = redis_now - time.time()\n",
        "        self._offset = 0.0\n",
        (CLOCK,),
    ),
    # Death and rescue.
    Mutant(
        "a sweep moves what is no longer held",
        f"{SCRIPTS}/sweep.lua",
        "if able and redis.call('HEXISTS', held, token) == 1 then",
        "if able then",
        ("tests/scripts/test_sweep.py::test_two_sweepers_move_each_attempt_once",),
    ),
    Mutant(
        "a sweep counts a cancelled job as discarded",
        f"{SCRIPTS}/sweep.lua",
        "      add('cancelled', name)\n",
        "      add('discarded', name)\n",
        ("tests/scripts/test_sweep.py::test_a_cancelled_job_is_dropped_and_counted_as_cancelled",),
    ),
    Mutant(
        "a sweep puts cancelled jobs back",
        f"{WORKER}/chores/reaper.py",
        "            if cancel is not None:\n",
        "            if False:\n",
        ("tests/integration/test_cancelled_jobs.py::test_a_cancelled_job_whose_process_is_killed_never_runs_again",),
    ),
    Mutant(
        "an exchange gives a cancelled job back",
        f"{SCRIPTS}/prelude/entries.lua",
        "local runs_again = {retried = true, snoozed = true, given_back = true, held_back = true, rewound = true}",
        "local runs_again = {}",
        ("tests/scripts/test_exchange_settle.py::test_a_cancelled_job_is_kept_for_its_pool_to_end_and_goes_nowhere_else",),
    ),
    Mutant(
        "a sweep keeps places in limits",
        f"{SCRIPTS}/sweep.lua",
        "    redis.pcall('SREM', members, id .. '/' .. token)\n",
        "",
        ("tests/scripts/test_sweep.py::test_places_of_a_limit_become_free_and_ring",),
    ),
    Mutant(
        "a sweep does not ring",
        f"{SCRIPTS}/sweep.lua",
        "  ring(bell)\n",
        "",
        ("tests/scripts/test_sweep.py::test_places_of_a_limit_become_free_and_ring", MACHINE),
    ),
    Mutant(
        "a sweep begins with the lowest tokens",
        f"{WORKER}/chores/reaper.py",
        "tokens = sorted(held, key=_token_number, reverse=True)",
        "tokens = sorted(held, key=_token_number)",
        ("tests/integration/test_attempts.py::test_what_a_dead_pool_held_waits_in_its_old_order_ahead_of_what_came_since",),
    ),
    Mutant(
        "a sweep sends any number of bytes",
        f"{WORKER}/chores/reaper.py",
        "if batch and total + size > MAX_SWEEP_BYTES:",
        "if False:",
        ("tests/integration/test_attempts.py::test_large_jobs_of_a_dead_pool_are_rescued_in_order_by_sweeps_of_bounded_size",),
    ),
    Mutant(
        "deaths are counted on all",
        f"{WORKER}/chores/reaper.py",
        "        if wire.deaths >= retry.SUSPECT and token != crash.suspect:",
        "        if False:",
        (f"{RESCUE}::test_a_job_that_kills_its_pools_is_dead_at_the_third_death_and_takes_nobody_with_it", MACHINE),
    ),
    Mutant(
        "leases are judged though Redis was away",
        f"{SCRIPTS}/prelude/leases.lua",
        "  if now >= quiet then",
        "  if true then",
        ("tests/scripts/test_condemn.py::test_after_a_gap_or_a_step_backwards_no_lease_is_judged",),
    ),
    Mutant(
        "the leader's round condemns nobody",
        f"{SCRIPTS}/lead.lua",
        "expired_pools(pools, watch, lease, now), 'lease', id, now)",
        "{}, 'lease', id, now)",
        ("tests/scripts/test_lead.py::test_the_round_condemns_pools_whose_lease_has_expired",),
    ),
    Mutant(
        "the leader's round reports no due retries",
        f"{SCRIPTS}/lead.lua",
        "wait_of(retry)",
        "-1",
        ("tests/scripts/test_lead.py::test_the_round_reports_what_is_due_first",),
    ),
    Mutant(
        "the chores do not learn that the listener stopped waiting for the bell of due jobs",
        "src/dayjob/worker/chores/due_bell.py",
        "            self._listener_waits = False\n",
        "            pass\n",
        ("tests/unit/test_chores.py::test_when_the_listener_stops_waiting_the_chores_wait_by_themselves",),
    ),
    Mutant(
        "a condemned pool gets a lease again",
        f"{SCRIPTS}/beat.lua",
        "if not redis.call('ZSCORE', pools, id) then",
        "if false then",
        ("tests/scripts/test_beat.py", MACHINE),
    ),
    Mutant(
        "a pool that leaves is forgotten with what it holds",
        f"{SCRIPTS}/leave.lua",
        "if left > 0 then",
        "if false then",
        ("tests/scripts/test_leave.py::test_a_pool_that_holds_something_is_condemned_with_all_of_it",),
    ),
    Mutant(
        "the parent beats for a child that is stopped",
        f"{WORKER}/supervisor/process.py",
        "not (self.suspended or self.ended or self.loop_died)",
        "not (self.ended or self.loop_died)",
        ("tests/integration/test_supervisor.py::test_a_suspended_child_loses_its_lease_and_goes_on_under_a_new_id",),
    ),
    Mutant(
        "a failure that cannot be handled is not settled",
        f"{WORKER}/running/runner.py",
        "            return self._last_resort(attempt, problem)\n",
        "            raise\n",
        (f"{LOGGING}::test_a_failure_that_cannot_be_handled_is_counted_and_costs_no_worker",),
    ),
    Mutant(
        "a child whose loop died is left to stop by itself",
        f"{WORKER}/supervisor/child.py",
        "        self._line.send(LoopDied(loop, type(error).__name__))\n",
        "",
        (f"{LOGGING}::test_a_child_whose_loop_died_and_that_does_not_stop_is_killed_and_its_jobs_run_again",),
    ),
    Mutant(
        "a log call raises what a handler raises",
        "src/dayjob/safe_logging.py",
        "            _show(problem, text, args)\n",
        "            raise\n",
        (f"{LOGGING}::test_failing_jobs_are_settled_and_cost_no_worker",),
    ),
    Mutant(
        "a large result gets no time to be sent",
        "src/dayjob/store/link.py",
        "extra = size / self._slowest if size > LARGE else 0.0",
        "extra = 0.0",
        (f"{NETWORK}::test_a_large_result_gets_through_a_slow_connection",),
    ),
    Mutant(
        "results have no bound",
        f"{WORKER}/running/runner.py",
        "if len(answer) > limit:",
        "if False:",
        ("tests/integration/test_handlers.py::test_a_result_above_max_result_fails_the_attempt_and_names_its_size",),
    ),
    # Chores.
    Mutant(
        "jobs are requeued early",
        f"{SCRIPTS}/requeue.lua",
        "(not strict or tonumber(score) * 1000 <= now)",
        "true",
        ("tests/scripts/test_requeue.py::test_what_is_not_due_stays_unless_an_operator_moves_it",),
    ),
    Mutant(
        "what another requeuer moved is moved again",
        f"{SCRIPTS}/requeue.lua",
        "local score = redis.call('ZSCORE', source, member)",
        "local score = redis.call('ZSCORE', source, member) or '0'",
        ("tests/scripts/test_requeue.py::test_what_somebody_else_moved_is_not_moved_again",),
    ),
    Mutant(
        "a requeue does not ring",
        f"{SCRIPTS}/requeue.lua",
        "  ring(KEYS[FIRST_KEY + index * 2])\n",
        "",
        ("tests/scripts/test_requeue.py::test_due_members_go_to_their_queues_with_their_new_bytes_in_order", MACHINE),
    ),
    Mutant(
        "a tick does not look at the last one",
        f"{SCRIPTS}/tick.lua",
        "seen ~= last or ",
        "",
        ("tests/scripts/test_tick.py::test_a_scheduler_that_missed_a_tick_of_another_does_not_enqueue_it_again",),
    ),
    Mutant(
        "a tick may be in the future",
        f"{SCRIPTS}/tick.lua",
        "tonumber(newest) > tonumber(second) or ",
        "",
        ("tests/scripts/test_tick.py::test_a_tick_in_the_future_is_refused",),
    ),
    Mutant(
        "the first sight of a schedule counts as a tick",
        f"{SCRIPTS}/tick.lua",
        "'|ticked', '')",
        "'|ticked', second)",
        ("tests/scripts/test_tick.py::test_only_a_tick_that_enqueued_a_job_counts_as_ticked",),
    ),
    Mutant(
        "a trim releases the key of another job",
        f"{SCRIPTS}/prelude/owner.lua",
        "if holder == id then return true end",
        "if holder then return true end",
        ("tests/scripts/test_move.py::test_a_unique_key_goes_with_its_owner_only",),
    ),
    Mutant(
        "places of limits are never mended",
        f"{SCRIPTS}/recount.lua",
        "    removed = removed + redis.call('SREM', members, ARGV[i])\n",
        "",
        ("tests/scripts/test_recount.py",),
    ),
    # Operators.
    Mutant(
        "resuming a queue does not ring",
        "src/dayjob/store/ops/operate.py",
        "    yield from ask(maintain.ring(keys, [name]))\n    return resumed\n",
        "    return resumed\n",
        (MACHINE, "tests/integration/test_inspect.py"),
    ),
    Mutant(
        "a retry from dead takes a key that is another's",
        f"{SCRIPTS}/move.lua",
        "  if place and to == 'queue' and holder and holder ~= id then",
        "  if false then",
        ("tests/integration/test_inspect.py::test_reviving_takes_the_unique_key_again_or_says_who_has_it",),
    ),
    Mutant(
        "a retry keeps the old result",
        f"{SCRIPTS}/move.lua",
        "      if result then redis.call('DEL', result) end\n",
        "",
        ("tests/integration/test_admin.py::test_the_result_of_a_job_that_is_retried_is_that_of_its_new_attempt",),
    ),
    Mutant(
        "a purge keeps unique keys",
        f"{SCRIPTS}/move.lua",
        "    elseif holder and owns(entry, id, holder) then",
        "    elseif false then",
        ("tests/integration/test_inspect.py", MACHINE),
    ),
    # The pool.
    Mutant(
        "a resend is a new request",
        f"{WORKER}/fetching/fetcher.py",
        "        if self._requests.current is None:\n            self._next_request()\n",
        "        self._next_request()\n",
        (f"{NETWORK}::test_each_job_runs_once_though_exchanges_are_cut_at_random", CRASHES),
    ),
    Mutant(
        "a refused pool keeps its id",
        f"{WORKER}/membership.py",
        "        state.pool_id = new_id()\n",
        "        state.pool_id = state.pool_id or new_id()\n",
        (f"{RESCUE}::test_a_pool_that_was_reaped_while_it_slept_goes_on_under_a_new_id_and_its_late_outcome_changes_nothing",),
    ),
    Mutant(
        "outcomes of lost attempts are sent",
        f"{WORKER}/fetching/replies.py",
        "        attempt.lost = True\n",
        "",
        (f"{RESCUE}::test_a_pool_that_was_reaped_while_it_slept_goes_on_under_a_new_id_and_its_late_outcome_changes_nothing",),
    ),
    Mutant(
        "the pool does not compare what is held",
        f"{WORKER}/fetching/replies.py",
        'if reply.status == "rewound" or reply.held != len(held):',
        "if False:",
        (f"{CRASHES}::test_an_idle_pool_learns_that_redis_forgot_what_it_had_settled",),
    ),
    Mutant(
        "what is held is compared once only",
        f"{WORKER}/fetching/replies.py",
        "        self._names.rung.update(self._job_types)\n",
        "",
        (f"{CRASHES}::test_a_pool_that_cannot_read_what_it_holds_asks_again",),
    ),
    Mutant(
        "a pool does not look after an outage",
        f"{WORKER}/fetching/listener.py",
        "            if not self.closing:\n                self._on_error()\n",
        "",
        (f"{CRASHES}::test_an_idle_pool_learns_that_redis_forgot_what_it_had_settled",),
    ),
    Mutant(
        "a refused beat is not noticed",
        f"{WORKER}/status/heartbeat.py",
        "            self._on_refusal()\n",
        "            pass\n",
        ("tests/integration/test_supervisor.py", RESCUE, CRASHES),
    ),
    Mutant(
        "unique jobs are fetched ahead",
        f"{WORKER}/fetching/budget.py",
        "        and not job_type.unique\n",
        "",
        ("tests/integration/test_attempts.py::test_quick_jobs_are_fetched_ahead_and_unique_ones_are_not",),
    ),
    Mutant(
        "a unique job keeps its key when it starts",
        f"{WORKER}/fetching/start_gate.py",
        'return until != "done" and wire.unique_key.startswith(self._keys.unique_prefix)',
        "return False",
        ("tests/integration/test_unique.py::test_the_key_is_released_before_the_job_starts_so_that_the_next_can_wait",),
    ),
    Mutant(
        "suspects run side by side",
        f"{WORKER}/fetching/start_gate.py",
        "        elif wire.deaths >= SUSPECT:\n            self._suspects.append(attempt)\n        else:",
        "        else:",
        (f"{RESCUE}::test_suspects_run_one_at_a_time_and_named_before_they_start",),
    ),
    Mutant(
        "a stop does not give back",
        f"{WORKER}/shutdown.py",
        "        self._give_back()\n",
        "",
        (f"{RESCUE}::test_stop_gives_back_what_does_not_end_in_time_uncounted_and_in_order",),
    ),
    Mutant(
        "a stop ignores its deadline",
        f"{WORKER}/runtime.py",
        "self._shutdown.run(time.monotonic() + max(0.0, timeout))",
        "self._shutdown.run(time.monotonic() + max(0.0, timeout) + 20)",
        (f"{NETWORK}::test_stop_returns_in_time_when_redis_is_away", RESCUE),
    ),
    Mutant(
        "what was fetched ahead is not given back",
        f"{WORKER}/fetching/fetcher.py",
        "            entries.append(attempt.back())\n",
        "",
        ("tests/integration/test_pool.py::test_what_was_fetched_ahead_is_given_to_an_idle_pool_when_a_slow_job_takes_the_workers",),
    ),
    Mutant(
        "an attempt is settled twice",
        f"{WORKER}/fetching/fetcher.py",
        "        if attempt.settled:\n            return\n",
        "",
        ("tests/integration/test_attempts.py::test_an_attempt_that_is_reported_twice_is_settled_once_and_nothing_is_late",),
    ),
    Mutant(
        "errors are not redacted",
        f"{WORKER}/running/failure.py",
        "(codec.cut(without(text, secrets)) for text in _describe(error))",
        "(codec.cut(text) for text in _describe(error))",
        ("tests/integration/test_seeing.py::test_redacted_arguments_show_neither_in_the_status_nor_in_errors",),
    ),
    Mutant(
        "a stop counts as a fail",
        f"{WORKER}/running/runner.py",
        "            if _was_stopped(attempt, error):\n",
        "            if False:\n",
        ("tests/integration/test_attempts.py::test_an_attempt_that_cancels_itself_because_its_pool_stops_is_given_back_and_has_not_failed",),
    ),
    # The bin.
    Mutant(
        "a deleted job stays where it was, beside the bin",
        f"{SCRIPTS}/to_bin.lua",
        "if score then redis.call('ZREM', source, entry) else remove_entry(source, right, place) end",
        "if not score then remove_entry(source, right, place) end",
        (f"{BIN}::test_a_member_of_a_set_comes_back_with_its_exact_score",),
    ),
    Mutant(
        "undo leaves the job in the bin",
        f"{SCRIPTS}/undo.lua",
        "    remove_entry(part, true, place)\n",
        "",
        (f"{BIN}::test_two_who_undo_the_same_put_each_job_back_once",),
    ),
    Mutant(
        "undo takes a unique key that another job has",
        f"{SCRIPTS}/undo.lua",
        "if place and holder then",
        "if false then",
        (f"{BIN}::test_a_job_whose_unique_key_is_anothers_stays_in_the_bin",),
    ),
    Mutant(
        "undo puts waiting jobs at the tail",
        f"{SCRIPTS}/undo.lua",
        "redis.call('RPUSH', target, payload)",
        "redis.call('LPUSH', target, payload)",
        (f"{BIN}::test_a_purged_queue_comes_back_in_its_order_ahead_of_what_came_in_since",),
    ),
    # Events: none without its effect, and none twice.
    Mutant(
        "a pool that left is logged as dead",
        f"{SCRIPTS}/prelude/leases.lua",
        "if redis.call('ZREM', pools, id) == 1 then",
        "if redis.call('ZREM', pools, id) then",
        (f"{EVENTS}::test_a_pool_that_left_did_not_die",),
    ),
    Mutant(
        "each tick is an entry of its own",
        f"{SCRIPTS}/tick.lua",
        "local goes_on = kind == what and",
        "local goes_on = false and",
        (f"{EVENTS}::test_ticks_in_a_row_are_one_entry_for_an_hour",),
    ),
    # Waves.
    Mutant(
        "a job that one look does not find has completed",
        "src/dayjob/admin/waves.py",
        "        completed = absent & waves.missing\n",
        "        completed = absent\n",
        (f"{WAVES}::test_a_job_that_moves_during_a_look_has_not_ended",),
    ),
    Mutant(
        "waves never stop by themselves",
        "src/dayjob/admin/waves.py",
        "        if waves.failed > stop_above * waves.ended:\n",
        "        if False:\n",
        (f"{WAVES}::test_waves_stop_when_most_fail_again_and_the_rest_stays_dead",),
    ),
    # Changes of a job that stays.
    Mutant(
        "a job that moved on is scheduled again",
        f"{SCRIPTS}/reschedule.lua",
        "if not redis.call('ZSCORE', set, member) then return {0, at} end",
        "",
        ("tests/scripts/test_reschedule.py",),
    ),
    Mutant(
        "jobs that do not fit are moved",
        "src/dayjob/admin/changes.py",
        "        fitting = [one for one in jobs if not _problem(described, one[1])]\n",
        "        fitting = list(jobs)\n",
        ("tests/integration/test_changes.py::test_jobs_whose_arguments_do_not_fit_stay",),
    ),
    # Integrations.
    Mutant(
        "a span shows redacted values",
        "src/dayjob/otel.py",
        "                    _record(span, failed.error, secrets_of(job))\n",
        "                    _record(span, failed.error)\n",
        ("tests/integration/test_otel.py::test_a_failure_is_an_error_with_its_exception_and_without_secrets",),
    ),
    Mutant(
        "a report shows redacted values of variables",
        "src/dayjob/sentry.py",
        "            _hide_variables(frame, job, secrets)\n",
        "",
        ("tests/integration/test_sentry.py::test_an_error_is_reported_once_by_its_exception_and_with_its_job",),
    ),
    Mutant(
        "an error is reported twice",
        "src/dayjob/sentry.py",
        "        setattr(error, _REPORTED, True)\n",
        "        setattr(error, _REPORTED, False)\n",
        ("tests/integration/test_sentry.py::test_arguments_are_left_out_unless_the_program_sends_such_data",),
    ),
    Mutant(
        "a signal is a failure for tracing",
        "src/dayjob/retry.py",
        "        return isinstance(exception, Retry | Dead)\n",
        "        return True\n",
        ("tests/unit/test_retry.py::test_what_counts_as_a_failure_and_as_the_last_one_is_what_decide_makes_of_it",),
    ),
    Mutant(
        "baggage that is too large refuses an enqueue",
        "src/dayjob/instruments.py",
        "        except BadOption:\n            continue\n",
        "        except BadOption:\n            raise\n",
        (f"{OTEL}::test_baggage_travels_and_what_is_too_large_never_keeps_a_job_from_being_enqueued",),
    ),
    Mutant(
        "hooks of sync jobs do not know their job",
        f"{WORKER}/running/report.py",
        "    token = running.set(attempt)\n",
        "    token = running.set(None)\n",
        ("tests/integration/test_job_logging.py::test_hooks_of_sync_and_async_jobs_know_the_job_that_ended",),
    ),
    Mutant(
        "a broken-off run counts as the last one",
        "src/dayjob/testing/fake_store.py",
        "            if broken.passed < number:\n",
        "            if broken.passed <= number:\n",
        ("tests/unit/test_testing_probes.py",),
    ),
    Mutant(
        "a worker is ready though Redis is away",
        f"{WORKER}/supervisor/condition.py",
        "not (self.quiet or self.stopping or self.redis_away)",
        "not self.stopping",
        ("tests/integration/test_deploys.py::test_the_parent_answers_probes_without_redis",),
    ),
    # The outbox, and Django.
    Mutant(
        "outbox: a new server does not get the rows again",
        "src/dayjob/outbox/tables.py",
        "    if not known:\n",
        "    if known:\n",
        (f"{OUTBOX}::test_a_server_that_lost_jobs_gets_them_again_and_one_that_did_not_stores_them_once",),
    ),
    Mutant(
        "outbox: a job gets another id when it is sent",
        "src/dayjob/outbox/rows.py",
        "        return NewJob(job, self.payload, when, True, self.unique_for, self.expires)",
        "        return NewJob(job, self.payload, when, False, self.unique_for, self.expires)",
        (f"{OUTBOX}::test_a_server_that_lost_jobs_gets_them_again_and_one_that_did_not_stores_them_once",),
    ),
    Mutant(
        "outbox: a row loses its unique key",
        "src/dayjob/outbox/rows.py",
        "        job.unique_key = self.unique_key\n",
        "        job.unique_key = None\n",
        (f"{OUTBOX}::test_the_order_the_time_and_the_unique_key_of_a_job_are_kept",),
    ),
    Mutant(
        "outbox: a commit fails while Redis is down",
        "src/dayjob/outbox/outbox.py",
        'so the relay will send it: %s", error)\n        return\n',
        'so the relay will send it: %s", error)\n        raise\n',
        (f"{OUTBOX}::test_rows_wait_while_redis_is_down_and_the_commit_succeeds",),
    ),
    Mutant(
        "outbox: rows are marked though Redis did not take them",
        "src/dayjob/outbox/outbox.py",
        'so the relay will send it: %s", error)\n        return\n',
        'so the relay will send it: %s", error)\n',
        (f"{OUTBOX}::test_rows_wait_while_redis_is_down_and_the_commit_succeeds",),
    ),
    Mutant(
        "outbox: a refused row holds back those of other queues",
        "src/dayjob/outbox/relay.py",
        "                failed = error\n                continue\n",
        "                failed = error\n                break\n",
        (f"{OUTBOX}::test_a_relay_reports_what_it_could_not_send_and_sends_the_rest",),
    ),
    Mutant(
        "outbox: a silent relay is not noticed",
        "src/dayjob/store/ops/outbox.py",
        "    silence = max(0.0, KEPT_SECONDS - left / 1000)\n",
        "    silence = 0.0\n",
        (f"{OUTBOX}::test_operators_see_rows_that_are_not_sent_and_a_relay_that_is_silent",),
    ),
    Mutant(
        "outbox: once is every time",
        "src/dayjob/outbox/tables.py",
        "    return changed == 1\n",
        "    return True\n",
        (f"{OUTBOX}::test_once_makes_the_effect_of_a_job_happen_once",),
    ),
    Mutant(
        "a job of a savepoint that was rolled back is sent",
        "src/dayjob/sqlalchemy.py",
        "    waiting[:] = [one for one in waiting if transaction not in one[0]]\n",
        "    waiting[:] = [one for one in waiting if transaction != one[0][-1]]\n",
        (f"{OUTBOX}::test_after_commit_is_right_with_rollbacks_and_savepoints",),
    ),
    Mutant(
        "django: connections that the database closed are used again",
        "src/dayjob/django/project.py",
        "            one.close_if_unusable_or_obsolete()\n",
        "            pass\n",
        ("tests/integration/test_django_app.py::test_a_restarted_postgresql_costs_at_most_the_jobs_that_find_it_gone",),
    ),
    Mutant(
        "a result is not sent to those who wait",
        f"{SCRIPTS}/prelude/answer.lua",
        "string.sub(before, 1, 8) == 'waiting '",
        "string.sub(before, 1, 8) == 'waiting'",
        ("tests/scripts/test_look_for_result.py::test_a_result_that_comes_later_is_sent",),
    ),
    Mutant(
        "a second process that waits replaces the first",
        f"{SCRIPTS}/look_for_result.lua",
        "channels = channels .. ' ' .. channel",
        "channels = channel",
        ("tests/scripts/test_look_for_result.py::test_every_process_that_waits_gets_the_result_once",),
    ),
    Mutant(
        "callers do not look again after the connection was lost",
        "src/dayjob/enqueue/mailbox.py",
        "        # What was published before is lost.\n        self._look_again()\n",
        "",
        (
            "tests/integration/test_results.py::test_a_result_that_was_stored_while_the_connection_was_lost_is_found",
        ),
    ),
    Mutant(
        "a job may wait for a job of its own pool",
        "src/dayjob/enqueue/results.py",
        "if outer is not None and name is not None and outer.runs(place, name):",
        "if outer is None and name is not None and place == name:",
        ("tests/integration/test_results.py::test_a_job_cannot_wait_for_a_job_of_its_own_pool",),
    ),
    Mutant(
        "a map has any number of jobs in flight",
        "src/dayjob/enqueue/calls.py",
        "spare = self._how.in_flight - len(self._sent)",
        "spare = 10 * self._how.in_flight",
        ("tests/integration/test_results.py::test_a_map_takes_items_and_enqueues_jobs_only_as_results_are_taken",),
    ),
    # Limits by key and turns.
    Mutant(
        "a key never waits for a place",
        f"{SCRIPTS}/prelude/partitions.lua",
        "one.most = math.min(one.most, one.free_places)",
        "one.most = math.min(one.most, one.size)",
        (f"{KEYS}::test_a_key_at_its_limit_waits_and_the_next_place_is_used",),
    ),
    Mutant(
        "names that share a limit of a key do not see what the others take of it",
        f"{SCRIPTS}/prelude/partitions.lua",
        "one.most - one.take, slots, one.rule and spare_under(one.rule) or slots)",
        "one.most - one.take, slots)",
        (f"{KEYS}::test_names_that_share_a_limit_of_a_key_stay_under_it_together",),
    ),
    Mutant(
        "the end of an attempt does not free the place of its key",
        f"{SCRIPTS}/prelude/partitions.lua",
        "if redis.pcall('SREM', held, member) == 1 and",
        "if false and",
        (f"{KEYS}::test_a_key_at_its_limit_waits_and_the_next_place_is_used",),
    ),
    Mutant(
        "a key gains by idling",
        f"{SCRIPTS}/prelude/turns.lua",
        "local at, debt = first[2] or '0'",
        "local at, debt = '0'",
        (f"{KEYS}::test_a_key_gains_nothing_by_idling",),
    ),
    Mutant(
        "the weight of a key does not count",
        f"{SCRIPTS}/prelude/partitions.lua",
        "one.at + k * price / one.weight, slots - k",
        "one.at + k * price, slots - k",
        (f"{KEYS}::test_weights_give_shares",),
    ),
    Mutant(
        "sorting moves a job that is not the oldest any more",
        f"{SCRIPTS}/sort_jobs.lua",
        "if redis.call('LINDEX', queue, -1) ~= ARGV[i + 1] then break end",
        "",
        (f"{KEYS}::test_sorting_ends_at_a_job_that_another_pool_has_moved",),
    ),
    Mutant(
        "an enqueue overtakes jobs that are not sorted yet",
        f"{SCRIPTS}/prelude/by_key.lua",
        " and redis.call('LLEN', queue) == 0",
        "",
        ("tests/scripts/test_enqueue_by_key.py::test_they_wait_behind_older_jobs_that_are_not_sorted_yet",),
    ),
    Mutant(
        "a limit for each key comes into force before what is held is counted",
        "src/dayjob/store/ops/key_changes.py",
        "        yield from count_held(keys, name)\n",
        "",
        (f"{KEY_CHANGES}::test_a_limit_that_code_adds_counts_what_is_held_already",),
    ),
    Mutant(
        "a pool with an older rule keeps the places of a key",
        f"{SCRIPTS}/prelude/partitions.lua",
        "frees = own.places_in_redis ~= '0' or",
        "frees = places ~= 0 or",
        (f"{KEY_CHANGES}::test_a_pool_that_knows_an_older_rule_frees_the_place_of_what_ended",),
    ),
    Mutant(
        "a slower rate of a key forgets units",
        f"{SCRIPTS}/prelude/limiters.lua",
        "math.max(one.full_at - at_us, 0) * one.interval / old",
        "math.max(one.full_at - at_us, 0)",
        (f"{KEY_CHANGES}::test_the_units_used_stay_the_same_when_the_rate_of_a_key_becomes_slower",),
    ),
    Mutant(
        "a refund wakes its own name only",
        f"{SCRIPTS}/prelude/entries.lua",
        "for _, own in pairs(partitions) do own.try_again(token) end",
        "if partitions[i] then partitions[i].try_again(token) end",
        (f"{KEY_CHANGES}::test_what_one_name_gives_back_of_a_key_wakes_the_same_key_of_another",),
    ),
)  # fmt: skip
