"""The tables of tokens, loops, agents, settings, webhooks and imports."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT, SET_NULL
from django.db.models.functions import Now
from django.utils import timezone

from conversations.models.ids import new_public_id
from sessions_app.encryption import EncryptedTextField
from sessions_app.models.live import new_connection_id
from sessions_app.models.v1 import default_workspace, never_confirm, sealed_nothing

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
CONVERSATION = "conversations.conversation"
USER = settings.AUTH_USER_MODEL


class Migration(migrations.Migration):
    initial = True
    # A database that has all of these goes on; one with a part of them is refused (engines.upgrades).
    replaces = [
        ("sessions_app", "0001_initial"),
        ("sessions_app", "0002_settings_secrets_repairs"),
        ("sessions_app", "0003_loop_end"),
        ("sessions_app", "0004_feedback_attachments"),
        ("sessions_app", "0005_v1_faces"),
        ("sessions_app", "0006_outbox"),
        ("sessions_app", "0007_loop_decided"),
        ("sessions_app", "0008_marks_drafts"),
        ("sessions_app", "0009_own_secrets_and_skipped_facts"),
        ("sessions_app", "0010_loop_doing_index"),
        ("sessions_app", "0011_recorded_answers"),
        ("sessions_app", "0012_loop_command"),
        ("sessions_app", "0013_draft_change_numbers"),
        ("sessions_app", "0014_quotas"),
        ("sessions_app", "0015_access"),
        ("sessions_app", "0016_setup_keys"),
        ("sessions_app", "0017_tool_server_keys"),
        ("sessions_app", "0018_loop_without_desired"),
        ("sessions_app", "0019_endpoint_name"),
        ("sessions_app", "0020_model_use"),
        ("sessions_app", "0021_unfinished_reasoning"),
        ("sessions_app", "0022_tool_programs"),
        ("sessions_app", "0023_run_options"),
        ("sessions_app", "0024_turn_agent"),
        ("sessions_app", "0025_input_receipts"),
        ("sessions_app", "0026_tool_runs"),
        ("sessions_app", "0027_run_meter"),
        ("sessions_app", "0028_remote_programs"),
        ("sessions_app", "0029_housekeeping_rounds"),
        ("sessions_app", "0030_import_runs"),
        ("sessions_app", "0031_repair_outcomes"),
        ("sessions_app", "0032_retention_policies"),
        ("sessions_app", "0033_import_crashes"),
        ("sessions_app", "0034_deleted_limit"),
    ]
    dependencies = [
        ("conversations", "0001_squashed_0016_purges"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "UnfinishedAnswer",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION,
                        CASCADE,
                        primary_key=True,
                        related_name="unfinished_answer",
                        serialize=False,
                    ),
                ),
                ("turn_id", models.TextField()),
                ("event_id", models.TextField()),
                ("through", models.BigIntegerField()),
                ("text", models.TextField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("reasoning", models.TextField(db_default="", default="")),
            ],
        ),
        migrations.CreateModel(
            "AgentLoop",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION, PROTECT, primary_key=True, related_name="loop", serialize=False
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("stopped", "Stopped"),
                            ("error", "Error"),
                        ],
                        default="stopped",
                        max_length=10,
                    ),
                ),
                ("runtime_status", models.TextField(blank=True, null=True)),
                (
                    "execution_status",
                    models.CharField(
                        choices=[
                            ("idle", "Idle"),
                            ("running", "Running"),
                            ("paused", "Paused"),
                            ("waiting_for_confirmation", "Waiting For Confirmation"),
                            ("finished", "Finished"),
                            ("error", "Error"),
                            ("stuck", "Stuck"),
                        ],
                        default="idle",
                        max_length=30,
                    ),
                ),
                ("agent", models.TextField(blank=True, default="")),
                ("epoch", models.BigIntegerField(default=0)),
                ("owner_host", models.TextField(blank=True, default="")),
                ("owner_pid", models.BigIntegerField(default=0)),
                ("owner_started", models.FloatField(default=0.0)),
                ("lease_expires_at", models.DateTimeField(blank=True, null=True)),
                ("turn_id", models.TextField(blank=True, null=True)),
                ("turn_through", models.BigIntegerField(default=-1)),
                ("decision", models.BooleanField(blank=True, null=True)),
                ("decision_reason", models.TextField(blank=True, default="")),
                ("error", models.TextField(blank=True, default="")),
                ("refused_writes", models.BigIntegerField(default=0)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "ended_by",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("stopped", "stopped by its user"),
                            ("crowded_out", "closed to make room"),
                            ("idle", "closed after nobody used it for long"),
                            ("interrupted", "its process ended"),
                            ("failed", "failed"),
                        ],
                        default="",
                        max_length=20,
                    ),
                ),
                ("turn_agent", models.TextField(blank=True, db_default="", default="")),
                ("goes_on", models.BooleanField(db_default=False, default=False)),
                ("recoveries", models.PositiveSmallIntegerField(blank=True, null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["status", "lease_expires_at"], name="loop_lease"),
                    models.Index(
                        condition=models.Q(("turn_id__isnull", False)), fields=["turn_id"], name="loop_turn"
                    ),
                    models.Index(
                        condition=models.Q(("decision__isnull", False)),
                        fields=["decision"],
                        name="loop_decided",
                    ),
                    models.Index(fields=["execution_status"], name="loop_doing"),
                ],
            },
        ),
        migrations.CreateModel(
            "ApiToken",
            [
                ("id", KEY.clone()),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(max_length=12)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("user", models.ForeignKey(USER, CASCADE, related_name="api_tokens")),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, blank=True, null=True, related_name="+"),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("scopes", models.CharField(default="read write run admin", max_length=50)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False), ("revoked_at__isnull", True)),
                        fields=["expires_at"],
                        name="token_expiry",
                    )
                ],
                "verbose_name": "API token",
            },
        ),
        migrations.CreateModel(
            "Connection",
            [
                (
                    "id",
                    models.CharField(
                        default=new_connection_id, max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("door", models.CharField(max_length=20)),
                ("since", models.DateTimeField(default=timezone.now)),
                ("last_seen_at", models.DateTimeField(db_index=True, default=timezone.now)),
                ("conversation", models.ForeignKey(CONVERSATION, CASCADE, related_name="connections")),
                ("user", models.ForeignKey(USER, CASCADE, related_name="+")),
            ],
        ),
        migrations.CreateModel(
            "UserSettings",
            [
                (
                    "user",
                    models.OneToOneField(
                        USER, CASCADE, primary_key=True, related_name="user_settings", serialize=False
                    ),
                ),
                ("language", models.TextField(blank=True, null=True)),
                ("agent", models.TextField(blank=True, null=True)),
                ("max_iterations", models.IntegerField(blank=True, null=True)),
                ("security_analyzer", models.TextField(blank=True, null=True)),
                ("confirmation_mode", models.BooleanField(blank=True, null=True)),
                ("llm_model", models.TextField(blank=True, null=True)),
                ("llm_base_url", models.TextField(blank=True, null=True)),
                ("remote_runtime_resource_factor", models.IntegerField(blank=True, null=True)),
                ("enable_default_condenser", models.BooleanField(default=True)),
                ("enable_sound_notifications", models.BooleanField(default=False)),
                ("enable_proactive_conversation_starters", models.BooleanField(default=True)),
                ("enable_solvability_analysis", models.BooleanField(default=True)),
                ("user_consents_to_analytics", models.BooleanField(blank=True, null=True)),
                ("sandbox_base_container_image", models.TextField(blank=True, null=True)),
                ("sandbox_runtime_container_image", models.TextField(blank=True, null=True)),
                ("max_budget_per_task", models.FloatField(blank=True, null=True)),
                (
                    "condenser_max_size",
                    models.IntegerField(blank=True, null=True, validators=[MinValueValidator(20)]),
                ),
                ("email", models.TextField(blank=True, null=True)),
                ("email_verified", models.BooleanField(blank=True, null=True)),
                ("git_user_name", models.TextField(blank=True, null=True)),
                ("git_user_email", models.TextField(blank=True, null=True)),
                ("v1_enabled", models.BooleanField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "verbose_name_plural": "user settings",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("condenser_max_size__isnull", True),
                            ("condenser_max_size__gte", 20),
                            _connector="OR",
                        ),
                        name="user_settings_condenser_size",
                    )
                ],
                "permissions": [
                    ("run_tool_programs", "Can have tool servers that are programs on this server")
                ],
            },
        ),
        migrations.CreateModel(
            "Repair",
            [
                ("id", KEY.clone()),
                ("turn_id", models.TextField()),
                ("repaired_at", models.DateTimeField(db_index=True, default=timezone.now)),
                ("host", models.TextField()),
                ("pid", models.BigIntegerField()),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="repairs"),
                ),
                ("continuations", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("has_ended", models.BooleanField(db_default=True, default=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "turn_id"), name="repair_once")
                ],
            },
        ),
        migrations.CreateModel(
            "Secret",
            [
                ("id", KEY.clone()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("setting", "Setting"),
                            ("provider_token", "Provider Token"),
                            ("custom", "Custom"),
                        ],
                        max_length=20,
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("value", EncryptedTextField(editable=False)),
                ("description", models.TextField(blank=True, default="")),
                ("host", models.TextField(blank=True, null=True)),
                ("provider_user_id", models.TextField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="secrets")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "kind", "name"), name="secret_once"),
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="secret_has_a_name"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("kind", "provider_token"),
                            models.Q(("host", None), ("provider_user_id", None)),
                            _connector="OR",
                        ),
                        name="secret_of_a_provider",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Feedback",
            [
                ("id", KEY.clone()),
                ("feedback_id", models.CharField(default=new_public_id, max_length=32, unique=True)),
                (
                    "polarity",
                    models.CharField(
                        choices=[("positive", "Positive"), ("negative", "Negative")], max_length=10
                    ),
                ),
                (
                    "permissions",
                    models.CharField(
                        choices=[("public", "Public"), ("private", "Private")],
                        default="private",
                        max_length=10,
                    ),
                ),
                ("version", models.TextField(blank=True, default="")),
                ("email", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(db_index=True, default=timezone.now)),
                ("conversation", models.ForeignKey(CONVERSATION, CASCADE, related_name="feedback")),
            ],
            options={
                "verbose_name_plural": "feedback",
            },
        ),
        migrations.CreateModel(
            "Attachment",
            [
                ("id", KEY.clone()),
                ("name", models.CharField(max_length=200)),
                ("size", models.BigIntegerField()),
                ("content", models.BinaryField()),
                ("created_at", models.DateTimeField(default=timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="attachments"),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "name"), name="attachment_once"),
                    models.CheckConstraint(
                        condition=models.Q(("name", ""), _negated=True), name="attachment_has_a_name"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "AgentSetup",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION, CASCADE, primary_key=True, related_name="agent_setup", serialize=False
                    ),
                ),
                ("sealed_agent", EncryptedTextField(editable=False)),
                ("shown_agent", models.JSONField(blank=True, null=True)),
                ("sealed_secrets", EncryptedTextField(editable=False)),
                ("shown_secrets", models.JSONField(blank=True, default=dict)),
                ("workspace", models.JSONField(default=default_workspace)),
                ("confirmation_policy", models.JSONField(default=never_confirm)),
                ("security_analyzer", models.JSONField(blank=True, null=True)),
                ("max_iterations", models.IntegerField(default=500)),
                ("stuck_detection", models.BooleanField(default=True)),
                ("facts", models.JSONField(blank=True, default=dict)),
                ("leaf_event_id", models.TextField(blank=True, null=True)),
                ("has_secrets", models.BooleanField(default=False)),
                ("sealed_keys", EncryptedTextField(default=sealed_nothing, editable=False)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("has_secrets", True)),
                        fields=["conversation"],
                        name="agent_setup_secrets",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "StartTask",
            [
                ("id", KEY.clone()),
                ("task_id", models.CharField(default=new_public_id, max_length=32, unique=True)),
                ("status", models.CharField(max_length=30)),
                ("detail", models.TextField(blank=True, null=True)),
                ("request", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(default=timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(
                        CONVERSATION, CASCADE, blank=True, null=True, related_name="start_tasks"
                    ),
                ),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="+")),
            ],
            options={
                "indexes": [models.Index(fields=["user", "-created_at", "-id"], name="start_task_list")],
            },
        ),
        migrations.CreateModel(
            "NotedFact",
            [
                ("id", KEY.clone()),
                ("fact", models.CharField(max_length=10)),
                ("seq", models.BigIntegerField()),
                ("noted_at", models.DateTimeField(default=timezone.now)),
                ("conversation", models.ForeignKey(CONVERSATION, CASCADE, related_name="noted_facts")),
            ],
        ),
        migrations.CreateModel(
            "Receiver",
            [
                ("id", KEY.clone()),
                (
                    "kind",
                    models.CharField(
                        choices=[("webhook", "webhook"), ("hook", "hook in this server")],
                        default="webhook",
                        max_length=10,
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("base_url", models.TextField(blank=True, default="")),
                ("sealed", EncryptedTextField(editable=False)),
                ("header_names", models.JSONField(blank=True, default=list)),
                ("has_session_key", models.BooleanField(default=False)),
                (
                    "event_buffer_size",
                    models.IntegerField(default=5, validators=[MinValueValidator(1), MaxValueValidator(500)]),
                ),
                (
                    "flush_delay_s",
                    models.FloatField(
                        default=30.0, validators=[MinValueValidator(0.0), MaxValueValidator(3600.0)]
                    ),
                ),
                (
                    "timeout_s",
                    models.FloatField(
                        default=30.0, validators=[MinValueValidator(0.1), MaxValueValidator(300.0)]
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("begins_after", models.BigIntegerField(default=0)),
                ("event_position", models.BigIntegerField(default=0)),
                ("fact_position", models.BigIntegerField(default=0)),
                ("owner", models.ForeignKey(USER, CASCADE, blank=True, null=True, related_name="receivers")),
                ("skipped_until", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "hook")), fields=("name",), name="receiver_hook_once"
                    )
                ],
                "verbose_name": "endpoint",
            },
        ),
        migrations.CreateModel(
            "Delivery",
            [
                ("id", KEY.clone()),
                ("through", models.BigIntegerField(default=-1)),
                ("known", models.BigIntegerField(default=-1)),
                ("told", models.BigIntegerField(default=0)),
                ("known_fact", models.BigIntegerField(default=0)),
                ("owes_status", models.BooleanField(default=False)),
                ("since", models.DateTimeField(default=timezone.now)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("tries", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("failed_at", models.DateTimeField(blank=True, null=True)),
                ("delivered_at", models.DateTimeField(blank=True, null=True)),
                ("claim", models.CharField(blank=True, default="", max_length=32)),
                ("held_until", models.DateTimeField(blank=True, null=True)),
                ("owner_host", models.TextField(blank=True, default="")),
                ("owner_pid", models.BigIntegerField(default=0)),
                ("owner_started", models.FloatField(default=0.0)),
                ("conversation", models.ForeignKey(CONVERSATION, CASCADE, related_name="deliveries")),
                (
                    "receiver",
                    models.ForeignKey(
                        "sessions_app.receiver", CASCADE, db_index=False, related_name="deliveries"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["receiver", "due_at"],
                        name="delivery_due",
                    ),
                    models.Index(
                        condition=models.Q(("held_until__isnull", False)),
                        fields=["held_until"],
                        name="delivery_held",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("receiver", "conversation"), name="delivery_once")
                ],
            },
        ),
        migrations.CreateModel(
            "Mark",
            [
                ("id", KEY.clone()),
                ("through", models.BigIntegerField(default=-1)),
                ("conversation", models.ForeignKey(CONVERSATION, CASCADE, related_name="marks")),
                ("user", models.ForeignKey(USER, CASCADE, related_name="+")),
                ("through_at", models.DateTimeField(blank=True, null=True)),
                ("pinned_at", models.DateTimeField(blank=True, null=True)),
                ("archived_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "conversation"), name="read_mark_once")
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("pinned_at__isnull", False)),
                        fields=["user", "-pinned_at"],
                        name="mark_pinned",
                    ),
                    models.Index(
                        condition=models.Q(("archived_at__isnull", False)),
                        fields=["user", "conversation"],
                        name="mark_archived",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Draft",
            [
                ("id", KEY.clone()),
                ("text", models.TextField(blank=True, default="")),
                ("images", models.JSONField(blank=True, default=list)),
                ("version", models.BigIntegerField()),
                ("updated_at", models.DateTimeField(default=timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, blank=True, null=True, related_name="drafts"),
                ),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="+")),
                ("written_in", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("size", models.BigIntegerField(blank=True, editable=False, null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["user", "updated_at"], name="draft_written"),
                    models.Index(
                        condition=models.Q(("written_in__isnull", False)),
                        fields=["user", "written_in"],
                        name="draft_changed",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "conversation"), name="draft_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("conversation", None)),
                        fields=("user",),
                        name="draft_of_a_new_one_once",
                    ),
                    models.CheckConstraint(condition=models.Q(("version__gte", 1)), name="draft_version"),
                ],
            },
        ),
        migrations.CreateModel(
            "RecordedAnswer",
            [
                ("id", KEY.clone()),
                ("route", models.TextField()),
                ("key", models.CharField(max_length=200)),
                ("sealed", EncryptedTextField(editable=False)),
                ("created_at", models.DateTimeField(db_index=True, default=timezone.now)),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "key", "route"), name="recorded_answer_once")
                ],
            },
        ),
        migrations.CreateModel(
            "LoopCommand",
            [
                ("id", KEY.clone()),
                ("epoch", models.BigIntegerField()),
                (
                    "verb",
                    models.CharField(
                        choices=[
                            ("stop", "stop the loop"),
                            ("evict", "close the loop to make room"),
                            ("pause", "pause after the current step"),
                            ("interrupt", "end the turn, keep the loop"),
                            ("resume", "let a paused loop go on"),
                            ("run", "answer what stands in the log"),
                        ],
                        max_length=10,
                    ),
                ),
                ("through", models.BigIntegerField(default=-1)),
                ("asked_by", models.TextField()),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "not obeyed yet"),
                            ("done", "obeyed"),
                            ("runs", "a run was on already"),
                            ("nothing", "there was nothing to do"),
                            ("refused", "refused by the loop"),
                            ("ended", "the loop ended before"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                ("detail", models.TextField(blank=True, default="")),
                ("given_at", models.DateTimeField(default=timezone.now)),
                ("settled_at", models.DateTimeField(blank=True, null=True)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="commands"),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "")), fields=["conversation"], name="command_pending"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "Usage",
            [
                (
                    "user",
                    models.OneToOneField(
                        USER, CASCADE, primary_key=True, related_name="usage", serialize=False
                    ),
                ),
                ("is_counted", models.BooleanField(default=False)),
                ("uploaded_bytes", models.BigIntegerField(default=0)),
                ("drafts", models.BigIntegerField(default=0)),
                ("draft_bytes", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name_plural": "usage",
            },
        ),
        migrations.CreateModel(
            "AccessRemoval",
            [
                (
                    "user",
                    models.OneToOneField(
                        USER, CASCADE, primary_key=True, related_name="access_removal", serialize=False
                    ),
                ),
                ("removed_at", models.DateTimeField(default=timezone.now)),
                ("key_rotation", models.IntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            "ConversationKey",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION, CASCADE, primary_key=True, related_name="access_key", serialize=False
                    ),
                ),
                ("rotation", models.IntegerField(default=0)),
                ("issued_on", models.IntegerField(blank=True, null=True)),
                ("used_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            "ModelUse",
            [
                ("id", KEY.clone()),
                ("model", models.CharField(max_length=200)),
                ("day", models.DateField()),
                ("calls", models.BigIntegerField(default=0)),
                ("unpriced_calls", models.BigIntegerField(default=0)),
                ("prompt_tokens", models.BigIntegerField(default=0)),
                ("completion_tokens", models.BigIntegerField(default=0)),
                ("cost_nanos", models.BigIntegerField(default=0)),
                (
                    "conversation",
                    models.ForeignKey(
                        CONVERSATION,
                        SET_NULL,
                        blank=True,
                        db_index=False,
                        null=True,
                        related_name="model_uses",
                    ),
                ),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="model_uses")),
            ],
            options={
                "verbose_name": "model use",
                "verbose_name_plural": "model use",
                "indexes": [
                    models.Index(fields=["day", "id"], name="model_use_day"),
                    models.Index(fields=["user", "day"], name="model_use_user_day"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("conversation", "user", "model", "day"), name="one_model_use"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "RunOptions",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION, CASCADE, primary_key=True, related_name="run_options", serialize=False
                    ),
                ),
                ("agent", models.CharField(blank=True, default="", max_length=200)),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                (
                    "while_working",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("queue", "answer it after the turn"),
                            ("steer", "show it to the agent before its next step"),
                            ("interrupt", "stop the turn and answer it"),
                            ("reject", "refuse it"),
                        ],
                        default="",
                        max_length=20,
                    ),
                ),
                (
                    "unknown_outcome",
                    models.CharField(
                        blank=True,
                        choices=[("ask", "ask the user"), ("tell", "tell the model")],
                        default="",
                        max_length=20,
                    ),
                ),
                (
                    "max_turn_iterations",
                    models.BigIntegerField(
                        blank=True,
                        help_text="How often a model is asked in one turn.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
                (
                    "max_iterations",
                    models.BigIntegerField(
                        blank=True,
                        help_text="How often a model is asked in the conversation.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
                (
                    "max_turn_tokens",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Tokens that the models of one turn use.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
                (
                    "max_tokens",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Tokens that the models of the conversation use.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
                (
                    "max_turn_cost",
                    models.FloatField(
                        blank=True,
                        help_text="US dollars that the models of one turn cost.",
                        null=True,
                        validators=[MinValueValidator(0)],
                    ),
                ),
                (
                    "max_cost",
                    models.FloatField(
                        blank=True,
                        help_text="US dollars that the models of the conversation cost.",
                        null=True,
                        validators=[MinValueValidator(0)],
                    ),
                ),
                (
                    "max_turn_seconds",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Seconds for which the agent works in one turn.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
                (
                    "max_seconds",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Seconds for which the agent works in the conversation.",
                        null=True,
                        validators=[MinValueValidator(1)],
                    ),
                ),
            ],
            options={
                "verbose_name": "run options",
                "verbose_name_plural": "run options",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("while_working__in", ["", "queue", "steer", "interrupt", "reject"])
                        ),
                        name="run_options_while_working",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("unknown_outcome__in", ["", "ask", "tell"])),
                        name="run_options_unknown_outcome",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "InputReceipt",
            [
                ("id", KEY.clone()),
                ("seq", models.BigIntegerField()),
                ("seen_seq", models.BigIntegerField()),
                ("turn_id", models.TextField()),
                ("seen_at", models.DateTimeField(default=timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="input_receipts"),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "seq"), name="one_input_receipt")
                ],
            },
        ),
        migrations.CreateModel(
            "ToolRun",
            [
                ("id", KEY.clone()),
                ("turn_id", models.TextField()),
                ("call_id", models.TextField()),
                ("call_seq", models.BigIntegerField()),
                ("tool_call_id", models.TextField(blank=True, default="")),
                ("name", models.TextField()),
                ("digest", models.CharField(blank=True, default="", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waits for approval"),
                            ("approved", "may be run"),
                            ("rejected", "must not be run"),
                            ("started", "was started"),
                            ("unknown", "was started by a process that is gone"),
                            ("answered", "has its result"),
                        ],
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("key", models.CharField(max_length=36)),
                ("epoch", models.BigIntegerField(default=0)),
                ("attempt", models.CharField(blank=True, default="", max_length=36)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, db_index=False, related_name="tool_runs"),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "call_id"), name="tool_run_once")
                ],
            },
        ),
        migrations.CreateModel(
            "RunMeter",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        CONVERSATION, CASCADE, primary_key=True, related_name="run_meter", serialize=False
                    ),
                ),
                ("family", models.BigIntegerField(db_index=True)),
                ("iterations", models.BigIntegerField(default=0)),
                ("tokens", models.BigIntegerField(default=0)),
                ("cost_nanos", models.BigIntegerField(default=0)),
                ("worked_ms", models.BigIntegerField(default=0)),
                ("turn_id", models.TextField(blank=True, default="")),
                ("turn_iterations", models.BigIntegerField(default=0)),
                ("turn_tokens", models.BigIntegerField(default=0)),
                ("turn_cost_nanos", models.BigIntegerField(default=0)),
                ("turn_worked_ms", models.BigIntegerField(default=0)),
                ("is_spent", models.BooleanField(default=False)),
                ("running", models.JSONField(blank=True, default=dict)),
                ("unpriced_told", models.JSONField(blank=True, default=list)),
            ],
            options={
                "verbose_name": "run meter",
            },
        ),
        migrations.CreateModel(
            "RemoteProgram",
            [
                ("id", KEY.clone()),
                ("name", models.CharField(max_length=100)),
                ("number", models.BigIntegerField(default=0)),
                ("host", models.TextField(blank=True, default="")),
                ("pid", models.BigIntegerField(default=0)),
                ("process_started", models.FloatField(default=0.0)),
                ("since", models.DateTimeField(default=timezone.now)),
                ("seen_at", models.DateTimeField(default=timezone.now)),
                ("gone_at", models.DateTimeField(blank=True, null=True)),
                (
                    "conversation",
                    models.ForeignKey(CONVERSATION, CASCADE, blank=True, null=True, related_name="+"),
                ),
                ("user", models.ForeignKey(USER, CASCADE, related_name="+")),
            ],
            options={
                "verbose_name": "remote agent",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "name", "conversation"), name="remote_program_once"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("conversation", None)),
                        fields=("user", "name"),
                        name="remote_program_of_all_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "HousekeepingRound",
            [
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("begun_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            "ImportRun",
            [
                ("id", KEY.clone()),
                ("public_id", models.CharField(default=new_public_id, max_length=32, unique=True)),
                ("file_name", models.CharField(max_length=200)),
                ("size", models.BigIntegerField()),
                ("received", models.BigIntegerField(default=0)),
                ("format", models.CharField(blank=True, default="", max_length=40)),
                ("labels", models.JSONField(blank=True, default=list)),
                ("zone", models.CharField(default="UTC", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("uploading", "Uploading"),
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="uploading",
                        max_length=10,
                    ),
                ),
                ("is_cancelled", models.BooleanField(default=False)),
                ("records", models.BigIntegerField(default=0)),
                ("conversations", models.BigIntegerField(default=0)),
                ("failed", models.BigIntegerField(default=0)),
                ("totals", models.JSONField(blank=True, default=dict)),
                ("problem", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("touched_at", models.DateTimeField(db_default=Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("slot", models.SmallIntegerField(blank=True, null=True, unique=True)),
                ("attempt", models.BigIntegerField(default=0)),
                ("host", models.TextField(blank=True, default="")),
                ("pid", models.BigIntegerField(default=0)),
                ("process_started", models.FloatField(default=0.0)),
                (
                    "by",
                    models.ForeignKey(
                        USER, SET_NULL, blank=True, null=True, related_name="+", verbose_name="by"
                    ),
                ),
                ("user", models.ForeignKey(USER, CASCADE, related_name="+")),
                ("crashes", models.SmallIntegerField(db_default=0, default=0)),
                ("crashed_at", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "verbose_name": "import",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["uploading", "waiting", "running"])),
                        fields=["state", "id"],
                        name="import_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")),
                        fields=("user",),
                        name="import_runs_once_per_user",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "ImportPiece",
            [
                ("id", KEY.clone()),
                ("offset", models.BigIntegerField()),
                ("content", models.BinaryField()),
                (
                    "run",
                    models.ForeignKey(
                        "sessions_app.importrun", CASCADE, db_index=False, related_name="pieces"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "offset"), name="import_piece_once")],
            },
        ),
        migrations.CreateModel(
            "ImportedConversation",
            [
                ("id", KEY.clone()),
                ("number", models.BigIntegerField()),
                ("source_id", models.TextField()),
                ("conversation", models.TextField(blank=True, default="")),
                ("title", models.TextField(blank=True, default="")),
                ("problem", models.TextField(blank=True, default="")),
                ("report", models.JSONField(blank=True, default=dict)),
                (
                    "run",
                    models.ForeignKey(
                        "sessions_app.importrun", CASCADE, db_index=False, related_name="imported"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["conversation"], name="imported_as")],
                "constraints": [models.UniqueConstraint(fields=("run", "number"), name="imported_once")],
            },
        ),
        migrations.CreateModel(
            "FollowedProgram",
            [
                ("id", KEY.clone()),
                ("format", models.CharField(max_length=40)),
                ("is_on", models.BooleanField(default=False)),
                ("problem", models.TextField(blank=True, default="")),
                ("files", models.BigIntegerField(default=0)),
                ("looked_at", models.DateTimeField(blank=True, null=True)),
                ("stored_at", models.DateTimeField(blank=True, null=True)),
                ("user", models.ForeignKey(USER, CASCADE, related_name="+")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "format"), name="followed_program_once")
                ],
            },
        ),
        migrations.CreateModel(
            "RetentionPolicy",
            [
                ("id", KEY.clone()),
                ("name", models.CharField(max_length=100, unique=True)),
                (
                    "older_than_days",
                    models.PositiveIntegerField(
                        help_text="Conversations to which nothing was added for this many days are deleted, "
                        "unless they were restored, imported or renamed in that time.",
                        validators=[MinValueValidator(1), MaxValueValidator(36500)],
                        verbose_name="days without activity",
                    ),
                ),
                (
                    "label",
                    models.CharField(
                        blank=True,
                        help_text="Only those with this label (tag): NAME, or NAME=VALUE. Empty for all.",
                        max_length=200,
                    ),
                ),
                (
                    "is_enabled",
                    models.BooleanField(
                        default=False,
                        help_text="See what it would delete before you enable it.",
                        verbose_name="in force",
                    ),
                ),
                ("created_at", models.DateTimeField(default=timezone.now, editable=False)),
                (
                    "owner",
                    models.ForeignKey(
                        USER,
                        CASCADE,
                        blank=True,
                        help_text="Only this user's conversations. Empty for those of all users.",
                        null=True,
                        related_name="+",
                    ),
                ),
            ],
            options={
                "verbose_name": "retention policy",
                "verbose_name_plural": "retention policies",
            },
        ),
        migrations.CreateModel(
            "DeletedLimit",
            [
                ("id", KEY.clone()),
                ("days", models.PositiveIntegerField(blank=True, null=True)),
                ("since", models.DateTimeField()),
            ],
        ),
    ]
