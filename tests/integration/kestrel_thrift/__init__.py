"""The interface of Kestrel's Thrift port, and `generated`, what Apache's compiler makes of it (``--gen py:dynamic,slots``)."""
