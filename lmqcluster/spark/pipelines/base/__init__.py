"""Parts that all pipelines share: access, sessions, storage, failures, progress."""
