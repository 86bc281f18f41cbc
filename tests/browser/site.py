"""The server that browsers visit, and what is put into it beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx

from tests.support.people.clients import HTTP, WAIT_S, Server

PACE = {"sessions_app.agents.demo.DEFAULT_WORD_S": 0.01}
"""So fast the demo agent types; ten times slower where a message begins with `slow:`."""
AGENT = "tests.support.people.agents.CommandedAgent"
BATCH = 500
"""So many events one frame may bring."""


class Site(Server):
    """One server for all tests: who kills it starts it again; who needs a conversation makes one."""

    headers: dict[str, str] = {}
    """What lets the tests themselves in."""
    kept: frozenset[str] = frozenset()
    """Conversations that the tests of one file share; the others are deleted before the next test."""

    def open(self, *, constants: Mapping[str, float] | None = None, **environment: str) -> None:
        """Start with the demo agent at the tests' pace, which also asks to run what it is told."""
        self.start(constants={**PACE, **(constants or {})}, **{"CONVSERVER_AGENT": AGENT, **environment})

    def manage(self, *arguments: str, **environment: str) -> None:
        """Run a command of the operator's on the same database."""
        self.run(["convserver", "manage", *arguments], **environment).check_returncode()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not ended by a test."""
        return self._process is not None

    def create(self, **members: Any) -> str:
        """Make a conversation; return its id."""
        new = {"id": uuid4().hex, **members}
        self._post("/api/native/conversations", new)
        return str(new["id"])

    def has(self, conversation_id: str) -> bool:
        address = f"{self.url}/api/native/conversations/{conversation_id}"
        return HTTP.get(address, headers=self.headers).status_code == 200

    def record(
        self, conversation_id: str, events: Sequence[dict[str, Any]], *, key: str = "recorded"
    ) -> None:
        """Put events of either wire into a conversation as they are."""
        for start in range(0, len(events), BATCH):
            batch = [
                {"id": f"{key}-{start + number}", "event": event}
                for number, event in enumerate(events[start : start + BATCH])
            ]
            self.send(conversation_id, {"type": "events", "id": uuid4().hex, "events": batch})

    def send(self, conversation_id: str, frame: dict[str, Any]) -> None:
        self._post(f"/api/native/conversations/{conversation_id}/events", frame)

    def events(self, conversation_id: str, *, after: int = -1) -> list[dict[str, Any]]:
        """Return the events after a seq, at most a page of them."""
        answer = HTTP.get(
            f"{self.url}/api/native/conversations/{conversation_id}/events?after={after}",
            headers=self.headers,
        )
        events: list[dict[str, Any]] = answer.raise_for_status().json()["events"]
        return events

    def said(self, conversation_id: str, *, source: str = "user", after: int = -1) -> list[str]:
        """Return the texts of the messages that somebody said, in order."""
        events = self.events(conversation_id, after=after)
        return [each["text"] for each in events if each["kind"] == "message" and each["source"] == source]

    def rename(self, conversation_id: str, title: str) -> None:
        HTTP.patch(
            f"{self.url}/api/native/conversations/{conversation_id}",
            json={"title": title},
            headers=self.headers,
        ).raise_for_status()

    def forget_draft(self) -> None:
        """Empty the draft of a conversation to be, which all tests share; there is none without a login."""
        address = f"{self.url}/api/native/draft"
        stored = HTTP.get(address, headers=self.headers)
        while stored.status_code in (200, 409) and not _is_empty(draft := _draft_of(stored)):
            # A page of the test before may be writing its last words still: a conflict says what they are.
            empty = {"text": "", "images": [], "version": draft["version"]}
            stored = HTTP.put(address, json=empty, headers=self.headers)

    def delete(self, conversation_id: str) -> None:
        """Hide a conversation, as its owner may."""
        HTTP.delete(
            f"{self.url}/api/native/conversations/{conversation_id}", headers=self.headers
        ).raise_for_status()

    def forget_talks(self) -> None:
        """Delete the conversations that tests before have left; nothing where a login is needed.

        Each row of the list makes every page slower: with a full one, tests take twice the time.
        """
        address = f"{self.url}/api/native/conversations?limit=100"
        while (listed := HTTP.get(address, headers=self.headers)).status_code == 200:
            ids = {each["id"] for each in listed.json()["conversations"]} - self.kept
            if not ids:
                break
            for conversation_id in ids:
                self.delete(conversation_id)

    def restore(self, conversation_id: str) -> None:
        """Bring back what was hidden."""
        self._post(f"/api/native/conversations/{conversation_id}/restore", {})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        HTTP.post(self.url + path, json=body, timeout=3 * WAIT_S, headers=self.headers).raise_for_status()


def _draft_of(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    return body["draft"] if answer.status_code == 409 else body


def _is_empty(draft: dict[str, Any]) -> bool:
    return not (draft.get("text") or draft.get("images"))


def message(text: str, *, source: str = "user") -> dict[str, Any]:
    """Return a V0 message as a client would record it."""
    return {"action": "message", "source": source, "args": {"content": text, "image_urls": []}}
