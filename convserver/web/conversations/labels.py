"""The page of a conversation's labels, and suggestions for labels."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from conversations import access
from conversations.models import SOURCE_TAG, Conversation, ConversationRef
from conversations.store import labels as stored
from conversations.store.labels import TAG_MAX_LENGTH, TAG_NAME_MAX_LENGTH
from convserver.web.listing import HIDDEN_LABELS
from convserver.web.pages import page, person

KNOWN_MAX = 200  # the labels that are suggested


class LabelForm(forms.Form):
    """A label: a name, and a value if it has a colon."""

    label = forms.CharField(max_length=TAG_NAME_MAX_LENGTH + 1 + TAG_MAX_LENGTH)

    def clean_label(self) -> tuple[str, str]:
        """Return the name and the value. Raise ValidationError for a name that is missing or too long."""
        try:
            return stored.read_label(self.cleaned_data["label"])
        except stored.BadLabel as error:
            raise forms.ValidationError(str(error)) from error


@require_http_methods(["GET", "HEAD", "POST"])
@person
def labels(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the labels of a conversation, or add or remove one."""
    conversation = access.writable(request.user, conversation_id)
    if request.method != "POST":
        return _page(request, conversation, LabelForm())
    if "remove" in request.POST:
        stored.set_tag(request.POST["remove"], {conversation: None})
        return redirect("conversation-labels", conversation.public_id)
    form = LabelForm(request.POST)
    if form.is_valid():
        name, value = form.cleaned_data["label"]
        refused = stored.set_tag(name, {conversation: value}).refused
        if not refused:
            return redirect("conversation-labels", conversation.public_id)
        form.add_error("label", next(iter(refused.values())))
    return _page(request, conversation, form, status=400)


@require_safe
@person
def known(request: HttpRequest) -> HttpResponse:
    """Return the labels, and the programs that conversations come from, as suggestions for fields."""
    names = stored.counted(request.user, limit=KNOWN_MAX)
    context = {
        "names": [each.label for each in names if each.label not in HIDDEN_LABELS],  # as rows show them
        "sources": [
            each.label.partition(":")[2]
            for each in stored.counted(request.user, name=SOURCE_TAG, limit=KNOWN_MAX)
        ],
    }
    return render(request, "web/known_labels.html", context)


def _page(
    request: HttpRequest, conversation: ConversationRef, form: LabelForm, *, status: int = 200
) -> HttpResponse:
    row = Conversation.objects.get(pk=conversation.pk)
    context = {
        "conversation": {"id": row.public_id, "title": row.shown_title},
        "labels": [
            {"name": name, "value": value, "query": f"{name}:{value}" if value else name}
            for name, value in row.tags.items()
        ],
        "form": form,
    }
    return page(request, "web/labels.html", context, status=status)
