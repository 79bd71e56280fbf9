"""The CRD and the acceptance objects on the oldest and the newest kube-apiserver that this machine can compile.

    python -m pytest e2e/versions

Rules in CEL are compiled and priced by the API server, and each release does that anew: a rule that one takes may be
unknown or too costly to another. Nothing here runs by itself, since a first build takes minutes on two cores.
"""
