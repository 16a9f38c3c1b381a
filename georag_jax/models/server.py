"""A language model behind an OpenAI-compatible server."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from georag_jax._errors import require
from georag_jax.models._http import Endpoint
from georag_jax.models._http import ServerError as ServerError
from georag_jax.models.chat import Chat, Completion, Sampling

_log = logging.getLogger(__name__)
_ANSWER_SHOWN, _QUESTION_SHOWN = 300, 120

Client = Callable[[dict[str, Any]], dict[str, Any]]


class ServerModel:
    """A ``ChatModel`` that asks a server, several chats at a time.

    One request a chat asks for n independent choices; where the server refuses that or returns fewer, single requests
    with the seeds ``seed + i`` fetch the missing ones.

    Args:
        base_url: such as "http://host:port/v1"; "/chat/completions" is appended.
        model: its name on the server.
        api_key: bearer token; None reads OPENAI_API_KEY at each request, else sends "EMPTY".
        timeout: seconds that a request may wait for the server.
        retries: further attempts after a status of 429 or from 500 up, a timeout, a lost or broken answer, with
            growing, randomised pauses, or those that the server asks for.
        concurrency: requests in flight at a time.
        response_format: sent with every request, such as a JSON schema; left out from then on where a server refuses
            it.
        client: called instead of the own HTTP client with each request body, returns the answer as a dictionary;
            ``status_code`` of what it raises tells a refusal. Timeout, retries and key are then its own matter.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
        concurrency: int = 4,
        response_format: Mapping[str, Any] | None = None,
        client: Client | None = None,
    ):
        require(base_url.startswith(("http://", "https://")), "base_url", "an http:// or https:// address", base_url)
        require(timeout > 0, "timeout", "a positive number of seconds", timeout)
        require(retries >= 0, "retries", "a number from 0 up", retries)
        require(concurrency >= 1, "concurrency", "a positive number", concurrency)
        base_url = base_url.rstrip("/")
        self.fingerprint = json.dumps(["server", base_url, model, response_format], sort_keys=True)
        self._model, self._format, self._concurrency = model, response_format, concurrency
        self._client = client or Endpoint(base_url + "/chat/completions", api_key, timeout, retries)
        self._slots = threading.BoundedSemaphore(concurrency)
        # What the server was seen to refuse is not asked again.
        self._refused: set[str] = set()

    def complete(
        self, chats: Sequence[Chat], n: int, sampling: Sampling, progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """For each chat n answers; see ``ChatModel``.

        Raises:
            ServerError: a request failed after all attempts; says what was asked, and holds the chats that were done.
        """
        done, lock = 0, threading.Lock()

        def tell(future: Future) -> None:
            nonlocal done
            if progress and not future.cancelled() and future.exception() is None:
                with lock:
                    done += 1
                    progress(done)

        with ThreadPoolExecutor(self._concurrency) as pool:
            futures = [pool.submit(self._answer, chat, n, sampling) for chat in chats]
            try:
                for future in futures:
                    future.add_done_callback(tell)
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                for future in futures:
                    future.cancel()
        ended = {i: future for i, future in enumerate(futures) if not future.cancelled()}
        finished = {i: future.result() for i, future in ended.items() if future.exception() is None}
        for i, future in ended.items():
            if error := future.exception():
                status, asked = getattr(error, "status_code", None), chats[i][-1]["content"].partition("\n")[0]
                raise ServerError(f"asked {asked[:_QUESTION_SHOWN]!r}: {error}", status, finished) from error
        return [finished[i] for i in range(len(chats))]

    def count(self, text: str) -> int:
        """An estimate from above for most texts: a token for every three bytes."""
        return -(-len(text.encode("utf-8", "replace")) // 3)

    def _answer(self, chat: Chat, n: int, sampling: Sampling) -> list[Completion]:
        body = {"model": self._model, "messages": [dict(message) for message in chat], **_settings(sampling)}
        completions: list[Completion] = []
        if n > 1 and "n" not in self._refused:
            completions = self._choices({**body, "n": n}, "n", (400, 422, 500))[:n]
        seeds = range(sampling.seed + len(completions), sampling.seed + n)
        if seeds:
            one = lambda seed: (self._choices({**body, "seed": seed}) or [Completion("", cut=False)])[0]
            with ThreadPoolExecutor(min(len(seeds), self._concurrency)) as pool:
                completions += pool.map(one, seeds)
        return completions

    def _choices(self, body: dict[str, Any], optional: str = "", statuses: tuple[int, ...] = ()) -> list[Completion]:
        """The choices of one request; none where the server refuses the optional field."""
        try:
            return self._formatted(body)
        except Exception as error:
            if getattr(error, "status_code", None) not in statuses:
                raise
            _log.info("the server refuses %s: %s", optional, error)
            self._refused.add(optional)
            return []

    def _formatted(self, body: dict[str, Any]) -> list[Completion]:
        """The choices of one request, with the response format unless the server refuses it."""
        if self._format is None or "response_format" in self._refused:
            return self._request(body)
        try:
            return self._request({**body, "response_format": self._format})
        except Exception as error:
            if getattr(error, "status_code", None) not in (400, 422):
                raise
            _log.info("the server refuses response_format: %s", error)
        completions = self._request(body)
        self._refused.add("response_format")  # it was not something else that was refused
        return completions

    def _request(self, body: dict[str, Any]) -> list[Completion]:
        with self._slots:
            answer = self._client(body)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
            raise ServerError(f"the answer has no list of choices: {str(answer)[:_ANSWER_SHOWN]}")
        return [_completion(choice) for choice in choices]


def _settings(sampling: Sampling) -> dict[str, Any]:
    """The sampling as a request says it; what is off is left out, since not every server knows every field."""
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    body["seed"] = sampling.seed
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    return body


def _completion(choice: dict[str, Any]) -> Completion:
    # Text in reasoning_content is thinking, not an answer, even where the content is empty.
    content = (choice.get("message") or {}).get("content")
    return Completion(content if isinstance(content, str) else "", cut=choice.get("finish_reason") == "length")
