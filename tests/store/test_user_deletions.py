"""Deleting a person removes what is theirs everywhere, touches no other user's, and goes on after a crash."""

from __future__ import annotations

import io
import zipfile
from datetime import date
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Purge
from conversations.store import changes, creation
from sessions_app.encryption import seal
from sessions_app.live import drafts, marks
from sessions_app.live.drafts import Edit
from sessions_app.models import (
    AccessRemoval,
    AllowedTool,
    ApiToken,
    Attachment,
    Endpoint,
    FollowedProgram,
    Grant,
    ImportRun,
    ImportState,
    ModelUse,
    RetentionPolicy,
    Secret,
    SecretKind,
    StartTask,
    UserDeletion,
    UserSettings,
)
from sessions_app.retention import places, rounds, user_deletions
from sessions_app.retention.failures import RetentionFailures
from sessions_app.retention.user_deletions import UserNotDeletable
from sessions_app.storage.attachments import NewFile, attach
from tests.support.data.events import event
from tests.support.data.residues import columns_with, files_with

pytestmark = pytest.mark.no_second_try

NAME = "quibblezorp"
"""The name of the person, which nothing else in any database has."""


@pytest.fixture
def person(database: None) -> User:
    """A user with the name in everything that can hold one, and two conversations."""
    user = User.objects.create_user(NAME, f"{NAME}@example.org", "a password", first_name=NAME)
    user.groups.add(Group.objects.create(name="readers"))
    for number in range(2):
        _conversation_of(user, f"of-a-person-{number}")
    token, _ = ApiToken.issue(user.pk, f"laptop of {NAME}", Grant())
    Secret.objects.create(user=user, kind=SecretKind.CUSTOM, name=NAME, value=seal(NAME))
    AllowedTool.objects.create(user=user, name=f"call {NAME}", source="workspace")
    UserSettings.objects.create(user=user, email=NAME, llm_model=NAME)
    FollowedProgram.objects.create(user=user, format="codex", problem=NAME)
    StartTask.objects.create(user=user, status="READY", request={"title": NAME})
    endpoint = Endpoint.objects.create(
        name=NAME, base_url=f"https://{NAME}.org", owner=user, sealed=seal("{}")
    )
    RetentionPolicy.objects.create(name=f"old ones of {NAME}", older_than_days=9, owner=user)
    ImportRun.objects.create(user=user, file_name=f"{NAME}.zip", size=1, state=ImportState.DONE)
    for row in (user, token, endpoint):
        LogEntry.objects.create(
            user=user,
            content_type=ContentType.objects.get_for_model(row),
            object_id=str(row.pk),
            object_repr=NAME,
            action_flag=CHANGE,
        )
    return user


def _conversation_of(user: User, public_id: str) -> ConversationRef:
    conversation = creation.create(user, conversation_id=public_id)
    writes.append(conversation, [event(f"I am {NAME}")])
    changes.retitle(conversation, f"About {NAME}")
    attach(conversation, [NewFile(name=f"{NAME}.txt", content=NAME.encode())])
    drafts.write(user.pk, conversation, Edit(text=NAME, images=[], version=0))
    marks.mark(user.pk, conversation, pinned=True)
    ModelUse.objects.create(user=user, conversation_id=conversation.pk, model="m", day=date.min, calls=1)
    return conversation


def delete(user: User) -> UserDeletion:
    """Delete a person from beginning to end."""
    deletion = user_deletions.begin(user, requested_by="tests")
    while user_deletions.is_any_unfinished():
        rounds.begin_due()
        rounds.finish_all()
    deletion.refresh_from_db()
    return deletion


def test_nothing_that_names_a_deleted_person_is_left(person: User) -> None:
    assert columns_with(NAME)
    deletion = delete(person)
    assert rounds.has_unerased()
    assert rounds.erase(rewrites=connection.vendor == "postgresql")
    assert not rounds.has_unerased()
    assert columns_with(NAME) == []
    assert files_with(NAME) == []
    row = User.objects.get(pk=person.pk)
    assert (row.username, row.is_active, row.has_usable_password()) == (f"deleted-{person.pk}", False, False)
    assert not row.groups.exists()
    assert deletion.finished_at is not None
    assert {purge.reason for purge in Purge.objects.all()} == {user_deletions.REASON}
    assert Conversation.objects.filter(owner=row, purged_at=None).count() == 0
    assert ModelUse.objects.filter(user=row).count() == 2


