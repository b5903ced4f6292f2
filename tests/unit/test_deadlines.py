from __future__ import annotations

import os

import pytest

from dayjob.worker.supervisor.deadlines import DeadlineBoard, DeadlineReader, Posted, new_file


@pytest.fixture
def fd():
    found = new_file()
    yield found
    os.close(found)


@pytest.fixture
def board(fd) -> DeadlineBoard:
    board = DeadlineBoard(fd, 4)
    board.generation = 0
    return board


@pytest.fixture
def reader(fd, board) -> DeadlineReader:
    reader = DeadlineReader(fd, 4)
    yield reader
    reader.close()


def test_a_new_board_shows_nothing(reader):
    assert reader.posted() == []


def test_what_is_posted_is_read_on_the_other_side(board, reader):
    board.post(0, "1:mail", 12.5)
    board.post(3, "2:export", 99.25)
    assert reader.posted() == [Posted(0, "1:mail", 12.5), Posted(0, "2:export", 99.25)]


def test_a_cleared_record_is_gone_and_its_neighbour_stays(board, reader):
    board.post(1, "1:mail", 12.5)
    board.post(2, "2:mail", 13.5)
    board.clear(1)
    assert reader.posted() == [Posted(0, "2:mail", 13.5)]


def test_a_shorter_token_replaces_a_longer_one_whole(board, reader):
    board.post(0, "1:" + "long" * 40, 1.0)
    board.post(0, "2:a", 2.0)
    assert reader.posted() == [Posted(0, "2:a", 2.0)]


def test_the_longest_job_name_fits(board, reader):
    token = "9007199254740993:" + "\N{GRINNING FACE}" * 200
    board.post(2, token, 5.0)
    assert reader.posted() == [Posted(0, token, 5.0)]


def test_a_record_says_under_which_id_of_its_child_it_was_posted(board, reader):
    board.post(0, "7:mail", 1.0)
    board.generation = 1
    board.post(1, "7:mail", 2.0)
    assert [posted.generation for posted in reader.posted()] == [0, 1]


@pytest.mark.parametrize("place", [0, 4, 8, 16, 20])
def test_a_record_caught_while_it_is_written_is_not_seen(fd, board, reader, place):
    board.post(0, "1:mail", 12.5)
    before = os.pread(fd, 1, place)
    os.pwrite(fd, bytes([before[0] ^ 1]), place)
    assert reader.posted() == []
    os.pwrite(fd, before, place)
    assert len(reader.posted()) == 1


def test_another_process_sees_it(fd, board, reader):
    pid = os.fork()
    if pid == 0:
        board.post(0, "5:mail", 3.0)
        os._exit(0)
    os.waitpid(pid, 0)
    assert reader.posted() == [Posted(0, "5:mail", 3.0)]
