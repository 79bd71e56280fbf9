import pytest

from e2e.images import llamaserver
from e2e.images.errors import ImageBuildError


@pytest.fixture(autouse=True)
def on_x86(monkeypatch):
    monkeypatch.setattr(llamaserver.platform, "machine", lambda: "x86_64")


def test_a_processor_with_avx2_passes():
    llamaserver.check_processor(llamaserver.X86_64_V3 | {"avx512f"})


@pytest.mark.parametrize("feature", sorted(llamaserver.X86_64_V3))
def test_a_processor_without_a_feature_is_told_which(feature):
    with pytest.raises(ImageBuildError, match=rf"no {feature}\b.*AVX2"):
        llamaserver.check_processor(llamaserver.X86_64_V3 - {feature})


def test_other_architectures_have_no_such_demand(monkeypatch):
    monkeypatch.setattr(llamaserver.platform, "machine", lambda: "aarch64")
    llamaserver.check_processor(frozenset())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOURCE_SHA256", "0" * 64),
        ("FLAGS", ("-DGGML_NATIVE=ON",)),
        ("OPTIMISATION", {"ggml": "-O2"}),
    ],
)
def test_source_and_flags_name_the_build(monkeypatch, name, value):
    before = llamaserver.key()
    monkeypatch.setattr(llamaserver, name, value)
    assert llamaserver.key() != before
