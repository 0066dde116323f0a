"""The blocking client: the asyncio client in a thread, with a fast path for sequential calls."""
