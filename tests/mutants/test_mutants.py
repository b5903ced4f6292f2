"""The list of mutants is in order: each still fits the code, and names tests that exist. `make mutants` runs them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("mutants", Path(__file__).parent / "mutants.py")
mutants = importlib.util.module_from_spec(_spec)
sys.modules["mutants"] = mutants
_spec.loader.exec_module(mutants)


@pytest.mark.parametrize("mutant", mutants.ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_code(mutant, tmp_path):
    """Its text is in its file exactly once, and what it makes of a Python file can be parsed."""
    path = tmp_path / mutant.file
    path.parent.mkdir(parents=True)
    path.write_text((mutants.ROOT / mutant.file).read_text())
    mutant.apply(tmp_path)
    assert path.read_text() != (mutants.ROOT / mutant.file).read_text()
    if path.suffix == ".py":
        ast.parse(path.read_text())


@pytest.mark.parametrize("mutant", mutants.ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_names_tests_that_exist(mutant):
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (mutants.ROOT / file).read_text()
        assert not name or f"def {name}(" in text, test


def test_there_are_many_mutants_and_no_two_alike():
    assert len(mutants.ALL) >= 50
    assert len({mutant.name for mutant in mutants.ALL}) == len(mutants.ALL)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants.ALL}) == len(mutants.ALL)
