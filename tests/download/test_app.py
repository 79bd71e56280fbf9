"""One download from beginning to end, against a hub that answers as the real one does."""

import json
import ssl

import pytest

from e2e.hub import Hub, Repository
from penstock.download import app
from penstock.download import hub as hub_module
from penstock.download.store import Store

FILES, SNAPSHOT = "acme/tiny-gguf", "acme/tiny"


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_arrives_whole_and_alone(hub, download, volume):
    one = download()
    assert one.run() == 0
    assert names(one.published) == [".penstock.json", "tiny.gguf"]
    assert (one.published / "tiny.gguf").read_bytes() == hub.repositories[FILES].files["tiny.gguf"].source
    assert hub.downloads(FILES, "tiny.gguf") == 1
    assert names(volume / ".penstock") == ["model.lock"]
    assert "all checksums are right" in one.last_line


def test_a_whole_model_comes_without_what_no_engine_reads(hub, download):
    one = download(REPOSITORY=SNAPSHOT, FILE=None)
    assert one.run() == 0
    expected = [".penstock.json", "added_tokens.txt", "config.json", "model.safetensors", "tokenizer.json"]
    assert names(one.published) == expected
    assert hub.downloads(SNAPSHOT, "pytorch_model.bin") == 0


def test_files_with_the_names_that_the_volume_uses_itself_do_no_harm(hub, download):
    whole = {"config.json": b"{}", "model.safetensors": b"weights"}
    own = {".penstock.json": b"another", "config.json.incomplete": b"half"}
    hub.repositories[SNAPSHOT] = Repository(SNAPSHOT, whole | own)
    one = download(REPOSITORY=SNAPSHOT, FILE=None)
    assert one.run() == 0
    assert names(one.published) == [".penstock.json", *whole]
    assert one.run() == 0
    assert "is there: commit" in one.last_line


def test_the_commit_is_written_beside_the_model(hub, download):
    one = download(REVISION="main")
    one.run()
    record = json.loads((one.published / ".penstock.json").read_text())
    assert (record["revision"], record["commit"]) == ("main", hub.repositories[FILES].commit)


def test_every_file_comes_from_the_commit_that_was_resolved_first(hub, download):
    download(REPOSITORY=SNAPSHOT, FILE=None).run()
    commit = hub.repositories[SNAPSHOT].commit
    resolved = [one.path for one in hub.requests if "/resolve/" in one.path]
    assert resolved
    assert all(f"/resolve/{commit}/" in path for path in resolved)


def test_a_complete_model_needs_no_hub(hub, download):
    one = download()
    assert one.run() == 0
    hub.stop()
    assert one.run() == 0
    assert hub.repositories[FILES].commit in one.last_line


def test_a_branch_that_moves_does_not_move_a_complete_model(hub, download):
    one = download()
    one.run()
    hub.repositories[FILES] = Repository(FILES, {"tiny.gguf": b"new"})
    assert one.run() == 0
    assert len((one.published / "tiny.gguf").read_bytes()) == 25_000_000


def test_a_commit_may_be_named_as_the_revision(hub, download):
    assert download(REVISION=hub.repositories[FILES].commit).run() == 0


@pytest.mark.parametrize("damage", ["removed", "cut", "no record"])
def test_a_damaged_model_is_mended_from_what_is_right_in_it(hub, download, damage):
    one = download(REPOSITORY=SNAPSHOT, FILE=None)
    one.run()
    weights = one.published / "model.safetensors"
    if damage == "removed":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        (one.published / ".penstock.json").unlink()
    assert one.run() == 0
    assert weights.read_bytes() == hub.repositories[SNAPSHOT].files["model.safetensors"].source
    assert hub.downloads(SNAPSHOT, "config.json") == 1
    assert any("damaged" in line for line in one.lines)


def test_a_damaged_model_is_mended_after_an_interrupted_mending_too(hub, download):
    one = download()
    one.run()
    (one.published / "tiny.gguf").unlink()
    one.staging.mkdir()
    assert one.run() == 0
    assert (one.published / "tiny.gguf").stat().st_size == 25_000_000


def test_what_an_earlier_commit_left_behind_is_not_published(hub, download):
    one = download()
    one.staging.mkdir(parents=True)
    (one.staging / "old.gguf").write_bytes(b"old")
    assert one.run() == 0
    assert "old.gguf" not in names(one.published)


