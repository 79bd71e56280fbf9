"""What a Lease says is read with care: it may come from something that only looks like an API server."""

import pytest

from penstock.kube.candidacy import Record
from penstock.kube.errors import Unavailable
from penstock.kube.lease import KubernetesLease
from penstock.resources.objects import Key

KEY = Key("system", "operator")


class Store:
    """Answers with one Lease."""

    def __init__(self, lease):
        self.lease = lease

    async def get(self, _kind, _key):
        return self.lease


def lease_with(**more):
    metadata = {"name": "operator", "namespace": "system", "uid": "u", "resourceVersion": "7"}
    return KubernetesLease(Store({"metadata": metadata, **more}), KEY)


@pytest.mark.parametrize("more", [{}, {"spec": None}, {"spec": {"holderIdentity": None}}], ids=str)
async def test_a_lease_that_says_nothing_is_held_by_nobody(more):
    assert await lease_with(**more).read() == Record(version="7")


OTHER_SHAPES = [[1], "x", {"leaseDurationSeconds": "long"}, {"leaseTransitions": ["x"]}]


@pytest.mark.parametrize("spec", OTHER_SHAPES, ids=str)
async def test_a_spec_of_another_shape_is_a_failure_of_the_api_server(spec):
    with pytest.raises(Unavailable, match="Lease system/operator"):
        await lease_with(spec=spec).read()
