import json
import threading

import pytest
from fake_server import FakeServer, asked, choices

from georag_jax.models import _http
from georag_jax.models.chat import ChatModel, Completion, Sampling
from georag_jax.models.server import ServerError, ServerModel

CHAT = [{"role": "user", "content": "Who directed the film of Emma?"}]
FORMAT = {"type": "json_object"}


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


def ask(model, n=1, chats=(CHAT,), **sampling):
    return model.complete(list(chats), n, Sampling(**sampling))


def texts(model, n=1, **sampling):
    return [completion.text for completion in ask(model, n, **sampling)[0]]


def chats(count):
    return [[{"role": "user", "content": f"Question number {i}?"}] for i in range(count)]


def test_the_request_and_its_answer(server):
    server.behave = lambda body, number: (200, {}, choices("Douglas", finish="length"))
    model = ServerModel(server.url + "/", "tiny")
    assert isinstance(model, ChatModel)
    sampling = {"temperature": 0.5, "seed": 3, "max_tokens": 99, "top_p": 0.9, "top_k": 7, "stop": ("\n",)}
    assert ask(model, **sampling) == [[Completion("Douglas", cut=True)]]
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [{"model": "tiny", "messages": CHAT, **sampling, "stop": ["\n"]}]


def test_what_is_off_is_not_sent(server):
    server.behave = lambda body, number: (200, {}, choices("x"))
    ask(ServerModel(server.url, "tiny"))
    assert set(server.bodies[0]) == {"model", "messages", "temperature", "max_tokens", "seed"}


def test_no_chats(server):
    assert ServerModel(server.url, "tiny").complete([], 3, Sampling()) == []
    assert server.bodies == []


def test_fingerprint_names_server_model_and_format():
    url = "http://127.0.0.1/v1"
    models = [
        ServerModel(url, "a"),
        ServerModel(url, "b"),
        ServerModel(url + "2", "a"),
        ServerModel(url, "a", response_format=FORMAT),
    ]
    assert len({model.fingerprint for model in models}) == 4
    assert ServerModel(url + "/", "a", api_key="secret").fingerprint == models[0].fingerprint


