"""One action on many conversations, and its undoing."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.store import labels
from convserver.api.native.shapes import NativeBatch, refusals
from convserver.api.native.view import Body, ChoiceField, NativeView, Text
from convserver.api.scopes import WRITES
from convserver.batches import actions, undo
from convserver.batches.actions import BATCH_MAX, BatchAction, BatchOrder, BatchResult
from convserver.serving.admission import Lane, in_lane

UNDO = "undo"
_LABELS = (BatchAction.LABEL, BatchAction.UNLABEL)


@extend_schema_serializer(component_name="NativeBatchRequest")
class BatchSerializer(Body):
    """The body: an action and the ids of conversations, or `undo` and what an earlier answer gave for it."""

    action = ChoiceField([*(each.value for each in BatchAction), UNDO])
    ids = serializers.ListField(
        child=Text(max_length=200, trim_whitespace=False), default=list, max_length=BATCH_MAX
    )
    label = Text(  # type: ignore[assignment] # the class has no field left of this name
        default="",
        allow_blank=True,
        max_length=labels.LABEL_MAX_LENGTH,
        help_text="For `label`: `name` or `name:value`. For `unlabel`: the name.",
    )
    undo = Text(default="", allow_blank=True, help_text="For `undo`: the `undo` of the answer.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return what is to be done. Raise ValidationError for what the action needs and does not have."""
        needed = UNDO if attrs["action"] == UNDO else "ids"
        if not attrs[needed]:
            raise serializers.ValidationError({needed: ["This is required."]})
        if attrs["action"] in _LABELS and not attrs["label"]:
            raise serializers.ValidationError({"label": ["This is required."]})
        return attrs


# SQLite's writers come in the order of their arrival: without a lane, many batches of one user would all come
# before another user's append.
@in_lane(Lane.BATCH)
class BatchView(NativeView):
    """Many conversations at once."""

    needs = WRITES

    @extend_schema(
        request=BatchSerializer,
        responses={200: NativeBatch, **refusals(400, 503)},
        examples=[
            OpenApiExample("label", value={"action": "label", "ids": ["a", "b"], "label": "work"}),
            OpenApiExample("undo", value={"action": "undo", "undo": "…"}),
        ],
    )
    def post(self, request: Request) -> Response:
        """Archive, unarchive, delete, restore, label or unlabel up to 200 conversations, or undo that.

        Those that are not there are named in `not_found`, and the others are changed. `undo` of the answer
        takes back exactly what changed, for an hour.
        """
        asked = self.checked_body(BatchSerializer)
        if asked["action"] == UNDO:
            change = undo.read(self.user_id, asked["undo"])
            return _answer(actions.take_back(request.user, change), [])
        order = _order(asked)
        ids = {each: actions.stored_id(each) for each in asked["ids"]}
        rows = actions.reachable(request.user, order.action).with_public_ids(filter(None, ids.values()))
        found = actions.refs_of(rows)
        # A conversation of another user is answered as one that does not exist.
        there = {each.public_id for each in found}
        done = actions.carry_out(request.user, order, found)
        return _answer(done, [each for each, public_id in ids.items() if public_id not in there])


def _order(asked: dict[str, Any]) -> BatchOrder:
    action = BatchAction(asked["action"])
    if action not in _LABELS:
        return BatchOrder(action=action)
    if action is BatchAction.UNLABEL:
        return BatchOrder(action=action, name=asked["label"])
    name, value = labels.read_label(asked["label"])
    return BatchOrder(action=action, name=name, value=value)


def _answer(done: BatchResult, not_found: list[str]) -> Response:
    return Response(
        {
            "changed": len(done.changed),
            "unchanged": done.unchanged,
            "not_found": not_found,
            "refused": [{"id": each, "detail": why} for each, why in done.refused.items()],
            "undo": done.undo,
        }
    )
