from django.db import migrations


class Migration(migrations.Migration):
    # Nothing reads the column; what it said is in `status`, `ended_by` and the commands.
    dependencies = [("sessions_app", "0017_tool_server_keys")]

    operations = [migrations.RemoveField(model_name="agentloop", name="desired")]
