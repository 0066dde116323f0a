"""The program ``lmq-admin``: a file for each command or group, and what they do."""
