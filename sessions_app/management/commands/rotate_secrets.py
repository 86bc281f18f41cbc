"""`rotate_secrets`: encrypt every stored secret with the newest key, so that older keys can go."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from conversations.models import Conversation
from sessions_app import agent_setups, tool_servers
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import Receiver, RecordedAnswer, Secret

BATCH = 500


class Command(BaseCommand):
    """Encrypt the secrets of all users anew."""

    help = (
        "Encrypt every stored secret with SECRET_KEY, opening it with that or one of SECRET_KEY_FALLBACKS. "
        "May run beside the server, and be repeated."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many were encrypted anew; fail, and name them, if there are some that no key opens."""
        rotated, unreadable = 0, 0
        for what, owner in (("tool servers", tool_servers), ("agent and secrets", agent_setups)):
            done, failed = self._rotate_of_conversations(what, owner)
            rotated, unreadable = rotated + done, unreadable + failed
        for receiver in Receiver.objects.order_by("pk"):
            try:
                rotated += receiver.rotate()
            except SecretUnreadable:
                unreadable += 1
                self.stderr.write(f"Cannot be opened: the headers of {receiver}")
        for answer in RecordedAnswer.objects.order_by("pk").iterator(BATCH):
            try:
                rotated += answer.rotate()
            except SecretUnreadable:
                unreadable += 1
                self.stderr.write(f"Cannot be opened: the {answer}")
        for secret in _all_secrets():
            try:
                rotated += secret.rotate()
            except SecretUnreadable:
                unreadable += 1
                whose = f"{secret.user.get_username()!r} (user {secret.user_id})"
                self.stderr.write(f"Cannot be opened: {secret.kind} {secret.name!r} of {whose}")
        self.stdout.write(f"Re-encrypted: {rotated}. Could not be opened: {unreadable}.")
        if unreadable:
            raise CommandError(
                "Put the keys that these secrets were stored under into SECRET_KEY_FALLBACKS and run this "
                "again, or have them stored again."
            )

    def _rotate_of_conversations(self, what: str, owner: ModuleType) -> tuple[int, int]:
        """Rotate what one module keeps sealed of conversations; return how many were, and could not be."""
        rotated, unreadable = 0, 0
        for conversation_pk in owner.sealed_conversations():
            try:
                rotated += owner.rotate(conversation_pk)
            except SecretUnreadable:
                unreadable += 1
                public_id = Conversation.objects.values_list("public_id", flat=True).get(pk=conversation_pk)
                self.stderr.write(f"Cannot be opened: the {what} of conversation {public_id}")
        return rotated, unreadable


def _all_secrets() -> Iterator[Secret]:
    after = 0
    while batch := list(Secret.objects.page(after=after, limit=BATCH)):
        yield from batch
        after = batch[-1].pk
