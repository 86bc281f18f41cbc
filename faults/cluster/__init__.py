"""The drill of the cluster: conversations go on while its processes and services are killed."""