def test_another_users_rows_stay_as_they_are(
    person: User, alice: User, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event("still here")])
    token, _ = ApiToken.issue(alice.pk, "mine", Grant())
    attach(conversation, [NewFile(name="mine.txt", content=b"mine")])
    run = ImportRun.objects.create(
        user=alice, by=person, file_name="hers.zip", size=1, state=ImportState.DONE
    )
    delete(person)
    assert Event.objects.of(conversation).count() == 1
    assert Attachment.objects.of(conversation).count() == 1
    assert ApiToken.objects.filter(pk=token.pk).exists()
    assert ImportRun.objects.filter(pk=run.pk).exists()
    assert User.objects.get(pk=alice.pk).is_active


def test_the_account_is_closed_before_anything_is_removed(person: User) -> None:
    user_deletions.begin(person, requested_by="tests")
    row = User.objects.get(pk=person.pk)
    assert (row.username, row.email, row.first_name) == (f"deleted-{person.pk}", "", "")
    assert AccessRemoval.objects.get(user=row).key_rotation == 1
    assert Event.objects.count() == 2


def test_a_deletion_that_was_interrupted_is_continued(person: User) -> None:
    deletion = user_deletions.begin(person, requested_by="tests")
    assert user_deletions.go_on(1, RetentionFailures()) == 1
    again = user_deletions.begin(User.objects.get(pk=person.pk), requested_by="another")
    assert (again.pk, again.requested_by) == (deletion.pk, "tests")
    assert delete(person).finished_at is not None
    assert Event.objects.count() == 0


def test_what_is_written_for_the_person_after_the_end_is_removed_as_well(person: User) -> None:
    delete(person)
    _conversation_of(person, "written-late")
    rounds.begin_due()
    rounds.finish_all()
    assert Event.objects.count() == 0
    assert not Conversation.objects.filter(owner=person, purged_at=None).exists()


def test_an_import_that_runs_is_cancelled_and_waited_for(person: User) -> None:
    run = ImportRun.objects.create(user=person, file_name="x.zip", size=1, state=ImportState.RUNNING, slot=0)
    deletion = user_deletions.begin(person, requested_by="tests")
    for _ in range(3):
        rounds.begin_due()
        rounds.finish_all()
    run.refresh_from_db()
    deletion.refresh_from_db()
    assert (run.is_cancelled, deletion.finished_at) == (True, None)
    ImportRun.objects.filter(pk=run.pk).update(state=ImportState.CANCELLED, slot=None)
    rounds.begin_due()
    deletion.refresh_from_db()
    assert deletion.finished_at is not None
    assert not ImportRun.objects.exists()


def test_the_only_superuser_cannot_be_deleted(database: None) -> None:
    root = User.objects.create_superuser("root", password="a password")
    with pytest.raises(UserNotDeletable, match="only superuser"):
        user_deletions.begin(root, requested_by="tests")
    assert not UserDeletion.objects.exists()
    User.objects.create_superuser("another", password="a password")
    assert delete(root).finished_at is not None


def test_every_table_that_refers_to_a_user_says_what_a_deletion_does_to_it() -> None:
    pointing = {
        model._meta.label
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.concrete_fields
        if field.related_model is User
    }
    removed = {label for label in places.OF_USER if label in pointing}
    assert removed | set(places.STAYS_OF_USER) >= pointing
    assert set(places.OF_USER).isdisjoint(places.STAYS_OF_USER)
    assert set(places.STAYS_OF_USER) <= pointing


def test_the_command_exports_and_deletes(person: User, tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("delete_user", NAME, "--dry-run", stdout=out)
    assert out.getvalue() == f"To delete: user '{NAME}' and 2 conversations.\n"
    with pytest.raises(CommandError, match="Add --yes"):
        call_command("delete_user", NAME, stdout=out)
    assert not UserDeletion.objects.exists()
    file = tmp_path / "theirs.zip"
    call_command("delete_user", NAME, "--yes", "--export", str(file), stdout=out)
    assert f"Deleted: the account is deleted-{person.pk} now" in out.getvalue()
    assert NAME in b"".join(map(zipfile.ZipFile(file).read, zipfile.ZipFile(file).namelist())).decode()
    assert columns_with(NAME) == []
    with pytest.raises(CommandError, match="There is no user"):
        call_command("delete_user", NAME, "--yes", stdout=out)


def test_nothing_is_deleted_if_the_export_fails(person: User, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("delete_user", NAME, "--yes", "--export", str(tmp_path / "no" / "x.zip"))
    assert User.objects.get(pk=person.pk).username == NAME
