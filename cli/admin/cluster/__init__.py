"""Commands on the cluster and its nodes: members, health, backups."""
