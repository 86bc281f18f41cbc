"""The outbox: who is told of what happens, how far behind each is and why, and how to tell it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, F, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.http import HttpRequest
from django.utils.safestring import SafeString

from conversations.exceptions import ConversationError
from conversations.models import Conversation, normal_id
from convserver.admin import cells
from convserver.admin.base import ListAdmin, edited_columns, may_change, one_line
from convserver.admin.filters import YES_OR_NO, FormFilter, choice_field, text_field
from convserver.admin.resources import audit
from convserver.admin.widgets import PasswordInput, Textarea, TextInput
from sessions_app.models import Delivery, Endpoint, EndpointKind
from sessions_app.models.webhooks import DeliveryQuerySet
from sessions_app.webhooks import deliveries as outbox
from sessions_app.webhooks import transport
from sessions_app.webhooks.transport import Credentials

if TYPE_CHECKING:
    FormOfEndpoint = forms.ModelForm[Endpoint]
    FormOfDelivery = forms.ModelForm[Delivery]
else:
    FormOfEndpoint = FormOfDelivery = forms.ModelForm

KEPT = "Leave empty to keep the stored value."


def may_read_events(request: HttpRequest) -> bool:
    """Say whether the visitor may read what people have said, as anyone who sets an endpoint up can."""
    return request.user.has_perm("conversations.view_event")


class UnseenText(Textarea):
    """Lines that go in and never come out, not even beside a mistake in them."""

    def format_value(self, value: Any) -> str:
        """Return nothing."""
        return ""


class EndpointForm(FormOfEndpoint):
    """A webhook, with fields for what its requests carry."""

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
            "name",
            "base_url",
            "owner",
            "enabled",
            "event_buffer_size",
            "flush_delay_s",
            "timeout_s",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            for name in ("headers", "session_key"):
                if name in self.fields:
                    self.fields[name].help_text = f"{self.fields[name].help_text} {KEPT}"

    def clean_base_url(self) -> str:
        """Refuse what is no address, or none that may be asked."""
        try:
            return transport.checked_url(self.cleaned_data["base_url"])
        except transport.InvalidWebhook as error:
            raise forms.ValidationError(str(error)) from None

    def clean_headers(self) -> dict[str, str]:
        """Refuse what cannot be sent."""
        try:
            return transport.checked_headers(self.cleaned_data["headers"])
        except transport.InvalidWebhook as error:
            raise forms.ValidationError(str(error)) from None

    def clean_session_key(self) -> str:
        """Refuse what cannot travel in a header."""
        key: str = self.cleaned_data["session_key"]
        if not (key.isascii() and key.isprintable()):
            raise forms.ValidationError("A session key is printable ASCII.")
        return key

    def credentials(self) -> Credentials | None:
        """Return what to seal; None to keep what is."""
        entered = Credentials(self.cleaned_data["headers"], self.cleaned_data["session_key"])
        is_new = not self.instance.pk
        if is_new or self.cleaned_data["forget"]:
            return entered
        if not (entered.headers or entered.session_key):
            return None
        stored = transport.opened(self.instance)
        return Credentials(entered.headers or stored.headers, entered.session_key or stored.session_key)

    def clean(self) -> dict[str, Any]:
        """Refuse half of what is stored when no key opens the other half."""
        super().clean()
        if self._goes_elsewhere() and not self.cleaned_data.get("forget"):
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

    def _goes_elsewhere(self) -> bool:
        """Say whether stored headers or a key would be sent to a host that they were not entered for."""
        url = self.cleaned_data.get("base_url")
        has_stored = bool(self.instance.pk) and (self.instance.header_names or self.instance.has_session_key)
        if not url or not has_stored:
            return False
        return _origin(url) != _origin(self.initial.get("base_url", ""))


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def _of_endpoint(measure: Any, deliveries: DeliveryQuerySet) -> Subquery:
    """Return one number of an endpoint's deliveries, of those that wait: an index has these."""
    rows = deliveries.filter(endpoint_id=OuterRef("pk")).order_by().values("endpoint_id")
    return Subquery(rows.annotate(measured=measure).values("measured"))


