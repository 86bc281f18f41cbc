"""Clients that import the file of another program, twice: it becomes one conversation that has all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

from faults.checker.history import Did
from faults.suite.clients.stage import AGAIN_S, Client, json_of, words_of

MESSAGES = 3
FORMAT = "claude-code"
TIMES = 2
DONE, UNDER_WAY = "done", ("waiting", "running")
REST_S = (1.0, 2.0)


class Importer(Client):
    """Uploads files of sessions, and imports each of them twice."""

    async def bring(self, talk: str, name: str) -> None:
        """Import one file twice; what an error has left undone is left."""
        key, words = self.stage.new_key(), [self.stage.new_word() for _ in range(MESSAGES)]
        content = "".join(f"{line}\n" for line in self._lines(key, words)).encode()
        self.stage.add(Did.CREATE, "", key)
        name = f"{uuid4()}.jsonl"  # of which the conversation's id is made
        for _ in range(TIMES):
            imported = await self._imported(name, content)
            if not imported:
                break
            self.stage.add(Did.CREATED, imported, key, -1, " ".join(words))
        await self.pause(*REST_S)

    def _lines(self, title: str, words: list[str]) -> Iterator[str]:
        """Yield the lines of a session: its messages, each after the one before, and its title."""
        session, before = str(uuid4()), None
        for number, word in enumerate(words):
            after = str(uuid4())
            message = {"role": "user", "content": self.stage.text(word)}
            place = {"uuid": after, "parentUuid": before, "sessionId": session}
            at = f"2026-02-03T09:00:{number:02}.250Z"
            yield json.dumps({"type": "user", "message": message, **place, "timestamp": at})
            before = after
        yield json.dumps({"type": "custom-title", "customTitle": title, "sessionId": session})

    async def _imported(self, name: str, content: bytes) -> str:
        """Return the id of the imported conversation; an empty one if the import was not acknowledged."""
        http, imports = self.stage.http, f"{self.stage.url()}/api/native/imports"
        new = {"file_name": name, "size": len(content), "format": FORMAT}
        begun = await http.post(imports, json=new)
        if not begun.is_success:
            return ""
        run = f"{imports}/{begun.json()['id']}"
        sent = await http.put(f"{run}/pieces", params={"offset": "0"}, content=content)
        started = await http.post(f"{run}/start") if sent.is_success else sent
        if not started.is_success:
            return ""
        while not self.stage.is_over:
            found = await http.get(run)
            state = json_of(found).get("state")
            if state == DONE:
                report = json_of(await http.get(f"{run}/conversations")).get("conversations") or [{}]
                return str(report[0].get("conversation") or "")
            if found.is_success and state not in UNDER_WAY:
                self.stage.add(Did.UNEXPECTED, "", "", -1, f"an import has ended: {words_of(found)}")
                return ""
            await self.pause(2 * AGAIN_S, 4 * AGAIN_S)
        return ""
