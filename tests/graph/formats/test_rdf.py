"""RDF in every serialisation: the same names from each, literals left out and counted, faults with file and line."""

from __future__ import annotations

import builtins
import gzip
import logging

import pyarrow as pa
import pytest

from pairre.graph import load_graph
from pairre.graph.formats import Layout, read_triples
from pairre.support.errors import GraphError, MissingExtraError

pytest.importorskip("pyoxigraph", reason="RDF needs pairre[rdf]")

E = "http://e.org/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
EXPECTED = {(f"{E}a", f"{E}likes", f"{E}b"), (f"{E}b", f"{E}likes", f"{E}é"), (f"{E}a", f"{E}knows", "_:x")}
NT = f"""# a comment
<{E}a> <{E}likes> <{E}b> .
<{E}b> <{E}likes> <{E}é> .
<{E}a> <{E}knows> _:x .

<{E}a> <{E}age> "7"^^<http://www.w3.org/2001/XMLSchema#integer> .
<{E}a> <{E}name> "Anna"@en .
"""
TTL = f"""@prefix e: <{E}> .
@base <{E}> .
e:a e:likes <b> ; e:knows _:x ;
    e:age 7 ; e:name "Anna"@en .
<b> e:likes e:é .
"""
XML = f"""<?xml version="1.0" encoding="UTF-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="{E}" xml:base="{E}">
  <rdf:Description rdf:about="a">
    <e:likes rdf:resource="b"/>
    <e:knows rdf:nodeID="x"/>
    <e:age>7</e:age><e:name xml:lang="en">Anna</e:name>
  </rdf:Description>
  <rdf:Description rdf:about="b"><e:likes rdf:resource="é"/></rdf:Description>
</rdf:RDF>
"""
JSONLD = f"""{{"@context": {{"@base": "{E}", "e": "{E}"}}, "@graph": [
  {{"@id": "a", "e:likes": {{"@id": "b"}}, "e:knows": {{"@id": "_:x"}}, "e:age": 7, "e:name": "Anna"}},
  {{"@id": "b", "e:likes": {{"@id": "é"}}}}]}}
"""
FILES = {
    ".nt": NT,
    ".nq": NT.replace("> .", f"> <{E}graph> .").replace("_:x .", "_:x <urn:other> .").replace("@en .", "@en _:g ."),
    ".ttl": TTL,
    ".rdf": XML,
    ".xml": XML,
    ".jsonld": JSONLD,
}


def read(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    columns = read_triples(path, Layout(keep_blank=True))
    rows = zip(columns.head.to_pylist(), columns.relation.to_pylist(), columns.tail.to_pylist(), strict=True)
    return list(rows), columns.skipped.get("literals", 0)


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["", "bom"])
def test_every_serialisation_gives_the_same_triples(tmp_path, suffix, compression, start):
    data = (start + FILES[suffix]).encode()
    if compression:
        data = gzip.compress(data) if compression == ".gz" else pa.compress(data, codec="zstd", asbytes=True)
    rows, num_literals = read(tmp_path / f"g{suffix}{compression}", data)
    assert set(rows) == EXPECTED
    assert len(rows) == 3
    assert num_literals == 2


def test_literals_are_counted_in_a_warning(tmp_path, caplog):
    (tmp_path / "g.ttl").write_text(TTL)
    with caplog.at_level(logging.WARNING, logger="pairre"):
        graph = load_graph(tmp_path / "g.ttl")
    assert graph.num_entities == 3
    assert "2 triples with a literal skipped" in caplog.text
    assert "1 triples of blank nodes skipped (--keep-blank keeps them)" in caplog.text
    assert graph.annotations.skipped == {"literals": 2, "blank nodes": 1}
    assert load_graph(tmp_path / "g.ttl", keep_blank=True).num_entities == 4


def test_nothing_but_literals(tmp_path):
    with pytest.raises(GraphError, match=r"g\.nt: no triples in this file \(1 literals skipped\)$"):
        read(tmp_path / "g.nt", f'<{E}a> <{E}p> "x" .\n')


def test_a_quoted_triple_is_skipped_like_a_literal(tmp_path):
    spo = f"<{E}a> <{E}p> <{E}b>"
    assert read(tmp_path / "g.nt", f"<{E}x> <{E}says> <<( {spo} )>> .\n{spo} .\n") == ([(f"{E}a", f"{E}p", f"{E}b")], 1)


BUILDING = f"""@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix e: <{E}> .
e:a rdfs:label "A plain", "A de"@de ; skos:prefLabel "A preferred"@en ; a e:Thing .
e:b rdfs:label "B us"@en-US, "B plain" ; e:likes e:a ; a e:Thing, e:Other .
e:c skos:prefLabel "C de"@de, "C en"@EN ; e:likes e:b ; a e:Thing .
e:likes rdfs:label "mag"@de ; rdfs:domain [ a e:Class ] .
e:d e:has (e:a e:b) ; e:likes e:c .
"""


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["A plain", "B us", "C en", None]),
        ("de", ["A de", "B plain", "C de", None]),
        ("", ["A plain", "B plain"]),
    ],
)
def test_labels_in_the_wanted_language_come_first(tmp_path, language, expected):
    (tmp_path / "g.ttl").write_text(BUILDING)
    graph = load_graph(tmp_path / "g.ttl", language=language)
    labels = [graph.entity_label(graph.find_entity(f"e:{name}")) for name in "abcd"]
    assert labels[: len(expected)] == expected
    assert graph.show_relation(graph.find_relation("mag")) == "mag"
    assert graph.annotations.skipped == {"blank nodes": 3, "RDF lists": 4}


def types_by_name(graph):
    pairs = graph.entity_types
    names = {graph.show_entity(i): [graph.type_names.show(t) for t in pairs.of(i)] for i in range(graph.num_entities)}
    return {name: sorted(types) for name, types in names.items() if types}


