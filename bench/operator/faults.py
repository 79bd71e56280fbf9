"""Faults: what happens to the API server and to the operators, and how long until everything is right again.

After each fault one spec is edited, so convergence is seen as a real change that arrives, not as silence. An operator
that ends is started again, as a kubelet would.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import requests

from bench import results
from bench.operator import fleet
from bench.operator.faultyserver import FaultyServer
from bench.operator.world import World, end, world
from bench.results import Row
from e2e.beside import installation
from e2e.beside.administrator import Object
from e2e.beside.installation import OPERATOR_GROUPS, OPERATOR_USER
from e2e.beside.operatorprocess import OperatorProcess
from e2e.beside.waiting import wait_for
from e2e.cache import say

BACKENDS = 20
NAMESPACE = "faults"
TAKEOVER_SECONDS = 20.0
CONVERGE_SECONDS = 60.0
PATIENCE_SECONDS = 180.0
STILL_SECONDS = 3.0
PAUSE_SECONDS = 60.0
SHORT_PAUSE_SECONDS = 20.0
STOPPED_SECONDS = 30.0
FAULT_SHARE = 0.2
MAXIMUM_CALLS_RATIO = 3.0
SEED = 7


@dataclass
class Pair:
    """Two operators that are started again when they end, as pods are."""

    made: World
    operators: list[OperatorProcess] = field(default_factory=list)

    def revive(self) -> None:
        """Bring the number of living operators back to two."""
        self.operators = [one for one in self.operators if one.alive]
        while len(self.operators) < 2:
            self.operators.append(self.made.operator())

    def leader(self) -> OperatorProcess:
        """Return the one whose metrics say that it leads."""
        found: OperatorProcess = wait_for(self._leader, "leader", seconds=PATIENCE_SECONDS)
        return found

    def _leader(self) -> OperatorProcess | None:
        self.revive()
        return next((one for one in self.operators if one.leads()), None)


def run(*, short: bool) -> list[Row]:
    """Measure and return the rows.

    Args:
        short: Shorter pauses.
    """
    rows = []
    with world(controller_manager=True) as made:
        made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        pair = Pair(made)
        pair.leader()
        fleet.apply_all(made, fleet.backends(NAMESPACE, BACKENDS))
        made.quiet_since(0, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
        rows.append(_killed(pair))
        rows += _stopped(pair)
        rows.append(_converges(pair, "API server killed and started again", made.plane.restart_api_server))
        seconds = SHORT_PAUSE_SECONDS if short else PAUSE_SECONDS
        rows.append(_converges(pair, f"API server paused {seconds:g} s", lambda: _pause(made, seconds)))
        rows.append(_converges(pair, "etcd compacted", lambda: _compact(made)))
        rows.append(_namespace_deleted(pair))
    rows += _errors()
    return rows


def _killed(pair: Pair) -> Row:
    leader = pair.leader()
    leader.process.send_signal(signal.SIGKILL)
    killed = time.time()
    leader.ended()
    return results.at_most(
        "leader killed: first write of the next one after",
        _edit(pair) - killed,
        "s",
        limit=TAKEOVER_SECONDS,
        bar="takeover below 20 s",
    )


def _stopped(pair: Pair) -> list[Row]:
    """Stop the leader for longer than its Lease, wake it, and look at whether it still writes."""
    made = pair.made
    # Of its own user, so that the audit log tells its writes from those of the other.
    other = f"{OPERATOR_USER}-stopped"
    _bind(made, other)
    for operator in pair.operators:
        end(operator)
    kubeconfig = made.plane.kubeconfig_for(other, groups=OPERATOR_GROUPS)
    stopped = made.operator(kubeconfig=kubeconfig)
    wait_for(stopped.leads, "leader", seconds=PATIENCE_SECONDS)
    pair.operators = [stopped]
    pair.revive()
    pair.operators[1].until_ready()
    # Work that is under way when it stops: it must not be finished afterwards.
    for number in range(BACKENDS):
        _change(made, f"b{number:04d}")
    stopped.process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    since = made.log.position()
    stopped.process.send_signal(signal.SIGCONT)
    wait_for(lambda: not stopped.alive, "end of the leader that was stopped", seconds=PATIENCE_SECONDS)
    status = stopped.ended()
    late = [call for call in made.log.writes(since, user=other) if call.code < 400]
    for call in late[:5]:
        say(f"faults: written by the leader that was stopped: {call.verb} {call.resource} {call.name}")
    pair.revive()
    made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
    return [
        results.at_most(
            f"leader stopped {STOPPED_SECONDS:g} s and resumed: its writes", len(late), "", limit=0, bar="none"
        ),
        results.at_most("the same: times it ended as if all were well", int(status == 0), "", limit=0, bar="none"),
    ]


def _converges(pair: Pair, name: str, fault: Callable[[], None]) -> Row:
    pair.leader()
    since = pair.made.log.position()
    fault()
    over = time.time()
    seconds = _edit(pair) - over
    pair.made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
    return results.at_most(
        f"{name}: an edit arrives after", seconds, "s", limit=CONVERGE_SECONDS, bar="converges within 60 s"
    )


def _pause(made: World, seconds: float) -> None:
    server = made.plane.api_server
    server.send(signal.SIGSTOP)
    time.sleep(seconds)
    server.send(signal.SIGCONT)


def _compact(made: World) -> None:
    """Throw all history away: a watch that asks for an old version gets 410."""
    store = made.plane.etcd
    certificate = (str(store.client.certificate), str(store.client.key))

    def call(path: str, body: Object) -> Object:
        authority = str(made.plane.authority.certificate)
        answer = requests.post(store.url + path, json=body, cert=certificate, verify=authority, timeout=20)
        answer.raise_for_status()
        return dict(answer.json())

    header = call("/v3/kv/range", {"key": base64.b64encode(b"x").decode()})["header"]
    call("/v3/kv/compaction", {"revision": header["revision"], "physical": True})
    made.plane.restart_api_server()  # its own cache would otherwise hide the compaction


def _namespace_deleted(pair: Pair) -> Row:
    """Delete a namespace while its backends are being made, and see the operator come to rest."""
    made, name = pair.made, "faults-gone"
    made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    fleet.apply_all(made, fleet.backends(name, BACKENDS))
    made.api.delete("Namespace", "", name)
    began = time.time()
    since = made.log.position()
    wait_for(lambda: made.api.get("Namespace", "", name) is None, "end of the namespace", seconds=PATIENCE_SECONDS)
    last = made.quiet_since(since, seconds=10.0, patience_seconds=PATIENCE_SECONDS)
    return results.at_most(
        "namespace deleted in the middle: last write after", last - began, "s", limit=CONVERGE_SECONDS, bar="at rest"
    )


def _errors() -> list[Row]:
    """Bring a fleet up through a proxy without faults, then one through a proxy with them, and count the calls."""
    calls = {}
    seconds = {}
    for share in (0.0, FAULT_SHARE):
        with world(controller_manager=False) as made, _faulty(made, share) as proxy:
            made.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            fleet.apply_all(made, fleet.backends(NAMESPACE, BACKENDS))
            since = made.log.position()
            process = made.operator(kubeconfig=proxy.kubeconfig(made.folder / "faulty.kubeconfig"))
            process.until_ready()
            wait_for(functools.partial(_complete, made), "complete fleet", seconds=PATIENCE_SECONDS, poll_seconds=0.5)
            last = made.quiet_since(since, seconds=STILL_SECONDS, patience_seconds=PATIENCE_SECONDS)
            calls[share], seconds[share] = proxy.calls, last - process.started
            say(f"faults: {proxy.calls} calls, {proxy.faults} of them answered with 409, 429 or 500")
            end(process)
    return [
        results.at_most(
            f"{FAULT_SHARE:.0%} of all calls fail: {BACKENDS} backends complete after",
            seconds[FAULT_SHARE],
            "s",
            limit=CONVERGE_SECONDS,
            bar="converges within 60 s",
        ),
        results.at_most(
            "the same: calls, against none failing",
            calls[FAULT_SHARE] / calls[0.0],
            "",
            limit=MAXIMUM_CALLS_RATIO,
            bar="bounded: at most 3 ×",
        ),
    ]


@contextlib.contextmanager
def _faulty(made: World, share: float) -> Iterator[FaultyServer]:
    pair = made.plane.authority.issue("faulty", common_name=OPERATOR_USER, organizations=OPERATOR_GROUPS)
    authority = made.plane.authority.certificate
    with FaultyServer(made.plane.server, authority=authority, client=pair, share=share, seed=SEED) as proxy:
        yield proxy
        made.stop_operators()


def _complete(made: World) -> bool:
    backends = made.api.list("LLMBackend", NAMESPACE)
    told = all(one.get("status", {}).get("observedGeneration") for one in backends)
    return told and len(made.api.list("Deployment", NAMESPACE)) == BACKENDS


def _edit(pair: Pair) -> float:
    """Change a spec and return when the change has reached its child (seconds since the epoch)."""
    made, name = pair.made, "b0000"
    wanted = _change(made, name)

    def arrived() -> bool:
        pair.revive()
        child = made.api.get("Service", NAMESPACE, name) or {}
        return bool(child["spec"]["ports"][0]["port"] == wanted)

    wait_for(arrived, "edit in the child", seconds=PATIENCE_SECONDS)
    return time.time()


def _change(made: World, name: str) -> int:
    live = made.api.get("LLMBackend", NAMESPACE, name) or {}
    wanted = int(live["spec"].get("service", {}).get("port", 80)) + 1
    made.api.patch("LLMBackend", NAMESPACE, name, {"spec": {"service": {"port": wanted}}})
    return wanted


def _bind(made: World, user: str) -> None:
    """Give another user the operator's rights."""
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    for kind, space in (("ClusterRoleBinding", ""), ("RoleBinding", installation.NAMESPACE)):
        for binding in made.api.list(kind, space):
            if binding["metadata"]["name"].startswith("penstock") and binding["roleRef"]["name"] != "penstock-view":
                meta = {"name": f"{binding['metadata']['name']}-more", **({"namespace": space} if space else {})}
                made.api.apply(
                    {
                        "apiVersion": "rbac.authorization.k8s.io/v1",
                        "kind": kind,
                        "metadata": meta,
                        "roleRef": binding["roleRef"],
                        "subjects": [subject],
                    }
                )
