import numpy as np
import pytest

import georag_jax
from georag_jax import MissingExtraError, Status, StopReason, describe
from georag_jax._errors import require


def test_every_status_has_words_of_its_own():
    words = [describe(status) for status in Status]
    assert len(set(words)) == len(Status)
    assert all(word and word != "fine" for word in words)
    assert [int(status) for status in Status] == [1, 2, 4, 8, 16, 32]


def test_bits_are_joined():
    both = Status.NO_SUBQUERIES | Status.POOL_EXHAUSTED
    assert describe(both) == f"{describe(4)}; {describe(16)}"
    assert describe(np.int32(20)) == describe(both)
    assert describe(0) == "fine"


@pytest.mark.parametrize("status", [-1, 64, 65])
def test_unknown_bits_are_refused(status):
    with pytest.raises(ValueError, match=f"^status: expected .*, got {status}$"):
        describe(status)


def test_stop_reasons():
    assert (StopReason.K_REACHED, StopReason.POOL_EXHAUSTED) == (0, 1)


def test_missing_extra_says_what_to_install():
    error = MissingExtraError("faiss", "retrieval")
    assert isinstance(error, ImportError)
    assert (error.package, error.extra) == ("faiss", "retrieval")
    assert str(error) == "faiss is needed here and is not installed: pip install 'georag-jax[retrieval]'"


def test_require():
    require(True, "x", "anything", "it")
    with pytest.raises(ValueError, match="^x: expected 1, got 2$"):
        require(False, "x", "1", 2)


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = georag_jax.nothing
