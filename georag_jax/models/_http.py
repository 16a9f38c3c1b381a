"""One JSON request to an OpenAI-compatible server, with retries."""

import email.utils
import http.client
import json
import logging
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from georag_jax.models.chat import Completion

_log = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 60.0
_BODY_SHOWN = 300


class ServerError(RuntimeError):
    """A language model's server refused or could not be reached.

    Attributes:
        status_code: the HTTP status; None where no usable answer came.
        finished: completions of the chats that were done by then, by their position; so that they can be kept.
    """

    def __init__(
        self,
        message: str,
        status_code: int | None = None,
        finished: Mapping[int, list[Completion]] | None = None,
    ):
        super().__init__(message)
        self.status_code, self.finished = status_code, finished or {}


class Endpoint(NamedTuple):
    """Where requests go and how patiently.

    Attributes:
        url: full address of the chat completions route.
        api_key: sent as a bearer token; None reads the environment variable OPENAI_API_KEY at each request.
        timeout: seconds that a request may wait for the server.
        retries: further attempts after a status of 429 or from 500 up, a timeout, a lost connection, a broken answer.
    """

    url: str
    api_key: str | None
    timeout: float
    retries: int

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        """Sends one request and decodes its answer.

        Args:
            body: the request, JSON-ready.

        Returns:
            The JSON object of the answer.

        Raises:
            ServerError: the server refused, or every attempt failed; says where, with which status, and what the
                server wrote.
        """
        attempt = 0
        while True:
            try:
                return self._send(body)
            except _Retryable as failure:
                if attempt == self.retries:
                    raise failure.error from failure.__cause__
                wait = _FIRST_WAIT * 2**attempt * random.uniform(0.5, 1.5) if failure.wait is None else failure.wait
                _log.info("%s; next attempt in %.1f s", failure.error, min(wait, _LONGEST_WAIT))
                time.sleep(min(wait, _LONGEST_WAIT))
                attempt += 1

    def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        # Servers without authentication accept any key, and some clients in front of them refuse an empty one.
        key = self.api_key or os.environ.get("OPENAI_API_KEY") or "EMPTY"
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                raw = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from error
        except (OSError, http.client.HTTPException) as error:  # URLError, timeouts and lost connections
            reason = getattr(error, "reason", None) or error
            raise _Retryable(ServerError(f"{self.url}: no answer: {reason!r}")) from error
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise _Retryable(ServerError(f"{self.url}: the answer is not JSON: {_shown(raw)!r}")) from error
        if not isinstance(answer, dict):
            raise ServerError(f"{self.url}: the answer is not a JSON object: {_shown(raw)!r}")
        return answer

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        try:
            raw = error.read()
        except (OSError, http.client.HTTPException):
            raw = b""
        hint = self._hint() if error.code == 404 else ""
        refusal = ServerError(f"{self.url}: status {error.code}: {_shown(raw)!r}{hint}", error.code)
        if error.code == 429 or error.code >= 500:
            return _Retryable(refusal, _retry_after(error.headers.get("Retry-After")))
        return refusal

    def _hint(self) -> str:
        base = self.url.removesuffix("/chat/completions")
        bare = not urllib.parse.urlsplit(base).path
        return f"; the address has no path, and most servers answer under {base}/v1" if bare else ""


class _Retryable(Exception):
    def __init__(self, error: ServerError, wait: float | None = None):
        super().__init__(str(error))
        self.error, self.wait = error, wait


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")[:_BODY_SHOWN]


def _retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, which holds seconds or a date; None where it says neither."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
