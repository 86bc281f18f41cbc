from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("sessions_app", "0041_without_decision_reason"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="workspace",
            name="cloned_at",
            field=models.DateTimeField(null=True),
        ),
    ]
