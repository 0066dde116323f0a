"""Deployment files, and the program that builds a release."""
