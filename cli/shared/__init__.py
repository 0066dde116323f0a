"""What the programs share: options, credentials, output, errors, confirmation."""
