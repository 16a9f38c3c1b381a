"""Sub-queries that were written beforehand, from a JSON lines file."""

from collections.abc import Sequence
from pathlib import Path

from georag_jax._jsonl import read_records, string_list
from georag_jax.documents import Question


class FileSubQueries:
    """Reads the sub-queries of each question from a file.

    One JSON object a line, ``{"id": "q1", "subqueries": ["...", "..."]}``; blank lines and further keys are skipped.
    An empty list means that the question has no sub-queries.

    Args:
        path: the file, UTF-8.

    Raises:
        ValueError: a line that is not such an object, or an id that stands on two lines; both say file and line.
        OSError: the file cannot be read.
    """

    def __init__(self, path: str | Path):
        self.path = path
        self._subqueries: dict[str, list[str]] = {}
        for record, where, _ in read_records(path):
            subqueries = string_list(record, "subqueries", where)
            if "subqueries" not in record or not all(subquery.strip() for subquery in subqueries):
                raise ValueError(f'{where}: "subqueries": expected a list of strings that are not blank')
            self._subqueries[record["id"]] = list(subqueries)

    def missing(self, questions: Sequence[Question]) -> list[str]:
        """Ids of the questions that the file has no line for, so that a long run can fail before its work begins."""
        return [question.id for question in questions if question.id not in self._subqueries]

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The sub-queries that the file holds for each question, in the file's order.

        Args:
            questions: looked up by id; their text is not read.

        Returns:
            One list a question, in the order of the questions.

        Raises:
            ValueError: names every question whose id the file lacks.
        """
        if missing := self.missing(questions):
            raise ValueError(f"{self.path}: no sub-queries for {len(missing)} question(s): {', '.join(missing)}")
        return [list(self._subqueries[question.id]) for question in questions]
