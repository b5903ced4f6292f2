"""What holds for every script: its header says what it takes, and it takes nothing else."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from dayjob.job import new_id
from dayjob.outcome import Reaped
from dayjob.store.op import plain
from dayjob.store.ops import consume, maintain, membership, produce
from dayjob.store.ops.consume import Entry
from dayjob.store.ops.maintain import Move
from dayjob.store.ops.produce import Slot, When
from dayjob.store.scripts import all_names, load, part
from monitor import monitor
from pools import Pool, set_limit
from scenarios import ALL, script_of

SCRIPTS = all_names()
FOLDER = Path(inspect.getfile(all_names)).parent
PARTS = sorted(path.stem for path in (FOLDER / "prelude").iterdir())
#: What stores something new, and is refused when memory is full.
PRODUCERS = {
    "enqueue",
    "enqueue_by_key",
    "schedule",
    "admit",
    "add_members",
    "start_workflow",
    "tick",
    "to_bin",
}
WRITES = re.compile(
    r"'(SET|DEL|[LR]PUSH|[LR]POP|LTRIM|LSET|LREM|ZADD|ZREM|SADD|SREM|HSET|HSETNX|HDEL|HINCRBY|EXPIRE|PEXPIRE|INCR)'"
)
CALL = re.compile(r"\b(?:redis\.p?call|call|pcall_)\(\s*'(\w+)'")


def body(name):
    """A script without its header and comments."""
    return re.sub(r"--(?!\[\[).*", "", re.sub(r"--\[\[.*?\]\]", "", load(name).source, flags=re.DOTALL))


def documented(name, table):
    """The numbered lines of the header for KEYS or ARGV, and whether the last one is open."""
    lines = re.findall(rf"^{table}\[(\d+)(\.\.\.)?\]  \S", load(name).header, re.MULTILINE)
    return [int(number) for number, _ in lines], [bool(dots) for _, dots in lines]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_header_has_every_part_in_order(name):
    header = load(name).header
    assert header.startswith(f"{name}: ")
    assert header.splitlines()[0].endswith(".")
    parts = [header.find(f"\n{part}") for part in ("Called by: ", "KEYS[1", "Returns  ", "Atomic because: ")]
    assert -1 not in parts
    assert parts == sorted(parts)


@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_documented_is_used_and_the_other_way_round(name, table):
    numbers, is_open = documented(name, table)
    assert numbers == list(range(1, len(numbers) + 1))
    assert not any(is_open[:-1])
    fixed = {number for number, dots in zip(numbers, is_open, strict=True) if not dots}
    used = {int(number) for number in re.findall(rf"{table}\[(\d+)\]", body(name))}
    assert used == fixed
    by_place = rf"{table}\[[^\]\d]|unpack\({table}|, {table}\)|{table}\[[^\]]*[a-zA-Z]"
    assert bool(re.search(by_place, body(name))) == any(is_open)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_flags_say_who_may_go_on_when_memory_is_full(name):
    if not WRITES.search(body(name)):
        expected = ("no-writes",)
    elif name in PRODUCERS:
        expected = ()
    else:
        expected = ("allow-oom",)
    assert load(name).flags == expected
    assert load(name).source.startswith("#!lua")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_named_callers_exist_and_load_it_and_nobody_else_does(name):
    named = set(re.search(r"Called by: (.*)", load(name).header).group(1).split(", "))
    for caller in named:
        module, function = caller.split(".")
        assert callable(getattr(importlib.import_module(f"dayjob.store.ops.{module}"), function))
    loading = set()
    folder = Path(inspect.getfile(consume)).parent
    for path in folder.glob("*.py"):
        for found in re.finditer(rf'\bload\("{name}"\)', path.read_text("utf-8")):
            before = path.read_text("utf-8")[: found.start()]
            loading.add(f"{path.stem}.{re.findall(r'^def (_?[a-z_]+)', before, re.MULTILINE)[-1]}")
    assert loading
    public = {caller for caller in loading if "._" not in caller}
    assert public <= named
    if public == loading:
        assert named == public
    if len(named) == 1:
        assert named.pop().partition(".")[2] == name


#: The parts that only exchange uses. Without them that script would be ten pages long.
OF_EXCHANGE = {
    "exchange",
    "rules",
    "charges",
    "partitions",
    "settle",
    "entries",
    "groups",
    "members",
    "count",
    "fetch",
    "park",
    "stream",
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_prelude_only_defines_functions_and_is_used_by_two_scripts(name):
    """Its lines are joined into one, so a comment may only be a line of its own."""
    file = FOLDER / f"prelude/{name}.lua"
    lines = file.read_text("utf-8").splitlines()
    assert {
        line.split("(")[0].rpartition(" ")[0] for line in lines if not line.startswith((" ", "--", "end"))
    } == {"local function"}
    assert not [line for line in lines if "--" in line.strip()[1:] and not line.strip().startswith("--")]
    assert not re.search(r"KEYS\[\d|ARGV", part(name))
    users = [script for script in SCRIPTS if part(name) in load(script).source]
    assert users == ["exchange"] if name in OF_EXCHANGE else len(users) > 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_calls_every_function_of_the_parts_it_uses(name):
    text = body(name)
    for function in re.findall(r"local function (\w+)\(", text):
        assert len(re.findall(rf"\b{function}\(", text)) > 1, function


@pytest.mark.parametrize("name", SCRIPTS)
def test_line_numbers_in_errors_of_the_server_are_those_of_the_file(name):
    file = (FOLDER / f"{name}.lua").read_text("utf-8").splitlines()
    loaded = load(name).source.splitlines()
    assert len(loaded) == len(file)
    assert [one for one, other in zip(file, loaded, strict=True) if one != other] == [
        line for line in file if line.strip().startswith("--@use ")
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_tested(name):
    """Those that pools and producers live on have a file of their own; all have a scenario."""
    caller = re.search(r"Called by: (\w+)", load(name).header).group(1)
    assert name in {scenario.script for scenario in ALL.values()}
    if caller in ("produce", "consume", "maintain"):
        assert Path(__file__).with_name(f"test_{name}.py").exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_searches_decodes_or_guesses(name):
    commands = set(CALL.findall(body(name)))
    assert not commands & {
        "KEYS",
        "SCAN",
        "HSCAN",
        "SSCAN",
        "ZSCAN",
        "RANDOMKEY",
        "SORT",
        "FLUSHDB",
        "EVAL",
        "MOVE",
    }
    assert not re.search(r"cjson|cmsgpack|loadstring|math\.random|os\.clock|redis\.breakpoint", body(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_are_never_put_together_in_lua(name):
    """Every place where a key is named: a name bound to KEYS, KEYS itself, or key_of."""
    for first in re.findall(
        r"\b(?:redis\.p?call|call|pcall_)\(\s*(?:'(?!INFO')\w+'|\w+), ([^,)]+)", body(name)
    ):
        assert re.match(r"KEYS\[|key_of\(|targets\[|[a-z_]+$", first), first


@pytest.mark.parametrize("name", ALL)
def test_every_key_that_is_touched_was_passed(name, keys, link, server):
    op = ALL[name].ready(keys, link)
    with monitor(server.port, link) as heard:
        link.run(op)
    passed = {str(key).encode() for key in op.keys}
    assert heard.by_scripts
    touched = set()
    for words in heard.by_scripts:
        if words[0].upper() not in (b"TIME", b"INFO"):
            touched.update(link.run(plain("COMMAND", "GETKEYS", *words)))
    assert touched <= passed
    assert touched


@pytest.mark.parametrize("name", ALL)
def test_a_scenario_calls_the_script_it_is_named_for(name, keys, link):
    assert script_of(ALL[name].ready(keys, link)) == ALL[name].script


@pytest.mark.parametrize("name", ALL)
def test_all_keys_share_the_tag_of_the_namespace(name, namespace, link):
    from dayjob.store.keys import Keys

    op = ALL[name].ready(Keys(f"{{{namespace}}}"), link)
    assert op.keys
    assert all(str(key).startswith(f"{{{namespace}}}:") for key in op.keys)


def large(keys, link):
    """The largest calls there are."""
    five_hundred = [b"%d" % i for i in range(500)]
    yield produce.enqueue(keys, Slot(new_id(), 1), "a", five_hundred, introduce=True)
    yield produce.schedule(keys, Slot(new_id(), 1), "a", five_hundred, When("in", 0), introduce=True)
    yield membership.join(keys, new_id(), [f"n{i}" for i in range(5000)], lease=15.0, term=3.0)
    set_limit(keys, link, "a", 1000)
    pool = Pool(keys, link)
    yield pool.prepare(*(f"n{i}" for i in range(3000)), "a", room=500)
    tokens = [f"{i}:a" for i in range(1, 501)]
    yield pool.prepare("a", done={"a": tokens}, room=500)
    yield maintain.recount(keys, "a", [f"{pool.id}/{token}" for token in tokens])
    yield maintain.requeue(keys, keys.scheduled, [Move("a", member, member) for member in five_hundred[:100]])
    yield maintain.ring(keys, [f"n{i}" for i in range(200)])
    link.run(maintain.condemn(keys, lease=15.0, proven=[pool.id], judge=False))
    yield maintain.sweep(keys, pool.id, [Entry("a", token, Reaped(), b"x") for token in tokens[:100]])
    yield maintain.recount(keys, "a", [f"p/{token}" for token in tokens])
    yield maintain.trim(keys, keys.scheduled, "x", [(member, "", "") for member in five_hundred])


def test_no_command_of_a_script_has_more_than_a_thousand_values(keys, link, server):
    with monitor(server.port, link) as heard:
        for op in large(keys, link):
            link.run(op)
    assert len(heard.by_scripts) > 100
    assert max(len(words) for words in heard.by_scripts) <= 1000 + len(("ZADD", "key"))
