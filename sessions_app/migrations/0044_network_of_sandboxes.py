from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("sessions_app", "0043_files_checkpoints"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="runoptions",
            name="network",
            field=models.BooleanField(
                blank=True,
                help_text="Whether programs in the sandbox reach public servers; empty for the default.",
                null=True,
            ),
        ),
    ]
