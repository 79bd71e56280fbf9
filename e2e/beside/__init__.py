"""Penstock beside an API server: what integration tests and the operator's bench share.

A control plane without nodes, Penstock's CRD and rights installed in it, an administrator who asks it over plain HTTP,
and operators as processes of their own with the rights of the installation.
"""