@admin.register(Endpoint)
class EndpointAdmin(ListAdmin[Endpoint]):
    """Webhooks and hooks, the newest first; what their requests carry is not known here."""

    form = EndpointForm
    list_display = (
        "name",
        "kind",
        "whose",
        "enabled",
        "waiting_conversations",
        "waiting_events",
        "waiting_since",
        "failing_conversations",
        "last_error",
    )
    list_select_related = ("owner",)
    autocomplete_fields = ("owner",)
    actions = ("try_again",)
    shown = (
        "header_names_shown",
        "key_shown",
        "created",
        "waiting_conversations",
        "waiting_events",
        "waiting_since",
        "failing_conversations",
        "last_error",
        "skipped",
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let nobody hand out what they may not read."""
        return may_read_events(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Endpoint | None = None) -> bool:
        """Let nobody hand out what they may not read."""
        return may_read_events(request) and super().has_change_permission(request, obj)

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may have it tried again."""
        return may_change(request, Endpoint)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Endpoint]:
        """Return the rows with how far behind each is."""
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
        """Ask a hook for nothing: its code says what it is."""
        own = EndpointForm.Meta.fields
        if obj is None:
            return (*own, "headers", "session_key")
        if obj.kind == EndpointKind.HOOK:
            return ("name", "owner", "enabled", *self.shown[2:])
        secret = ("headers", "session_key", "forget") if self.has_change_permission(request, obj) else ()
        return (*own, *secret, *self.shown)

    def get_readonly_fields(self, request: HttpRequest, obj: Endpoint | None = None) -> Any:
        """Let an endpoint be told of the same user's conversations always."""
        if obj is None:
            return ()
        return ("owner", *(("name",) if obj.kind == EndpointKind.HOOK else ()), *self.shown)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Ask for texts on one line."""
        return one_line(db_field, super().formfield_for_dbfield(db_field, request, **kwargs))

    def save_model(
        self, request: HttpRequest, obj: Endpoint, form: forms.ModelForm[Endpoint], change: bool
    ) -> None:
        """Store the endpoint; what its requests carry is sealed, or stays as it is."""
        credentials: Credentials | None = getattr(form, "new_credentials", None)
        if credentials is not None:
            transport.seal_into(obj, credentials)
        if not change:
            outbox.begin(obj)
            return
        sealed = ["sealed", "header_names", "has_session_key"] if credentials is not None else []
        obj.save(update_fields=[*edited_columns(form), *sealed])
        outbox.announce()

    def get_deleted_objects(
        self, objs: Sequence[Endpoint] | QuerySet[Endpoint], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        """Name the endpoints alone: their cursors go with them, and there may be very many."""
        return [str(each) for each in objs], {"endpoints": len(objs)}, set(), []

    @admin.action(description="Retry now", permissions=["steer"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Endpoint]) -> None:
        """Let all that waits for the chosen endpoints be tried at once."""
        endpoints = list(queryset)
        count = outbox.try_again(Delivery.objects.filter(endpoint__in=[each.pk for each in endpoints]))
        for endpoint in endpoints:
            audit.record_change(request, endpoint, "Retried")
        messages.success(request, f"Retrying now: {_conversations(count)}.")

    @admin.display(description="Scope")
    def whose(self, endpoint: Endpoint) -> str:
        """Whose conversations it is told of."""
        return endpoint.owner.get_username() if endpoint.owner else "All conversations"

    @admin.display(description="Conversations pending")
    def waiting_conversations(self, endpoint: Any) -> str:
        """Of how many conversations something is left to be told."""
        return cells.number(endpoint.waiting or 0)

    @admin.display(description="Events pending")
    def waiting_events(self, endpoint: Any) -> str:
        """How many events are left to be told."""
        return cells.number(endpoint.behind or 0)

    @admin.display(description="Oldest pending since (UTC)")
    def waiting_since(self, endpoint: Any) -> SafeString | None:
        """Since when the oldest of it waits."""
        return cells.moment(endpoint.oldest)

    @admin.display(description="Failing")
    def failing_conversations(self, endpoint: Any) -> str:
        """For how many conversations the last try failed."""
        return cells.number(endpoint.failing or 0)

    @admin.display(description="Last error")
    def last_error(self, endpoint: Any) -> SafeString | None:
        """Why the newest failure failed."""
        return cells.narrow(endpoint.newest_error)

    @admin.display(description="Changes skipped until (UTC)")
    def skipped(self, endpoint: Endpoint) -> SafeString | None:
        """Until when titles, deletions and the like were not kept for it, since it was disabled for long."""
        return cells.moment(endpoint.skipped_until)

    @admin.display(description="Headers stored")
    def header_names_shown(self, endpoint: Endpoint) -> str:
        """The names of the headers that are sent."""
        return ", ".join(endpoint.header_names) or "None"

    @admin.display(description="Session key stored")
    def key_shown(self, endpoint: Endpoint) -> str:
        """Whether a key is sent."""
        return cells.yes_or_no(endpoint.has_session_key)

    @admin.display(description="Active since (UTC)")
    def created(self, endpoint: Endpoint) -> SafeString | None:
        """When it was made."""
        return cells.moment(endpoint.created_at)


class DeliveryFilterForm(forms.Form):
    """What deliveries can be looked for by."""

    endpoint = text_field("Endpoint")
    conversation = text_field("Conversation ID")
    pending = choice_field("Pending", YES_OR_NO)
    failing = choice_field("Failing", YES_OR_NO)


class DeliveryFilter(FormFilter[DeliveryQuerySet]):
    """Deliveries by endpoint, conversation and whether they fail."""

    form_class = DeliveryFilterForm

    def narrowed(self, rows: DeliveryQuerySet, wanted: dict[str, Any]) -> DeliveryQuerySet:
        """Return the deliveries with the wanted facts."""
        if "endpoint" in wanted:
            rows = rows.filter(endpoint__name=wanted["endpoint"])
        if "conversation" in wanted:
            rows = rows.filter(conversation__public_id=wanted["conversation"])
        if "pending" in wanted:
            rows = rows.filter(due_at__isnull=wanted["pending"] == "no")
        if "failing" in wanted:
            is_failing = Q(due_at__isnull=False, tries__gt=0)
            rows = rows.filter(is_failing if wanted["failing"] == "yes" else ~is_failing)
        return rows


class DeliveryForm(FormOfDelivery):
    """A conversation to be told again, and from where."""

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
        """Refuse what there is not, and what the endpoint may not be told."""
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
        """Take one that is there for one to be told again."""


@admin.register(Delivery)
class DeliveryAdmin(ListAdmin[Delivery]):
    """How far each endpoint has been told of each conversation."""

    form = DeliveryForm
    list_display = (
        "to",
        "of",
        "state",
        "through_shown",
        "waiting_events",
        "problem",
        "next_try",
        "delivered",
    )
    list_filter = (DeliveryFilter,)
    list_select_related = ("endpoint", "conversation")
    actions = ("try_again",)
    shown = ("to", "of_conversation", *list_display[2:], "tries", "failed")

    def get_queryset(self, request: HttpRequest) -> DeliveryQuerySet:
        """Return the rows, each with whether a process is delivering."""
        rows: DeliveryQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_claim()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let nobody hand out what they may not read."""
        return may_read_events(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Delivery | None = None) -> bool:
        """Let nobody hand out what they may not read."""
        return may_read_events(request) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Delivery | None = None) -> bool:
        """Nobody may: the endpoint would be told from somewhere else."""
        return False

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may have it tried again."""
        return may_change(request, Delivery)

    def get_fields(self, request: HttpRequest, obj: Delivery | None = None) -> Any:
        """Ask what is to be told again, and from where."""
        if obj is None:
            return ("endpoint", "conversation_id", "first")
        return (*self.shown, "first") if self.has_change_permission(request, obj) else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Delivery | None = None) -> Any:
        """Let nothing else be changed."""
        return self.shown if obj else ()

    def get_form(
        self, request: HttpRequest, obj: Delivery | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Ask for the conversation only where it is not known."""
        form = super().get_form(request, obj, change=change, **kwargs)
        if obj is not None:
            form.base_fields.pop("conversation_id", None)
        return form

    def save_model(
        self, request: HttpRequest, obj: Delivery, form: forms.ModelForm[Delivery], change: bool
    ) -> None:
        """Tell the conversation again."""
        conversation: Conversation = form.chosen  # type: ignore[attr-defined]
        stored = outbox.replay(obj.endpoint, conversation.ref, first=form.cleaned_data["first"])
        obj.pk, obj.conversation = stored.pk, conversation

    @admin.action(description="Retry now", permissions=["steer"])
    def try_again(self, request: HttpRequest, queryset: DeliveryQuerySet) -> None:
        """Let the chosen deliveries be tried at once."""
        chosen = Delivery.objects.filter(pk__in=list(queryset.values_list("pk", flat=True)))
        messages.success(request, f"Retrying now: {_conversations(outbox.try_again(chosen))}.")

    @admin.display(description="Endpoint")
    def to(self, delivery: Delivery) -> SafeString | None:
        """Who is told."""
        return cells.narrow(delivery.endpoint.name)

    @admin.display(description="Conversation")
    def of(self, delivery: Delivery) -> SafeString | None:
        """Of what."""
        return cells.narrow(str(delivery.conversation))

    @admin.display(description="Conversation")
    def of_conversation(self, delivery: Delivery) -> SafeString:
        """Of what, with the way there."""
        return cells.link(delivery.conversation)

    @admin.display(description="State")
    def state(self, delivery: Delivery) -> str:
        """Whether something is left to be told."""
        if delivery.due_at is None:
            return "Up to date"
        if delivery.is_claimed:
            return "Sending"
        return "Failing" if delivery.tries else "Waiting"

    @admin.display(description="Delivered through event")
    def through_shown(self, delivery: Delivery) -> str | None:
        """The newest event that it has taken."""
        return cells.number(delivery.through) if delivery.through >= 0 else None

    @admin.display(description="Events pending")
    def waiting_events(self, delivery: Delivery) -> str:
        """How many are left to be told."""
        return cells.number(max(delivery.known - delivery.through, 0))

    @admin.display(description="Last error")
    def problem(self, delivery: Delivery) -> SafeString | None:
        """Why the last try failed."""
        return cells.narrow(delivery.last_error)

    @admin.display(description="Next attempt (UTC)")
    def next_try(self, delivery: Delivery) -> SafeString | None:
        """When it is tried next."""
        return cells.moment(delivery.due_at)

    @admin.display(description="Last success (UTC)")
    def delivered(self, delivery: Delivery) -> SafeString | None:
        """When it last took something."""
        return cells.moment(delivery.delivered_at)

    @admin.display(description="Last failure (UTC)")
    def failed(self, delivery: Delivery) -> SafeString | None:
        """When the last try failed."""
        return cells.moment(delivery.failed_at)


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"
