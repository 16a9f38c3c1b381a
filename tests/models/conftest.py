import json
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def data():
    """Directory of the golden data."""
    return DATA


@pytest.fixture(scope="session")
def tiny():
    """Directory of the tiny random encoder."""
    return DATA / "tiny"


@pytest.fixture(scope="session")
def tiny_config(tiny):
    """Its config.json, parsed."""
    return json.loads((tiny / "config.json").read_text())


@pytest.fixture(scope="session")
def golden():
    """What upstream computes with the tiny encoder."""
    with np.load(DATA / "tiny.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="session")
def minilm():
    """The real encoder, from the cache or fetched."""
    from georag_jax.models import SentenceEncoder, resolve

    return SentenceEncoder.from_directory(resolve("minilm"))


@pytest.fixture(scope="session")
def minilm_golden():
    """Texts, and what upstream computes of them with the real encoder."""
    texts = json.loads((DATA / "minilm.json").read_text(encoding="utf-8"))
    with np.load(DATA / "minilm.npz") as arrays:
        return texts, arrays["vectors"]
