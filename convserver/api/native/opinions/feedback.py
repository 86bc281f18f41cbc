"""Feedback: thumbs up or down for the answers of a conversation, with a reason."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.events import SEQ_MAX
from conversations.log.reads import PAGE_MAX_EVENTS
from convserver.api.native.opinions.shapes import NativeRating, NativeRatings
from convserver.api.native.shapes import refusals
from convserver.api.native.view import Body, ChoiceField, NativeView, Text
from convserver.api.scopes import WRITES
from sessions_app.live import ratings
from sessions_app.models import Feedback, Polarity


class RatingPageSerializer(serializers.Serializer[Any]):
    """The query of a page: feedback on the answers after a seq."""

    after = serializers.IntegerField(min_value=-1, max_value=SEQ_MAX, default=-1)
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX_EVENTS, default=100)


@extend_schema_serializer(component_name="NewNativeRating")
class RatingSerializer(Body):
    """The body: thumbs up (`positive`) or down (`negative`), and why."""

    polarity = ChoiceField(Polarity.choices)
    reason = Text(default="", allow_blank=True, max_length=Feedback.REASON_MAX_LENGTH)


class FeedbackView(NativeView):
    """The feedback on all answers of one conversation."""

    needs = WRITES

    @extend_schema(parameters=[RatingPageSerializer], responses={200: NativeRatings, **refusals(400, 404)})
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return a page, in the order of the answers."""
        conversation = access.readable(request.user, conversation_id)
        return Response(
            {"feedback": ratings.ratings_of(conversation, **self.checked_query(RatingPageSerializer))}
        )


class AnswerFeedbackView(NativeView):
    """The feedback on one answer."""

    needs = WRITES

    @extend_schema(request=RatingSerializer, responses={200: NativeRating, **refusals(400, 404, 409, 503)})
    def put(self, request: Request, conversation_id: str, seq: str) -> Response:
        """Rate an answer of the agent; a later rating replaces this one."""
        conversation = access.writable(request.user, conversation_id)
        body = self.checked_body(RatingSerializer)
        told = {"polarity": Polarity(body["polarity"]), "reason": body["reason"]}
        return Response(ratings.rate(conversation, int(seq), **told))

    @extend_schema(responses={204: None, **refusals(400, 404, 503)})
    def delete(self, request: Request, conversation_id: str, seq: str) -> Response:
        """Take the rating back; 204 also if there is none."""
        ratings.take_back(access.writable(request.user, conversation_id), int(seq))
        return Response(status=204)
