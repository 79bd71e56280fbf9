"""The images themselves, built for real and run on a read-only root by a user without rights.

The first run builds them, which takes minutes, and both need root.
"""

import json
import tarfile

import pytest

from e2e import images
from e2e.images import archive, container

pytestmark = pytest.mark.cluster

MEGABYTE = 1_000_000
MOST_COMPRESSED = 150 * MEGABYTE
MOST_UNPACKED = 400 * MEGABYTE


@pytest.fixture(scope="module")
def penstock():
    return images.penstock()


@pytest.fixture(scope="module")
def running(penstock):
    with container.unpacked(penstock) as unpacked:
        yield unpacked


def test_the_penstock_image_is_small(penstock):
    sizes = images.sizes(penstock)
    assert 0 < sizes.compressed <= MOST_COMPRESSED
    assert sizes.compressed < sizes.unpacked <= MOST_UNPACKED


@pytest.mark.parametrize("arguments", [["--help"], ["operator", "--help"], ["limiter", "--help"]], ids=" ".join)
def test_penstock_starts(running, arguments):
    done = running.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: penstock" in done.stdout


def test_it_runs_as_the_numeric_user_of_the_image(running):
    assert running.config["User"] == container.NOBODY
    assert running.execute("id", "-u").stdout == "65532\n"


def test_it_cannot_write_to_its_root(running):
    assert "Read-only file system" in running.execute("touch", "/opt/penstock/x", user="0:0").stderr


def test_it_holds_every_module_of_penstock(running):
    script = (
        "import importlib, pkgutil, penstock\n"
        "names = [m.name for m in pkgutil.walk_packages(penstock.__path__, 'penstock.') if '__main__' not in m.name]\n"
        "[importlib.import_module(name) for name in names]\n"
        "print(len(names) > 20)"
    )
    done = running.execute("python3", "-c", script)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_its_compiled_files_are_used(running):
    """Nothing is compiled at the start: each file that is loaded comes from `__pycache__`."""
    script = (
        "import os, sys, kopf, penstock.cli.main\n"
        "cached = [getattr(module, '__cached__', None) for module in sys.modules.values()]\n"
        "print(sum(map(bool, cached)) > 100, [path for path in cached if path and not os.path.exists(path)])"
    )
    done = running.execute("python3", "-v", "-c", script)
    assert done.stdout == "True []\n"
    assert "bytecode is stale" not in done.stderr


@pytest.mark.parametrize("tool", ["pip", "pip3", "gcc", "apt-get", "dpkg-query --list", "hatchling"])
def test_it_holds_no_tools_that_build_or_install(running, tool):
    assert running.execute("sh", "-c", f"{tool} 2>&1; python3 -m {tool.split()[0]} 2>&1").returncode != 0


def test_nothing_of_this_machine_is_in_it(running, penstock):
    for name in ("etc/pip.conf", "etc/apt", "run/secrets"):
        assert not (running.root / name).exists(), name
    for name in ("etc/resolv.conf", "etc/hostname", "etc/hosts"):  # mount points of the build, empty
        path = running.root / name
        assert not path.exists() or path.stat().st_size == 0, name
    with tarfile.open(penstock.archive) as tar:
        manifest = json.load(archive.member(tar, "manifest.json"))[0]
        config = archive.member(tar, manifest["Config"]).read().decode()
    assert "https://" not in config
    assert "http://" not in config
    assert {line.partition("=")[0] for line in json.loads(config)["config"]["Env"]} == {
        "HOME",
        "LANG",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
    }


@pytest.mark.parametrize("name", ["llamacpp", "fakevllm", "vllm-host", "pause"])
def test_the_other_images_are_complete(name):
    image = images.IMAGES[name]()
    with tarfile.open(image.archive) as tar:
        (manifest,) = json.load(archive.member(tar, "manifest.json"))
        assert manifest["RepoTags"] == [image.reference]
        assert {*manifest["Layers"], manifest["Config"]} <= set(tar.getnames())


def test_the_llama_image_answers_a_prompt():
    """The entrypoint, the model's path and the override of the address that the image presets."""
    script = (
        "import json, socket, subprocess, time, urllib.request as web\n"
        "with socket.create_server(('127.0.0.1', 0)) as free: port = str(free.getsockname()[1])\n"
        "url = 'http://127.0.0.1:' + port\n"
        "argv = ['/app/llama-server', '--host', '127.0.0.1', '--port', port, '-c', '256']\n"
        "argv += ['-m', '/models/smollm2.gguf']\n"
        "server = subprocess.Popen(argv, stderr=subprocess.DEVNULL)\n"
        "for _ in range(600):\n"
        "    time.sleep(0.1)\n"
        "    assert server.poll() is None, 'the server has ended'\n"
        "    try:\n"
        "        web.urlopen(url + '/health'); break\n"
        "    except OSError: continue\n"
        "body = json.dumps({'prompt': 'The capital of France is', 'n_predict': 8, 'temperature': 0}).encode()\n"
        "print(json.load(web.urlopen(web.Request(url + '/completion', body)))['content'])\n"
        "server.terminate(); server.wait()\n"
    )
    with container.unpacked(images.llamacpp()) as unpacked:
        assert unpacked.config["Entrypoint"] == ["/app/llama-server"]
        done = unpacked.execute("python3", "-c", script, timeout_seconds=120)
    assert "Paris" in done.stdout, done.stderr
