"""Code that clients and servers share: codecs, error codes, limits, names, properties.

This is the lowest package: it imports no other package of the project.
"""
