"""Request bodies and answers of the ``/v1`` routes."""
