"""The interface of Kestrel's Thrift port, and `generated`, the output of Apache's compiler (``--gen
py:dynamic,slots``).
"""
