import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax._types import SubQuerySource
from georag_jax.documents import Question
from georag_jax.models.subqueries import Decomposer
from georag_jax.models.subqueries.parse import identity


def decompose(text):
    return Decomposer().subqueries([Question("q", text)])[0]


def test_one_list_a_question_in_order():
    assert isinstance(Decomposer(), SubQuerySource)
    texts = ["who wrote emma", "", "Who wrote Emma in Hampshire?"]
    lists = Decomposer().subqueries([Question(str(i), text) for i, text in enumerate(texts)])
    assert lists == [decompose(text) for text in texts]


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_blank_question_has_none(text):
    assert decompose(text) == []


@pytest.mark.parametrize("text", ["who wrote emma", "?!", "誰がエマを書いたのですか", "how many moons does it have?"])
def test_question_without_parts_gives_itself(text):
    assert decompose(text) == [text]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Who directed Pride of the Valley?", ["directed Pride of the Valley"]),
        ("When did Ludwig van Beethoven meet Ana de la Cruz?", ["Ludwig van Beethoven", "meet Ana de la Cruz"]),
        ("Where is 712 Fifth Avenue?", ["712 Fifth Avenue"]),
        ("How tall was J. M. Barrie?", ["J. M. Barrie"]),
        ("Was Émile Zola read by Łukasz Żal and Ōe Kenzaburō?", ["Émile Zola", "read by Łukasz Żal", "Ōe Kenzaburō"]),
        ("Who was the creator of Emma?", ["creator of Emma"]),
        ("Who lives in the capital of the Gambia?", ["capital of the Gambia"]),
        ("Who followed Emma's first editor?", ["followed Emma"]),
        ("What is Zola's birth town?", ["Zola", "Zola's birth town"]),
        ("Who was paid for Schindler's List?", ["paid for Schindler's List"]),
        ("Which French ace pilot was lost?", ["French ace pilot"]),
        ("Who hosts the Away Game of Emma Team?", ["Away Game of Emma Team"]),
        ("Is the Captain of the Game 'Away Team' old?", ["Captain of the Game", "Away Team"]),
        ("Maxeda has which owner?", ["Maxeda"]),
    ],
)
def test_names_and_their_phrases(text, expected):
    subqueries = decompose(text)
    assert [s for s in expected if s not in subqueries] == []


@pytest.mark.parametrize("first", ["Which", "In", "Were", "The", "Name"])
def test_capital_of_the_first_word_makes_no_name(first):
    assert first not in decompose(f"{first} thing is old?")


@pytest.mark.parametrize(
    "quoted", ['"see yourself"', "“see yourself”", "„see yourself“", "«see yourself»", "'see yourself'"]
)
def test_quotations_straight_and_curly(quoted):
    assert "song " + quoted[:-1].replace("\n", "") in decompose(f"who sang the song {quoted} first")


def test_apostrophes_are_no_quotation():
    assert decompose("what's the dog's name on the cat's show") == ["what's the dog's name on the cat's show"]


def test_quotation_is_one_name_whatever_its_capitals():
    subqueries = decompose('Who recorded "Old and in the Way" live?')
    assert "Old" not in subqueries
    assert any(s.endswith("Old and in the Way") for s in subqueries[1:])


@pytest.mark.parametrize(
    "text, alternatives",
    [
        (
            "Who died first, George Archainbaud or Ralph Murphy?",
            ["Who died first, George Archainbaud?", "Who died first, Ralph Murphy?"],
        ),
        (
            "Are both Emma and the Iliad novels?",
            ["Are both Emma novels?", "Are both Iliad novels?"],
        ),
        (
            "Is Oslo, Rome, or Bern larger?",
            ["Is Oslo larger?", "Is Rome larger?", "Is Bern larger?"],
        ),
    ],
)
def test_each_alternative_stands_alone(text, alternatives):
    assert [s for s in alternatives if s not in decompose(text)] == []


@pytest.mark.parametrize(
    "text, clause",
    [
        ("who is the coach who recruited a young goalkeeper", "coach who recruited a young goalkeeper"),
        ("name a film starring two brothers from peru", "film starring two brothers from peru"),
        ("What is the country where Pao Sarasin was born?", "country where Pao Sarasin was"),
        ("What young adult series, told in first person, is long?", "young adult series told in first person"),
    ],
)
def test_clauses_keep_the_noun_they_hang_on(text, clause):
    assert clause in decompose(text)


def test_long_texts_are_bounded():
    text = "Who knew " + " or ".join(f"Name{chr(65 + i)}" for i in range(26)) + "?"
    assert len(decompose(text)) == 12


_PIECES = st.sampled_from(
    [
        "Who",
        "the",
        "of",
        "Emma",
        "ÉMILE",
        "1998",
        "or",
        "and",
        ",",
        "?",
        "'",
        '"',
        "“",
        "”",
        "Zola's",
        "where",
        "(",
        ")",
        "—",
    ]
)
_TEXTS = st.one_of(st.text(), st.lists(_PIECES, max_size=25).map(" ".join), st.lists(_PIECES, max_size=25).map("".join))


@given(_TEXTS)
def test_properties_of_any_text(text):
    subqueries = decompose(text)
    assert subqueries == decompose(text)
    if not text.strip():
        assert subqueries == []
        return
    assert subqueries[0] == " ".join(text.split())
    assert len({identity(s) for s in subqueries}) == len(subqueries) <= 12
    assert all(s == s.strip() != "" for s in subqueries)
