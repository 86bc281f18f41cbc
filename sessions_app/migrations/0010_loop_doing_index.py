from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0009_own_secrets_and_skipped_facts"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="agentloop",
            index=models.Index(fields=["execution_status"], name="loop_doing"),
        ),
    ]
