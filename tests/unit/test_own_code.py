"""Which files count as the program's own code in stacks: none of dayjob's."""

from __future__ import annotations

import pytest

from dayjob import middleware, pool
from dayjob.handlers import arguments
from dayjob.store import link
from dayjob.worker import runtime
from dayjob.worker.running import runner
from dayjob.worker.status.stacks import is_own


@pytest.mark.parametrize("module", [arguments, link, middleware, pool, runner, runtime])
def test_a_file_of_dayjob_is_not_the_programs_own_code(module):
    assert not is_own(module.__file__)


def test_a_file_beside_dayjob_is_the_programs_own_code(tmp_path):
    assert is_own(str(tmp_path / "app" / "jobs.py"))
