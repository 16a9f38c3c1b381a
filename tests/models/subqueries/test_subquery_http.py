import pytest

from georag_jax.documents import Question
from georag_jax.models.subqueries import ServerError, ServerSubQueries


@pytest.mark.parametrize("path, status, hinted", [("", 404, True), ("/v1", 404, False), ("", 401, False)])
def test_404_of_an_address_without_a_path_hints_at_v1(server, path, status, hinted):
    server.behave = lambda body, number: (status, {}, "Not Found")
    base = server.url.removesuffix("/v1")
    with pytest.raises(ServerError, match=f"status {status}: 'Not Found'") as caught:
        ServerSubQueries(base + path, "tiny").subqueries([Question("q1", "Who wrote Emma?")])
    assert str(caught.value).endswith(f"most servers answer under {base}/v1") == hinted
