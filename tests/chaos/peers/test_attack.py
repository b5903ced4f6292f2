"""The judge of the peers is judged: what it says of ledgers whose end is known."""

from __future__ import annotations

from chaos.peers.attack import JOBS, Part, Result, count
from chaos.peers.fleet import Book, Entry


def judged(*lines: tuple[str, int, str, float]) -> list[Part]:
    """The two parts of a run whose ledger has these lines: kind, job, run, when."""
    result = Result("x", "1", "", [Part("first"), Part("second")])
    count([Entry(kind, number, 1, run, at) for kind, number, run, at in lines], result)
    return result.parts


def test_a_job_that_ended_once_is_neither_lost_nor_doubled():
    first, second = judged(("stored", 0, "-", 1), ("start", 0, "r", 2), ("end", 0, "r", 3))
    assert (first.stored, first.lost, first.twice, first.interrupted, first.longest) == (1, 0, 0, 0, 2)
    assert second.stored == 0


def test_a_job_that_never_ended_is_lost_begun_or_not():
    first, _ = judged(("stored", 0, "-", 1), ("stored", 1, "-", 1), ("start", 1, "r", 2))
    assert (first.lost, first.lost_begun, first.lost_unbegun) == (2, 1, 1)


def test_a_job_that_was_interrupted_and_ended_later_was_rescued():
    first, _ = judged(("stored", 0, "-", 1), ("start", 0, "r", 2), ("start", 0, "s", 7), ("end", 0, "s", 8.5))
    assert (first.lost, first.twice, first.interrupted, first.slowest, first.longest) == (0, 0, 1, 6.5, 7.5)


def test_a_job_that_ended_twice_is_counted_once_as_that():
    first, _ = judged(
        ("stored", 0, "-", 1), *((kind, 0, run, 2) for run in "rst" for kind in ("start", "end"))
    )
    assert (first.twice, first.interrupted) == (1, 0)


def test_jobs_belong_to_the_part_that_enqueued_them_and_those_of_the_warming_up_to_none():
    first, second = judged(("stored", -1, "-", 1), ("stored", JOBS, "-", 1), ("start", JOBS, "r", 2))
    assert (first.stored, second.stored, second.lost) == (0, 1, 1)


def test_what_was_never_answered_is_not_missed():
    first, _ = judged(("start", 0, "r", 2))
    assert (first.stored, first.lost) == (0, 0)


def test_the_book_reads_whole_lines_only_and_knows_what_runs(tmp_path):
    path = tmp_path / "ledger.txt"
    book = Book(path)
    with path.open("a") as ledger:
        ledger.write("start 1 10 r 1.0\nstart 2 11 s 1.5\nend 1 10 r 2.0\nend 2 1")
        ledger.flush()
        assert set(book.running()) == {"s"}
        ledger.write("1 s 3.0\n")
        ledger.flush()
        assert book.running() == {}
    book.close()
