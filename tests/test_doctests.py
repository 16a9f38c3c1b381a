"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import georag_jax

MODULES = sorted(module.name for module in pkgutil.walk_packages(georag_jax.__path__, "georag_jax."))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    assert len(MODULES) > 30
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) > 20
