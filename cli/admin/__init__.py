"""The program ``lmq-admin``: a file for each command or group, and the code that they call."""
