"""Conversations, their ids, their order in lists, and the queries on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import F, Func, OuterRef, Q, Subquery
from django.db.models.expressions import Combinable
from django.utils import timezone

from conversations.engines.planner import unselective
from conversations.events import ConversationRef
from conversations.models.ids import PUBLIC_ID_MAX_LENGTH, shown_title
from conversations.models.labels import with_labels
from conversations.models.list_orders import ListOrder, SortedTitle, last_used
from conversations.payloads.limits import limits_of
from conversations.search import titles

_HEX_UUID = "^[0-9a-f]{32}$"
SOURCE_TAG = "source"  # the tag of an imported conversation that names the program which it comes from
LAST_MESSAGE_MAX_LENGTH = 200
CHILDREN_MAX = 100  # at most this many of the conversations that one has started are named with it
# Columns of a conversation that only the log's own writes may change.
OWNED_BY_APPEND = frozenset(
    {"next_seq", "head_digest", "loop_epoch", "asked_through", "answered_through", "last_message"}
)
Moment = Literal["created_at", "updated_at", "deleted_at"]  # the orders of lists of conversations


class Version(models.TextChoices):
    """The wire that a conversation was opened for."""

    V0 = "V0"
    V1 = "V1"


class WholeRowSaveRefused(RuntimeError):
    """`save()` would write a whole conversation over a stored one."""


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def active(self) -> Self:
        return self.filter(deleted_at__isnull=True)

    def deleted(self) -> Self:
        """Return the deleted ones that can be restored."""
        return self.filter(deleted_at__isnull=False, purged_at__isnull=True)

    def deleted_before(self, moment: datetime) -> Self:
        """Return those that can be restored and were deleted before then, the longest deleted first."""
        return self.deleted().filter(deleted_at__lt=moment).order_by("deleted_at", "pk")

    def unpurged(self) -> Self:
        """Return those that exist or can be restored."""
        return self.filter(purged_at__isnull=True)

    def purged(self) -> Self:
        """Return those of which only the tombstone is left, or soon will be."""
        return self.filter(purged_at__isnull=False)

    def quiet_since(self, moment: datetime) -> Self:
        return self.filter(updated_at__lt=moment)

    def labelled(self, name: str, value: str | None = None) -> Self:
        """Return those with this tag, whatever its value, or with this value of it."""
        rows = self.alias(tag_value=_TagValue(name))
        return rows.filter(tag_value__isnull=False) if value is None else rows.filter(tag_value=value)

    def permanent(self) -> Self:
        """Return those that lists, search, webhooks and exports of everything have: no temporary ones."""
        return self.filter(expires_at__isnull=True)

    def temporary(self) -> Self:
        """Return the temporary ones that are not purged."""
        return self.unpurged().filter(expires_at__isnull=False)

    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """Return those that the user finds without their ids; none for an anonymous visitor."""
        return self.open_to(user).permanent()

    def open_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """Return those that the user may open by id, the temporary ones as well."""
        return self.active().reachable_by(user)

    def reachable_by(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """Return those of the user that the visitor may reach, the deleted ones as well."""
        rows = self.filter(unselective("owner_id", user.pk))
        only = limits_of(user).only
        return rows if only is None else rows.filter(pk=only)

    def owned_by(self, user_pk: int | Combinable) -> Self:
        """Return those of the user, including deleted ones."""
        return self.filter(unselective("owner_id", user_pk))

    def with_public_ids(self, public_ids: Iterable[str | Combinable]) -> Self:
        """Return those with one of these ids, in stored form."""
        return self.filter(public_id__in=list(public_ids))

    def with_pks(self, pks: Iterable[int | Combinable]) -> Self:
        return self.filter(pk__in=list(pks))

    def with_children(self, others: ConversationQuerySet) -> Self:
        """Add to the rows `child_ids`, for `children_in`: which of the others each has started.

        Only those of the same owner, and at most the CHILDREN_MAX newest of each conversation.
        """
        own = others.filter(unselective("owner_id", OuterRef("owner_id")), parent_id=OuterRef("pk"))
        newest = own.newest_first().values("public_id", "created_at", "pk")[:CHILDREN_MAX]
        return self.annotate(child_ids=_PublicIds(newest))

    def newest_first(self) -> Self:
        """Order by creation, the newest first; a row never changes its place."""
        return self.order_by("-created_at", "-pk")

    def listed_by(self, order: ListOrder) -> Self:
        """Order as people read a list; `list_key` is what a page's cursor continues from."""
        return self.annotate(list_key=order.expression).order_by(*order.sorting())

    def in_order(self, column: Moment, *, newest_first: bool) -> Self:
        return self.order_by(f"-{column}", "-pk") if newest_first else self.order_by(column, "pk")

    def beyond(self, column: Moment, moment: datetime, pk: int, *, newest_first: bool) -> Self:
        """Return those that come after this position in that order."""
        side = "lt" if newest_first else "gt"
        further = Q(**{f"{column}__{side}": moment}) | Q(**{column: moment, f"pk__{side}": pk})
        return self.filter(further, **{f"{column}__{side}e": moment})  # redundant, for the index

    def older_than(self, created_at: datetime, pk: int) -> Self:
        """Return those that come after this position when the newest is first."""
        further = self.filter(Q(created_at__lt=created_at) | Q(created_at=created_at, pk__lt=pk))
        return further.filter(created_at__lte=created_at)  # redundant, for the index

    def matching(
        self,
        *,
        title: str | None = None,
        repository: str | None = None,
        trigger: str | None = None,
        version: str | None = None,
        model: str | None = None,
        labels: Iterable[str] = (),
    ) -> Self:
        """Return those that meet all conditions; the title may contain the text anywhere.

        Each conversation is asked for its labels; `Label.objects.leading_to` finds those that have one.
        """
        wanted = {"repository": repository, "trigger": trigger, "version": version, "llm_model": model}
        rows = self if title is None else self.filter(titles.holding(title))
        rows = rows.filter(with_labels(labels))
        return rows.filter(**{name: value for name, value in wanted.items() if value is not None})

    def top_level(self) -> Self:
        return self.filter(parent__isnull=True)

    def started_by(self, public_id: str) -> Self:
        """Return those that this conversation of the same owner has started."""
        return self.filter(unselective("parent__owner_id", F("owner_id")), parent__public_id=public_id)

    def of_version(self, version: str) -> Self:
        return self.filter(version=version)

    def heads(self) -> Self:
        """Return the roots of families: no existing conversation of the same owner has started them."""
        return self.exclude(parent__isnull=False, parent__deleted_at=None, parent__owner_id=F("owner_id"))

    def begun_from(self, pk: int, *, newest_first: bool) -> Self:
        """Return this one and those that come after it in the order of their creation."""
        return self.filter(**{"pk__lte" if newest_first else "pk__gte": pk})

    def known_to_v1(self) -> Self:
        """Return those that the V1 wire can name: V1 conversations whose id is a UUID."""
        return self.filter(version=Version.V1, public_id__regex=_HEX_UUID)

    def within(
        self,
        *,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        updated_from: datetime | None = None,
        updated_before: datetime | None = None,
    ) -> Self:
        """Return those that were created, and last changed, in these periods; None means no limit."""
        bounds = {
            "created_at__gte": created_from,
            "created_at__lt": created_before,
            "updated_at__gte": updated_from,
            "updated_at__lt": updated_before,
        }
        return self.filter(**{name: moment for name, moment in bounds.items() if moment is not None})

    def changed_since(self, moment: datetime | Combinable) -> Self:
        return self.filter(updated_at__gte=moment)

    def listed_from(self, moment: datetime, pk: int) -> Self:
        """Return those that changed, in something that a list shows, after this position, in that order."""
        further = self.filter(Q(listed_at__gt=moment) | Q(listed_at=moment, pk__gt=pk))
        return further.filter(listed_at__gte=moment).order_by("listed_at", "pk")  # redundant, for the index

    def changed_from(self, number: int, pk: int, *, end: int) -> Self:
        """Return those that changed, in something that a list shows, after this position, in commit order.

        Only those with a number below `end`: rows of a restored dump may have any number.
        """
        further = self.filter(Q(listed_in__gt=number) | Q(listed_in=number, pk__gt=pk))
        return further.filter(listed_in__gte=number, listed_in__lt=end).order_by("listed_in", "pk")

    def unanswered(self) -> Self:
        return self.active().filter(asked_through__gt=F("answered_through"))

    def locked(self) -> Self:
        """Return the rows, locked until the transaction ends (on SQLite the whole database already is)."""
        return self.select_for_update(no_key=True)


