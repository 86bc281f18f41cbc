"""Which conversations a list of the native door has."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from conversations import access
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Label,
    LabelQuerySet,
    ListOrder,
    Version,
    normal_id,
)
from conversations.store.labels import LABEL_MAX_LENGTH
from convserver.api.native.view import ChoiceField, MultipleChoiceField
from convserver.pagination import PAGE_DEFAULT, PAGE_MAX
from sessions_app.live import marks
from sessions_app.live.status import in_status
from sessions_app.models import ExecutionStatus

# The index leads to the rows of the first; each other one is a condition that is asked of every row.
LABELS_MAX = 10


class FilterSerializer(serializers.Serializer[Any]):
    """Which conversations are meant: those that meet all conditions."""

    title = serializers.CharField(default=None)
    repository = serializers.CharField(default=None)
    trigger = serializers.CharField(default=None)
    model = serializers.CharField(default=None, help_text="The model that their agents asked.")
    label = serializers.ListField(  # type: ignore[assignment] # the class has no field left of this name
        child=serializers.CharField(max_length=LABEL_MAX_LENGTH, trim_whitespace=False),
        default=list,
        max_length=LABELS_MAX,
        help_text="The name of a tag, or `name:value`; of several, a conversation must have all.",
    )
    version = ChoiceField(Version.choices, default=None)
    status = MultipleChoiceField(
        ExecutionStatus.choices, default=set, help_text="The agent's state; any of these."
    )
    parent = serializers.CharField(  # type: ignore[assignment] # the class has no field left of this name
        default=None, help_text="Only sub-conversations of this one."
    )
    top_level = serializers.BooleanField(
        default=False, help_text="Only conversations that aren't sub-conversations."
    )
    pinned = serializers.BooleanField(default=None, allow_null=True)
    archived = serializers.BooleanField(default=None, allow_null=True)
    deleted = serializers.BooleanField(default=False)


class PageSerializer(FilterSerializer):
    """The query of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=PAGE_DEFAULT)
    page_id = serializers.CharField(default=None)
    order = ChoiceField(
        ListOrder.choices, default=None, help_text="By default `used`; deleted ones are ordered by `created`."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the query with its order. Raise ValidationError for one that deleted conversations lack."""
        default = ListOrder.CREATED if attrs["deleted"] else ListOrder.USED
        attrs["order"] = ListOrder(attrs["order"] or default)
        if attrs["deleted"] and attrs["order"] is not ListOrder.CREATED:
            raise serializers.ValidationError({"order": ["Deleted conversations are ordered by `created`."]})
        return attrs


def wanted(user: access.Visitor, query: dict[str, Any]) -> ConversationQuerySet:
    """Return the rows of a list for its query."""
    user_pk = access.pk_of(user)
    rows = Conversation.objects.visible_to(user)
    if query["deleted"]:
        # `reachable_by` keeps the limits of a token: that of one conversation finds no other deleted one.
        rows = Conversation.objects.deleted().permanent().reachable_by(user)
    rows = rows.matching(
        **{name: query[name] for name in ("title", "repository", "trigger", "model")}, labels=query["label"]
    )
    if query["version"] is not None:
        rows = rows.of_version(query["version"])
    if query["status"]:
        rows = in_status(rows, query["status"])
    if query["parent"] is not None:
        rows = rows.started_by(normal_id(query["parent"]))
    if query["top_level"]:
        rows = rows.heads()
    if query["pinned"] is not None:
        rows = marks.kept_on_top(rows, user_pk, pinned=query["pinned"])
    if query["archived"] is not None:
        rows = marks.put_away(rows, user_pk, archived=query["archived"])
    return rows


def is_narrow(query: dict[str, Any]) -> bool:
    """Return whether the query has a condition that few conversations may meet."""
    # An index in the order of a list would be read past all rows that do not match; a few rows are sorted.
    named = ("title", "repository", "trigger", "model", "version", "status", "parent", "pinned", "archived")
    return any(query[name] for name in named)


def leading_label(user_pk: int, query: dict[str, Any]) -> LabelQuerySet | None:
    """Return the rows of the index for the first label that is asked for; None if none is."""
    if not query["label"]:
        return None
    return Label.objects.of_owner(user_pk, deleted=query["deleted"]).saying(query["label"][0])
