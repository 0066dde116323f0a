"""What is done to the cluster: one file for each kind of fault."""
