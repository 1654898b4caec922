"""Answers as they leave the sandbox, and a bounded memory of the latest."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

__all__ = ["Answer", "RecentAnswers"]


class Answer(NamedTuple):
    """What the provider answers to one read.

    Attributes:
        body: the JSON.
        etag: its validator, without the quotes of the header.
    """

    body: bytes
    etag: str

    @classmethod
    def of(cls, body: bytes) -> Answer:
        """The answer with this body; its validator is the same in every process."""
        return cls(body, hashlib.sha256(body).hexdigest()[:32])


class RecentAnswers:
    """The answers most recently asked for, up to a number of bytes; the caller locks."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[str, Answer] = OrderedDict()

    def get(self, key: str) -> Answer | None:
        """The answer kept under a key."""
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
        return answer

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, and forget the oldest ones past the limit."""
        self.drop(key)
        self._kept[key] = answer
        self._size += len(answer.body)
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.body)

    def drop(self, key: str) -> None:
        """Forget the answer under a key, if there is one."""
        answer = self._kept.pop(key, None)
        if answer is not None:
            self._size -= len(answer.body)
