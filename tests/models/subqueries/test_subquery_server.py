import json
import threading

import pytest
from fake_server import asked, choices

from georag_jax._types import SubQuerySource
from georag_jax.documents import Question
from georag_jax.models.subqueries import Report, ServerError, ServerSubQueries

Q = Question("q1", "Who directed the film of Emma?")


def ask(source, *questions):
    return source.subqueries(questions or [Q])


def test_request_of_the_list_mode(server):
    server.behave = lambda body, number: (200, {}, choices('{"subquestions": ["Emma film", "director of Emma"]}'))
    source = ServerSubQueries(server.url + "/", "tiny", n=7, temperature=0.5, seed=3, max_tokens=99)
    assert isinstance(source, SubQuerySource)
    assert ask(source) == [["Emma film", "director of Emma"]]
    (body,) = server.bodies
    assert server.paths == ["/v1/chat/completions"]
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("tiny", 0.5, 3, 99)
    assert "n" not in body
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["additionalProperties"] is False
    assert asked(body) == Q.text
    assert "7" in body["messages"][-1]["content"]
    assert source.last_report == Report(generated=2)


def test_api_key_from_argument_then_environment_at_each_call(server, monkeypatch):
    source = ServerSubQueries(server.url, "tiny")
    ask(source)
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    ask(source)
    ask(ServerSubQueries(server.url, "tiny", api_key="own"))
    assert [h["Authorization"] for h in server.headers] == ["Bearer EMPTY", "Bearer from-environment", "Bearer own"]


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"n": 0}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"sampling": "n", "temperature": 0}, "temperature"),
        ({"sampling": "best"}, "sampling"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_arguments_out_of_range(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        ServerSubQueries(**{"base_url": "http://127.0.0.1/v1", "model": "tiny", **arguments})


def test_counts_of_what_is_dropped(server):
    text = (
        "Sure! Here are some:\n1. Emma film\n2. emma FILM.\n3. Who directed the film of 'Emma'?\n4. A b\n5. C d\n6. ??"
    )
    server.behave = lambda body, number: (200, {}, choices(text))
    source = ServerSubQueries(server.url, "tiny", n=2)
    assert ask(source) == [["Emma film", "A b"]]
    assert source.last_report == Report(generated=5, duplicates=2, malformed=2, surplus=1)


@pytest.mark.parametrize(
    "content",
    ['```json\n["Emma film"]\n```', '<think>1. No\n2. No</think>["Emma film"]', '{"subquestions": ["Emma film", "cu'],
)
def test_untidy_answers(server, content):
    server.behave = lambda body, number: (200, {}, choices(content, finish="length"))
    assert ask(ServerSubQueries(server.url, "tiny")) == [["Emma film"]]


@pytest.mark.parametrize("content", [None, "", "Who directed the film of Emma?", ["Emma film"]])
def test_nothing_usable_gives_the_question_and_is_counted(server, content, caplog):
    answer = choices(content)
    answer["choices"][0]["message"]["reasoning_content"] = '["Emma film"]'
    server.behave = lambda body, number: (200, {}, answer)
    source = ServerSubQueries(server.url, "tiny")
    assert ask(source) == [[Q.text]]
    assert source.last_report.fallbacks == 1
    assert "fallbacks=1" in caplog.text


def test_no_choices_gives_the_question(server):
    server.behave = lambda body, number: (200, {}, {"choices": []})
    assert ask(ServerSubQueries(server.url, "tiny")) == [[Q.text]]


def test_blank_question_is_not_sent(server):
    source = ServerSubQueries(server.url, "tiny")
    assert ask(source, Question("b", " \n")) == [[]]
    assert source.subqueries([]) == []
    assert server.bodies == []


@pytest.mark.parametrize("status", [400, 422])
def test_refused_response_format_is_left_out_from_then_on(server, status):
    def behave(body, number):
        if "response_format" in body:
            return status, {}, {"error": "response_format is not supported"}
        return 200, {}, choices('["Emma film"]')

    server.behave = behave
    source = ServerSubQueries(server.url, "tiny")
    assert ask(source) == [["Emma film"]]
    assert ask(source) == [["Emma film"]]
    assert ["response_format" in body for body in server.bodies] == [True, False, False]


def test_n_choices_in_one_request(server):
    server.behave = lambda body, number: (200, {}, choices('["a b"]', '["A B!", "c d"]', "1. e f"))
    source = ServerSubQueries(server.url, "tiny", n=3, sampling="n")
    assert ask(source) == [["a b", "c d", "e f"]]
    (body,) = server.bodies
    assert (body["n"], body["seed"]) == (3, 0)
    assert "response_format" not in body
    assert source.last_report == Report(generated=4, duplicates=1)


def _by_seed(body):
    return 200, {}, choices(f'["query {body["seed"]}"]')


def test_n_ignored_is_topped_up_with_other_seeds(server):
    server.behave = lambda body, number: _by_seed(body)
    source = ServerSubQueries(server.url, "tiny", n=5, seed=10, sampling="n", concurrency=2)
    assert ask(source) == [[f"query {seed}" for seed in range(10, 15)]]
    assert sorted((body["seed"], body.get("n")) for body in server.bodies) == [
        (10, 5),
        *((seed, None) for seed in range(11, 15)),
    ]
    assert source.last_report == Report(generated=5, topped_up=4)


@pytest.mark.parametrize("status", [400, 422, 500])
def test_n_refused_is_replaced_by_single_requests_from_then_on(server, status):
    server.behave = lambda body, number: (status, {}, "Only one choice") if "n" in body else _by_seed(body)
    source = ServerSubQueries(server.url, "tiny", n=3, sampling="n", retries=0)
    assert ask(source) == [["query 0", "query 1", "query 2"]]
    assert ask(source) == [["query 0", "query 1", "query 2"]]
    assert sum("n" in body for body in server.bodies) == 1


def test_topping_up_ends_at_the_bound_and_as_soon_as_there_is_enough(server):
    server.behave = lambda body, number: (200, {}, choices('["same thing"]'))
    source = ServerSubQueries(server.url, "tiny", n=6, sampling="n")
    assert ask(source) == [["same thing"]]
    assert len(server.bodies) == 1 + 5
    server.bodies.clear()
    server.behave = lambda body, number: (200, {}, choices(json.dumps([f"query {i}" for i in range(6)])))
    assert len(ask(source)[0]) == 6
    assert len(server.bodies) == 1


def test_429_waits_as_long_as_the_server_says(server, waits):
    refusals = [(429, {"Retry-After": "7"}, ""), (429, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, "")]
    server.behave = lambda body, number: refusals[number - 1] if number <= 2 else (200, {}, choices('["a b"]'))
    assert ask(ServerSubQueries(server.url, "tiny")) == [["a b"]]
    assert waits == [7.0, 0.0]


def test_500_is_retried_with_growing_pauses(server, waits):
    headers = {"Retry-After": "soon"}
    server.behave = lambda body, number: (503, headers, "") if number <= 3 else (200, {}, choices('["a b"]'))
    assert ask(ServerSubQueries(server.url, "tiny", retries=3)) == [["a b"]]
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
def test_errors_say_what_the_server_wrote_and_for_which_question(server, answer, text, status):
    server.behave = lambda body, number: answer
    with pytest.raises(ServerError) as caught:
        ask(ServerSubQueries(server.url, "tiny", retries=1, api_key="secret"))
    message = str(caught.value)
    assert message.startswith("question 'q1': ")
    assert text in message
    assert "secret" not in message
    assert len(message) < 600
    assert caught.value.status_code == status
    retried = answer[0] == 500 or answer[2] == "<html>"
    assert len(server.bodies) == 1 + retried


def test_the_total_report_sums_the_calls(server):
    server.behave = lambda body, number: (200, {}, choices('["a b", "A B", "c d"]' if number == 1 else ""))
    source = ServerSubQueries(server.url, "tiny")
    assert source.total_report == Report()
    ask(source)
    ask(source, Question("q2", "Another?"))
    assert source.last_report == Report(fallbacks=1)
    assert source.total_report == Report(generated=3, duplicates=1, fallbacks=1)


def test_timeout_is_retried(server, waits):
    release = threading.Event()

    def behave(body, number):
        if number == 1:
            release.wait(30)
        return 200, {}, choices('["a b"]')

    server.behave = behave
    assert ask(ServerSubQueries(server.url, "tiny", timeout=0.3)) == [["a b"]]
    release.set()
    assert len(waits) == 1


def test_lost_answer_is_retried(server, waits):
    server.behave = lambda body, number: (200, {"Content-Length": "9999"} if number == 1 else {}, choices('["a b"]'))
    assert ask(ServerSubQueries(server.url, "tiny", timeout=0.5)) == [["a b"]]
    assert len(waits) == 1


def test_no_server(server, waits):
    server.close()
    with pytest.raises(ServerError, match=r"question 'q1': http://127.*no answer: ConnectionRefusedError"):
        ask(ServerSubQueries(server.url, "tiny", retries=2))
    assert len(waits) == 2


def test_questions_run_together_and_keep_their_order(server):
    questions = [Question(str(i), f"Question number {i}?") for i in range(4)]
    together = threading.Barrier(4)
    answered = [threading.Event() for _ in questions]

    def behave(body, number):
        together.wait(30)
        i = int(asked(body).split()[-1].rstrip("?"))
        # The last question is answered first.
        if i < 3:
            answered[i + 1].wait(30)
        answered[i].set()
        return 200, {}, choices(f'["answer {i}"]')

    server.behave = behave
    source = ServerSubQueries(server.url, "tiny", concurrency=4)
    assert source.subqueries(questions) == [[f"answer {i}"] for i in range(4)]


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
        return choices(f'["query {body["seed"]}"]')

    source = ServerSubQueries("http://unused/v1", "tiny", n=6, sampling="n", concurrency=2, client=client)
    results = source.subqueries([Question(str(i), f"Question {i}?") for i in range(5)])
    assert results == [[f"query {seed}" for seed in range(6)]] * 5
    assert most[0] <= 2


class Refusal(Exception):
    status_code = 400


def test_own_client_and_its_refusals():
    def client(body):
        if "response_format" in body:
            raise Refusal("no schema")
        return choices('["a b"]')

    assert ask(ServerSubQueries("http://unused/v1", "tiny", client=client)) == [["a b"]]

    def broken(body):
        raise KeyError("x")

    with pytest.raises(ServerError, match="question 'q1': 'x'"):
        ask(ServerSubQueries("http://unused/v1", "tiny", client=broken))
