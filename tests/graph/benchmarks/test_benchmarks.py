"""The table of benchmarks against local copies, and the way from a name to a folder against a real server."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from offered import SHA256, TEXT, TOY, Server, assert_cache_is_empty, contents, serve_splits, tar_of, zip_of

from pairre.graph.benchmarks import BENCHMARKS, Benchmark, Source, Splits, download, locate, lookup, names, obtain
from pairre.support.errors import DownloadError, GraphError
from pairre.support.files import cache_folder


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("PAIRRE_DATA", raising=False)
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make one entry the only benchmark there is."""

    def offer(*sources: Source, **changes: Any) -> None:
        monkeypatch.setattr(lookup, "BENCHMARKS", (replace(TOY, sources=sources, **changes),))

    return offer


# The table


def test_names_are_unique_and_lower_case() -> None:
    assert len(set(names())) == len(names()) == len(BENCHMARKS)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names())


@pytest.mark.parametrize("entry", BENCHMARKS, ids=names())
def test_an_entry_is_complete(entry: Benchmark) -> None:
    assert all((entry.title, entry.citation, entry.licence))
    assert min(entry.num_entities, entry.num_relations, entry.num_train, entry.num_test) > 0
    assert entry.num_valid >= 0
    assert all(re.fullmatch(r"https://[^\s/]+/\S+", url) for url in entry.urls)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in entry.sha256 if digest)
    assert {split for split, digest in entry.sha256._asdict().items() if digest} <= set(entry.num_triples)
    for source in entry.sources:
        assert {split for split, part in source.parts._asdict().items() if part} == set(entry.num_triples)
        assert sorted(source.columns) == ["h", "r", "t"]


@pytest.mark.parametrize("entry", BENCHMARKS, ids=names())
def test_local_copies_are_what_the_table_says(entry: Benchmark, local_data: Path) -> None:
    folder = local_data / entry.name
    files = {split: folder / f"{split}.tsv.gz" for split in Splits._fields if (folder / f"{split}.tsv.gz").is_file()}
    if not files:
        pytest.skip(f"PAIRRE_DATA has no {entry.name}")
    entities, relations = set(), set()
    for split, file in files.items():
        text = gzip.decompress(file.read_bytes())
        assert hashlib.sha256(text).hexdigest() == getattr(entry.sha256, split)
        rows = [line.split(b"\t") for line in text.splitlines()]
        assert len(rows) == entry.num_triples[split]
        entities |= {name for row in rows for name in (row[0], row[2])}
        relations |= {row[1] for row in rows}
    if set(files) == set(entry.num_triples):
        assert (len(entities), len(relations)) == (entry.num_entities, entry.num_relations)


@pytest.fixture(scope="module")
def local_data() -> Path:
    if not os.environ.get("PAIRRE_DATA"):
        pytest.skip("PAIRRE_DATA is not set: no local copies to compare with")
    return Path(os.environ["PAIRRE_DATA"])


