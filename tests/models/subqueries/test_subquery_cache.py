import json
import threading

import pytest
from fake_server import asked, choices

from georag_jax.documents import Question
from georag_jax.models.subqueries import Report, ServerError, ServerSubQueries
from georag_jax.models.subqueries._cache import Cache

QUESTIONS = [Question("a", "Who wrote Emma?"), Question("b", "Who wrote Persuasion?")]


def _answer(body, number):
    return 200, {}, choices(json.dumps(["über " + asked(body)]))


def test_a_filled_cache_needs_no_server(server, tmp_path):
    path = tmp_path / "cache.jsonl"
    server.behave = _answer
    first = ServerSubQueries(server.url, "tiny", cache=path).subqueries(QUESTIONS)
    server.close()
    again = ServerSubQueries(server.url + "/", "tiny", cache=path, retries=0)
    assert again.subqueries([Question("other id", QUESTIONS[1].text), QUESTIONS[0]]) == first[::-1]
    assert again.last_report == Report(cached=2)


def test_fallbacks_are_kept_too(server, tmp_path):
    path = tmp_path / "cache.jsonl"
    server.behave = lambda body, number: (200, {}, choices(""))
    for cached in (0, 2):
        source = ServerSubQueries(server.url, "tiny", cache=path)
        assert source.subqueries(QUESTIONS) == [[q.text] for q in QUESTIONS]
        assert source.last_report == Report(cached=cached, fallbacks=2)


@pytest.mark.parametrize(
    "other", [{"model": "large"}, {"temperature": 0.1}, {"seed": 1}, {"n": 3}, {"max_tokens": 9}, {"sampling": "n"}]
)
def test_other_settings_are_other_entries(server, tmp_path, other):
    path = tmp_path / "cache.jsonl"
    server.behave = _answer
    ServerSubQueries(server.url, cache=path, **{"model": "tiny", "n": 1}).subqueries(QUESTIONS)
    source = ServerSubQueries(server.url, cache=path, **{"model": "tiny", "n": 1, **other})
    source.subqueries(QUESTIONS)
    assert source.last_report.cached == 0


def test_torn_last_line_is_skipped_and_not_continued(tmp_path, caplog):
    path = tmp_path / "cache.jsonl"
    Cache(path).put({"q": 1}, ["a b"])
    whole = path.read_bytes()
    path.write_bytes(whole + '{"key": {"q": 2}, "subqueries": ["é'.encode()[:-1])
    cache = Cache(path)
    assert "line 2: skipped" in caplog.text
    assert cache.get({"q": 2}) is None
    cache.put({"q": 2}, ["c d"])
    cache.put({"q": 3}, [])
    fresh = Cache(path)
    assert [fresh.get({"q": i}) for i in (1, 2, 3, 4)] == [["a b"], ["c d"], [], None]
    assert path.read_bytes().startswith(whole)


def test_last_line_without_its_newline_still_counts(tmp_path):
    path = tmp_path / "cache.jsonl"
    Cache(path).put({"q": 1}, ["a b"])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    cache = Cache(path)
    cache.put({"q": 2}, ["c d"])
    assert [Cache(path).get({"q": i}) for i in (1, 2)] == [["a b"], ["c d"]]


def test_many_threads_write_whole_lines(tmp_path):
    cache = Cache(tmp_path / "cache.jsonl")

    def write(first):
        for i in range(first, first + 25):
            cache.put({"q": i}, [f"query {i}" * 50])

    threads = [threading.Thread(target=write, args=(25 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fresh = Cache(tmp_path / "cache.jsonl")
    assert all(fresh.get({"q": i}) == [f"query {i}" * 50] for i in range(200))


def test_finished_questions_are_kept_when_another_fails(server, tmp_path):
    path = tmp_path / "cache.jsonl"
    done = threading.Event()

    def behave(body, number):
        if "Persuasion" in asked(body):
            done.wait(30)
            return 404, {}, "gone"
        done.set()
        return _answer(body, number)

    server.behave = behave
    with pytest.raises(ServerError, match="question 'b': "):
        ServerSubQueries(server.url, "tiny", cache=path).subqueries(QUESTIONS)
    source = ServerSubQueries(server.url, "tiny", cache=path)
    source.subqueries(QUESTIONS[:1])
    assert source.last_report == Report(cached=1)
