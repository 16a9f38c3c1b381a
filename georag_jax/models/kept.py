"""Answers of a language model, kept on the disk so that no question is paid for twice."""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from georag_jax.models.chat import Chat, ChatModel, Completion, Sampling

_log = logging.getLogger(__name__)
_BLOCK = 8  # chats that are answered before they are kept: what a kill can lose


class KeptModel:
    """A ``ChatModel`` that answers from an append-only JSON lines file what it was asked before.

    An answer is kept under the model's fingerprint, all messages (hence the prompt and the question), the number of
    answers and the sampling with its seed: a change of any of them asks anew. Safe under threads.

    Args:
        model: asked for what is not kept.
        path: the file; made, with its directory, at the first entry. A line that cannot be read, as a killed run
            leaves one at the end, is skipped with a warning.

    Raises:
        OSError: the file exists and cannot be read.
    """

    def __init__(self, model: ChatModel, path: str | Path):
        self.fingerprint = model.fingerprint
        self._model, self._path, self._lock = model, Path(path), threading.Lock()
        self._entries: dict[str, list[Completion]] = {}
        self._torn = False
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        self._torn = bool(content) and not content.endswith(b"\n")
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                pairs = zip(record["texts"], record["cut"], strict=True)
                self._entries[record["key"]] = [Completion(str(text), bool(cut)) for text, cut in pairs]
            except (ValueError, KeyError, TypeError, RecursionError):
                _log.warning("%s, line %d: skipped, not a kept answer", path, number)

    def complete(
        self, chats: Sequence[Chat], n: int, sampling: Sampling, progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """For each chat n answers; see ``ChatModel``.

        Raises:
            OSError: the file cannot be written.
        """
        keys = [self._key(chat, n, sampling) for chat in chats]
        missing = {key: chat for key, chat in zip(keys, chats, strict=True) if key not in self._entries}
        before = len(chats) - len(missing)
        tell = lambda done: progress(before + done) if progress else None
        tell(0)
        pending = list(missing.items())
        for start in range(0, len(pending), _BLOCK):
            block = pending[start : start + _BLOCK]
            within = lambda done, start=start: tell(start + done)
            try:
                answers = self._model.complete([chat for _, chat in block], n, sampling, within)
            except Exception as error:  # what a server's error holds was paid for as well
                for i, completions in getattr(error, "finished", {}).items():
                    key, chat = block[i]
                    self._keep(key, chat, completions)
                raise
            for (key, chat), completions in zip(block, answers, strict=True):
                self._keep(key, chat, completions)
        with self._lock:
            return [list(self._entries[key]) for key in keys]

    def count(self, text: str) -> int:
        """The model's own count."""
        return self._model.count(text)

    def _key(self, chat: Chat, n: int, sampling: Sampling) -> str:
        messages = [[message["role"], message["content"]] for message in chat]
        asked = json.dumps([self.fingerprint, messages, n, asdict(sampling)], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()

    def _keep(self, key: str, chat: Chat, completions: list[Completion]) -> None:
        record = {"key": key, "asked": chat[-1]["content"]}
        record |= {"texts": [c.text for c in completions], "cut": [c.cut for c in completions]}
        line = json.dumps(record) + "\n"  # escaped: a model may write half of a surrogate pair
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as file:
                # A torn last line must not swallow the new entry.
                file.write((("\n" if self._torn else "") + line).encode())
            self._torn = False
            self._entries[key] = list(completions)
