import json
import threading

import pytest
from fake_chat import FakeChat

from georag_jax.models.chat import ChatModel, Completion, Sampling
from georag_jax.models.kept import KeptModel


def chats(*questions):
    return [[{"role": "system", "content": "Answer."}, {"role": "user", "content": q}] for q in questions]


def echo(question, i, sampling):
    return Completion(f"{question} {i} {sampling.seed}", cut=i == 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "kept.jsonl"


def test_what_is_kept_is_not_asked_again(path):
    first = FakeChat(echo)
    kept = KeptModel(first, path)
    assert isinstance(kept, ChatModel)
    assert kept.fingerprint == first.fingerprint
    assert kept.count("two words") == 2
    answers = kept.complete(chats("a", "b"), 2, Sampling())
    assert answers == first.complete(chats("a", "b"), 2, Sampling())
    again = FakeChat(echo)
    told = []
    kept = KeptModel(again, path)
    assert kept.complete(chats("b", "c", "a", "c"), 2, Sampling(), told.append) == [
        answers[1],
        [Completion("c 0 0", cut=False), Completion("c 1 0", cut=True)],
        answers[0],
        [Completion("c 0 0", cut=False), Completion("c 1 0", cut=True)],
    ]
    assert [asked for asked, _, _ in again.calls] == [["c"]]
    assert told == [3, 4]


@pytest.mark.parametrize(
    "model, n, sampling, system",
    [
        ("other", 2, Sampling(), "Answer."),
        ("fake:1", 3, Sampling(), "Answer."),
        ("fake:1", 2, Sampling(seed=1), "Answer."),
        ("fake:1", 2, Sampling(temperature=0.1), "Answer."),
        ("fake:1", 2, Sampling(stop=("x",)), "Answer."),
        ("fake:1", 2, Sampling(), "Answer shortly."),
    ],
)
def test_other_settings_are_other_entries(path, model, n, sampling, system):
    KeptModel(FakeChat(echo), path).complete(chats("a"), 2, Sampling())
    again = FakeChat(echo, model)
    (chat,) = chats("a")
    KeptModel(again, path).complete([[{"role": "system", "content": system}, chat[1]]], n, sampling)
    assert len(again.calls) == 1


def test_a_torn_last_line_is_skipped_and_not_continued(path, caplog):
    KeptModel(FakeChat(echo), path).complete(chats("a"), 1, Sampling())
    whole = path.read_bytes()
    path.write_bytes(whole + '{"key": "é'.encode()[:-1])
    model = FakeChat(echo)
    kept = KeptModel(model, path)
    assert "line 2: skipped" in caplog.text
    kept.complete(chats("b"), 1, Sampling())
    kept.complete(chats("c"), 1, Sampling())
    unasked = FakeChat(lambda *_: pytest.fail("it was asked"))
    assert len(KeptModel(unasked, path).complete(chats("a", "b", "c"), 1, Sampling())) == 3
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize("line", ["1", "[]", "{}", '{"key": "k", "texts": ["a"], "cut": []}', "[" * 100_000])
def test_foreign_lines_are_skipped(path, line, caplog):
    path.parent.mkdir()
    path.write_text(line + "\n")
    KeptModel(FakeChat(echo), path)
    assert "line 1: skipped, not a kept answer" in caplog.text


def test_any_text_survives(path):
    text = 'half \ud83d, "quoted",\nlines,\u2028and 長い'
    KeptModel(FakeChat(lambda *_: text), path).complete(chats("a"), 1, Sampling())
    assert KeptModel(FakeChat(echo), path).complete(chats("a"), 1, Sampling())[0][0].text == text
    assert len(path.read_text().splitlines()) == 1
    assert json.loads(path.read_text())["asked"] == "a"


def test_blocks_before_a_failure_and_what_an_error_holds_are_kept(path):
    class Quota(RuntimeError):
        finished = {1: [Completion("paid", cut=False)]}

    def behave(question, i, sampling):
        if question == "9":
            raise Quota("no more")
        return question

    names = [str(i) for i in range(20)]
    with pytest.raises(Quota):
        KeptModel(FakeChat(behave), path).complete(chats(*names), 1, Sampling())
    again = FakeChat(echo)
    answers = KeptModel(again, path).complete(chats(*names), 1, Sampling())
    assert answers[9][0].text == "paid"
    assert [q for asked, _, _ in again.calls for q in asked] == ["8", *names[10:]]


def test_many_threads_write_whole_lines(path):
    kept = KeptModel(FakeChat(lambda question, i, sampling: question * 500), path)
    work = lambda first: kept.complete(chats(*(f"q{i}" for i in range(first, first + 25))), 1, Sampling())
    threads = [threading.Thread(target=work, args=(25 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unasked = FakeChat(lambda *_: pytest.fail("it was asked"))
    found = KeptModel(unasked, path).complete(chats(*(f"q{i}" for i in range(200))), 1, Sampling())
    assert [own[0].text for own in found] == [f"q{i}" * 500 for i in range(200)]
