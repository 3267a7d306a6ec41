"""RDF that is nested without end, or has endless names, is one line and costs little."""

from itertools import pairwise

import pytest

from pairre.graph.formats import rdf_checks, read_triples
from pairre.graph.formats.rdf_checks import MAX_DEPTH
from pairre.support.errors import GraphError

RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
A, B, C = "<http://a>", "<http://b>", "<http://c>"


def quoted(depth):
    return f"{A} {B} {C} .\n{A} {B} {f'<<( {A} {B} ' * depth}{C}{' )>>' * depth} .\n"


def objects(depth):
    return '{"@id":"http://a","http://b":' * depth + '{"@id":"http://c"}' + "}" * depth


def elements(depth):
    inside = '<rdf:Description rdf:about="http://a"><e:p>' * depth
    return f"{RDF}{inside}<rdf:Description/>{'</e:p></rdf:Description>' * depth}</rdf:RDF>"


@pytest.mark.parametrize(
    ("name", "nested", "fine", "deep"),
    [
        ("g.nt", quoted, 200, 300),
        ("g.nt", quoted, 1, 100_000),  # pyoxigraph alone ends the process
        ("g.ttl", quoted, 200, 300),
        ("g.jsonld", objects, 200, 10_000),
        ("g.rdf", elements, 100, 10_000),
    ],
)
def test_nesting_is_bounded(tmp_path, name, nested, fine, deep):
    file = tmp_path / name
    file.write_text(nested(fine))
    assert len(read_triples(file).head) > 0
    file.write_text(nested(deep))
    with pytest.raises(GraphError, match=f"nested more than {MAX_DEPTH} levels deep"):
        read_triples(file)


def test_brackets_in_texts_are_no_nesting(tmp_path, monkeypatch):
    monkeypatch.setattr(rdf_checks, "BLOCK", 7)
    (tmp_path / "g.ttl").write_text(
        f"{A} {B} {C} .\n" + f'{A} {B} """<< " << \\" """ , \'<<\' , "<< \\" <<" . # <<\n' * 300
    )
    assert len(read_triples(tmp_path / "g.ttl").head) == 1
    text = '\\\\\\"[{' * 500
    (tmp_path / "g.jsonld").write_text(f'{{"@id":"http://a","http://b":["{text}",{{"@id":"http://c"}}]}}')
    assert len(read_triples(tmp_path / "g.jsonld").head) == 1


def test_comments_do_not_hide_nesting(tmp_path):
    text = quoted(300).replace("<<(", "<<( # >> \" '\n")
    (tmp_path / "g.ttl").write_text(text)
    with pytest.raises(GraphError, match="nested more than"):
        read_triples(tmp_path / "g.ttl")


@pytest.mark.parametrize("name", ["g.nt", "g.ttl", "g.jsonld", "g.rdf"])
def test_a_name_has_a_greatest_length(tmp_path, name):
    long = "x" * (17 << 20)
    texts = {
        "nt": f"<http://a/{long}> {B} {C} .\n",
        "ttl": f"<http://a/{long}> {B} {C} .\n",
        "jsonld": f'{{"@id":"http://a/{long}","http://b":{{"@id":"http://c"}}}}',
        "rdf": f'{RDF}<rdf:Description rdf:about="http://a/{long}"><e:p rdf:resource="http://c"/></rdf:Description></rdf:RDF>',
    }
    (tmp_path / name).write_text(texts[name.partition(".")[2]])
    with pytest.raises(GraphError, match="a name or a literal of more than 16 MiB"):
        read_triples(tmp_path / name)


def test_entities_are_neither_expanded_without_end_nor_fetched(tmp_path):
    letters = "abcdefghij"
    nested = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(letters))
    use = '<rdf:Description rdf:about="{}"><e:p rdf:resource="http://c"/></rdf:Description></rdf:RDF>'
    file = tmp_path / "g.rdf"
    file.write_text(f'<!DOCTYPE x [<!ENTITY a "http://a">{nested}]>{RDF}{use.format("&j;")}')
    with pytest.raises(GraphError, match="amplification"):
        read_triples(file)
    file.write_text(f'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>{RDF}{use.format("http://x/&a;")}')
    with pytest.raises(GraphError, match="external entity"):
        read_triples(file)
    (tmp_path / "g.jsonld").write_text('{"@context":"http://127.0.0.1:9/c","@id":"http://a","p":{"@id":"http://b"}}')
    with pytest.raises(GraphError, match="remote contexts"):
        read_triples(tmp_path / "g.jsonld")
