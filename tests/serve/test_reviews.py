"""Verdicts on links: what is stored, what counts, and what survives a power failure."""

import json

import pytest

from pairre.serve.reviews import Reviews, wilson
from pairre.support.errors import RunError
from serve.conftest import served

ONE, OTHER = ("France", "borders", "Italy"), ("Kenya", "borders", "Uganda")


def test_the_last_verdict_counts(tmp_path):
    stored = Reviews(tmp_path / "a.jsonl")
    for names, verdict in ((ONE, "reject"), (ONE, "accept"), (OTHER, "skip")):
        stored.add(names, verdict)
    assert stored.summary() | {"precision": None} == {"accepted": 1, "rejected": 0, "skipped": 1, "precision": None}
    assert stored.judged(ONE)
    stored.add(OTHER, "undo")
    assert not stored.judged(OTHER)
    assert stored.summary()["skipped"] == 0
    stored.close()
    again = Reviews(tmp_path / "a.jsonl")
    assert [(one["head"], one["relation"], one["tail"]) for one in again.accepted()] == [ONE]
    assert not again.judged(OTHER)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 4
    again.close()


def test_what_a_power_failure_left_is_skipped_and_nothing_is_glued_to_it(tmp_path):
    file, entry = tmp_path / "a.jsonl", {"verdict": "accept", "when": "2026-11-19T00:00:00+00:00"}
    whole = json.dumps(dict(zip(("head", "relation", "tail"), ONE, strict=True)) | entry)
    bad = ["{", "[]", "null", '{"head": 1, "relation": "r", "tail": "t", "verdict": "accept", "when": ""}', "\x00" * 9]
    file.write_bytes("\n".join([whole, *bad, "x" * (1 << 18), whole[:20]]).encode() + b"\xff")
    stored = Reviews(file)
    assert (stored.num_skipped, len(stored.accepted())) == (7, 1)
    stored.add(OTHER, "accept")
    stored.close()
    again = Reviews(file)
    assert len(again.accepted()) == 2
    again.close()


def test_a_file_has_one_writer(tmp_path):
    first = Reviews(tmp_path / "a.jsonl")
    with pytest.raises(RunError, match="another server"):
        Reviews(tmp_path / "a.jsonl")
    first.close()
    Reviews(tmp_path / "a.jsonl").close()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RunError, match="No such file"):
        Reviews(tmp_path / "none" / "a.jsonl")


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),  # from the tables in Newcombe (1998), method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(successes, total, low, high):
    found = wilson(successes, total)
    assert found["estimate"] == successes / total
    assert (round(found["low"], 4), round(found["high"], 4)) == (low, high)


def test_no_verdict_is_no_estimate():
    assert wilson(0, 0) is None


def test_a_review_from_the_first_link_to_the_export(atlas_run, tmp_path):
    with served({"atlas": atlas_run}, tmp_path) as found:
        found.engine._preparation.join()
        client, path = found.client, "/api/v1/runs/atlas/review"
        links = client.get(path, params={"size": 4}).json()
        judged = ["accept", "reject", "skip", "accept"]
        for link, verdict in zip(links["links"], judged, strict=True):
            body = {member: link[member]["name"] for member in ("head", "relation", "tail")} | {"verdict": verdict}
            posted = client.post(path, json=body)
            assert posted.json()["verdict"] == verdict
            assert posted.json()["triple"]["head"] == link["head"]
        after = client.get(path, params={"size": 200}).json()
        assert after["remaining"] == links["remaining"] - 4
        assert not [link for link in after["links"] if link in links["links"]]
        summary = client.get(f"{path}/summary").json()
        assert (summary["accepted"], summary["rejected"], summary["skipped"]) == (2, 1, 1)
        assert summary["precision"]["low"] < summary["precision"]["estimate"] == 2 / 3 < summary["precision"]["high"]
        heads = [one["head"] for one in client.get(f"{path}/export").json()["triples"]]
        assert heads == [links["links"][0]["head"]["name"], links["links"][3]["head"]["name"]]
        table = client.get(f"{path}/export", params={"format": "csv"}).text.splitlines()
        assert (table[0], len(table)) == ("head,relation,tail,when", 3)
    assert len((tmp_path / "atlas.reviews.jsonl").read_text().splitlines()) == 4
    with served({"atlas": atlas_run}, tmp_path, prepares=False) as found:  # after a restart
        assert found.client.get("/api/v1/runs/atlas/review/summary").json() == summary


def test_a_server_that_cannot_store_verdicts_says_so(atlas_run):
    with served({"atlas": atlas_run}, prepares=False) as found:
        response = found.client.get("/api/v1/runs/atlas/review/summary")
        assert (response.status_code, response.json()["error"]["code"]) == (403, "reviews_off")
