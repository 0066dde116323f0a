"""The OpenAPI document of the HTTP interface."""
