"""The cleaning of the database's files after purges, once for all finished ones."""

from __future__ import annotations

from django.apps import apps
from django.db.models import Max
from django.utils import timezone

from conversations.engines import guards, residues
from conversations.engines.residues import Rest
from conversations.models import Purge
from conversations.server_log import log_act
from conversations.store import purging
from sessions_app.models import UserDeletion
from sessions_app.retention import places, purges

# Tables of which a purge changes rows, or of which it removes them elsewhere.
_ALSO = (
    "conversations.Label",
    "sessions_app.ImportedConversation",
    "sessions_app.Delivery",
    "sessions_app.ModelUse",
    "admin.LogEntry",
    "auth.User",
    "sessions_app.ImportRun",
    "conversations.Purge",
    "sessions_app.UserDeletion",
)


def is_due() -> bool:
    """Return whether files are to be cleaned after a finished purge or deletion of a user."""
    return Purge.objects.unerased().exists() or UserDeletion.objects.unerased().exists()


def erase(*, rest: Rest | None = None, rewrites: bool = False) -> bool:
    """Clean the files, and record it in the finished purges; return False if it is to be retried.

    `rewrites` writes the tables anew, which blocks all other writers.
    """
    # Read first: what ends during the cleaning is left to the next round.
    newest = Purge.objects.unerased().aggregate(newest=Max("pk"), moment=Max("finished_at"))
    deletions = list(UserDeletion.objects.unerased().values_list("pk", flat=True))
    purges.sweep_late()
    purging.forget_titles()
    is_clean = residues.clean(_tables(), rest)
    if rewrites:
        is_clean = residues.rewrite(_tables())
    if is_clean:
        UserDeletion.objects.filter(pk__in=deletions).update(erased_at=timezone.now())
    if is_clean and newest["newest"] is not None:
        done = Purge.objects.unerased().filter(finished_at__lte=newest["moment"])
        log_act("Purges erased from the files", purges=done.update(erased_at=timezone.now()))
    return is_clean


def _tables() -> list[str]:
    labels = ["conversations.Event", "conversations.Conversation", "conversations.CreationParameters"]
    named = dict.fromkeys((*places.REMOVED, *places.OF_USER, *_ALSO))
    models = [apps.get_model(label) for label in (*labels, *named)]
    return [guards.SEARCH_TEXT, guards.TITLE_TEXT, *(model._meta.db_table for model in models)]
