"""Deletions of users, the records of processes and backups, and the documents of users."""

from django.conf import settings
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT
from django.utils import timezone

from sessions_app.encryption import EncryptedTextField

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
USER = settings.AUTH_USER_MODEL
PENDING = models.Q(due_at__isnull=False)
FAILING = models.Q(due_at__isnull=False, tries__gt=0)


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0035_user_deletions"),
        ("sessions_app", "0036_operation"),
        ("sessions_app", "0037_user_documents"),
    ]
    dependencies = [
        ("sessions_app", "0001_squashed_0034_deleted_limit"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "UserDeletion",
            [
                ("id", KEY.clone()),
                ("requested_by", models.TextField()),
                ("requested_at", models.DateTimeField(default=timezone.now)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("erased_at", models.DateTimeField(blank=True, null=True)),
                ("user", models.OneToOneField(USER, PROTECT, related_name="deletion")),
            ],
        ),
        migrations.CreateModel(
            "ProcessRecord",
            [
                ("id", KEY.clone()),
                (
                    "role",
                    models.CharField(choices=[("server", "server"), ("worker", "worker")], max_length=10),
                ),
                ("host", models.CharField(max_length=300)),
                ("pid", models.BigIntegerField()),
                ("started", models.FloatField()),
                ("version", models.CharField(max_length=40)),
                ("began_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "process",
                "verbose_name_plural": "processes",
                "constraints": [
                    models.UniqueConstraint(fields=("host", "pid", "started"), name="one_process_record")
                ],
            },
        ),
        migrations.CreateModel(
            "BackupRecord",
            [
                ("id", KEY.clone()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(default=timezone.now)),
                ("host", models.CharField(max_length=300)),
                ("place", models.TextField()),
                ("size", models.BigIntegerField(default=0)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("made", "complete"),
                            ("damaged", "complete, but the store is damaged"),
                            ("failed", "failed"),
                        ],
                        max_length=10,
                    ),
                ),
                ("is_verified", models.BooleanField(blank=True, null=True)),
                ("verified_at", models.DateTimeField(blank=True, null=True)),
                ("detail", models.TextField(blank=True, default="")),
            ],
            options={"verbose_name": "backup"},
        ),
        # The oldest pending delivery is read every few seconds, however many there are.
        migrations.AddIndex(
            "delivery", models.Index(fields=["since"], name="delivery_waiting", condition=PENDING)
        ),
        migrations.AddIndex(
            "delivery", models.Index(fields=["since"], name="delivery_failing", condition=FAILING)
        ),
        migrations.CreateModel(
            "UserDocument",
            [
                ("id", KEY.clone()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("settings", "Settings"),
                            ("model_profile", "Model Profile"),
                            ("agent_profile", "Agent Profile"),
                        ],
                        max_length=20,
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=64)),
                ("sealed", EncryptedTextField(editable=False)),
                ("created_at", models.DateTimeField(default=timezone.now)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("user", models.ForeignKey(USER, CASCADE, db_index=False, related_name="documents")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "kind", "name"), name="user_document_once")
                ],
            },
        ),
    ]