def test_types_are_the_objects_of_rdf_type_whether_it_is_a_relation_or_not(tmp_path):
    (tmp_path / "g.ttl").write_text(BUILDING)
    graph = load_graph(tmp_path / "g.ttl", split=(1, 0, 0))
    expected = {"A plain": ["e:Thing"], "B us": ["e:Other", "e:Thing"], "C en": ["e:Thing"]}
    assert types_by_name(graph) == expected
    assert "rdf:type" in [graph.show_relation(i) for i in range(graph.num_relations)]
    for choice in ({"exclude": "rdf:type"}, {"only": ["mag"]}):
        graph = load_graph(tmp_path / "g.ttl", split=(1, 0, 0), **choice)
        assert types_by_name(graph) == expected
        assert [graph.show_relation(i) for i in range(graph.num_relations)] == ["mag"]
        assert graph.annotations.skipped["other relations"] == 4
        graph.save(tmp_path / "stored")
        assert types_by_name(load_graph(tmp_path / "stored")) == expected


def test_types_of_held_out_triples_are_not_known(tmp_path):
    (tmp_path / "train.nt").write_text(f"<{E}a> <{RDF}type> <{E}X> .\n<{E}b> <{E}p> <{E}a> .\n")
    (tmp_path / "test.nt").write_text(f"<{E}b> <{RDF}type> <{E}X> .\n")
    graph = load_graph(tmp_path)
    assert [len(graph.entity_types.of(graph.find_entity(name))) for name in "ab"] == [1, 0]


ANONYMOUS = {
    ".ttl": f"@prefix e: <{E}> .\n[] e:p [ e:q e:b ] .\n_:x e:p e:b .\n",
    ".jsonld": f'{{"{E}p": {{"{E}q": {{"@id": "{E}b"}}}}}}',
    ".rdf": XML.split("<rdf:Desc")[0] + '<rdf:Description><e:p rdf:resource="b"/></rdf:Description></rdf:RDF>',
}


@pytest.mark.parametrize("suffix", ANONYMOUS)
def test_nodes_without_a_label_have_the_same_name_each_time(tmp_path, suffix):
    first, _ = read(tmp_path / f"train{suffix}", ANONYMOUS[suffix])
    again, _ = read(tmp_path / f"train{suffix}", ANONYMOUS[suffix])
    assert first == again
    assert "_:train#1" in {name for row in first for name in row}


def test_unlabelled_nodes_of_two_files_differ_but_labelled_ones_are_shared(tmp_path):
    train, _ = read(tmp_path / "train.ttl", ANONYMOUS[".ttl"])
    test, _ = read(tmp_path / "test.ttl", ANONYMOUS[".ttl"])
    shared = {r[0] for r in train} & {r[0] for r in test}
    assert shared == {"_:x"}
    random_looking = "_:aa98e72f03ee32fdcb53c5cec554dac3"
    assert read(tmp_path / "g.nt", f"{random_looking} <{E}p> _:y .\n")[0] == [(random_looking, f"{E}p", "_:y")]


def test_relative_names_do_not_depend_on_where_the_file_lies(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        rows, _ = read(tmp_path / folder / f"{folder}.ttl", f"<a> <{E}p> <#b> .")
        assert rows == [("file:///a", f"{E}p", "file:///#b")]


@pytest.mark.parametrize(
    ("name", "data", "where"),
    [
        ("g.nt", NT + "<http://a> <http://b>\n", "g.nt:9: "),
        ("g.nt", NT + "a\tb\tc\n", "g.nt:8: "),
        ("g.nt", NT.encode() + b"<http://a> <http://b> <http://\xff> .\n", "g.nt:8: "),
        ("g.nq", NT + "<http://a> <http://b> <c> .\n", "g.nq:8: "),
        ("g.ttl", TTL + "x:a x:b x:c .", "g.ttl:6: "),
        ("g.ttl", '<http://a> <http://b>\n "x\ny" .', "g.ttl:2: "),
        ("g.ttl", TTL[:-3], "g.ttl:"),
        ("g.rdf", XML.replace("</rdf:RDF>", "</x>"), "g.rdf:9: mismatched tag"),
        ("g.rdf", XML.replace("</rdf:RDF>\n", ""), "g.rdf:9: no element found"),
        ("g.xml", "", "g.xml:1: no element found"),
        ("g.xml", "<html>\n<p>hello</p></html>", "g.xml: "),
        ("g.jsonld", JSONLD[:-4], "g.jsonld:"),
        ("g.jsonld", '{"@id": "http://a",\n "http://p" {}}', "g.jsonld:2: "),
        ("g.jsonld", '{"@context": "http://far.away/", "@id": "http://a"}', "g.jsonld: "),
        ("g.nt.gz", NT, "g.nt.gz: cannot be read: it is not what its ending says"),
        ("g.ttl.gz", gzip.compress(TTL.encode() * 50)[:-9], "g.ttl.gz: cannot be read: the compressed file is cut off"),
        ("g.rdf.gz", gzip.compress(XML.encode())[:-9], "g.rdf.gz: cannot be read: the compressed file is cut off"),
        ("g.nt", "", "g.nt: no triples in this file"),
        ("g.ttl", "# nothing\n", "g.ttl: no triples in this file"),
    ],
)
def test_a_fault_is_one_line_that_says_where(tmp_path, name, data, where):
    with pytest.raises(GraphError) as caught:
        read(tmp_path / name, data)
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert message.startswith(where)
    assert "\n" not in message


def test_without_pyoxigraph_the_message_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pyoxigraph":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'pairre\[rdf\]'$"):
        read(tmp_path / "g.nt", NT)
