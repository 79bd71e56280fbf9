"""Which tests each target of the suite runs."""

from pathlib import Path

import pytest

from e2e import __main__ as suite
from e2e.cluster import ClusterError


def test_every_folder_of_tests_has_a_target():
    folders = {path.parent.name for path in suite.SUITE.glob("*/test_*.py")}
    assert folders == set(suite.OTHER_SUITES)


def test_the_main_suite_leaves_out_the_others():
    assert suite._folders("") == [
        str(suite.SUITE),
        f"--ignore={suite.SUITE / 'operator'}",
        f"--ignore={suite.SUITE / 'vllm'}",
    ]


@pytest.mark.parametrize("name", suite.OTHER_SUITES)
def test_each_other_suite_runs_alone(name):
    options = suite._parser().parse_args([f"--{name}"])
    assert suite._suite(options) == name
    (folder,) = suite._folders(name)
    assert list(Path(folder).glob("test_*.py"))


def test_the_operator_s_suite_is_refused_where_there_is_no_audit_log():
    with pytest.raises(ClusterError, match="audit log"):
        suite.main(["--operator", "--driver", "kind"])
