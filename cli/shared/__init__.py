"""Parts shared by the programs: options, credentials, output, errors, confirmation."""
