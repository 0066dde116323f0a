"""What clients and servers share: codecs, error codes, limits, names, properties.

This package stands at the bottom: it imports nothing else of the project.
"""
