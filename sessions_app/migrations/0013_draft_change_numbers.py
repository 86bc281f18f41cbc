from django.db import migrations, models


class Migration(migrations.Migration):
    # Quick however many rows there are: none is written for a column that is null, and none is in the index.
    dependencies = [
        ("conversations", "0011_change_numbers"),
        ("sessions_app", "0012_loop_command"),
    ]

    operations = [
        migrations.AddField(
            model_name="draft",
            name="written_in",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="draft",
            index=models.Index(
                condition=models.Q(("written_in__isnull", False)),
                fields=["user", "written_in"],
                name="draft_changed",
            ),
        ),
    ]