class TestToken:
    def test_it_opens_a_private_repository(self, hub, download, tmp_path):
        secret = tmp_path / "token"
        secret.write_text("hf_friend\n")
        assert download(REPOSITORY="acme/private", TOKEN_PATH=str(secret)).run() == 0

    def test_it_goes_to_the_hub_and_never_to_its_storage_or_the_log(self, hub, download, tmp_path):
        secret = tmp_path / "token"
        secret.write_text("hf_friend")
        one = download(REPOSITORY="acme/gated", TOKEN_PATH=str(secret))
        assert one.run() == 0
        sent = {(request.host, request.token) for request in hub.requests}
        assert sent == {("hub", "hf_friend"), ("storage", None)}
        assert not [line for line in one.lines if "hf_friend" in line or "X-Signature" in line]

    def test_none_is_taken_from_elsewhere(self, hub, download, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_friend")
        assert download(REPOSITORY="acme/private").run() == app.EXIT_PERMANENT
        assert {request.token for request in hub.requests} == {None}

    @pytest.mark.parametrize("content", ["", "two words", "hf_é"], ids=["empty", "blank", "no ASCII"])
    def test_a_secret_without_a_token_says_so(self, download, tmp_path, content):
        secret = tmp_path / "token"
        secret.write_text(content)
        one = download(TOKEN_PATH=str(secret))
        assert one.run() == app.EXIT_PERMANENT
        assert one.last_line == "the token's Secret holds no token: write it as one line without blanks"

    def test_a_secret_that_is_not_there_says_so(self, download, tmp_path):
        one = download(TOKEN_PATH=str(tmp_path / "none"))
        assert one.run() == app.EXIT_PERMANENT
        assert one.last_line == "the token's Secret cannot be read: No such file or directory"


PERMANENT = [
    (
        {"REPOSITORY": "acme/none"},
        None,
        "has no repository acme/none, or it needs a token: name one in `tokenSecretRef`",
    ),
    ({"REPOSITORY": "acme/none"}, "hf_friend", "has no repository acme/none, or the token may not read it"),
    ({"REPOSITORY": "acme/private"}, None, "has no repository acme/private, or it needs a token"),
    ({"REPOSITORY": "acme/private"}, "hf_stranger", "has no repository acme/private, or the token may not read it"),
    ({"REPOSITORY": "acme/private"}, "hf_wrong", "does not know the token (401): write a valid one into its Secret"),
    ({"REPOSITORY": "acme/gated"}, None, "acme/gated is gated: accept its terms at"),
    ({"REPOSITORY": "acme/gated"}, "hf_stranger", "with the account of the token"),
    (
        {"FILE": "none.gguf"},
        None,
        "acme/tiny-gguf at revision main has no file none.gguf; it has other.gguf, tiny.gguf",
    ),
    ({"FILE": "none.bin"}, None, "acme/tiny-gguf at revision main has no file none.bin"),
    ({"REVISION": "v2"}, None, "acme/tiny-gguf has no revision v2"),
    ({"FILE": None}, None, "has no weights in safetensors or PyTorch format; write its GGUF file as `file`, such as"),
    ({"REPOSITORY": "a" * 97}, None, "is no repository: write owner/name"),
]


@pytest.mark.parametrize(("settings", "token", "sentence"), PERMANENT, ids=[one[2][:40] for one in PERMANENT])
def test_what_only_a_change_can_mend_is_said_at_once(hub, download, tmp_path, settings, token, sentence):
    if token is not None:
        (tmp_path / "token").write_text(token)
        settings = {**settings, "TOKEN_PATH": str(tmp_path / "token")}
    one = download(**settings)
    assert one.run() == app.EXIT_PERMANENT
    assert sentence in one.last_line
    assert "\n" not in one.last_line
    assert len(one.last_line) < 250
    assert one.pauses == []
    assert not one.published.exists()


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("/elsewhere", "answers 404 for acme/tiny-gguf: is it the address of a Hugging Face hub?")],
)
def test_another_server_is_told_from_a_hub(hub, download, path, sentence):
    one = download(ENDPOINT=hub.url + path)
    assert one.run() == app.EXIT_PERMANENT
    assert sentence in one.last_line


def test_a_mirror_without_checksums_is_refused(hub, download):
    hub.faults.without_checksums = True
    one = download()
    assert one.run() == app.EXIT_PERMANENT
    assert "names no checksum for other.gguf" in one.last_line