# From a name to a folder


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        GraphError, match=r"fb15k237: no graph of that name; did you mean 'fb15k-237'\?; names: atlas, fb15k, .*wn18rr"
    ):
        locate("fb15k237")
    with pytest.raises(GraphError, match=r"zzzz: no graph of that name; names: atlas, fb15k, "):
        locate("zzzz")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("PAIRRE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pairre"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "pairre"


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_is_read_normalised_and_kept(server: Server, offer: Any, tmp_path: Path, pack: Any) -> None:
    prefix = "./Release" if pack is tar_of else "Release"
    windows = {f"{prefix}/{split}.txt": text.replace(b"\n", b"\r\n") for split, text in TEXT.items()}
    server.files["/toy"] = pack(windows | {"../../escape.txt": b"never unpacked"})
    parts = Splits(*(f"Release/{split}.txt" for split in TEXT))
    offer(Source(parts, archive=f"{server.url}/toy"))
    folder = locate("Toy")
    assert folder == tmp_path / "cache" / "graphs" / "toy"
    assert contents(folder) == TEXT
    assert [path.name for path in folder.parent.iterdir()] == ["toy"]
    assert not list(tmp_path.rglob("escape.txt"))


def test_splits_at_their_own_addresses_in_another_column_order(server: Server, offer: Any) -> None:
    def turned(line: bytes) -> bytes:
        head, relation, tail = line.split(b"\t")
        return b",".join((tail, head, relation))

    text = {split: b"\n".join(map(turned, body.splitlines())) for split, body in TEXT.items()}
    source = serve_splits(server, text)
    offer(replace(source, columns="thr", delimiter=","))
    assert contents(locate("toy")) == TEXT


def test_a_second_call_takes_the_cache(server: Server, offer: Any, tmp_path: Path) -> None:
    offer(serve_splits(server))
    folder = locate("toy", cache=tmp_path / "other")
    assert folder == tmp_path / "other" / "graphs" / "toy"
    written = (folder / "train.tsv.gz").read_bytes()
    assert len(server.asked) == 3
    assert locate("toy", cache=tmp_path / "other") == folder
    assert len(server.asked) == 3
    again = locate("toy")
    assert (again / "train.tsv.gz").read_bytes() == written, "gzip is written without a date"


def test_a_graph_without_a_validation_split(server: Server, offer: Any) -> None:
    source = serve_splits(server)
    offer(replace(source, parts=source.parts._replace(valid=None)), num_valid=0, num_entities=3)
    assert set(contents(locate("toy"))) == {"train", "test"}


def test_local_data_comes_first_and_is_trusted(
    server: Server, offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(serve_splits(server))
    monkeypatch.setenv("PAIRRE_DATA", str(tmp_path / "data"))
    local = tmp_path / "data" / "toy"
    local.mkdir(parents=True)
    (local / "train.tsv").write_text("my\town\tgraph\n")
    assert locate("toy") == local
    assert not server.asked


def test_a_data_folder_that_is_not_there_is_named(offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRRE_DATA", str(tmp_path / "dta"))
    offer()
    with pytest.raises(DownloadError, match=re.escape(f"(PAIRRE_DATA is {tmp_path / 'dta'}, which is no folder)")):
        locate("toy")


def test_local_data_without_train_is_passed_over(
    server: Server, offer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRRE_DATA", str(tmp_path / "data"))
    local = tmp_path / "data" / "toy"
    local.mkdir(parents=True)
    for split in ("valid", "test"):
        (local / f"{split}.tsv.gz").write_bytes(gzip.compress(TEXT[split]))
    offer()
    said = re.escape(f"({local} has valid and test, but no train split)")
    with pytest.raises(GraphError, match=rf"toy: not downloadable.*PAIRRE_DATA.*toy/train\.tsv\.gz {said}"):
        locate("toy")
    offer(serve_splits(server))
    assert locate("toy") == tmp_path / "cache" / "graphs" / "toy"


def test_a_wrong_checksum_is_refused(server: Server, offer: Any, tmp_path: Path) -> None:
    source = serve_splits(server, TEXT | {"test": b"c\tlikes\tb\n"})
    found = hashlib.sha256(b"c\tlikes\tb\n").hexdigest()
    offer(source)
    with pytest.raises(DownloadError, match=rf"toy: .*/test\.txt: expected .*sha256 {SHA256.test}, found {found}; "):
        locate("toy")
    assert_cache_is_empty(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_train": 1_004}, r"train\.txt: expected 1,004 train triples, found 3;"),
        ({"num_entities": 5}, r"expected 5 entities, found 4;"),
        ({"num_relations": 1}, r"expected 1 relations, found 2;"),
    ],
)
def test_wrong_counts_are_refused(server: Server, offer: Any, tmp_path: Path, changes: Any, said: str) -> None:
    offer(serve_splits(server), **changes)
    with pytest.raises(DownloadError, match=said):
        locate("toy")
    assert_cache_is_empty(tmp_path)


def test_a_malformed_line_is_named(server: Server, offer: Any, tmp_path: Path) -> None:
    offer(serve_splits(server, TEXT | {"train": b"a\tlikes\tb\na\tb\n"}))
    with pytest.raises(DownloadError, match=r"train\.txt:2: 2 columns, expected 3"):
        locate("toy")
    assert_cache_is_empty(tmp_path)


def test_a_cut_off_download_leaves_nothing(server: Server, offer: Any, tmp_path: Path) -> None:
    server.extra = 10
    offer(serve_splits(server))
    with pytest.raises(DownloadError, match="cut off after"):
        locate("toy")
    assert_cache_is_empty(tmp_path)


def test_the_next_source_is_tried_and_all_failures_are_told(server: Server, offer: Any, tmp_path: Path) -> None:
    gone = Source(Splits(train=f"{server.url}/gone"))
    offer(gone, Source(Splits(train=f"{server.url}/lost")))
    with pytest.raises(
        DownloadError, match=r"toy: no source worked: .*/gone: HTTP 404 .* \| .*/lost: HTTP 404"
    ) as caught:
        locate("toy")
    assert "\n" not in str(caught.value)
    assert_cache_is_empty(tmp_path)
    offer(gone, serve_splits(server))
    assert contents(locate("toy")) == TEXT


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>moved</html>", "not a sound tar or zip archive"),
        (tar_of({"train.txt": os.urandom(10_000)})[:5_000], "not a sound tar or zip archive"),
        (zip_of({"train.txt": TEXT["train"]})[:40], "not a sound tar or zip archive"),
        (tar_of({"other.txt": b""}), "no file train.txt in the archive"),
        (zip_of({"other.txt": b""}), "no file train.txt in the archive"),
    ],
    ids=["page", "cut tar", "cut zip", "other file in tar", "other file in zip"],  # archives hold the time: no names
)
def test_a_bad_archive_is_refused(server: Server, offer: Any, tmp_path: Path, body: bytes, said: str) -> None:
    server.files["/toy.tgz"] = body
    offer(Source(Splits("train.txt", "valid.txt", "test.txt"), archive=f"{server.url}/toy.tgz"))
    with pytest.raises(DownloadError, match=rf"/toy\.tgz: {said}"):
        locate("toy")
    assert_cache_is_empty(tmp_path)


def test_a_link_in_an_archive_is_not_followed(server: Server, offer: Any) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("train.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    server.files["/toy.tar"] = packed.getvalue()
    offer(Source(Splits(train="train.txt"), archive=f"{server.url}/toy.tar"))
    with pytest.raises(DownloadError, match=r"no file train\.txt"):
        locate("toy")


def test_a_cache_that_cannot_be_written_says_what_to_set(server: Server, offer: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    offer(serve_splits(server))
    with pytest.raises(DownloadError, match=r"cannot be written .* set PAIRRE_CACHE"):
        locate("toy", cache=tmp_path / "file")
    in_the_way = tmp_path / "cache" / "graphs" / "toy"
    in_the_way.mkdir(parents=True)
    (in_the_way / "notes.txt").touch()
    with pytest.raises(DownloadError, match="remove what is in the way"):
        locate("toy")


def test_without_a_checksum_a_download_has_to_be_asked_for(server: Server, offer: Any) -> None:
    offer(serve_splits(server), sha256=Splits())
    with pytest.raises(DownloadError, match=r"no checksum is known .* --unverified") as caught:
        locate("toy")
    assert "\n" not in str(caught.value)
    assert server.asked == []
    assert contents(locate("toy", unverified=True)) == TEXT
    assert contents(locate("toy")) == TEXT  # what was accepted once is kept


def test_a_split_without_end_is_cut_off(server: Server, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(serve_splits(server, {**TEXT, "train": TEXT["train"] * 2}))
    with pytest.raises(DownloadError, match=r"expected .* train triples, found more"):
        locate("toy")
    monkeypatch.setattr(obtain, "_MAX_LINE", 5)
    with pytest.raises(DownloadError, match="a line of more than"):
        locate("toy")


def test_an_archive_without_end_is_refused(server: Server, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/toy.tgz"] = tar_of({"bomb": b"\0" * 5000, **{f"{split}.txt": body for split, body in TEXT.items()}})
    offer(Source.of_archive(f"{server.url}/toy.tgz"))
    monkeypatch.setattr(obtain, "_MAX_UNPACKED", 4000)
    with pytest.raises(DownloadError, match="when it is unpacked"):
        locate("toy")


def test_a_download_without_end_is_refused(server: Server, offer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(serve_splits(server))
    monkeypatch.setattr(download, "_MAX_BYTES", 10)
    with pytest.raises(DownloadError, match="not what was published"):
        locate("toy")
