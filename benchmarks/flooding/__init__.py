"""One user floods the server while another one asks."""
