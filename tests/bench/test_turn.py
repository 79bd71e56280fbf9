import threading

import pytest

from bench import turn


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def test_the_second_measurement_waits_for_the_first_and_says_so(capsys):
    order = []

    def second():
        with turn.only_one():
            order.append("second")

    thread = threading.Thread(target=second)
    with turn.only_one():
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
    assert "waiting" in capsys.readouterr().err


def test_a_failed_measurement_lets_the_next_one_begin():
    with pytest.raises(RuntimeError), turn.only_one():
        raise RuntimeError
    with turn.only_one():
        pass
