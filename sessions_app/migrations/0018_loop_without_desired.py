from django.db import migrations


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    # Nothing reads the column; what it said is in `status`, `ended_by` and the commands.
    dependencies = [("sessions_app", "0017_tool_server_keys")]

    operations = [migrations.RemoveField(model_name="agentloop", name="desired")]
