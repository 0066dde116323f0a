"""The program ``lmq-pipeline``."""
