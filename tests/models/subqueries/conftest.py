import pytest
from fake_server import FakeServer

from georag_jax.models.subqueries import _http


@pytest.fixture
def waits(monkeypatch):
    """The pauses between attempts, which are recorded instead of slept."""
    recorded = []
    monkeypatch.setattr(_http.time, "sleep", recorded.append)
    return recorded


@pytest.fixture
def server(monkeypatch, waits):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    fake = FakeServer()
    yield fake
    fake.close()
