"""Import and fetch: what is stored is checked and whole, or nothing is stored."""

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from novidgp.datasets import DatasetError, DownloadError, fetch_dataset, import_dataset, load_dataset
from novidgp.datasets.cache import cache_directory as real_cache_directory


@pytest.fixture
def yacht(expect) -> bytes:
    """The content of a small official yacht file, registered as the real one."""
    values = np.random.default_rng(0).normal(size=(30, 7)).astype(np.float32)
    expect("yacht", values[:, :6], values[:, 6])
    content = io.StringIO()
    np.savetxt(content, values)
    return content.getvalue().encode()


class Server(ThreadingHTTPServer):
    """A local server that gives `answers` (status, body, announced length) in turn, the last one for ever."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes, int]] = []
        self.requests: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        answers = self.server.answers
        self.server.requests.append(self.path)
        status, body, length = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(server: ThreadingHTTPServer, name: str = "yacht", file: str = "yacht_hydrodynamics.data"):
    url = f"http://127.0.0.1:{server.server_port}/{file}"
    return fetch_dataset(name, url=url, attempts=2, backoff=0.01, progress=False)


def test_import_then_load(yacht, tmp_path, cache):
    file = tmp_path / "yacht_hydrodynamics.data"
    file.write_bytes(yacht)
    assert import_dataset("yacht", file) == cache / "yacht.npz"
    assert load_dataset("yacht").X.shape == (30, 6)
    assert [path.name for path in cache.iterdir()] == ["yacht.npz"]
    with np.load(cache / "yacht.npz") as stored:
        assert sorted(stored.files) == ["X", "y"]


def test_import_again_replaces_the_stored_file(yacht, tmp_path, cache):
    cache.mkdir()
    (cache / "yacht.npz").write_bytes(b"damaged")
    (tmp_path / "y.data").write_bytes(yacht)
    import_dataset("yacht", tmp_path / "y.data")
    assert len(load_dataset("yacht")) == 30


def test_images_are_stored_with_their_official_test_set_apart(expect, tmp_path, cache):
    X = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28), dtype=np.uint8)
    y = np.arange(5)
    expect("mnist", X, y, train_rows=3)
    np.savez(tmp_path / "m.npz", X=X[:3], y=y[:3], X_test=X[3:], y_test=y[3:])
    import_dataset("mnist", tmp_path / "m.npz")
    with np.load(cache / "mnist.npz") as stored:
        np.testing.assert_array_equal(stored["y_test"], [3, 4])
    np.testing.assert_array_equal(load_dataset("mnist").X, X)


def test_a_wrong_file_is_refused_and_nothing_stored(yacht, tmp_path, cache):
    (tmp_path / "y.data").write_bytes(b"\n".join(yacht.splitlines()[:-1]))
    with pytest.raises(DatasetError, match=r"yacht: X has shape \(29, 6\), expected \(30, 6\)"):
        import_dataset("yacht", tmp_path / "y.data")
    assert not cache.exists()


@pytest.mark.parametrize("file", ["housing.data", "boston.npz"])
def test_a_file_that_is_not_there_is_named(tmp_path, file):
    with pytest.raises(FileNotFoundError, match=rf"boston: no file .*{file}"):
        import_dataset("boston", tmp_path / file)


def test_an_interrupted_write_leaves_nothing(yacht, tmp_path, cache, monkeypatch):
    def fail(*arguments, **arrays):
        raise OSError("disk full")

    (tmp_path / "y.data").write_bytes(yacht)
    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        import_dataset("yacht", tmp_path / "y.data")
    assert list(cache.iterdir()) == []


def test_a_builtin_set_needs_no_file(tmp_path):
    with pytest.raises(DatasetError, match="iris is built in"):
        import_dataset("iris", tmp_path)
    with pytest.raises(DatasetError, match="iris is built in"):
        fetch_dataset("iris")


def test_fetch_stores_the_checked_set_only(yacht, server, cache):
    server.answers = [(200, yacht, len(yacht))]
    assert fetch(server) == cache / "yacht.npz"
    assert len(load_dataset("yacht")) == 30
    assert [path.name for path in cache.iterdir()] == ["yacht.npz"]


def test_fetch_tries_again_after_a_server_error(yacht, server):
    server.answers = [(503, b"", 0), (200, yacht, len(yacht))]
    fetch(server)
    assert len(server.requests) == 2


def test_fetch_tries_again_after_a_truncated_answer(yacht, server):
    server.answers = [(200, yacht[:100], len(yacht)), (200, yacht, len(yacht))]
    fetch(server)
    assert len(server.requests) == 2


def test_a_truncated_body_is_refused(yacht, server, cache):
    server.answers = [(200, yacht[:100], len(yacht))]
    with pytest.raises(DownloadError, match=f"yacht: .*after 100 of {len(yacht)} bytes.*data import yacht"):
        fetch(server)
    assert list(cache.iterdir()) == []


def test_a_missing_page_is_not_asked_for_twice(yacht, server):
    server.answers = [(404, b"", 0)]
    with pytest.raises(DownloadError, match="404"):
        fetch(server)
    assert len(server.requests) == 1


def test_a_whole_download_of_the_wrong_file_is_refused(yacht, server, cache):
    server.answers = [(200, b"1 2 3 4 5 6 7\n", 14)]
    with pytest.raises(DatasetError, match="yacht: X has shape"):
        fetch(server)
    assert list(cache.iterdir()) == []


def test_several_files_are_fetched_one_by_one(expect, server, cache):
    expect("wilt", np.array([[1.0, 2, 3, 4, 5], [2, 3, 4, 5, 6]]), np.array([1, 0]), train_rows=1)
    base = f"http://127.0.0.1:{server.server_port}"
    bodies = [b"class,a,b,c,d,e\nw,1,2,3,4,5\n", b"class,a,b,c,d,e\nn,2,3,4,5,6\n"]
    server.answers = [(200, body, len(body)) for body in bodies]
    fetch_dataset("wilt", url=[f"{base}/training.csv", f"{base}/testing.csv"], progress=False)
    assert server.requests == ["/training.csv", "/testing.csv"]
    assert load_dataset("wilt").y.tolist() == [1, 0]


def test_offline_says_how_to_import_by_hand(yacht, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    closed.server_close()
    with pytest.raises(
        DownloadError, match=r"yacht: download failed .*by hand: get yacht_hydrodynamics.data"
    ):
        fetch(closed)


def test_a_set_without_a_direct_address_says_how_to_import_by_hand():
    with pytest.raises(DownloadError, match=r"kin8nm: no direct address is known; get Dataset.data"):
        fetch_dataset("kin8nm")


def test_the_cache_is_the_user_cache():
    assert real_cache_directory().parts[-2:] == ("novidgp", "data")
