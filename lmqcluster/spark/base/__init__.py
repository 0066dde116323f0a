"""Options, schema, errors and connections, which reading and writing share."""
