"""The Raft core and the parts around it: elections, log replication, read index, learners."""
