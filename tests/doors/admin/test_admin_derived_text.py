"""Staff who may not read events find no word of a message in the admin, on any page, in any column."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from html import unescape

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.test import Client as Browser
from django.urls import reverse
from django.utils import timezone

from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationRef,
    DamageKind,
    Purge,
    VerificationFinding,
    VerificationRun,
)
from conversations.store import changes, creation, deletion, forks
from sessions_app.agents.demo import DemoAgent
from sessions_app.loops.inputs import titles
from sessions_app.models import (
    AgentLoop,
    ApiToken,
    BackupOutcome,
    BackupRecord,
    Connection,
    Delivery,
    ExecutionStatus,
    Feedback,
    Grant,
    ImportedConversation,
    ImportRun,
    LoopStatus,
    ModelUse,
    ProcessRecord,
    RemoteProgram,
    Repair,
    RetentionPolicy,
    Scope,
    SecretKind,
    UserSettings,
)
from sessions_app.settings.user_settings import store_secret
from sessions_app.webhooks import transport
from tests.doors.admin.test_admin import LIST, boss, log_in, of, shown, staff, text_of
from tests.support.data.events import event

__all__ = ["boss", "staff"]

pytestmark = pytest.mark.one_engine

MARK = "quokka"
"""A word that only messages contain, and what is made of them."""
PURGE = LIST + "purge/"


class TitlingAgent(DemoAgent):
    """Answers with the mark."""

    async def complete(self, messages: object) -> str:
        return f"About a {MARK}"


@pytest.fixture
def provisional(alice: User) -> ConversationRef:
    """A conversation whose title is the beginning of its first message."""
    made = creation.create(alice, conversation_id="provisional")
    writes.append(made, [event(f"{MARK} first"), event(f"{MARK} second")])
    titles.set_provisional_title(made)
    return made


@pytest.fixture
def all_derived(alice: User, provisional: ConversationRef) -> list[ConversationRef]:
    """Conversations with a provisional title, one by a model, and that of another conversation."""
    asked = creation.create(alice, conversation_id="by-a-model")
    writes.append(asked, [event("hello")])
    async_to_sync(titles.set_generated_title)(asked, TitlingAgent())
    title = Conversation.objects.get(pk=provisional.pk).title
    fork = forks.fork(alice, provisional, conversation_id="fork", title=title)
    deleted = forks.fork(alice, provisional, conversation_id="deleted", title=title)
    deletion.soft_delete(deleted)
    found = [provisional, asked, fork, deleted]
    rows = Conversation.objects.with_pks(each.pk for each in found)
    assert all(MARK in (row.title or "") for row in rows)
    return found


@pytest.fixture
def reader_of_all_else() -> Browser:
    """A member of staff with every permission but the one to read events."""
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.exclude(codename="view_event"))
    return log_in(user)


@pytest.fixture
def around(alice: User, all_derived: list[ConversationRef]) -> None:
    """At least one row of every table that the admin shows, as many as can be about these conversations."""
    endpoint = transport.create("https://example.org")
    run = VerificationRun.objects.create(occasion="command", host="h", pid=1)
    for number, each in enumerate(all_derived):
        pk = each.pk
        AgentLoop.objects.create(
            conversation_id=pk,
            status=LoopStatus.RUNNING,
            execution_status=ExecutionStatus.RUNNING,
            turn_id="t",
            decision=False,
        )
        Connection.objects.create(conversation_id=pk, user=alice, door="native")
        RemoteProgram.objects.create(conversation_id=pk, user=alice, name=f"helper {number}")
        Repair.objects.create(conversation_id=pk, turn_id="t", host="h", pid=1)
        Delivery.objects.create(endpoint=endpoint, conversation_id=pk, last_error="Status 500")
        ModelUse.objects.create(user=alice, conversation_id=pk, model="m", day=date(2026, 11, 1), calls=1)
        VerificationFinding.objects.create(
            run=run, conversation_id=pk, problem=DamageKind.COLUMN, detail="Another kind."
        )
        Feedback.objects.create(conversation_id=pk, polarity="positive", seq=0, reason="It is right.")
        Purge.objects.create(conversation_id=pk, requested_by="boss", reason="by staff")
        grant = Grant(scopes=frozenset(Scope), conversation=each)
        ApiToken.issue(alice.pk, f"token {number}", grant)
    imports = ImportRun.objects.create(user=alice, file_name="chats.zip", size=9)
    ImportedConversation.objects.create(run=imports, number=1, source_id="1", title=f"A {MARK}")
    RetentionPolicy.objects.create(name="old", older_than_days=1)
    UserSettings.objects.create(user=alice)
    store_secret(alice.pk, SecretKind.CUSTOM, name="s", value="v")
    Group.objects.create(name="readers")
    now = timezone.now()
    ProcessRecord.objects.create(role="server", host="h", pid=1, started=1.0, began_at=now, seen_at=now)
    BackupRecord.objects.create(began_at=now, host="h", place="/backups/1", outcome=BackupOutcome.MADE)


def addresses() -> Iterator[str]:
    """Yield every page of the admin that has an address of its own."""
    yield reverse("admin:index")
    yield f"{reverse('admin:search')}?s={MARK}"
    yield f"{reverse('admin:search')}?s=Conversation"
    for model in admin.site._registry:
        yield from _of_table(model)


def _of_table(model: type[Model]) -> Iterator[str]:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    rows = model._default_manager.all()
    assert rows.exists(), f"There is no row of {name} to look at."
    yield reverse(f"{name}_changelist")
    yield f"{reverse(f'{name}_changelist')}?q=Conversation"
    for page in ("change", "history", "delete"):
        for row in rows:
            yield reverse(f"{name}_{page}", args=[row.pk])
    yield reverse(f"{name}_add")


def test_no_page_shows_what_was_made_of_messages_to_staff_who_may_not_read_them(
    reader_of_all_else: Browser,
    all_derived: list[ConversationRef],
    around: None,
    subtests: pytest.Subtests,
) -> None:
    acts = {
        LIST: [("start", each.pk) for each in all_derived],
        "/admin/sessions_app/agentloop/": [("stop", each.pk) for each in all_derived],
    }
    for path, chosen in acts.items():
        for action, pk in chosen:
            answer = reader_of_all_else.post(
                path, {"action": action, "_selected_action": [str(pk)], "index": "0"}, follow=True
            )
            with subtests.test(path=path, action=action, pk=pk):
                assert answer.status_code == 200
                assert MARK not in answer.content.decode()
    assert LogEntry.objects.exists()
    purges = "&".join(f"pk={each.pk}" for each in all_derived)
    autocomplete = "/admin/autocomplete/?app_label=sessions_app&model_name=agentloop&field_name=conversation"
    fixed = [f"{PURGE}?{purges}", f"{autocomplete}&term=quok", f"{autocomplete}&term=prov"]
    events = [of(each, rest) for each in all_derived for rest in ("events/", "events/0/", "export/")]
    for path in [*addresses(), *fixed, *events]:
        with subtests.test(path=path):
            answer = reader_of_all_else.get(path, follow=True)
            said = unescape(answer.content.decode())
            assert answer.status_code in (200, 403)
            # What was searched for stays in its field.
            assert MARK not in said.replace(f'value="{MARK}"', "").replace(f"s={MARK}", "")


def test_searching_by_title_finds_titles_that_users_chose_alone(
    reader_of_all_else: Browser, alice: User, all_derived: list[ConversationRef]
) -> None:
    creation.create(alice, conversation_id="chosen", title="The wombat budget")
    assert shown(reader_of_all_else.get(f"{LIST}?q=wombat")) == ["The wombat budget"]
    assert shown(reader_of_all_else.get(f"{LIST}?q={MARK[:4]}")) == []
    assert shown(reader_of_all_else.get(f"{LIST}?q=by-a")) == ["Conversation by-a-model"]


def test_a_title_that_a_user_gives_in_place_of_a_made_one_is_shown(
    reader_of_all_else: Browser, provisional: ConversationRef
) -> None:
    assert shown(reader_of_all_else.get(LIST)) == ["Conversation provisional"]
    changes.retitle(provisional, "The wombat budget")
    assert shown(reader_of_all_else.get(LIST)) == ["The wombat budget"]
    assert shown(reader_of_all_else.get(f"{LIST}?q=wombat")) == ["The wombat budget"]


def test_a_made_title_is_shown_beside_the_events_where_reading_it_is_recorded(
    boss: Browser, provisional: ConversationRef
) -> None:
    assert MARK not in text_of(boss.get(of(provisional)))
    assert not LogEntry.objects.exists()
    assert f"{MARK} first" in text_of(boss.get(of(provisional, "events/")))
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(provisional.pk), "Read events 0 to 1")
    assert entry.object_repr == "Conversation provisional"
