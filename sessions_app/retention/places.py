"""Every table of the installation, and the effect of a purge and of the deletion of a user on its rows.

Tests compare these lists with the tables of the database, so that no new table is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Model, QuerySet

from conversations.engines import guards
from conversations.events import ConversationRef
from sessions_app import idempotency
from sessions_app.models import (
    AgentLoop,
    Attachment,
    Delivery,
    Draft,
    ImportedConversation,
    ModelUse,
    Usage,
    Workspace,
)
from sessions_app.workspaces import records

# A writer that had begun before a purge may end after it: for this long its rows are looked for.
LATE = timedelta(days=2)
# In one transaction, so that appends of others do not wait long.
STEP_ROWS = 200

REMOVED = (
    "sessions_app.UnfinishedAnswer",
    "sessions_app.Draft",
    "sessions_app.Attachment",
    "sessions_app.FilesCopy",
    "sessions_app.FilesCheckpoint",
    "sessions_app.Workspace",
    "sessions_app.AgentSetup",
    "sessions_app.StartTask",
    "sessions_app.ToolRun",
    "sessions_app.AllowedTool",
    "sessions_app.InputReceipt",
    "sessions_app.LoopCommand",
    "sessions_app.RunMeter",
    "sessions_app.RunOptions",
    "sessions_app.RemoteProgram",
    "sessions_app.Repair",
    "sessions_app.AgentLoop",
    "sessions_app.Mark",
    "sessions_app.Feedback",
    "sessions_app.ApiToken",
    "sessions_app.ConversationKey",
    "sessions_app.Connection",
    "conversations.VerificationFinding",
)
"""Tables whose rows belong to one conversation by a column `conversation`; those rows are removed."""

OTHERWISE = {
    "conversations.Conversation": "stays as a tombstone: `conversations.store.purging` empties its columns",
    "conversations.Event": "removed by `conversations.store.purging`, in steps",
    "conversations.CreationParameters": "removed by `conversations.store.purging`",
    "conversations.TitleChange": "a key; the index of titles takes it when it forgets the title",
    "conversations.Purge": "the record of the purge: who, when, why, how much, and the last digest",
    "conversations.UnfinishedFork": "a purge begins without it: the row ends with the copying",
    "conversations.Label": "triggers remove the labels with the tags",
    "sessions_app.ImportedConversation": "the line of a report stays, without title, name and problem",
    "conversations.StoredBytes": "the sum of a user's bytes gets smaller by what was removed",
    "sessions_app.Usage": "the sums of a user's uploads and drafts are counted anew",
    "sessions_app.Delivery": "removed once nothing is pending; the text of the last error at once",
    "sessions_app.RecordedChange": "the kind of a change and its time, for endpoints that are to hear of the "
    "deletion; removed after seven days",
    "sessions_app.ModelUse": "stays for the user's sums, without the conversation",
    "sessions_app.RecordedAnswer": "removed if the answer or its address is about the conversation",
    "admin.LogEntry": "the entry stays; the title in it is replaced by the id",
}
"""Tables that a purge changes in other ways."""

UNTOUCHED = {
    "conversations.ChangeNumber": "a counter",
    "conversations.SearchProgress": "a cursor",
    "conversations.StorageProgress": "a cursor",
    "conversations.GuardRepair": "about the database",
    "conversations.WriteProbe": "always empty",
    "conversations.VerificationRun": "about the installation",
    "sessions_app.AccessRemoval": "about a user",
    "sessions_app.UserDeletion": "about a user",
    "sessions_app.HousekeepingRound": "about the installation",
    "sessions_app.ProcessRecord": "about the installation",
    "sessions_app.BackupRecord": "about the installation",
    "sessions_app.DeletedLimit": "about the installation",
    "sessions_app.DeviceLogin": "a program's login: about a user",
    "sessions_app.UserSettings": "about a user",
    "sessions_app.UserDocument": "about a user",
    "sessions_app.FollowedProgram": "about a user",
    "sessions_app.ImportRun": "about a file of a user's; the name of the file stays with its report",
    "sessions_app.ImportPiece": "a part of a file that is being uploaded, removed after the import",
    "sessions_app.Secret": "about a user",
    "sessions_app.Endpoint": "about an endpoint",
    "sessions_app.RetentionPolicy": "a rule",
    "auth.User": "about a user",
    "auth.User_groups": "about a user",
    "auth.User_user_permissions": "about a user",
    "auth.Group": "about users",
    "auth.Group_permissions": "about users",
    "auth.Permission": "about the program",
    "contenttypes.ContentType": "about the program",
    "sessions.Session": "a login: keys of a user, nothing of a conversation",
}
"""Tables with nothing of a conversation."""

OF_USER = {
    "sessions_app.ApiToken": "user",
    "sessions_app.AllowedTool": "user",
    "sessions_app.DeviceLogin": "user",
    "sessions_app.Secret": "user",
    "sessions_app.UserSettings": "user",
    "sessions_app.UserDocument": "user",
    "sessions_app.RecordedAnswer": "user",
    "sessions_app.StartTask": "user",
    "sessions_app.Draft": "user",
    "sessions_app.Mark": "user",
    "sessions_app.Connection": "user",
    "sessions_app.RemoteProgram": "user",
    "sessions_app.FollowedProgram": "user",
    "sessions_app.Delivery": "endpoint__owner",
    "sessions_app.Endpoint": "owner",
    "sessions_app.RetentionPolicy": "owner",
    "sessions_app.Usage": "user",
}
"""Tables whose rows are removed with a user, by the path to the user; referred ones come last."""

STAYS_OF_USER = {
    "sessions_app.ImportRun": "removed by `user_deletions` once it has ended; what staff sent for others "
    "stays with those users",
    "conversations.Conversation": "a purge leaves a tombstone with the id, numbers and times",
    "conversations.Label": "a purge removes the labels with the tags",
    "conversations.StoredBytes": "a number that the purges bring to 0",
    "sessions_app.ModelUse": "sums of tokens and cost, without conversations, for the operator",
    "sessions_app.AccessRemoval": "what voids the keys that were given out",
    "sessions_app.UserDeletion": "the record of the deletion",
    "admin.LogEntry": "what a member of staff has done and read stays, under the number of the account",
    "auth.User_groups": "emptied",
    "auth.User_user_permissions": "emptied",
}
"""Tables that refer to a user in other ways, and why they may stay."""

WITHOUT_MODEL = {
    guards.SEARCH_TEXT: "a trigger removes the words of an event with the event",
    guards.TITLE_TEXT: "the index of titles forgets the title",
    "django_migrations": "about the program",
    "procrastinate": "keys of conversations: a job is an alarm clock, and is deleted when it is done",
}
"""Tables without a model, by the beginning of their names."""


def remove_some(conversation: ConversationRef) -> int | None:
    """Remove a bounded number of rows of one table, or of files; return the bytes of files among them.

    Return None once no table has rows. Raise OSError if a file cannot be removed.
    """
    # Attachments have some megabytes each.
    step_files = 4
    for label in REMOVED:
        model = apps.get_model(label)
        limit = step_files if model is Attachment else STEP_ROWS
        rows = model._default_manager.filter(conversation_id=conversation.pk)
        # The row goes last: it names the directory. What a step has removed of that stays removed if the
        # step is undone, and the next one goes on.
        if model is Workspace and (size := records.remove_some(conversation, STEP_ROWS)) is not None:
            return size
        if keys := list(rows.order_by("pk").values_list("pk", flat=True)[:limit]):
            return _remove(model, keys, conversation)
    return None


def remove_some_of_user(user: User) -> bool:
    """Remove a bounded number of a user's rows of one table; return False once no table has rows."""
    for label, path in OF_USER.items():
        model = apps.get_model(label)
        rows = model._default_manager.filter(**{path: user}).order_by("pk")
        if keys := list(rows.values_list("pk", flat=True)[:STEP_ROWS]):
            with transaction.atomic():
                # An entry of the admin's log names its row, and a name may be the user's.
                of_model: Any = ContentType.objects.get_for_model(model)
                rows_named = [str(key) for key in keys]
                entries = LogEntry.objects.filter(content_type=of_model, object_id__in=rows_named)
                entries.update(object_repr=f"{model._meta.verbose_name} of {user.username}")
                model._default_manager.filter(pk__in=keys).delete()
            return True
    return False


