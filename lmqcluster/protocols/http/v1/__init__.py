"""The routes of ``/v1``: batches in JSON or MessagePack, and routes for operators."""