class _TagValue(Func):
    """The value of a tag as text, None if there is no such tag.

    Django's own lookups take a name like 2026 for a place in an array, and on SQLite find no name with an
    umlaut.
    """

    output_field = models.TextField()

    def __init__(self, name: str) -> None:
        super().__init__(F("tags"))
        self._name = name

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # A path would have to be written as the stored text is, with or without escapes.
        template = "(SELECT value FROM json_each(%(expressions)s) WHERE key = %%s)"
        return self._of(compiler, connection, template)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self._of(compiler, connection, "(%(expressions)s ->> %%s::text)")

    def _of(self, compiler: Any, connection: Any, template: str) -> Any:
        sql, params = self.as_sql(compiler, connection, template=template)
        return sql, [*params, self._name]


class _PublicIds(Subquery):
    """The public ids of other rows, in their order, as a list; or None, for an empty one."""

    output_field = models.JSONField()
    template = "(SELECT jsonb_agg(chosen.public_id) FROM (%(subquery)s) AS chosen)"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = self.template.replace("jsonb_agg", "json_group_array")
        return self.as_sql(compiler, connection, template=template, **context)


def children_in(row: Mapping[str, Any]) -> list[str]:
    """Return the ids of the conversations that this one has started, the oldest first (`with_children`)."""
    return list(reversed(row["child_ids"] or ()))


