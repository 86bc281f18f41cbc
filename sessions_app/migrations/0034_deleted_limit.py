from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("sessions_app", "0033_import_crashes")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="DeletedLimit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("days", models.PositiveIntegerField(blank=True, null=True)),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.AddIndex(
            model_name="importedconversation",
            index=models.Index(fields=["conversation"], name="imported_as"),
        ),
    ]
