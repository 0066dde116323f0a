"""The program ``lmq``: one file for each command."""
