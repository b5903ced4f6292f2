"""The documentation is true: its programs run, its links lead somewhere, and nothing public is missing from it."""

from __future__ import annotations

import ast
import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

import dayjob
from dayjob import options
from dayjob.cli import COMMANDS
from dayjob.store import scripts
from dayjob.store.embedded import stop_server
from dayjob.store.keys import Keys
from server import running, wait_until

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A block that begins with a file name is that file; all others of a page are one program, in order.
FILE = re.compile(r"# ([\w/]+\.py)\n")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of one language with the line each begins at."""
    text = page.read_text("utf-8")
    found = BLOCK.finditer(text)
    return [(text.count("\n", 0, one.start(2)), one[2]) for one in found if one[1] == language]


def program(page: Path, folder: Path) -> Path | None:
    """The blocks of a page as one program whose lines have the numbers they have in the page."""
    lines: list[str] = []
    for start, code in blocks(page, "python"):
        file = FILE.match(code)
        if file:
            path = folder / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, "utf-8")
        else:
            lines += [""] * (start - len(lines)) + code.splitlines()
    if not lines:
        return None
    path = folder / f"{page.stem.replace('-', '_')}_page.py"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def run(path: Path, folder: Path, **environ: str) -> str:
    """Run a program in `folder`; what it printed. Fails with all of its output."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DAYJOB_", "REDIS_", "KUBERNETES_"))
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder, env=clean | environ, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{path.name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def embedded(tmp_path):
    """A folder in which the embedded server may be started; it is stopped afterwards."""
    yield tmp_path
    for found in tmp_path.rglob("server.lock"):
        stop_server(found.parent)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_the_programs_of_a_page_run_and_print_what_it_says(
    page: Path, embedded: Path, tmp_path_factory
) -> None:
    path = program(page, embedded)
    if path is None:
        return
    with running(tmp_path_factory.mktemp("server"), "--save", "3600 1") as server:
        printed = run(path, embedded, DAYJOB_REDIS_URL=server.url)
    for _, expected in blocks(page, "output"):
        # In this order. A job of another block may print in between, when it happens to run.
        lines = iter(printed.splitlines())
        missing = [wanted for wanted in expected.splitlines() if not any(wanted in line for line in lines)]
        assert not missing, printed


#: A line that each example prints only if it did what it is there to show.
PRINTED = {
    "batches": "success of month 11: 21 of 21",
    "workflow": "stored [0, 2, 4, 6]",
    "streaming": "Once upon a time | the reader comes back | there was a worker. The end.",
    "atomic": "row 0 of attempt 2\nrow 1 of attempt 2\nrow 2 of attempt 2",
    "async_io": "51 jobs of 0.2 s each took",
    "limits": "at most 2 calls at once",
    "middleware": "a watch for user 7 of customer acme",
    "quickstart": "a watch for 7 in attempt 1",
    "outbox": "attempt 2 of order 1: discarded: its effect is in the database already\npayments: [1]",
    "opentelemetry_trace": "process charge\n      ask the bank",
    "request_ids": "r-82 receipt order 2: sending the receipt",
    "retries": "order 1 is dead after 2 fails: the bank does not answer",
    "scheduling": "half a second later",
    "sentry_errors": "ValueError in charge: order 7 was refused",
    "unique": "second: False",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_runs_on_the_embedded_server(example: Path, embedded: Path) -> None:
    assert PRINTED[example.stem] in run(example, embedded, DAYJOB_REDIS_URL="embedded")


@dataclass
class Shell:
    """Runs the README's commands in one folder, as at a terminal."""

    folder: Path
    environ: dict[str, str]

    def call(self, command: str, code: int = 0) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(
            shlex.split(command), cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == code, (
            f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def watch(self, command: str, text: str, end: str) -> None:
        """Run a command on a terminal until it prints a text, then end it as people do. It must end with 0."""
        screen, other_end = pty.openpty()
        process = subprocess.Popen(
            shlex.split(command), cwd=self.folder, env=self.environ, stdin=other_end, stdout=other_end, stderr=other_end,
        )  # fmt: skip
        os.close(other_end)
        printed = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError):  # the terminal is closed when the command ends
                while piece := os.read(screen, 65536):
                    printed.extend(piece)

        reader = threading.Thread(target=read, name="screen")
        reader.start()
        try:
            wait_until(lambda: text.encode() in printed or process.poll() is not None)
            assert text.encode() in printed, printed.decode("utf-8", "replace")
            if end == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            else:
                os.write(screen, end.encode())
            assert process.wait(60) == 0, printed.decode("utf-8", "replace")
        finally:
            process.kill()
            process.wait()
            reader.join()
            os.close(screen)


#: What a command that stays prints when it works, and what ends it.
STAYING = {
    "dayjob worker": ("notice to 7", "Ctrl-C"),
    "dayjob web": ("The console is at http://", "Ctrl-C"),
    "dayjob top": ("send_notice", "q"),
}


@pytest.mark.timeout(600)
def test_the_readme_works_as_printed_from_its_program_to_its_last_command(embedded: Path) -> None:
    text = README.read_text("utf-8")
    (_, code), *more = blocks(README, "python")
    assert not more
    assert code.startswith("# shop.py\n")
    (embedded / "shop.py").write_text(code, "utf-8")
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DAYJOB_", "REDIS_", "KUBERNETES_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = Shell(
        embedded, kept | {"PATH": path, "PYTHONUNBUFFERED": "1", "TERM": "xterm", "DAYJOB_WEB_PORT": "0"}
    )
    listed = [line for _, block in blocks(README, "shell") for line in block.splitlines()]
    install, *commands = (line.partition("#")[0].strip() for line in listed)
    assert install == "pip install 'dayjob[all]'"
    printed = ""
    for command in commands:
        staying = STAYING.get(" ".join(command.split()[:2]))
        if command.startswith("make "):
            assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text("utf-8")
        elif command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            shell.environ[name] = value
        elif staying is None:
            printed = shell.call(command)
        else:
            shell.watch(command + (" --tab queues" if "top" in command else ""), *staying)
    assert command.startswith("dayjob enqueue "), "the table below it needs the id of a job"
    job_id = printed.split()[0]
    table = text.partition("| | in the browser | in a terminal |")[2].partition("\n\n")[0]
    operating = re.findall(r"`(dayjob [^`]+)`", table)
    assert len(operating) >= 7
    for command in operating:
        printed = shell.call(command.replace("ID", job_id))
        assert "create_watch" in printed or command != "dayjob queues ls"


def test_every_link_leads_to_a_page_and_a_heading_that_exist() -> None:
    broken = []
    for page in [*PAGES, *ROOT.glob("*.md")]:
        text = BLOCK.sub("", page.read_text("utf-8"))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, heading = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (heading and heading not in headings(path)):
                broken.append(f"{name_of(page)}: {link}")
    assert not broken


def test_the_page_of_the_package_has_no_link_that_an_index_could_not_follow() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from package_page import index_page
    finally:
        sys.path.pop(0)
    readme = README.read_text("utf-8")
    relative = re.compile(r"\]\((?!https?:|#)")
    assert len(relative.findall(readme)) > 20
    plain = index_page(readme)
    assert not relative.search(plain)
    assert "![" not in plain
    assert "The quickstart explains each step." in plain
    absolute = index_page(readme, "https://code.example/dayjob/")
    assert not relative.search(absolute)
    assert "![The terminal view](https://code.example/dayjob/docs/images/top.png)" in absolute
    apart = index_page(readme, "https://code.example/blob/", "https://code.example/raw/")
    assert not relative.search(apart)
    assert "![The terminal view](https://code.example/raw/docs/images/top.png)" in apart
    assert "[quickstart](https://code.example/blob/docs/quickstart.md)" in apart


def headings(page: Path) -> set[str]:
    """The anchors of a page, by the rule that code hosts have."""
    found = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    missing = [
        str(page.relative_to(DOCS))
        for page in PAGES
        if page.name != "README.md" and f"({page.relative_to(DOCS)})" not in index
    ]
    assert not missing


def everything() -> str:
    return "\n".join(page.read_text("utf-8") for page in PAGES)


def in_code(text: str) -> set[str]:
    """Every word that stands in code, inline or in a block."""
    code = [one[2] for one in BLOCK.finditer(text)] + re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    return set(re.findall(r"\w+", "\n".join(code)))


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("public name", dayjob.__all__),
        ("job option", options.JobSettings.__annotations__),
        ("pool option", options.PoolSettings.__annotations__),
        ("option of using()", options.Using.__annotations__),
        ("command", COMMANDS),
        ("key", [name for name in vars(Keys) if not name.startswith("_") and name not in ("namespace", "prefix")]),
        ("script", scripts.all_names()),
        ("attribute of a job", [name for name in dayjob.Job.__slots__ if not name.startswith("_") and name not in ("line", "raw_args")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_everything_public_is_documented(what: str, names: object) -> None:
    documented = in_code(everything())
    assert not [name for name in names if not set(name.split("-")) <= documented], what


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("guides/jobs.md", options.JobSettings.__annotations__),
        ("guides/running.md", options.PoolSettings.__annotations__),
        ("guides/enqueueing.md", options.Using.__annotations__),
    ],
    ids=("job", "pool", "using"),
)
def test_every_option_has_its_default_and_consequence_in_the_guide(page: str, names: object) -> None:
    rows = re.findall(r"^\| (`.*?) \| (.+?) \| (.+?) \|$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    listed = {name for first, _, _ in rows for name in re.findall(r"`(\w+)`", first)}
    assert not [name for name in names if name not in listed]


def test_every_error_has_a_section_on_the_page_of_errors() -> None:
    page = (DOCS / "reference" / "errors.md").read_text("utf-8")
    kinds = [
        name
        for name in dayjob.__all__
        if isinstance(getattr(dayjob, name), type) and issubclass(getattr(dayjob, name), Exception)
    ]
    assert kinds
    assert not [
        kind for kind in kinds if f"### {kind}\n" not in page and kind not in ("DayjobError", "StoreError")
    ]


def test_the_generated_parts_are_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def functions_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def test_every_test_that_a_promise_names_exists() -> None:
    text = (DOCS / "internals" / "guarantees.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert named
    assert not [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or name not in functions_in(ROOT / path)
    ]


def test_every_promise_has_its_tests_or_says_that_it_has_none() -> None:
    text = (DOCS / "internals" / "guarantees.md").read_text("utf-8")
    promises = re.split(r"^## (\d+)\. ", text, flags=re.MULTILINE)[1:]
    assert promises[::2] == [str(number) for number in range(1, 14)]
    for number, body in zip(promises[::2], promises[1::2], strict=True):
        assert "`tests/" in body or "No test yet" in body, f"promise {number}"


def test_every_function_that_the_life_of_a_job_passes_exists() -> None:
    text = (DOCS / "internals" / "life-of-a-job.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", text)
    assert len(named) > 20
    missing = []
    for path, dotted in named:
        file = ROOT / "src" / "dayjob" / path
        scope: list[ast.stmt] = ast.parse(file.read_text("utf-8")).body if file.exists() else []
        for part in dotted.split("."):
            found = [node for node in scope if getattr(node, "name", None) == part]
            scope = getattr(found[-1], "body", []) if found else []
            if not found:
                missing.append(f"{path} {dotted}")
                break
    assert not missing


def test_a_block_says_which_language_it_is_in() -> None:
    unmarked = [
        name_of(page)
        for page in [*PAGES, README]
        if any(one[1] == "" for one in BLOCK.finditer(page.read_text("utf-8")))
    ]
    assert not unmarked


def test_the_runner_of_pages_fails_where_a_page_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(
        dedent("""\
        # Wrong

        ```python
        one = 1
        ```

        ```python
        assert one == 2
        ```
        """),
        "utf-8",
    )
    path = program(page, tmp_path)
    with pytest.raises(AssertionError, match="line 8"):
        run(path, tmp_path)


def test_what_the_running_guide_says_of_lost_jobs_was_measured():
    guide = (DOCS / "guides" / "running.md").read_text("utf-8").partition("## What survives what")[2]
    figures = re.findall(r"\b\d{1,3}(?:,\d{3})+\b", guide.partition("\n## ")[0].partition("measured in")[2])
    measured = (DOCS / "durability.md").read_text("utf-8")
    assert len(figures) >= 6
    assert [one for one in figures if one not in measured] == []


def test_every_logger_is_in_the_guide():
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = set(
        re.findall(r'^logger = (?:logging\.getLogger|SafeLogger)\("([\w.]+)"\)', source, re.MULTILINE)
    )
    assert "dayjob.worker.supervisor.leases" in names
    listed = set(
        re.findall(
            r"^\| `(dayjob[\w.]*)` \|", (DOCS / "guides" / "seeing.md").read_text("utf-8"), re.MULTILINE
        )
    )
    assert names <= listed
