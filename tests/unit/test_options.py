"""Options: each is declared once, in a struct, with its check."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

import pytest

from dayjob.admin.views import JobTypeView
from dayjob.errors import BadOption
from dayjob.handlers.describe import DESCRIBED_OPTIONS, Described
from dayjob.options import EnqueueOptions, JobOptions, JobSettings, PoolOptions, PoolSettings, Using


def names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


@pytest.mark.parametrize(
    ("struct", "settings"), [(JobOptions, JobSettings), (PoolOptions, PoolSettings)], ids=("job", "pool")
)
def test_the_types_for_type_checkers_name_the_options_of_the_struct(struct, settings):
    assert list(settings.__annotations__) == names(struct)


def test_every_option_of_using_is_one_of_an_enqueue():
    assert set(Using.__annotations__) < set(names(EnqueueOptions))


@pytest.mark.parametrize("struct", [JobOptions, PoolOptions])
def test_every_option_has_a_check_that_accepts_its_default_and_refuses_an_object(struct):
    for name, hint in get_type_hints(struct, include_extras=True).items():
        [check] = hint.__metadata__
        default = getattr(struct(), name)
        assert check(default, name) == default
        with pytest.raises(BadOption, match=f"^{name}="):
            check(object(), name)


def test_of_several_mistakes_the_first_in_the_struct_is_named():
    with pytest.raises(BadOption, match="x: priority=0: give a whole number from 1 to 100000"):
        JobOptions.of({"max_fails": 0, "priority": 0}, "x")


def test_a_description_has_options_by_the_names_they_have_in_the_struct():
    assert {"priority", "max_fails", "timeout", "keep", "redact"} <= set(DESCRIBED_OPTIONS)
    assert [*Described.__struct_fields__, "announced_at"] == names(JobTypeView)
