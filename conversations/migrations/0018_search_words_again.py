"""The words of the search index in another form: every event is indexed again, in the background."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0017_unfinished_forks"),
    ]

    operations = [
        migrations.AddField(
            model_name="searchprogress",
            name="words_through",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
