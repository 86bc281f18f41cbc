"""What the search index has read already."""

from __future__ import annotations

from django.db import models


class SearchProgress(models.Model):
    """How far the search index has come: one row, shared by all processes."""

    # Up to this key, entries from before the first release may have their words in another form.
    through = models.BigIntegerField(default=0)
    # Every event with a key up to this is in the index; search reads later ones directly.
    words_through = models.BigIntegerField(default=0, db_default=0)

    def __str__(self) -> str:
        return f"indexed through {self.words_through}"

    @classmethod
    def through_now(cls) -> int:
        """Return how far the index has come."""
        through: int = cls.objects.values_list("words_through", flat=True).get()
        return through

    @classmethod
    def known_through(cls) -> int:
        """Return up to which key entries may have their words in the form from before the first release."""
        through: int = cls.objects.values_list("through", flat=True).get()
        return through

    @classmethod
    def move(cls, through: int, further: int) -> bool:
        """Move on from a place, in the transaction that fills the index; say whether it was still there."""
        return bool(cls.objects.filter(words_through=through).update(words_through=further))


class TitleChange(models.Model):
    """A conversation whose title has changed since it was indexed; a trigger inserts the row."""

    conversation_id = models.BigIntegerField(primary_key=True)

    def __str__(self) -> str:
        return f"title of {self.conversation_id}"