ConversationManager = models.Manager.from_queryset(ConversationQuerySet)


class Conversation(models.Model):
    """One log of events and its owner: a narrow row, which is changed by named columns only."""

    # Unique in the installation, not by owner: an address has nothing of its owner.
    public_id = models.CharField(max_length=PUBLIC_ID_MAX_LENGTH, unique=True)
    # PROTECT: removing an account must never take histories with it. The indexes of lists begin with it, so
    # it needs none of its own.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="conversations", db_index=False
    )
    version = models.CharField(max_length=20, choices=Version, default=Version.V0)
    title = models.TextField(null=True, blank=True)
    repository = models.TextField(null=True, blank=True)
    branch = models.TextField(null=True, blank=True)
    provider = models.TextField(null=True, blank=True)
    trigger = models.TextField(null=True, blank=True)
    pr_number = models.JSONField(default=list, blank=True)
    llm_model = models.TextField(null=True, blank=True)
    accumulated_cost = models.FloatField(default=0.0)
    prompt_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    total_tokens = models.BigIntegerField(default=0)
    parent = models.ForeignKey(
        "self", models.PROTECT, null=True, blank=True, related_name="children", db_index=False
    )
    tags = models.JSONField(default=dict, blank=True)
    forked_from = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="forks")
    forked_at = models.BigIntegerField(null=True, blank=True)

    next_seq = models.BigIntegerField(default=0)
    head_digest = models.CharField(max_length=64, default="", blank=True)
    loop_epoch = models.BigIntegerField(default=0)
    # The seq of the newest event that asks the agent for an answer.
    asked_through = models.BigIntegerField(default=-1)
    # The agent has answered or given up every input up to this seq.
    answered_through = models.BigIntegerField(default=-1)
    # Whether an append of an input may be refused (AppendRequest.refusal); None is no.
    guards_inputs = models.BooleanField(null=True, blank=True, editable=False)

    last_message = models.CharField(max_length=LAST_MESSAGE_MAX_LENGTH, default="", blank=True)
    # Its own column beside `updated_at`, which every append changes: an index orders lists by it.
    last_message_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    # The conversation's clock: every event has a later time than the one before.
    updated_at = models.DateTimeField(default=timezone.now)
    # The time of the last change in something that a list of conversations shows.
    listed_at = models.DateTimeField(default=timezone.now)
    # The number of that change (change_order), set by a trigger; None if it is older than the triggers. A
    # time would not do: clocks jump, and a transaction may commit after one that began later.
    listed_in = models.BigIntegerField(null=True, blank=True, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True)
    # When a temporary conversation is purged; None for all others. A tombstone keeps it: the purge of what no
    # list had is no news for lists.
    expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    # What a verification found damaged, as `{seq, problem, detail}` each; None if nothing was.
    damage = models.JSONField(null=True, blank=True, editable=False)
    # When its purge began: from then on it cannot be restored, and its columns are empty.
    purged_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ConversationManager()

    class Meta:
        # An append changes no indexed column unless it adds a message or an input, so PostgreSQL can update
        # the row in place.
        indexes: ClassVar = [
            models.Index(
                fields=["owner", "-created_at", "-id"], name="conversation_list", condition=Q(deleted_at=None)
            ),
            models.Index(
                fields=["owner", "-created_at", "-id"],
                name="conversation_top_level",
                condition=Q(deleted_at=None, parent=None),
            ),
            models.Index(
                F("owner"),
                last_used().desc(),
                F("id").desc(),
                name="conversation_last_used",
                condition=Q(deleted_at=None),
            ),
            models.Index(
                F("owner"),
                SortedTitle().asc(),
                F("id").asc(),
                name="conversation_by_title",
                condition=Q(deleted_at=None),
            ),
            models.Index(
                fields=["owner", "version", "-created_at", "-id"],
                name="conversation_by_version",
                condition=Q(deleted_at=None, parent=None),
            ),
            models.Index(
                fields=["owner", "repository", "-created_at", "-id"],
                name="conversation_by_repository",
                condition=Q(deleted_at=None, repository__isnull=False),
            ),
            models.Index(
                fields=["owner", "trigger", "-created_at", "-id"],
                name="conversation_by_trigger",
                condition=Q(deleted_at=None, trigger__isnull=False),
            ),
            models.Index(
                fields=["owner", "llm_model", "-created_at", "-id"],
                name="conversation_by_model",
                condition=Q(deleted_at=None, llm_model__isnull=False),
            ),
            models.Index(
                fields=["parent", "owner"], name="conversation_children", condition=Q(parent__isnull=False)
            ),
            models.Index(fields=["owner", "listed_at"], name="conversation_listed"),
            models.Index(
                fields=["owner", "listed_in"],
                name="conversation_changed",
                condition=Q(listed_in__isnull=False),
            ),
            models.Index(
                fields=["owner", "-deleted_at", "-id"],
                name="conversation_restorable",
                condition=Q(deleted_at__isnull=False, purged_at__isnull=True),
            ),
            models.Index(
                fields=["deleted_at", "id"],
                name="conversation_awaits_purge",
                condition=Q(deleted_at__isnull=False, purged_at__isnull=True),
            ),
            models.Index(
                fields=["owner", "expires_at"],
                name="conversation_temporary",
                condition=Q(expires_at__isnull=False, purged_at__isnull=True),
            ),
            models.Index(
                fields=["id"],
                name="conversation_unanswered",
                condition=Q(asked_through__gt=F("answered_through")),
            ),
        ]

    def __str__(self) -> str:
        # Never the title: it may be a message's beginning, and names of rows go where no message may.
        return shown_title(None, self.public_id)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store a new row, or the named columns of an existing one.

        Raise WholeRowSaveRefused for anything more: a stale, partial or stub object would undo the changes
        of others.
        """
        columns = kwargs.get("update_fields")
        if columns is None:
            if self.pk is not None and not kwargs.get("force_insert"):
                raise WholeRowSaveRefused(
                    f"Conversation {self.public_id or self.pk} is stored already: a whole-row save could "
                    "undo what others wrote. Call ConversationStore.save_metadata, or name update_fields."
                )
        elif owned := OWNED_BY_APPEND.intersection(columns):
            raise WholeRowSaveRefused(
                f"{', '.join(sorted(owned))} belong to the log: call conversations.log.writes.append."
            )
        super().save(*args, **kwargs)

    @property
    def shown_title(self) -> str:
        return shown_title(self.title, self.public_id)

    @property
    def ref(self) -> ConversationRef:
        """Return the value that doors pass on once access is granted."""
        return ConversationRef(self.pk, self.public_id, self.owner_id, self.version)

    @property
    def is_unanswered(self) -> bool:
        return self.asked_through > self.answered_through


class CreationParameters(models.Model):
    """The parameters of a conversation's creation: instructions, mcp_config, replay, experiment config."""

    # A table of its own, because SQLite rewrites a whole row for every change of it.
    conversation = models.OneToOneField(
        Conversation, models.PROTECT, primary_key=True, related_name="creation_parameters"
    )
    parameters = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"creation parameters of {self.conversation_id}"


class ChangeNumber(models.Model):
    """The number of the newest change that a list shows, in one row; only SQLite needs it (change_order)."""

    number = models.BigIntegerField()

    def __str__(self) -> str:
        return f"change {self.number}"