def written_late(purged: QuerySet[Any, Any]) -> set[int]:
    """Return those of these conversations that still have rows, by one query for each table."""
    found: set[int] = set()
    for label in REMOVED:
        rows = apps.get_model(label)._default_manager.filter(conversation_id__in=purged)
        found.update(rows.values_list("conversation_id", flat=True).distinct())
    return found | set(
        Delivery.objects.filter(conversation_id__in=purged, due_at=None).values_list(
            "conversation_id", flat=True
        )
    )


def change_the_rest(conversation: ConversationRef) -> None:
    """Change the tables whose rows a purge does not simply remove."""
    drop_deliveries(conversation)
    ModelUse.objects.filter(conversation_id=conversation.pk).update(conversation=None)
    ImportedConversation.objects.filter(conversation=conversation.public_id).update(
        source_id="", title="", problem=""
    )
    idempotency.forget(conversation)
    _forget_names(conversation)


def drop_deliveries(conversation: ConversationRef) -> None:
    """Remove deliveries of which nothing is pending, and the texts of errors."""
    # An endpoint that still has to learn of the deletion keeps its cursor.
    rows = Delivery.objects.filter(conversation_id=conversation.pk)
    rows.filter(due_at=None).delete()
    rows.exclude(last_error="").update(last_error="")


def _remove(model: type[Model], keys: Iterable[Any], conversation: ConversationRef) -> int:
    rows: QuerySet[Any] = model._default_manager.filter(pk__in=keys)
    size = 0
    if model is Attachment:
        size = sum(Attachment.objects.filter(pk__in=keys).values_list("size", flat=True))
        _count_anew([conversation.owner_id])
    elif model is Workspace:
        _count_anew([conversation.owner_id])
    elif model is Draft:
        _count_anew(list(Draft.objects.filter(pk__in=keys).values_list("user_id", flat=True)))
    rows.delete()
    return size


def _count_anew(user_pks: Iterable[int]) -> None:
    """Discard the counted storage of these users, so that it is counted again."""
    Usage.objects.filter(user_id__in=user_pks).update(is_counted=False)


def _forget_names(conversation: ConversationRef) -> None:
    """Replace titles in the admin's log, where an entry names its row."""
    types = ContentType.objects.get_for_models(*_NAMED).values()
    entries = LogEntry.objects.filter(content_type__in=types, object_id=str(conversation.pk))
    entries.update(object_repr=conversation.public_id)


_NAMED: tuple[type[Model], ...] = (apps.get_model("conversations.Conversation"), AgentLoop)
"""Tables whose rows are named by the title of the conversation with the same key."""
