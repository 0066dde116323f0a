"""The asyncio client, with its calls grouped by subject."""
