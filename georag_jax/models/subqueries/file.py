"""Sub-queries that were written beforehand, from a JSON lines file."""

import json
from collections.abc import Sequence
from os import PathLike

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

    def __init__(self, path: str | PathLike[str]):
        self.path = path
        self._subqueries: dict[str, list[str]] = {}
        lines: dict[str, int] = {}
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                identifier, subqueries = _record(line, where)
                if identifier in lines:
                    raise ValueError(f"{where}: id {identifier!r} stands already on line {lines[identifier]}")
                lines[identifier] = number
                self._subqueries[identifier] = subqueries

    def require(self, questions: Sequence[Question]) -> None:
        """Checks that the file knows every question, so that a long run can fail before its work begins.

        Args:
            questions: the questions that will be asked for.

        Raises:
            ValueError: names every question whose id the file lacks.
        """
        missing = [question.id for question in questions if question.id not in self._subqueries]
        if missing:
            raise ValueError(f"{self.path}: no sub-queries for {len(missing)} question(s): {', '.join(missing)}")

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The sub-queries that the file holds for each question, in the file's order.

        Args:
            questions: looked up by id; their text is not read.

        Returns:
            One list a question, in the order of the questions.

        Raises:
            ValueError: names every question whose id the file lacks.
        """
        self.require(questions)
        return [list(self._subqueries[question.id]) for question in questions]


def _record(line: str, where: str) -> tuple[str, list[str]]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("id"), str) or "subqueries" not in record:
        raise ValueError(f'{where}: expected an object with a string "id" and a list "subqueries"')
    subqueries = record["subqueries"]
    if not isinstance(subqueries, list) or not all(isinstance(s, str) and s.strip() for s in subqueries):
        raise ValueError(f'{where}: expected "subqueries" to be a list of non-blank strings')
    return record["id"], subqueries
