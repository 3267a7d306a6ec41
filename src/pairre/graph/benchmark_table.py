"""The public benchmarks as facts: where each lies, whose it is, and what a right copy must contain.

Sources are tried in order; the first is the one known to hold the very lines that the checksums were taken from.
A checksum is that of the normalised text (`head<TAB>relation<TAB>tail`, line feeds), not of the file upstream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Splits(NamedTuple):
    """One string for each split, None where there is no such split or nothing is known of it."""

    train: str | None = None
    valid: str | None = None
    test: str | None = None


_UNKNOWN = Splits()


@dataclass(frozen=True)
class Source:
    """One place that holds a graph: `parts` are addresses, or member paths inside `archive` (tar or zip)."""

    parts: Splits
    archive: str | None = None
    columns: str = "hrt"  # the order of head, relation and tail in a line
    delimiter: str = "\t"

    @property
    def urls(self) -> tuple[str, ...]:
        """Every address that is fetched."""
        return (self.archive,) if self.archive else tuple(part for part in self.parts if part)


@dataclass(frozen=True)
class Benchmark:
    """A published graph. Triples are counted as lines, with repetitions; `num_valid` is 0 where none was released."""

    name: str
    title: str
    citation: str
    licence: str
    num_entities: int
    num_relations: int
    num_train: int
    num_valid: int
    num_test: int
    sources: tuple[Source, ...] = ()
    sha256: Splits = _UNKNOWN
    from_ogb: bool = False  # read and fetched by the `ogb` package, which knows its own addresses

    @property
    def urls(self) -> tuple[str, ...]:
        """Every address that any source fetches; empty if none is known."""
        return tuple(url for source in self.sources for url in source.urls)

    @property
    def num_triples(self) -> dict[str, int]:
        """The published number of lines of each split that was released."""
        counts = {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}
        return {split: count for split, count in counts.items() if count}


def _files(folder: str, pattern: str = "{}.txt") -> Source:
    return Source(Splits(*(f"{folder}/{pattern.format(split)}" for split in Splits._fields)))


def _archive(url: str, pattern: str = "{}.txt") -> Source:
    return Source(Splits(*(pattern.format(split) for split in Splits._fields)), archive=url)


_ROTATE = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/master/data"
_CONVE = "https://github.com/TimDettmers/ConvE/raw/master"
_EVEREST = "https://everest.hds.utc.fr/lib/exe/fetch.php?media=en:"
_MICROSOFT = "https://download.microsoft.com/download/8/7/0/8700516A-AB3D-4850-B4BB-805C515AECE1"
_CODEX = "https://raw.githubusercontent.com/tsafavi/codex/master/data/triples"
_NNE_AER = "https://raw.githubusercontent.com/iieir-km/ComplEx-NNE_AER/master/datasets"
_PYKEEN = "https://raw.githubusercontent.com/pykeen/pykeen/master/src/pykeen/datasets"

_BORDES = "Bordes, Usunier, García-Durán, Weston, Yakhnenko: Translating Embeddings for Modeling Multi-relational Data"
_DETTMERS = "Dettmers, Minervini, Stenetorp, Riedel: Convolutional 2D Knowledge Graph Embeddings, AAAI 2018"
_SAFAVI = "Safavi, Koutra: CoDEx: A Comprehensive Knowledge Graph Completion Benchmark, EMNLP 2020"
_KEMP = "Kemp, Tenenbaum, Griffiths, Yamada, Ueda: Learning Systems of Concepts with an Infinite Relational Model"
_BOUCHARD = "Bouchard, Singh, Trouillon: On Approximate Reasoning Capabilities of Low-Rank Vector Spaces"
_WANG = "Wang, Wang, Guo: Knowledge Base Completion Using Embeddings and Rules, IJCAI 2015"
_HU = "Hu, Fey, Zitnik, Dong, Ren, Liu, Catasta, Leskovec: Open Graph Benchmark, NeurIPS 2020"

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        name="fb15k",
        title="FB15k (Freebase)",
        citation=f"{_BORDES}, NIPS 2013",
        licence="CC BY 2.5 (Freebase)",
        num_entities=14_951,
        num_relations=1_345,
        num_train=483_142,
        num_valid=50_000,
        num_test=59_071,
        sources=(
            _files(f"{_ROTATE}/FB15k"),
            _archive(f"{_EVEREST}fb15k.tgz", "FB15k/freebase_mtr100_mte100-{}.txt"),
        ),
        sha256=Splits(
            train="f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704",
            valid="471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855",
            test="5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a",
        ),
    ),
    Benchmark(
        name="fb15k-237",
        title="FB15k-237 (Freebase, inverse relations removed)",
        citation="Toutanova, Chen: Observed versus Latent Features for Knowledge Base and Text Inference, CVSC 2015",
        licence="Microsoft Research licence, inside the archive",
        num_entities=14_541,
        num_relations=237,
        num_train=272_115,
        num_valid=17_535,
        num_test=20_466,
        sources=(_files(f"{_ROTATE}/FB15k-237"), _archive(f"{_MICROSOFT}/FB15K-237.2.zip", "Release/{}.txt")),
        sha256=Splits(
            train="61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
            valid="749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
            test="e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
        ),
    ),
    Benchmark(
        name="wn18",
        title="WN18 (WordNet)",
        citation="Bordes, Glorot, Weston, Bengio: A Semantic Matching Energy Function, Machine Learning 2014",
        licence="WordNet licence",
        num_entities=40_943,
        num_relations=18,
        num_train=141_442,
        num_valid=5_000,
        num_test=5_000,
        sources=(
            _files(f"{_ROTATE}/wn18"),
            _archive(f"{_EVEREST}wordnet-mlj12.tar.gz", "wordnet-mlj12/wordnet-mlj12-{}.txt"),
        ),
    ),
    Benchmark(
        name="wn18rr",
        title="WN18RR (WordNet, inverse relations removed)",
        citation=_DETTMERS,
        licence="not stated (from WN18, WordNet licence)",
        num_entities=40_943,
        num_relations=11,
        num_train=86_835,
        num_valid=3_034,
        num_test=3_134,
        sources=(_files(f"{_ROTATE}/wn18rr"), _archive(f"{_CONVE}/WN18RR.tar.gz")),
        sha256=Splits(
            train="038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
            valid="453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
            test="0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
        ),
    ),
    Benchmark(
        name="yago3-10",
        title="YAGO3-10 (entities of YAGO3 with ten relations or more)",
        citation=_DETTMERS,
        licence="not stated",
        num_entities=123_182,
        num_relations=37,
        num_train=1_079_040,
        num_valid=5_000,
        num_test=5_000,
        sources=(_archive(f"{_CONVE}/YAGO3-10.tar.gz"), _files(f"{_ROTATE}/YAGO3-10")),
    ),
    Benchmark(
        name="db100k",
        title="DB100K (DBpedia)",
        citation="Ding, Wang, Wang, Guo: Improving Knowledge Graph Embedding Using Simple Constraints, ACL 2018",
        licence="not stated",
        num_entities=99_604,
        num_relations=470,
        num_train=597_572,
        num_valid=50_000,
        num_test=50_000,
        sources=(_files(f"{_NNE_AER}/DB100K", "_{}.txt"),),
        sha256=Splits(
            valid="ab1abc4327c4c18ae3b9384be2d876e51eb5dab7b71bfc06ddc42f4a974811da",
            test="99c562445be98a57a1781fba6f09c30346469c96a91c208a74936bfbb2e540b9",
        ),
    ),
    Benchmark(
        name="sports",
        title="Sports (NELL)",
        citation=_WANG,
        licence="not stated",
        num_entities=1_039,
        num_relations=4,
        num_train=1_312,
        num_valid=0,
        num_test=307,
        sha256=Splits(
            train="27714fb6772566dbec9724072b11a01b053de4e3dd3e7ee574691f6babef0a48",
            test="9525b1770ec6e7560037563ed289478f34a9af803ac2c867171f9e9afccb37ec",
        ),
    ),
    Benchmark(
        name="location",
        title="Location (NELL)",
        citation=_WANG,
        licence="not stated",
        num_entities=445,
        num_relations=5,
        num_train=384,
        num_valid=0,
        num_test=100,
        sha256=Splits(
            train="4071fd20be4c6ea053c9345ceb8535d5efd1dbb203e00235d1b03ab25dd98002",
            test="81ad26a08aa2d47bde0a9877eb237e68362d47a50c513f52d70b64ec33fceeb2",
        ),
    ),
    Benchmark(
        name="codex-s",
        title="CoDEx small (Wikidata)",
        citation=_SAFAVI,
        licence="MIT",
        num_entities=2_034,
        num_relations=42,
        num_train=32_888,
        num_valid=1_827,
        num_test=1_828,
        sources=(_files(f"{_CODEX}/codex-s"),),
        sha256=Splits(
            train="64f93b7f314f3936a6f65739721429db3f6a7c8f5a1e1104ec3bb544f7434f59",
            valid="3831c0e57daef03c3a18cdd1a72e370b496f696c5218883d35c7d2ab8a6a772c",
            test="27127fcb34688c4778e88a39ef3c9b540807da846021e9d9685660ac1838aca1",
        ),
    ),
    Benchmark(
        name="codex-m",
        title="CoDEx medium (Wikidata)",
        citation=_SAFAVI,
        licence="MIT",
        num_entities=17_050,
        num_relations=51,
        num_train=185_584,
        num_valid=10_310,
        num_test=10_311,
        sources=(_files(f"{_CODEX}/codex-m"),),
    ),
    Benchmark(
        name="codex-l",
        title="CoDEx large (Wikidata)",
        citation=_SAFAVI,
        licence="MIT",
        num_entities=77_951,
        num_relations=69,
        num_train=551_193,
        num_valid=30_622,
        num_test=30_622,
        sources=(_files(f"{_CODEX}/codex-l"),),
    ),
    Benchmark(
        name="dbpedia-music",
        title="DBpedia music (2015-10, entities with ten mentions or more)",
        citation="Minervini, Demeester, Rocktäschel, Riedel: Adversarial Sets for Regularising Neural Link Predictors, "
        "UAI 2017",
        licence="not stated",
        num_entities=32_510,
        num_relations=7,
        num_train=289_825,
        num_valid=5_000,
        num_test=5_000,
        sha256=Splits(
            train="726c473af20f8355020430a73e58427bea6e5a85172b748b30f1f77200c587c4",
            valid="95866e12244d70a721c625acc8e249681714a612b433b3658fb370f2f667539a",
            test="3a2c5911919472730fcf444c8fef058134ad0e300b932806f2432ff8ecc0723e",
        ),
    ),
    Benchmark(
        name="nations",
        title="Nations",
        citation=f"{_KEMP}, AAAI 2006",
        licence="not stated",
        num_entities=14,
        num_relations=55,
        num_train=1_592,
        num_valid=199,
        num_test=201,
        sources=(_files(f"{_PYKEEN}/nations"),),
        sha256=Splits(
            train="0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
            valid="2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
            test="3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
        ),
    ),
    Benchmark(
        name="umls",
        title="UMLS (medical semantic network)",
        citation=f"{_KEMP}, AAAI 2006",
        licence="not stated",
        num_entities=135,
        num_relations=46,
        num_train=5_216,
        num_valid=652,
        num_test=661,
        sources=(_files(f"{_PYKEEN}/umls"),),
        sha256=Splits(
            train="873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
            valid="025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
            test="a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
        ),
    ),
    Benchmark(
        name="kinships",
        title="Kinships (Alyawarra)",
        citation=f"{_KEMP}, AAAI 2006",
        licence="not stated",
        num_entities=104,
        num_relations=25,
        num_train=8_544,
        num_valid=1_068,
        num_test=1_074,
        sources=(_files(f"{_PYKEEN}/kinships"),),
        sha256=Splits(
            train="738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
            valid="c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
            test="05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
        ),
    ),
    Benchmark(
        name="countries-s1",
        title="Countries S1 (composition of two relations)",
        citation=f"{_BOUCHARD}, AAAI Spring Symposium 2015",
        licence="not stated",
        num_entities=271,
        num_relations=2,
        num_train=1_111,
        num_valid=24,
        num_test=24,
        sources=(_files(f"{_ROTATE}/countries_S1"),),
        sha256=Splits(
            train="5256bf3fc4181d7e87d819571e3acfa5425fc5af365b9ebe5c113740534ca561",
            valid="f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            test="262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
    ),
    Benchmark(
        name="countries-s2",
        title="Countries S2 (composition through a neighbour)",
        citation=f"{_BOUCHARD}, AAAI Spring Symposium 2015",
        licence="not stated",
        num_entities=271,
        num_relations=2,
        num_train=1_063,
        num_valid=24,
        num_test=24,
        sources=(_files(f"{_ROTATE}/countries_S2"),),
        sha256=Splits(
            train="84c8f310fa076f902760f0909716b13bc0853a105ab9e0145e4e5135d855f68a",
            valid="f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            test="262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
    ),
    Benchmark(
        name="countries-s3",
        title="Countries S3 (composition of three relations)",
        citation=f"{_BOUCHARD}, AAAI Spring Symposium 2015",
        licence="not stated",
        num_entities=271,
        num_relations=2,
        num_train=985,
        num_valid=24,
        num_test=24,
        sources=(_files(f"{_ROTATE}/countries_S3"),),
        sha256=Splits(
            train="80a8e3a26aff58b78fd5a453ec2a37591466bad621df8d05185f26763b663a0c",
            valid="f4b27648148a44f87e627140ec3a02ca4c884c32d348591147ca72f1d6fff5b0",
            test="262ca5ae5ed3aa1927026e0f258cc52b10830185b93465b93b9360727e719158",
        ),
    ),
    Benchmark(
        name="ogbl-biokg",
        title="ogbl-biokg (drugs, proteins, diseases, side effects, functions)",
        citation=_HU,
        licence="see https://ogb.stanford.edu/docs/linkprop/",
        num_entities=93_773,
        num_relations=51,
        num_train=4_762_677,
        num_valid=162_886,
        num_test=162_870,
        from_ogb=True,
    ),
    Benchmark(
        name="ogbl-wikikg2",
        title="ogbl-wikikg2 (Wikidata, split by time)",
        citation=_HU,
        licence="see https://ogb.stanford.edu/docs/linkprop/",
        num_entities=2_500_604,
        num_relations=535,
        num_train=16_109_182,
        num_valid=429_456,
        num_test=598_543,
        from_ogb=True,
    ),
)
