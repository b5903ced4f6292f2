"""The models of the exchange, of rate limits and of batches, searched whole by Spin: they hold, and fail with any rule broken.

DAYJOB_PROOF=full searches further: minutes, and some gigabytes of memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "exchange.pml"
RATES = MODEL.with_name("rates.pml")
GROUPS = MODEL.with_name("groups.pml")
FULL = os.environ.get("DAYJOB_PROOF") == "full"

MISSING = [tool for tool in ("spin", "cc") if shutil.which(tool) is None]
if MISSING and os.environ.get("CI") != "true":
    pytestmark = pytest.mark.skip(
        reason=f"{' and '.join(MISSING)} not found (Debian: apt install spin gcc libc6-dev)"
    )
else:
    # On a busy machine a search of some seconds takes a minute.
    pytestmark = pytest.mark.timeout(600)

#: Bounds by name. Without one of these a search has two jobs, two pools, one who does chores, and no stop.
QUIET = {"STOPS": 0, "FAILS": 0, "BACKS": 0, "SLOTS": 1}
SEARCHES = {
    "two faults": QUIET | {"FAULTS": 2},
    "two faults over a limit": QUIET | {"FAULTS": 2, "SLOTS": 2, "BACKS": 1, "LIMIT": 1},
    "two faults and an enqueue": QUIET | {"FAULTS": 2, "SLOTS": 2, "PRODUCERS": 1},
    "two faults, three jobs": QUIET | {"FAULTS": 2, "SLOTS": 2, "JOBS": 3},
    "a fault, a fail and an outcome that comes twice": QUIET | {"FAULTS": 1, "FAILS": 1, "SLOTS": 2},
    "a fault and a stop, two do chores": QUIET | {"FAULTS": 1, "STOPS": 1, "SLOTS": 2, "CHORES": 2},
    "a fault, a stop and a give-back": QUIET | {"FAULTS": 1, "STOPS": 1, "BACKS": 1},
}
FURTHER = {
    "three faults": QUIET | {"FAULTS": 3},
    "two faults and a fail": QUIET | {"FAULTS": 2, "FAILS": 1},
    "two faults and a stop": QUIET | {"FAULTS": 2, "STOPS": 1},
    "everything at once": {"FAULTS": 1, "STOPS": 1, "FAILS": 1, "BACKS": 1, "SLOTS": 1, "CHORES": 2},
}

#: A rule that is broken, to the bounds under which that shows and what the search must say.
LOST = "assertion violated (n_==accepted[j_])"
STUCK = "invalid end state"
BROKEN = {
    "FENCE_BY_POOL": (QUIET | {"FAULTS": 1, "FAILS": 1, "SLOTS": 2}, "assertion violated (k_==i_)"),
    "NO_FENCE": (QUIET | {"FAULTS": 2, "FAILS": 1}, LOST),
    "COUNTER_NOT_SET": (QUIET | {"FAULTS": 2}, "assertion violated (counter==n_)"),
    "RESEND_APPLIED_AGAIN": (QUIET | {"FAULTS": 1}, LOST),
    "LATE_COPY_APPLIED": (QUIET | {"FAULTS": 2}, STUCK),
    "CONDEMNED_NOT_REFUSED": (QUIET | {"FAULTS": 2}, LOST),
    "ID_USED_AGAIN": (QUIET | {"FAULTS": 2}, LOST),
    "LOST_OUTCOMES_SENT": (QUIET | {"FAULTS": 2}, "assertion violated (hash[((w_id*10)+k_)]==w_job[i_])"),
    "NOT_RECONCILED": (QUIET | {"FAULTS": 1}, STUCK),
    "RECONCILED_ONCE": (QUIET | {"FAULTS": 2}, STUCK),
    "NO_LOOK_AFTER_A_CUT": (QUIET | {"FAULTS": 1}, STUCK),
    "COPY_OUTLIVES_REWIND": (QUIET | {"FAULTS": 2}, "assertion violated (hash[((w_id*10)+k_)]==w_job[i_])"),
    "SWEEP_BLIND": (QUIET | {"FAULTS": 1, "CHORES": 2}, LOST),
    "SWEEP_KEEPS_PLACE": (QUIET | {"FAULTS": 1}, "assertion violated (place"),
    "REQUEUE_BLIND": (QUIET | {"FAULTS": 0, "FAILS": 1, "CHORES": 2}, LOST),
    "LEAVE_FORGETS": (QUIET | {"FAULTS": 1, "STOPS": 1}, LOST),
    "ENQUEUE_WITHOUT_NUMBER": (QUIET | {"FAULTS": 1, "PRODUCERS": 1}, LOST),
}

#: Bounds of the rate limits: a burst and a window, each the narrower one once.
LIMITS = {
    "even": {"BURST": 1, "WINDOW": 5, "SPAN": 2},
    "a burst": {"BURST": 3, "WINDOW": 5, "SPAN": 2},
    "a window": {"BURST": 3, "WINDOW": 2, "SPAN": 3},
    "a long window": {"BURST": 2, "WINDOW": 3, "SPAN": 6},
}
#: A broken rule of them to the bounds under which it shows. Either assertion may be the first to fail.
BROKEN_LIMITS = {
    "NOT_CHARGED": LIMITS["even"],
    "BURST_TOO_LARGE": LIMITS["a burst"],
    "REFUND_OF_LATER_CHARGES": LIMITS["even"],
    "REFUNDED_TWICE": LIMITS["a burst"],
    "WINDOW_TOO_SHORT": LIMITS["a window"],
}

#: Bounds of batches: how many faults there are, and how many deletions and retries by operators.
EVENTS = {
    "faults and retries": {"FAULTS": 2, "RETRIES": 2},
    "more faults": {"FAULTS": 3, "RETRIES": 1},
}
#: A broken rule of them to what the search must say.
BITS = "assertion violated (ended[i_]=="
CALLBACKS = "assertion violated (((completes==all_ended)"
BROKEN_GROUPS = {
    "LATE_ENDS_NOTED": BITS,
    "SWEEP_NOTES_NOTHING": BITS,
    "DELETION_NOTES_NOTHING": BITS,
    "RETRY_KEEPS_BITS": BITS,
    "COUNTER_NOT_BITS": CALLBACKS,
    "CALLED_EACH_TIME": CALLBACKS,
    "CHILDREN_FIRST": "assertion violated (children[i_]==",
}


@dataclass(frozen=True)
class Verdict:
    """What a search found."""

    errors: int
    states: int
    said: str


def search(
    folder: Path, bounds: dict[str, int], broken: str = "", *, cycles: bool = False, model: Path = MODEL
) -> Verdict:
    """Search every run of a model. With `cycles`: for one that never ends."""
    flags = [f"-D{name}={value}" for name, value in bounds.items()] + ([f"-D{broken}"] if broken else [])
    shutil.copy(model, folder)
    kind = "-DNP" if cycles else "-DSAFETY"
    run(folder, "spin", "-a", *flags, model.name)
    # A short search is over before a better compilation would be.
    run(folder, "cc", "-O2" if FULL else "-O0", "-w", kind, "-DHC4", "-o", "pan", "pan.c")
    said = run(folder, "./pan", "-m200000", f"-w{24 if FULL else 19}", *(["-l"] if cycles else []))
    counted = re.search(r"errors: (\d+)\s+(\d+) states, stored", said)
    assert counted, said
    assert "max search depth too small" not in said, said
    return Verdict(int(counted[1]), int(counted[2]), said)


def run(folder: Path, *words: str) -> str:
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{words[0]}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.mark.parametrize("name", [*SEARCHES, *(FURTHER if FULL else ())])
def test_each_job_is_in_one_place_and_ends_done(name, tmp_path):
    """No assertion fails, and no run ends with a job that is not done."""
    found = search(tmp_path, (SEARCHES | FURTHER)[name])
    assert found.errors == 0, found.said
    assert found.states > 5_000


@pytest.mark.parametrize("name", SEARCHES if FULL else ["two faults", "a fault, a stop and a give-back"])
def test_every_run_ends(name, tmp_path):
    """There is no cycle, so that nothing can go on for ever without the jobs being done."""
    found = search(tmp_path, SEARCHES[name], cycles=True)
    assert found.errors == 0, found.said


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_found_out(broken, tmp_path):
    bounds, says = BROKEN[broken]
    found = search(tmp_path, bounds, broken)
    assert found.errors == 1
    assert f"pan:1: {says}" in found.said, found.said


@pytest.mark.parametrize("name", LIMITS)
def test_no_history_of_starts_and_refunds_exceeds_a_limit(name, tmp_path):
    found = search(tmp_path, LIMITS[name], model=RATES)
    assert found.errors == 0, found.said
    assert found.states > 1_000


@pytest.mark.parametrize("broken", BROKEN_LIMITS)
def test_a_broken_rule_of_a_limit_is_found_out(broken, tmp_path):
    found = search(tmp_path, BROKEN_LIMITS[broken], broken, model=RATES)
    assert found.errors == 1
    assert "pan:1: assertion violated (" in found.said, found.said


@pytest.mark.parametrize("name", EVENTS)
def test_a_batch_believes_where_its_members_are_and_calls_back_once(name, tmp_path):
    found = search(tmp_path, EVENTS[name], model=GROUPS)
    assert found.errors == 0, found.said
    assert found.states > 5_000


@pytest.mark.parametrize("broken", BROKEN_GROUPS)
def test_a_broken_rule_of_a_batch_is_found_out(broken, tmp_path):
    found = search(tmp_path, EVENTS["faults and retries"], broken, model=GROUPS)
    assert found.errors == 1
    assert f"pan:1: {BROKEN_GROUPS[broken]}" in found.said, found.said


@pytest.mark.parametrize(
    ("model", "broken"),
    [(MODEL, BROKEN), (RATES, BROKEN_LIMITS), (GROUPS, BROKEN_GROUPS)],
    ids=["exchange", "rates", "groups"],
)
def test_every_switch_of_a_model_is_tried(model, broken):
    """What the model can break is what is broken here; bounds aside."""
    text = model.read_text()
    switches = set(re.findall(r"#ifn?def ([A-Z_]+)", text))
    bounds = set(re.findall(r"#ifndef ([A-Z]+)\n#define \1 ", text))
    assert switches - bounds == set(broken)
