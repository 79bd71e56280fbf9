"""What the cluster serves is asked without any right, and an answer that does not come changes nothing."""

import pytest

from penstock.kube.errors import Forbidden, NotFound, Unavailable
from penstock.kube.kinds import CHILD_KINDS, LLM_BACKEND, POD, POD_MONITOR
from penstock.reconcile.discovery import Discovery, watched_kinds
from penstock.resources.facts import ClusterFacts

MONITORING = "/apis/monitoring.coreos.com/v1"


class Server:
    """Answers by path; an exception is raised, and what is absent is not found."""

    def __init__(self):
        self.answers = {"/version": {"major": "1", "minor": "34"}}

    async def read(self, path):
        answer = self.answers.get(path, NotFound("read", status=404, reason="", server_message="no"))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def discovery(server):
    return Discovery(server)


async def test_a_bare_cluster(discovery):
    assert await discovery.refresh()
    assert discovery.facts == ClusterFacts(pod_monitors=False, kubernetes_minor=34)
    assert not await discovery.refresh()


async def test_pod_monitors_come_and_go(server, discovery):
    await discovery.refresh()
    server.answers[MONITORING] = {"resources": [{"name": "podmonitors"}, {"name": "podmonitors/status"}]}
    assert await discovery.refresh()
    assert discovery.facts.pod_monitors
    del server.answers[MONITORING]
    assert await discovery.refresh()
    assert not discovery.facts.pod_monitors


async def test_other_kinds_of_the_same_group_are_not_enough(server, discovery):
    server.answers[MONITORING] = {"resources": [{"name": "servicemonitors"}]}
    await discovery.refresh()
    assert not discovery.facts.pod_monitors


@pytest.mark.parametrize(("text", "minor"), [("34+", 34), ("", None), ("next", None)])
async def test_a_minor_version_is_a_number_or_unknown(server, discovery, text, minor):
    server.answers["/version"] = {"minor": text}
    await discovery.refresh()
    assert discovery.facts.kubernetes_minor == minor


async def test_an_outage_is_raised_and_forgets_nothing(server, discovery):
    server.answers[MONITORING] = {"resources": [{"name": "podmonitors"}]}
    await discovery.refresh()
    server.answers[MONITORING] = Unavailable("down")
    with pytest.raises(Unavailable):
        await discovery.refresh()
    assert discovery.facts.pod_monitors


async def test_a_refusal_is_told_once_and_the_operator_goes_on(server, discovery, caplog):
    server.answers["/version"] = Forbidden("read /version", status=403, reason="", server_message="no")
    for _ in range(3):
        assert not await discovery.refresh()
    assert len([record for record in caplog.records if "cannot be found out" in record.getMessage()]) == 1


def test_only_what_is_served_is_watched():
    everything = {LLM_BACKEND, *CHILD_KINDS, POD}
    assert set(watched_kinds(ClusterFacts(pod_monitors=True))) == everything
    assert set(watched_kinds(ClusterFacts())) == everything - {POD_MONITOR}
