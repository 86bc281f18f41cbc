"""The outbox: endpoints, their deliveries with errors and delays, and resending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, F, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.http import HttpRequest

from conversations.exceptions import ConversationError
from conversations.models import Conversation, normal_id
from convserver.admin import cells, filters
from convserver.admin.base import ListAdmin, Row, edited_columns, may_read, record_change
from convserver.admin.cells import column
from convserver.admin.widgets import AnyModelForm, PasswordInput, Textarea, TextInput
from sessions_app.models import Delivery, DeliveryQuerySet, Endpoint, EndpointKind
from sessions_app.webhooks import deliveries as outbox
from sessions_app.webhooks import transport
from sessions_app.webhooks.transport import WebhookCredentials

IS_FAILING = Q(due_at__isnull=False, tries__gt=0)


class EventReadersOnly(ListAdmin[Row]):
    """Rows that send events to other servers: a change requires permission to read events."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_read(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return may_read(request) and super().has_change_permission(request, obj)


class UnseenText(Textarea):
    """A text area whose value is never shown, also not beside an error."""

    def format_value(self, value: Any) -> str:
        return ""


class EndpointForm(AnyModelForm):
    """A webhook, with fields for the headers and the key of its requests."""

    headers = forms.CharField(
        required=False,
        widget=UnseenText({"rows": 3, "autocomplete": "off"}),
        help_text="One `Name: value` on each line.",
    )
    session_key = forms.CharField(
        label="Session key",
        required=False,
        widget=PasswordInput({"autocomplete": "new-password"}),
        help_text="Sent as X-Session-API-Key.",
    )
    forget = forms.BooleanField(label="Remove stored headers and key", required=False)

    class Meta:
        model = Endpoint
        labels: ClassVar = {
            "base_url": "Base URL",
            "event_buffer_size": "Events per request",
            "flush_delay_s": "Longest wait for more events (seconds)",
            "timeout_s": "Timeout (seconds)",
        }
        fields = (
            *("name", "base_url", "owner", "enabled"),
            *("event_buffer_size", "flush_delay_s", "timeout_s"),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            for name in ("headers", "session_key"):
                if name in self.fields:
                    self.fields[
                        name
                    ].help_text = f"{self.fields[name].help_text} Leave empty to keep the stored value."

    def clean_base_url(self) -> str:
        try:
            return transport.checked_url(self.cleaned_data["base_url"])
        except transport.InvalidWebhook as error:
            raise forms.ValidationError(str(error)) from None

    def clean_headers(self) -> dict[str, str]:
        try:
            return transport.checked_headers(self.cleaned_data["headers"])
        except transport.InvalidWebhook as error:
            raise forms.ValidationError(str(error)) from None

    def clean_session_key(self) -> str:
        key: str = self.cleaned_data["session_key"]
        if not (key.isascii() and key.isprintable()):
            raise forms.ValidationError("A session key is printable ASCII.")
        return key

    def credentials(self) -> WebhookCredentials | None:
        """Return what to seal; None to keep what is stored."""
        entered = WebhookCredentials(self.cleaned_data["headers"], self.cleaned_data["session_key"])
        is_new = not self.instance.pk
        if is_new or self.cleaned_data["forget"]:
            return entered
        if not (entered.headers or entered.session_key):
            return None
        stored = transport.opened(self.instance)
        return WebhookCredentials(
            entered.headers or stored.headers, entered.session_key or stored.session_key
        )

    def clean(self) -> dict[str, Any]:
        """Refuse to send stored headers to another host, or to keep what no key opens."""
        super().clean()
        url = self.cleaned_data.get("base_url")
        has_stored = bool(self.instance.pk) and (self.instance.header_names or self.instance.has_session_key)
        # Staff who may change an address must not learn by it what another member of staff has entered.
        goes_elsewhere = url and has_stored and _origin(url) != _origin(self.initial.get("base_url", ""))
        if goes_elsewhere and not self.cleaned_data.get("forget"):
            self.add_error("base_url", "The stored headers and key are for another host. Remove them first.")
        if self.fields.keys() >= {"headers", "session_key"} and not self.errors:
            try:
                self.new_credentials = self.credentials()
            except ConversationError:
                self.add_error(
                    "forget",
                    "The stored headers and key cannot be decrypted. Remove them, or enter them again.",
                )
        return self.cleaned_data


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def _of_endpoint(measure: Any, deliveries: DeliveryQuerySet) -> Subquery:
    """Return one number of an endpoint's deliveries; an index has those that wait."""
    rows = deliveries.filter(endpoint_id=OuterRef("pk")).order_by().values("endpoint_id")
    return Subquery(rows.annotate(measured=measure).values("measured"))


@admin.register(Endpoint)
class EndpointAdmin(EventReadersOnly[Endpoint]):
    """Webhooks and hooks, the newest first, without the headers and keys of their requests."""

    form = EndpointForm
    progress = (
        "waiting_conversations",
        "waiting_events",
        "waiting_since",
        "failing_conversations",
        "last_error",
    )
    list_display = ("name", "kind", "whose", "enabled", *progress)
    list_select_related = ("owner",)
    autocomplete_fields = ("owner",)
    actions = ("try_again",)
    shown = ("header_names_shown", "key_shown", "created", *progress, "skipped")

    waiting_conversations = column("Conversations pending", "waiting", cells.number, empty="0")
    waiting_events = column("Events pending", "behind", cells.number, empty="0")
    waiting_since = column("Oldest pending since (UTC)", "oldest", cells.moment)
    failing_conversations = column("Failing", "failing", cells.number, empty="0")
    last_error = column("Last error", "newest_error", cells.narrow)
    whose = column("Scope", lambda row: row.owner.get_username() if row.owner else "All conversations")
    # Changes of titles, deletions and the like are not kept for an endpoint that is disabled for long.
    skipped = column("Changes skipped until (UTC)", "skipped_until", cells.moment)
    header_names_shown = column("Headers stored", lambda row: ", ".join(row.header_names) or "None")
    key_shown = column("Session key stored", "has_session_key", cells.yes_or_no)
    created = column("Active since (UTC)", "created_at", cells.moment)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Endpoint]:
        pending, failing = Delivery.objects.pending(), Delivery.objects.failing()
        newest = failing.filter(endpoint_id=OuterRef("pk")).order_by("-failed_at").values("last_error")
        return (
            super()
            .get_queryset(request)
            .annotate(
                waiting=_of_endpoint(Count("pk"), pending),
                behind=_of_endpoint(Sum(F("known") - F("through")), pending),
                oldest=_of_endpoint(Min("since"), pending),
                failing=_of_endpoint(Count("pk"), failing),
                newest_error=Subquery(newest[:1]),
            )
        )

    def get_fields(self, request: HttpRequest, obj: Endpoint | None = None) -> Any:
        # Hooks have no editable fields: their code says what they are.
        own = EndpointForm.Meta.fields
        if obj is None:
            return (*own, "headers", "session_key")
        if obj.kind == EndpointKind.HOOK:
            return ("name", "owner", "enabled", *self.shown[2:])
        secret = ("headers", "session_key", "forget") if self.has_change_permission(request, obj) else ()
        return (*own, *secret, *self.shown)

    def get_readonly_fields(self, request: HttpRequest, obj: Endpoint | None = None) -> Any:
        if obj is None:
            return ()
        return ("owner", *(("name",) if obj.kind == EndpointKind.HOOK else ()), *self.shown)

    def save_model(self, request: HttpRequest, obj: Endpoint, form: AnyModelForm, change: bool) -> None:
        """Store the endpoint; seal the headers and the key of its requests, unless they stay as they are."""
        credentials: WebhookCredentials | None = getattr(form, "new_credentials", None)
        if credentials is not None:
            transport.seal_into(obj, credentials)
        if not change:
            outbox.begin(obj)  # from the present end of each log, not from its beginning
            return
        sealed = ["sealed", "header_names", "has_session_key"] if credentials is not None else []
        obj.save(update_fields=[*edited_columns(form), *sealed])
        outbox.announce()

    def get_deleted_objects(
        self, objs: Sequence[Endpoint] | QuerySet[Endpoint], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        # Only the endpoints are named: their deliveries are deleted with them, and there can be very many.
        return [str(each) for each in objs], {"endpoints": len(objs)}, set(), []

    @admin.action(description="Retry now", permissions=["steer"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Endpoint]) -> None:
        endpoints = list(queryset)
        count = outbox.try_again(Delivery.objects.filter(endpoint__in=[each.pk for each in endpoints]))
        for endpoint in endpoints:
            record_change(request, endpoint, "Retried")
        messages.success(request, f"Retrying now: {cells.counted(count, 'conversation')}.")


class DeliveryForm(AnyModelForm):
    """A conversation to resend, and from which event."""

    instance: Delivery
    conversation_id = forms.CharField(label="Conversation ID", widget=TextInput())
    first = forms.IntegerField(
        label="Resend from event",
        min_value=0,
        widget=TextInput(),
        help_text="The event's number. All later events are sent again, too.",
    )

    class Meta:
        model = Delivery
        labels: ClassVar = {"endpoint": "Endpoint"}
        fields = ("endpoint",)

    def clean(self) -> dict[str, Any]:
        super().clean()
        if self.errors:
            return self.cleaned_data
        try:
            endpoint, self.chosen = self._endpoint(), self._conversation()
            outbox.last_replayable(endpoint, self.chosen.ref, first=self.cleaned_data["first"])
        except ConversationError as error:
            raise forms.ValidationError(str(error)) from None
        return self.cleaned_data

    def _endpoint(self) -> Endpoint:
        return self.instance.endpoint if self.instance.pk else self.cleaned_data["endpoint"]

    def _conversation(self) -> Conversation:
        if self.instance.pk:
            return self.instance.conversation
        public_id = normal_id(self.cleaned_data["conversation_id"])
        row = Conversation.objects.with_public_ids([public_id]).first()
        if row is None:
            raise forms.ValidationError("Conversation not found.")
        return row

    def validate_unique(self) -> None:
        """Allow an existing delivery: saving it resends."""


@admin.register(Delivery)
class DeliveryAdmin(EventReadersOnly[Delivery]):
    """The progress of each endpoint in each conversation."""

    form = DeliveryForm
    list_display = (
        *("to", "of", "state", "through_shown"),
        *("waiting_events", "problem", "next_try", "delivered"),
    )
    list_filter = (
        filters.form_of(
            endpoint=filters.text("Endpoint", "endpoint__name"),
            conversation=filters.text("Conversation ID", "conversation__public_id"),
            pending=filters.yes_or_no("Pending", "due_at__isnull", yes=False),
            failing=filters.choice(
                "Failing",
                filters.YES_OR_NO,
                lambda rows, wanted: rows.filter(IS_FAILING if wanted == "yes" else ~IS_FAILING),
            ),
        ),
    )
    list_select_related = ("endpoint", "conversation")
    actions = ("try_again",)
    shown = ("to", "of_conversation", *list_display[2:], "tries", "failed")

    to = column("Endpoint", "endpoint.name", cells.narrow)
    of = column("Conversation", lambda delivery: cells.narrow(str(delivery.conversation)))
    of_conversation = column("Conversation", "conversation", cells.link)
    waiting_events = column("Events pending", lambda row: cells.number(max(row.known - row.through, 0)))
    problem = column("Last error", "last_error", cells.narrow)
    next_try = column("Next attempt (UTC)", "due_at", cells.moment)
    delivered = column("Last success (UTC)", "delivered_at", cells.moment)
    failed = column("Last failure (UTC)", "failed_at", cells.moment)

    def get_queryset(self, request: HttpRequest) -> DeliveryQuerySet:
        rows: DeliveryQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_claim()

    def has_delete_permission(self, request: HttpRequest, obj: Delivery | None = None) -> bool:
        # Without its row, an endpoint would get the conversation from another event on.
        return False

    def get_fields(self, request: HttpRequest, obj: Delivery | None = None) -> Any:
        if obj is None:
            return ("endpoint", "conversation_id", "first")
        return (*self.shown, "first") if self.has_change_permission(request, obj) else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Delivery | None = None) -> Any:
        return self.shown if obj else ()

    def get_form(
        self, request: HttpRequest, obj: Delivery | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        # A delivery that exists keeps its conversation.
        form = super().get_form(request, obj, change=change, **kwargs)
        if obj is not None:
            form.base_fields.pop("conversation_id", None)
        return form

    def save_model(self, request: HttpRequest, obj: Delivery, form: AnyModelForm, change: bool) -> None:
        conversation: Conversation = form.chosen  # type: ignore[attr-defined]
        stored = outbox.replay(obj.endpoint, conversation.ref, first=form.cleaned_data["first"])
        obj.pk, obj.conversation = stored.pk, conversation

    @admin.action(description="Retry now", permissions=["steer"])
    def try_again(self, request: HttpRequest, queryset: DeliveryQuerySet) -> None:
        # The keys alone: the list's query has joins and claims, which an update cannot have.
        chosen = Delivery.objects.filter(pk__in=list(queryset.values_list("pk", flat=True)))
        count = outbox.try_again(chosen)
        messages.success(request, f"Retrying now: {cells.counted(count, 'conversation')}.")

    @admin.display(description="State")
    def state(self, delivery: Delivery) -> str:
        if delivery.due_at is None:
            return "Up to date"
        if delivery.is_claimed:
            return "Sending"
        return "Failing" if delivery.tries else "Waiting"

    @admin.display(description="Delivered through event")
    def through_shown(self, delivery: Delivery) -> str | None:
        return cells.number(delivery.through) if delivery.through >= 0 else None