@pytest.mark.parametrize("text, least", [("", 0), ("the river Elbe", 3), ("長い川はどれですか", 9)])
def test_count_is_a_careful_estimate(text, least):
    assert ServerModel("http://127.0.0.1/v1", "tiny").count(text) >= least


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_arguments_out_of_range(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        ServerModel(**{"base_url": "http://127.0.0.1/v1", "model": "tiny", **arguments})


def test_api_key_from_argument_then_environment_at_each_call(server, monkeypatch):
    server.behave = lambda body, number: (200, {}, choices("x"))
    model = ServerModel(server.url, "tiny")
    ask(model)
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    ask(model)
    ask(ServerModel(server.url, "tiny", api_key="own"))
    assert [h["Authorization"] for h in server.headers] == ["Bearer EMPTY", "Bearer from-environment", "Bearer own"]


@pytest.mark.parametrize("content", [None, "", ["text"]])
def test_an_answer_without_text_is_an_empty_one(server, content):
    answer = choices(content)
    answer["choices"][0]["message"]["reasoning_content"] = "a thought"
    server.behave = lambda body, number: (200, {}, answer)
    assert texts(ServerModel(server.url, "tiny")) == [""]


def test_no_choices_are_an_empty_answer(server):
    server.behave = lambda body, number: (200, {}, {"choices": []})
    assert texts(ServerModel(server.url, "tiny")) == [""]


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_response_format_is_left_out_from_then_on(server, status):
    def behave(body, number):
        if "response_format" in body:
            return status, {}, {"error": "response_format is not supported"}
        return 200, {}, choices("x")

    server.behave = behave
    model = ServerModel(server.url, "tiny", response_format=FORMAT)
    assert texts(model) == texts(model) == ["x"]
    assert ["response_format" in body for body in server.bodies] == [True, False, False]


def test_a_request_that_is_refused_in_any_form_does_not_blame_the_format(server):
    server.behave = lambda body, number: (400, {}, "too long")
    model = ServerModel(server.url, "tiny", response_format=FORMAT)
    for _ in range(2):
        with pytest.raises(ServerError, match="too long"):
            ask(model)
    assert ["response_format" in body for body in server.bodies] == [True, False] * 2


def _by_seed(body):
    return 200, {}, choices(f"answer {body['seed']}")


def test_n_choices_in_one_request(server):
    server.behave = lambda body, number: (200, {}, choices("a", "b", "c", "d"))
    assert texts(ServerModel(server.url, "tiny"), n=3) == ["a", "b", "c"]
    (body,) = server.bodies
    assert (body["n"], body["seed"]) == (3, 0)


def test_missing_choices_are_fetched_with_other_seeds(server):
    server.behave = lambda body, number: _by_seed(body)
    model = ServerModel(server.url, "tiny", concurrency=2)
    assert texts(model, n=5, seed=10) == [f"answer {seed}" for seed in range(10, 15)]
    singles = sorted((body["seed"], body.get("n")) for body in server.bodies)
    assert singles == [(10, 5), *((seed, None) for seed in range(11, 15))]


@pytest.mark.parametrize("status", [400, 422, 500])
def test_n_refused_is_replaced_by_single_requests_from_then_on(server, status):
    server.behave = lambda body, number: (status, {}, "Only one choice") if "n" in body else _by_seed(body)
    model = ServerModel(server.url, "tiny", retries=0)
    assert texts(model, n=3) == texts(model, n=3) == ["answer 0", "answer 1", "answer 2"]
    assert sum("n" in body for body in server.bodies) == 1


def test_429_waits_as_long_as_the_server_says(server, waits):
    refusals = [(429, {"Retry-After": "7"}, ""), (429, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, "")]
    server.behave = lambda body, number: refusals[number - 1] if number <= 2 else (200, {}, choices("x"))
    assert texts(ServerModel(server.url, "tiny")) == ["x"]
    assert waits == [7.0, 0.0]


def test_500_is_retried_with_growing_pauses(server, waits):
    headers = {"Retry-After": "soon"}
    server.behave = lambda body, number: (503, headers, "") if number <= 3 else (200, {}, choices("x"))
    assert texts(ServerModel(server.url, "tiny", retries=3)) == ["x"]
    assert [0.5 * base <= wait <= 1.5 * base for wait, base in zip(waits, (0.5, 1, 2), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    "answer, text, status",
    [
        ((500, {}, "broken" + "x" * 1000), "status 500: 'brokenxxx", 500),
        ((200, {}, "<html>"), "not JSON: '<html>'", None),
        ((200, {}, [1]), "not a JSON object", None),
        ((200, {}, {"error": "no"}), "no list of choices", None),
        ((404, {}, "no such model"), "status 404: 'no such model'", 404),
        ((401, {}, "key?"), "status 401: 'key?'", 401),
    ],
)
def test_errors_say_what_the_server_wrote_and_what_was_asked(server, answer, text, status):
    server.behave = lambda body, number: answer
    with pytest.raises(ServerError) as caught:
        ask(ServerModel(server.url, "tiny", retries=1, api_key="secret"))
    message = str(caught.value)
    assert message.startswith("asked 'Who directed the film of Emma?': ")
    assert text in message
    assert "secret" not in message
    assert len(message) < 600
    assert caught.value.status_code == status
    retried = answer[0] == 500 or answer[2] == "<html>"
    assert len(server.bodies) == 1 + retried


@pytest.mark.parametrize("path, status, hinted", [("", 404, True), ("/v1", 404, False), ("", 401, False)])
def test_404_of_an_address_without_a_path_hints_at_v1(server, path, status, hinted):
    server.behave = lambda body, number: (status, {}, "Not Found")
    base = server.url.removesuffix("/v1")
    with pytest.raises(ServerError, match=f"status {status}: 'Not Found'") as caught:
        ask(ServerModel(base + path, "tiny"))
    assert str(caught.value).endswith(f"most servers answer under {base}/v1") == hinted


def test_timeout_is_retried(server, waits):
    release = threading.Event()

    def behave(body, number):
        if number == 1:
            release.wait(30)
        return 200, {}, choices("x")

    server.behave = behave
    assert texts(ServerModel(server.url, "tiny", timeout=0.3)) == ["x"]
    release.set()
    assert len(waits) == 1


def test_lost_answer_is_retried(server, waits):
    server.behave = lambda body, number: (200, {"Content-Length": "9999"} if number == 1 else {}, choices("x"))
    assert texts(ServerModel(server.url, "tiny", timeout=0.5)) == ["x"]
    assert len(waits) == 1


def test_no_server(server, waits):
    server.close()
    with pytest.raises(ServerError, match=r"http://127.*no answer: ConnectionRefusedError"):
        ask(ServerModel(server.url, "tiny", retries=2))
    assert len(waits) == 2


def test_chats_run_together_and_keep_their_order(server):
    together = threading.Barrier(4)
    answered = [threading.Event() for _ in range(4)]

    def behave(body, number):
        together.wait(30)
        i = int(asked(body).split()[-1].rstrip("?"))
        # The last question is answered first.
        if i < 3:
            answered[i + 1].wait(30)
        answered[i].set()
        return 200, {}, choices(f"answer {i}")

    server.behave = behave
    told = []
    replies = ServerModel(server.url, "tiny", concurrency=4).complete(chats(4), 1, Sampling(), told.append)
    assert replies == [[Completion(f"answer {i}", cut=False)] for i in range(4)]
    assert told == [1, 2, 3, 4]


def test_an_error_holds_what_was_finished(server):
    others = threading.Event()

    def behave(body, number):
        if "number 1" in asked(body):
            others.wait(30)
            return 403, {}, "quota"
        others.set()
        return 200, {}, choices("x")

    server.behave = behave
    with pytest.raises(ServerError, match=r"asked 'Question number 1\?'.*quota") as caught:
        ask(ServerModel(server.url, "tiny", concurrency=2), chats=chats(2))
    assert caught.value.finished == {0: [Completion("x", cut=False)]}


def test_no_more_requests_in_flight_than_allowed():
    lock, flying, most = threading.Lock(), [0], [0]
    pause = threading.Event()

    def client(body):
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        pause.wait(0.01)
        with lock:
            flying[0] -= 1
        return choices(f"answer {body['seed']}")

    model = ServerModel("http://unused/v1", "tiny", concurrency=2, client=client)
    replies = ask(model, n=6, chats=chats(5))
    assert [[c.text for c in own] for own in replies] == [[f"answer {seed}" for seed in range(6)]] * 5
    assert most[0] <= 2


class Refusal(Exception):
    status_code = 400


def test_own_client_and_its_refusals():
    def client(body):
        if "response_format" in body:
            raise Refusal("no schema")
        return choices("x")

    assert texts(ServerModel("http://unused/v1", "tiny", client=client, response_format=FORMAT)) == ["x"]

    def broken(body):
        raise KeyError("x")

    with pytest.raises(ServerError, match=r"asked 'Who directed the film of Emma\?': 'x'"):
        ask(ServerModel("http://unused/v1", "tiny", client=broken))


def test_the_body_is_json(server):
    server.behave = lambda body, number: (200, {}, json.dumps(choices("naïve — 長い")))
    assert texts(ServerModel(server.url, "tiny")) == ["naïve — 長い"]
