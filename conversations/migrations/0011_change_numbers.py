from django.db import migrations, models


class Migration(migrations.Migration):
    # Quick however many rows there are: none is written for a column that is null, and none is in the index.
    dependencies = [
        ("conversations", "0010_guard_repairs_and_write_probe"),
    ]

    operations = [
        migrations.CreateModel(
            name="ChangeNumber",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.BigIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name="conversation",
            name="listed_in",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("listed_in__isnull", False)),
                fields=["owner", "listed_in"],
                name="conversation_changed",
            ),
        ),
    ]
