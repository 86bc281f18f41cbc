"""The tables of the log and the store, their indexes for searching, and the rows that these begin with."""

from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import CASCADE, PROTECT, SET_NULL
from django.utils import timezone

from conversations.search import titles
from conversations.search.fulltext import index

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
CONVERSATION = "conversations.conversation"
USER = settings.AUTH_USER_MODEL


def create_indexes(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Create the indexes of words and of titles, which are tables and triggers of the engine."""
    connection = schema_editor.connection
    index.create(connection)
    titles.create(connection)
    apps.get_model("conversations", "SearchProgress").objects.using(connection.alias).create()


def drop_indexes(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Drop them again."""
    titles.drop(schema_editor.connection)
    index.drop(schema_editor.connection)


class Migration(migrations.Migration):
    initial = True
    # A database that has all of these goes on; one with a part of them is refused (engines.upgrades).
    replaces = [
        ("conversations", "0001_initial"),
        ("conversations", "0002_list_indexes"),
        ("conversations", "0003_top_level_index"),
        ("conversations", "0004_version_index"),
        ("conversations", "0005_search"),
        ("conversations", "0006_event_time_index"),
        ("conversations", "0007_title_index"),
        ("conversations", "0008_children_index"),
        ("conversations", "0009_deleted_index"),
        ("conversations", "0010_guard_repairs_and_write_probe"),
        ("conversations", "0011_change_numbers"),
        ("conversations", "0012_stored_bytes"),
        ("conversations", "0013_guarded_inputs"),
        ("conversations", "0014_labels"),
        ("conversations", "0015_verification"),
        ("conversations", "0016_purges"),
    ]
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "Conversation",
            [
                ("id", KEY.clone()),
                ("public_id", models.CharField(max_length=100, unique=True)),
                (
                    "version",
                    models.CharField(choices=[("V0", "V0"), ("V1", "V1")], default="V0", max_length=20),
                ),
                ("title", models.TextField(blank=True, null=True)),
                ("repository", models.TextField(blank=True, null=True)),
                ("branch", models.TextField(blank=True, null=True)),
                ("provider", models.TextField(blank=True, null=True)),
                ("trigger", models.TextField(blank=True, null=True)),
                ("pr_number", models.JSONField(blank=True, default=list)),
                ("llm_model", models.TextField(blank=True, null=True)),
                ("accumulated_cost", models.FloatField(default=0.0)),
                ("prompt_tokens", models.BigIntegerField(default=0)),
                ("completion_tokens", models.BigIntegerField(default=0)),
                ("total_tokens", models.BigIntegerField(default=0)),
                ("tags", models.JSONField(blank=True, default=dict)),
                ("forked_at", models.BigIntegerField(blank=True, null=True)),
                ("next_seq", models.BigIntegerField(default=0)),
                ("head_digest", models.CharField(blank=True, default="", max_length=64)),
                ("loop_epoch", models.BigIntegerField(default=0)),
                ("asked_through", models.BigIntegerField(default=-1)),
                ("answered_through", models.BigIntegerField(default=-1)),
                ("last_message", models.CharField(blank=True, default="", max_length=200)),
                ("last_message_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(default=timezone.now)),
                ("listed_at", models.DateTimeField(default=timezone.now)),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "forked_from",
                    models.ForeignKey(CONVERSATION, PROTECT, blank=True, null=True, related_name="forks"),
                ),
                ("owner", models.ForeignKey(USER, PROTECT, db_index=False, related_name="conversations")),
                (
                    "parent",
                    models.ForeignKey(
                        CONVERSATION, PROTECT, blank=True, db_index=False, null=True, related_name="children"
                    ),
                ),
                ("listed_in", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("guards_inputs", models.BooleanField(blank=True, editable=False, null=True)),
                ("damage", models.JSONField(blank=True, editable=False, null=True)),
                ("purged_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("deleted_at", None)),
                        fields=["owner", "-created_at", "-id"],
                        name="conversation_list",
                    ),
                    models.Index(fields=["owner", "listed_at"], name="conversation_listed"),
                    models.Index(
                        condition=models.Q(("asked_through__gt", models.F("answered_through"))),
                        fields=["id"],
                        name="conversation_unanswered",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at", None), ("repository__isnull", False)),
                        fields=["owner", "repository", "-created_at", "-id"],
                        name="conversation_by_repository",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at", None), ("trigger__isnull", False)),
                        fields=["owner", "trigger", "-created_at", "-id"],
                        name="conversation_by_trigger",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at", None), ("parent", None)),
                        fields=["owner", "-created_at", "-id"],
                        name="conversation_top_level",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at", None), ("parent", None)),
                        fields=["owner", "version", "-created_at", "-id"],
                        name="conversation_by_version",
                    ),
                    models.Index(
                        condition=models.Q(("parent__isnull", False)),
                        fields=["parent", "owner"],
                        name="conversation_children",
                    ),
                    models.Index(
                        condition=models.Q(("listed_in__isnull", False)),
                        fields=["owner", "listed_in"],
                        name="conversation_changed",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at", None), ("llm_model__isnull", False)),
                        fields=["owner", "llm_model", "-created_at", "-id"],
                        name="conversation_by_model",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False), ("purged_at__isnull", True)),
                        fields=["owner", "-deleted_at", "-id"],
                        name="conversation_restorable",
                    ),
                    models.Index(
                        condition=models.Q(("deleted_at__isnull", False), ("purged_at__isnull", True)),
                        fields=["deleted_at", "id"],
                        name="conversation_awaits_purge",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "CreationParameters",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION,
                        PROTECT,
                        primary_key=True,
                        related_name="creation_parameters",
                        serialize=False,
                    ),
                ),
                ("parameters", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            "Event",
            [
                ("id", KEY.clone()),
                ("seq", models.BigIntegerField()),
                ("event_id", models.TextField()),
                ("dialect", models.CharField(choices=[("v0", "v0"), ("v1", "v1")], max_length=20)),
                ("type", models.TextField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("message", "message"),
                            ("tool_call", "tool_call"),
                            ("tool_result", "tool_result"),
                            ("state", "state"),
                            ("error", "error"),
                            ("system", "system"),
                            ("summary", "summary"),
                            ("turn", "turn"),
                            ("other", "other"),
                        ],
                        max_length=20,
                    ),
                ),
                ("source", models.TextField()),
                ("timestamp", models.DateTimeField()),
                ("cause_seq", models.BigIntegerField(null=True)),
                ("turn_id", models.TextField(null=True)),
                ("epoch", models.BigIntegerField(null=True)),
                ("tool_call_id", models.TextField(null=True)),
                ("parent_event_id", models.TextField(null=True)),
                ("sender_id", models.BigIntegerField(null=True)),
                ("wire_id", models.BigIntegerField(null=True)),
                ("brings_envelope", models.BooleanField(default=False)),
                ("hidden", models.BooleanField(default=False)),
                ("is_input", models.BooleanField(default=False)),
                ("size", models.IntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("received_at", models.DateTimeField()),
                ("text", models.TextField(default="")),
                ("payload", models.TextField()),
                ("conversation", models.ForeignKey(CONVERSATION, PROTECT, db_index=False)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("wire_id__isnull", False)),
                        fields=["conversation", "wire_id"],
                        name="event_wire_id",
                    ),
                    models.Index(
                        condition=models.Q(("turn_id__isnull", False)),
                        fields=["conversation", "turn_id"],
                        name="event_turn",
                    ),
                    models.Index(fields=["conversation", "timestamp", "seq"], name="event_time"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "seq"), name="event_seq_once"),
                    models.UniqueConstraint(fields=("conversation", "event_id"), name="event_id_once"),
                ],
            },
        ),
        migrations.CreateModel(
            "Purge",
            [
                ("id", KEY.clone()),
                ("requested_by", models.TextField()),
                ("reason", models.TextField()),
                ("started_at", models.DateTimeField(default=timezone.now)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("conversation", models.ForeignKey(CONVERSATION, PROTECT, related_name="purges")),
                ("bytes", models.BigIntegerField(db_default=0, default=0)),
                ("erased_at", models.DateTimeField(blank=True, null=True)),
                ("events", models.BigIntegerField(db_default=0, default=0)),
                ("last_digest", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("through", models.BigIntegerField(db_default=-1, default=-1)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)),
                        fields=["id"],
                        name="purge_unfinished",
                    ),
                    models.Index(
                        condition=models.Q(("erased_at__isnull", True)), fields=["id"], name="purge_unerased"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "SearchProgress",
            [
                ("id", KEY.clone()),
                ("through", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "TitleChange",
            [
                ("conversation_id", models.BigIntegerField(primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            "GuardRepair",
            [
                ("id", KEY.clone()),
                ("guards", models.TextField()),
                ("host", models.TextField()),
                ("pid", models.BigIntegerField()),
                ("repaired_at", models.DateTimeField(default=timezone.now)),
            ],
        ),
        migrations.CreateModel(
            "WriteProbe",
            [
                ("id", KEY.clone()),
                ("filler", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            "ChangeNumber",
            [
                ("id", KEY.clone()),
                ("number", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            "StorageProgress",
            [
                ("id", KEY.clone()),
                ("through", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "StoredBytes",
            [
                (
                    "owner",
                    models.OneToOneField(
                        USER, CASCADE, primary_key=True, related_name="stored_bytes", serialize=False
                    ),
                ),
                ("total", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "Label",
            [
                ("id", KEY.clone()),
                ("name", models.TextField()),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("is_deleted", models.BooleanField()),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="labels"),
                ),
                ("owner", models.ForeignKey(USER, CASCADE, db_index=False, related_name="+")),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["owner", "text", "is_deleted", "-created_at", "-conversation"],
                        name="label_list",
                    ),
                    models.Index(fields=["owner", "name", "text"], name="label_names"),
                    models.Index(
                        condition=models.Q(("text", models.F("name"))),
                        fields=["owner", "is_deleted", "text", "name"],
                        name="label_name_alone",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("conversation", "text"), name="label_once")],
            },
        ),
        migrations.CreateModel(
            "VerificationRun",
            [
                ("id", KEY.clone()),
                (
                    "occasion",
                    models.CharField(
                        choices=[
                            ("start", "start of the server"),
                            ("night", "every night"),
                            ("command", "command"),
                        ],
                        max_length=10,
                    ),
                ),
                ("covers", models.TextField()),
                ("started_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(default=timezone.now)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "not finished"),
                            ("whole", "whole"),
                            ("damaged", "damaged"),
                            ("failed", "could not run"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                ("conversations", models.BigIntegerField(default=0)),
                ("events", models.BigIntegerField(default=0)),
                ("expected", models.BigIntegerField(default=0)),
                ("problems", models.BigIntegerField(default=0)),
                ("newest_event", models.BigIntegerField(default=0)),
                ("detail", models.TextField(blank=True, default="")),
                ("host", models.TextField()),
                ("pid", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "verification",
            },
        ),
        migrations.CreateModel(
            "VerificationFinding",
            [
                ("id", KEY.clone()),
                ("seq", models.BigIntegerField(null=True)),
                (
                    "problem",
                    models.CharField(
                        choices=[
                            ("missing", "event missing"),
                            ("doubled_seq", "two events at one place"),
                            ("doubled_id", "two events with one id"),
                            ("changed", "event changed"),
                            ("size", "wrong size"),
                            ("counter", "wrong counter"),
                            ("head", "wrong end of the log"),
                            ("unpaired_call", "call without a result"),
                            ("cause", "answer to nothing"),
                            ("column", "column unlike the payload"),
                            ("rewritten", "history rewritten"),
                            ("facts", "facts changed"),
                            ("gone", "conversation gone"),
                            ("orphan", "event without a conversation"),
                            ("lease", "wrong lease"),
                            ("guard", "guard missing"),
                            ("search", "wrong entry of the search index"),
                            ("title", "wrong entry of the index of titles"),
                        ],
                        max_length=20,
                    ),
                ),
                ("detail", models.TextField()),
                ("found_at", models.DateTimeField(default=timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, null=True, related_name="verification_findings"),
                ),
                (
                    "run",
                    models.ForeignKey(
                        "conversations.verificationrun", SET_NULL, null=True, related_name="findings"
                    ),
                ),
            ],
            options={
                "verbose_name": "damaged place",
                "indexes": [models.Index(fields=["problem"], name="finding_problem")],
            },
        ),
        migrations.RunPython(create_indexes, drop_indexes),
    ]
