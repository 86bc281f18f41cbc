from django.conf import settings
from django.db import migrations, models
from django.db.models.deletion import CASCADE, SET_NULL


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0012_stored_bytes"),
        ("sessions_app", "0019_endpoint_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ModelUse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
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
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=SET_NULL,
                        related_name="model_uses",
                        to="conversations.conversation",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=CASCADE,
                        related_name="model_uses",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
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
    ]
