"""The program ``lmq``: one command a file."""
