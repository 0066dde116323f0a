"""Values decoded by a JSON or Avro schema into one column."""
