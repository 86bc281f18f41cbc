"""`rotate_secrets`: encrypt every stored secret with the newest key, so that older keys can be removed."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from conversations.models import Conversation
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import Endpoint, RecordedAnswer, Secret, UserDocument
from sessions_app.settings import agent_setups, tool_servers
from sessions_app.settings.agent_setups import BATCH


class Command(BaseCommand):
    """Re-encrypt the secrets of all users."""

    help = (
        "Re-encrypt every stored secret with SECRET_KEY. Secrets are decrypted with SECRET_KEY or one of "
        "SECRET_KEY_FALLBACKS. The server may run meanwhile, and the command may be repeated."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many were re-encrypted; name those that no key decrypts, and fail if there are any."""
        rotated, unreadable = 0, 0  # one that no key decrypts must not keep the others from the newest key
        for what, owner in (("tool servers", tool_servers), ("agent and secrets", agent_setups)):
            done, failed = self._rotate_of_conversations(what, owner)
            rotated, unreadable = rotated + done, unreadable + failed
        for endpoint in Endpoint.objects.order_by("pk"):
            try:
                rotated += endpoint.rotate()
            except SecretUnreadable:
                unreadable += 1
                self.stderr.write(f"No key decrypts: the headers of {endpoint}")
        for answer in RecordedAnswer.objects.order_by("pk").iterator(BATCH):
            try:
                rotated += answer.rotate()
            except SecretUnreadable:
                unreadable += 1
                self.stderr.write(f"No key decrypts: the {answer}")
        for document in UserDocument.objects.select_related("user").order_by("pk").iterator(BATCH):
            try:
                rotated += document.rotate()
            except SecretUnreadable:
                unreadable += 1
                whose = f"{document.user.get_username()!r} (user {document.user_id})"
                self.stderr.write(f"No key decrypts: {document.kind} {document.name!r} of {whose}")
        for secret in _all_secrets():
            try:
                rotated += secret.rotate()
            except SecretUnreadable:
                unreadable += 1
                whose = f"{secret.user.get_username()!r} (user {secret.user_id})"
                self.stderr.write(f"No key decrypts: {secret.kind} {secret.name!r} of {whose}")
        self.stdout.write(f"Re-encrypted: {rotated}. Could not be decrypted: {unreadable}.")
        if unreadable:
            raise CommandError(
                "Add the keys that encrypted these secrets to SECRET_KEY_FALLBACKS and run the command "
                "again, or store the secrets again."
            )

    def _rotate_of_conversations(self, what: str, owner: ModuleType) -> tuple[int, int]:
        """Rotate the sealed values of one module; return how many were rotated, and how many unreadable."""
        rotated, unreadable = 0, 0
        for conversation_pk in owner.sealed_conversations():
            try:
                rotated += owner.rotate(conversation_pk)
            except SecretUnreadable:
                unreadable += 1
                public_id = Conversation.objects.values_list("public_id", flat=True).get(pk=conversation_pk)
                self.stderr.write(f"No key decrypts: the {what} of conversation {public_id}")
        return rotated, unreadable


def _all_secrets() -> Iterator[Secret]:
    after = 0
    while batch := list(Secret.objects.page(after=after, limit=BATCH)):
        yield from batch
        after = batch[-1].pk