@pytest.mark.parametrize("answer", [b"[]", b"<html>", b'{"id": 1}'], ids=["a list", "a page", "an object"])
def test_an_answer_that_is_no_hubs_is_said_to_be_none(hub, download, monkeypatch, answer):
    monkeypatch.setattr(Repository, "description", lambda _: json.loads(answer) if answer != b"<html>" else answer)
    monkeypatch.setattr("e2e.hub.server.json.dumps", lambda value: answer.decode())
    one = download()
    assert one.run() == app.EXIT_PERMANENT
    assert "Hugging Face hub" in one.last_line


@pytest.mark.parametrize("path", ["../outside.gguf", "/etc/outside.gguf", "a/../../outside.gguf"])
def test_a_file_outside_the_folder_is_refused(download, hub, path):
    hub.repositories[FILES] = Repository(FILES, {"tiny.gguf": b"x", path: b"x"})
    one = download()
    assert one.run() == app.EXIT_PERMANENT
    assert "holds a file outside its own folder" in one.last_line


class TestUnreachable:
    @pytest.mark.parametrize(
        ("endpoint", "sentence"),
        [
            ("http://127.0.0.1:1", "cannot reach http://127.0.0.1:1: Connection refused"),
            ("http://hub.invalid", "cannot reach http://hub.invalid: its name does not resolve"),
        ],
        ids=["refused", "no such name"],
    )
    def test_it_may_pass(self, download, endpoint, sentence):
        one = download(ENDPOINT=endpoint)
        assert one.run() == app.EXIT_TRANSIENT
        assert one.last_line.startswith(sentence)
        assert one.pauses == [0.5, 1.0, 2.0]

    def test_silence_is_told(self, hub, download, monkeypatch):
        monkeypatch.setattr(hub_module, "ANSWER_SECONDS", 0.05)
        hub.lock.acquire()  # no request is answered any more
        try:
            one = download()
            assert one.run() == app.EXIT_TRANSIENT
            assert one.last_line == f"cannot reach {hub.url}: no answer in time"
        finally:
            hub.lock.release()

    def test_plain_http_behind_https_is_told(self, hub, download):
        one = download(ENDPOINT=hub.url.replace("http:", "https:"))
        assert one.run() == app.EXIT_PERMANENT
        assert "does not speak TLS as expected" in one.last_line

    def test_a_certificate_of_nobody_known_is_told(self, download, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with Hub([Repository(FILES, {"tiny.gguf": b"x"})], tls=context) as secure:
            one = download(ENDPOINT=secure.url)
            assert one.run() == app.EXIT_PERMANENT
        assert one.last_line.startswith(f"the certificate of {secure.url} is not trusted: ")


class TestTransient:
    @pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
    def test_a_passing_refusal_is_asked_again(self, hub, download, status):
        hub.faults.statuses = [status]
        one = download()
        assert one.run() == 0
        assert one.pauses == [0.5]

    def test_four_in_a_row_end_it(self, hub, download):
        hub.faults.statuses = [503] * 4
        one = download()
        assert one.run() == app.EXIT_TRANSIENT
        assert one.last_line == f"{hub.url} answers 503 for {FILES}"

    @pytest.mark.parametrize(("asked", "waited"), [("7", 7.0), ("86400", 120.0), ("soon", 0.5)])
    def test_retry_after_is_obeyed_within_reason(self, hub, download, asked, waited):
        hub.faults.statuses, hub.faults.retry_after = [429], asked
        one = download()
        assert one.run() == 0
        assert one.pauses == [waited]

    def test_a_connection_that_is_cut_goes_on_where_it_was(self, hub, download):
        hub.faults.cut_after_bytes = [15_000_000]
        one = download()
        assert one.run() == 0
        assert hub.downloads(FILES, "tiny.gguf") == 1
        assert hub.starts(FILES, "tiny.gguf")[1] >= 10_000_000

    def test_a_damaged_transfer_comes_anew(self, hub, download):
        hub.faults.corrupt_times = 1
        one = download()
        assert one.run() == 0
        assert any("arrived damaged" in line for line in one.lines)
        assert hub.downloads(FILES, "tiny.gguf") == 2

    def test_damage_that_stays_is_never_published(self, hub, download):
        hub.faults.corrupt_times = 99
        one = download()
        assert one.run() == app.EXIT_TRANSIENT
        assert "tiny.gguf arrived damaged: its SHA-256 is" in one.last_line
        assert not one.published.exists()
        assert hub.downloads(FILES, "tiny.gguf") == 4


@pytest.mark.parametrize(
    "left_over",
    [b"\0" * 1_000_000, b"\0" * 25_000_000, b"\0" * 26_000_000],
    ids=["shorter", "as long", "longer"],
)
def test_a_partial_file_of_other_bytes_is_found_out(hub, download, left_over):
    one = download()
    one.staging.mkdir(parents=True)
    (one.staging / "tiny.gguf.incomplete").write_bytes(left_over)
    assert one.run() == 0
    assert (one.published / "tiny.gguf").read_bytes() == hub.repositories[FILES].files["tiny.gguf"].source


def test_a_hub_that_knows_no_ranges_sends_the_file_again(hub, download):
    hub.faults.no_ranges = True
    one = download()
    one.staging.mkdir(parents=True)
    (one.staging / "tiny.gguf.incomplete").write_bytes(b"\0" * 1_000_000)
    assert one.run() == 0
    assert hub.downloads(FILES, "tiny.gguf") == 0, "it was asked for the rest"
    assert "downloaded 25.0 MB" in one.last_line


def test_wrong_settings_name_the_variable_and_what_to_write(download):
    one = download(REPOSITORY=None, FOLDER="../x")
    assert one.run() == app.EXIT_PERMANENT
    assert "PENSTOCK_DOWNLOAD_REPOSITORY is missing: write the repository, such as" in one.last_line
    assert "PENSTOCK_DOWNLOAD_FOLDER is wrong" in one.last_line


class TestVolume:
    def test_too_small_a_volume_is_found_out_before_the_download(self, hub, download, monkeypatch):
        monkeypatch.setattr(Store, "free_bytes", lambda _: 2_000_000)
        one = download()
        assert one.run() == app.EXIT_PERMANENT
        assert "needs 25.0 MB, the volume at" in one.last_line
        assert "has 2.0 MB free: make it larger" in one.last_line
        assert hub.starts(FILES, "tiny.gguf") == []

    def test_what_is_there_already_needs_no_space(self, download, monkeypatch, hub):
        one = download()
        one.staging.mkdir(parents=True)
        source = hub.repositories[FILES].files["tiny.gguf"].source
        (one.staging / "tiny.gguf.incomplete").write_bytes(source[:24_500_000])
        monkeypatch.setattr(Store, "free_bytes", lambda _: 600_000)
        assert one.run() == 0
        assert hub.starts(FILES, "tiny.gguf") == [24_500_000]

    def test_no_right_to_write_is_told(self, download, monkeypatch):
        def refuse(_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Store, "prepare", refuse)
        one = download()
        assert one.run() == app.EXIT_PERMANENT
        assert "may not write to the volume at" in one.last_line

    def test_a_failing_disk_is_told(self, download, monkeypatch):
        def fail(*_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Store, "publish", fail)
        one = download()
        assert one.run() == app.EXIT_TRANSIENT
        assert one.last_line.endswith("fails: Input/output error")


class TestLargeFiles:
    """Files beyond what the hub sends over plain HTTP; the limit is lowered instead of the file made large."""

    @pytest.fixture(autouse=True)
    def low_limit(self, monkeypatch):
        monkeypatch.setattr(hub_module.constants, "MAX_HTTP_DOWNLOAD_SIZE", 1_000_000)

    def test_one_that_only_http_could_bring_is_refused_with_advice(self, download):
        one = download()
        assert one.run() == app.EXIT_PERMANENT
        assert "tiny.gguf is larger than the 50 GB that" in one.last_line
        assert "choose a split file" in one.last_line

    def test_one_that_the_hub_has_in_chunks_comes_in_chunks(self, hub, download, monkeypatch):
        source = hub.repositories[FILES].files["tiny.gguf"].source
        asked = []

        def xet_get(*, incomplete_path, xet_file_data, headers, expected_size):
            asked.append((xet_file_data, expected_size))
            incomplete_path.write_bytes(source)

        class Metadata:
            xet_file_data = "chunks"

        monkeypatch.setattr(hub_module, "get_hf_file_metadata", lambda *_, **__: Metadata)
        monkeypatch.setattr(hub_module, "xet_get", xet_get)
        one = download()
        assert one.run() == 0
        assert asked == [("chunks", 25_000_000)]
