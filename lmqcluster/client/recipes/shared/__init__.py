"""Parts that all recipes share: options, errors, item formats and callbacks."""
