"""Sub-queries from a language model behind an OpenAI-compatible server."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from os import PathLike
from typing import Any, Literal, NamedTuple

from georag_jax._errors import require
from georag_jax.documents import Question
from georag_jax.models.subqueries._cache import Cache
from georag_jax.models.subqueries._http import Endpoint, ServerError
from georag_jax.models.subqueries.parse import identity, parse
from georag_jax.models.subqueries.prompt import PROMPT_VERSION, RESPONSE_FORMAT, messages

_log = logging.getLogger(__name__)

Client = Callable[[dict[str, Any]], dict[str, Any]]


class Report(NamedTuple):
    """What became of the answers to one batch of questions.

    Attributes:
        generated: sub-queries that the answers held, before anything was dropped.
        duplicates: dropped, as they repeat another one or the question in other case or punctuation.
        malformed: pieces of the answers dropped as no sub-query.
        surplus: dropped, as the question had n already.
        topped_up: single requests sent because an answer had fewer choices than asked for.
        cached: questions answered from the cache; they add to no count but this one and ``fallbacks``.
        fallbacks: questions for which nothing usable came, so that the question stands for itself.
    """

    generated: int = 0
    duplicates: int = 0
    malformed: int = 0
    surplus: int = 0
    topped_up: int = 0
    cached: int = 0
    fallbacks: int = 0

    def plus(self, other: "Report") -> "Report":
        """The sum, count by count."""
        return Report(*(a + b for a, b in zip(self, other, strict=True)))


class ServerSubQueries:
    """Asks a chat model for sub-queries, several questions at a time.

    With ``sampling="list"`` one request a question asks for n sub-queries as JSON under a strict schema; a server that
    refuses the schema is asked without it. With ``sampling="n"`` one request asks for n independent choices, and
    where a server refuses that or returns fewer, single requests with the seeds ``seed + i`` fetch the missing ones:
    at most n choices are read in all, and fewer where n different sub-queries are found before.

    Args:
        base_url: such as "http://host:port/v1"; "/chat/completions" is appended.
        model: its name on the server.
        n: most sub-queries a question, and choices in sampling mode.
        temperature: of the sampling; above 0 with ``sampling="n"``, since equal choices are of no use.
        seed: sent with every request.
        api_key: bearer token; None reads OPENAI_API_KEY at each request, else sends "EMPTY".
        timeout: seconds that a request may wait for the server.
        retries: further attempts after a status of 429 or from 500 up, a timeout, a lost or broken answer, with
            growing, randomised pauses, or those that the server asks for.
        concurrency: requests in flight at a time.
        max_tokens: bound on each choice.
        sampling: "list" or "n".
        client: called instead of the own HTTP client with each request body, returns the answer as a dictionary;
            ``status_code`` of what it raises tells a refusal. Timeout, retries and key are then its own matter.
        cache: JSON lines file, appended to, from which equal requests are answered without the server.

    Attributes:
        last_report: a ``Report`` of the last call that returned; None before.
        total_report: the sum over all calls that returned.

    Raises:
        ValueError: an argument is out of its range.
        OSError: the cache cannot be read.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        n: int = 20,
        temperature: float = 0.7,
        seed: int = 0,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
        concurrency: int = 4,
        max_tokens: int = 1024,
        sampling: Literal["list", "n"] = "list",
        client: Client | None = None,
        cache: str | PathLike[str] | None = None,
    ):
        require(base_url.startswith(("http://", "https://")), "base_url", "an http:// or https:// address", base_url)
        require(sampling in ("list", "n"), "sampling", '"list" or "n"', repr(sampling))
        require(temperature >= 0, "temperature", "a number from 0 up", temperature)
        require(sampling == "list" or temperature > 0, "temperature", 'more than 0 with sampling="n"', temperature)
        require(timeout > 0, "timeout", "a positive number of seconds", timeout)
        require(retries >= 0, "retries", "a number from 0 up", retries)
        for name, value in {"n": n, "concurrency": concurrency, "max_tokens": max_tokens}.items():
            require(value >= 1, name, "a positive number", value)
        base_url = base_url.rstrip("/")
        self._n, self._seed, self._sampling, self._concurrency = n, seed, sampling, concurrency
        self._body = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._key = {**self._body, "base_url": base_url, "prompt": f"{PROMPT_VERSION}-{sampling}", "seed": seed, "n": n}
        self._client = client or Endpoint(base_url + "/chat/completions", api_key, timeout, retries)
        self._cache = None if cache is None else Cache(cache)
        self._slots = threading.BoundedSemaphore(concurrency)
        # What the server was seen to refuse is not asked again.
        self._refused: set[str] = set()
        self.last_report: Report | None = None
        self.total_report = Report()

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The sub-queries of each question; the question itself where the model wrote nothing usable.

        Args:
            questions: in any number; a blank one has no sub-queries and is not sent.

        Returns:
            One list a question, in the order of the questions, of at most n different sub-queries.

        Raises:
            ServerError: a request failed after all attempts; names the question. Those that were finished by then
                are in the cache.
            OSError: the cache cannot be written.
        """
        with ThreadPoolExecutor(self._concurrency) as pool:
            futures = [pool.submit(self._answer, question) for question in questions]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                for future in futures:
                    future.cancel()
        failures = (future.exception() for future in futures if not future.cancelled())
        for failure in failures:
            if failure is not None:
                raise failure
        results = [future.result() for future in futures]
        report = Report()
        for _, counts in results:
            report = report.plus(counts)
        self.last_report, self.total_report = report, self.total_report.plus(report)
        level = logging.WARNING if report.fallbacks else logging.INFO
        _log.log(level, "sub-queries for %d questions: %s", len(questions), report)
        return [subqueries for subqueries, _ in results]

    def _answer(self, question: Question) -> tuple[list[str], Report]:
        text = question.text.strip()
        if not text:
            return [], Report()
        key = {**self._key, "question": text}
        kept = self._cache.get(key) if self._cache else None
        if kept is not None:
            counts = Report(cached=1)
        else:
            try:
                kept, counts = self._ask(text)
            except Exception as error:
                status = getattr(error, "status_code", None)
                raise ServerError(f"question {question.id!r}: {error}", status) from error
            if self._cache:
                self._cache.put(key, kept)
        if not kept:
            return [text], counts._replace(fallbacks=1)
        return kept, counts

    def _ask(self, text: str) -> tuple[list[str], Report]:
        collector = _Collector(text, self._n)
        if self._sampling == "list":
            collector.read(self._list_choices(text))
            return collector.kept, collector.report()
        choices = self._sampled_choices(text)
        collector.read(choices)
        topped_up = 0
        for seeds in _waves(self._seed + len(choices), self._seed + self._n, self._concurrency):
            if len(collector.kept) >= self._n:
                break
            topped_up += len(seeds)
            body = {**self._body, "messages": messages(text)}
            with ThreadPoolExecutor(len(seeds)) as pool:
                for more in pool.map(lambda seed, body=body: self._request({**body, "seed": seed}), seeds):
                    collector.read(more[:1])
        return collector.kept, collector.report()._replace(topped_up=topped_up)

    def _list_choices(self, text: str) -> list[dict[str, Any]]:
        body = {**self._body, "seed": self._seed, "messages": messages(text, self._n)}
        if "response_format" not in self._refused:
            try:
                return self._request({**body, "response_format": RESPONSE_FORMAT})[:1]
            except Exception as error:
                if getattr(error, "status_code", None) not in (400, 422):
                    raise
                _log.info("the server refuses response_format: %s", error)
        choices = self._request(body)[:1]
        self._refused.add("response_format")
        return choices

    def _sampled_choices(self, text: str) -> list[dict[str, Any]]:
        if self._n == 1 or "n" in self._refused:
            return []
        body = {**self._body, "seed": self._seed, "messages": messages(text), "n": self._n}
        try:
            return self._request(body)[: self._n]
        except Exception as error:
            if getattr(error, "status_code", None) not in (400, 422, 500):
                raise
            _log.info("the server refuses n choices: %s", error)
        self._refused.add("n")
        return []

    def _request(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        with self._slots:
            answer = self._client(body)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
            raise ServerError(f"the answer has no list of choices: {str(answer)[:300]}")
        return choices


class _Collector:
    """Gathers different sub-queries of one question and counts what it drops."""

    def __init__(self, question: str, n: int):
        self.kept: list[str] = []
        self._n = n
        self._seen = {identity(question)}
        self._generated = self._duplicates = self._malformed = self._surplus = 0

    def read(self, choices: list[dict[str, Any]]) -> None:
        for choice in choices:
            # Text in reasoning_content is thinking, not an answer, even where the content is empty.
            content = (choice.get("message") or {}).get("content")
            parsed = parse(content if isinstance(content, str) else "", choice.get("finish_reason") == "length")
            self._malformed += parsed.malformed
            for subquery in parsed.subqueries:
                self._add(subquery)

    def _add(self, subquery: str) -> None:
        self._generated += 1
        key = identity(subquery)
        if key in self._seen:
            self._duplicates += 1
        elif len(self.kept) == self._n:
            self._surplus += 1
        else:
            self._seen.add(key)
            self.kept.append(subquery)

    def report(self) -> Report:
        return Report(self._generated, self._duplicates, self._malformed, self._surplus)


def _waves(start: int, stop: int, size: int) -> Iterator[range]:
    for first in range(start, stop, size):
        yield range(first, min(first + size, stop))
