"""The words of the demonstration grammar: English, French, and what each may stand with.

A word has exactly one translation, so that a sentence has exactly one. Every initial h here is mute (``l' homme``).
"""

from dataclasses import dataclass
from typing import Literal

Person = Literal[0, 1, 2, 3, 4]  # je, tu, il/elle, nous, ils: the columns of every conjugation below


@dataclass(frozen=True)
class Pronoun:
    english: str  # as subject
    english_object: str
    french: str  # as subject
    direct: str  # clitic before the verb
    indirect: str
    person: Person
    gender: Literal["m", "f", ""] = ""  # "": English does not say


@dataclass(frozen=True)
class Noun:
    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: Literal["m", "f"]
    kind: str


@dataclass(frozen=True)
class Adjective:
    english: str
    forms: dict[str, str]  # by gender and number: ms, fs, mp, fp; and mv, masculine singular before a vowel
    kinds: frozenset[str]  # the kinds of noun it describes
    before: bool  # stands before its noun in French

    @property
    def shows_gender(self) -> bool:
        return self.forms["ms"] != self.forms["fs"]


@dataclass(frozen=True)
class Preposition:
    english: str
    french: str
    kinds: frozenset[str]
    clitic: bool = False  # a pronoun after it becomes an indirect clitic: to him, lui


@dataclass(frozen=True)
class Verb:
    english: str  # with its particle: look for
    third: str  # third person singular
    infinitive: str
    present: tuple[str, ...]  # by Person
    objects: frozenset[str] = frozenset()  # the kinds of its direct object; none: intransitive
    complement: Preposition | None = None  # talk to, give … to


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


ANY = _kinds("person animal thing text food place")
GOODS = _kinds("animal thing text food")
LIVING = _kinds("person animal")

PRONOUNS = (
    Pronoun("I", "me", "je", "me", "me", 0),
    Pronoun("you", "you", "tu", "te", "te", 1),
    Pronoun("he", "him", "il", "le", "lui", 2, "m"),
    Pronoun("she", "her", "elle", "la", "lui", 2, "f"),
    Pronoun("we", "us", "nous", "nous", "nous", 3),
    Pronoun("they", "them", "ils", "les", "leur", 4, "m"),
)

# English singular and plural; French ms, fs, plural. An empty form: the determiner has no such number.
DETERMINERS: dict[str, tuple[str, str, str, str, str]] = {
    "the": ("the", "the", "le", "la", "les"),
    "a": ("a", "", "un", "une", ""),
    "this": ("this", "these", "ce", "cette", "ces"),
    "my": ("my", "my", "mon", "ma", "mes"),
    "your": ("your", "your", "ton", "ta", "tes"),
    "his": ("his", "his", "son", "sa", "ses"),
    "her": ("her", "her", "son", "sa", "ses"),
    "our": ("our", "our", "notre", "notre", "nos"),
    "their": ("their", "their", "leur", "leur", "leurs"),
    "every": ("every", "", "chaque", "chaque", ""),
    "two": ("", "two", "", "", "deux"),
    "many": ("", "many", "", "", "beaucoup de"),
}


def _noun(line: str, kind: str) -> Noun:
    """``english french gender``, each word as ``singular/plural`` where the plural is not singular + s."""
    english, french, gender = line.split()
    one, _, many = english.partition("/")
    un, _, des = french.partition("/")
    return Noun(one, many or one + "s", un, des or un + "s", "f" if gender == "f" else "m", kind)


_NOUNS = {
    "person": """man/men homme m|woman/women femme f|boy garçon m|girl fille f|child/children enfant m|king roi m|
        queen reine f|brother frère m|sister sœur f|friend ami m|uncle oncle m|doctor médecin m""",
    "animal": "cat chat m|dog chien m|bird oiseau/oiseaux m|horse cheval/chevaux m",
    "thing": "flower fleur f|key clé f|car voiture f|boat bateau/bateaux m|tree arbre m|hat chapeau/chapeaux m",
    "text": "book livre m|letter lettre f|poem poème m|story/stories histoire f",
    "food": "apple pomme f|orange orange f|cake gâteau/gâteaux m|pear poire f",
    "place": """garden jardin m|house maison f|school école f|church/churches église f|city/cities ville f|park parc m|
        hotel hôtel m|village village m|castle château/châteaux m""",
}
NOUNS = tuple(_noun(line, kind) for kind, lines in _NOUNS.items() for line in lines.split("|"))


def _adjective(english: str, french: str, kinds: str, before: bool = False) -> Adjective:
    """``french``: masculine/feminine/masculine plural/before a vowel; what is left out follows the regular rule."""
    masculine, feminine, plural, vowel = [*french.split("/"), "", "", ""][:4]
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    forms = {"ms": masculine, "fs": feminine, "mp": plural or masculine + "s", "fp": feminine + "s"}
    return Adjective(english, forms | {"mv": vowel or masculine}, _kinds(kinds) if kinds else ANY, before)


ADJECTIVES = (
    _adjective("small", "petit", "", before=True),
    _adjective("big", "grand", "animal thing text food place", before=True),
    _adjective("beautiful", "beau/belle/beaux/bel", "", before=True),
    _adjective("old", "vieux/vieille/vieux/vieil", "person animal thing text place", before=True),
    _adjective("new", "nouveau/nouvelle/nouveaux/nouvel", "thing text place", before=True),
    _adjective("young", "jeune", "person animal", before=True),
    _adjective("red", "rouge", "thing food"),
    _adjective("green", "vert", "thing food"),
    _adjective("white", "blanc/blanche", "animal thing place"),
    _adjective("black", "noir", "animal thing"),
    _adjective("happy", "heureux/heureuse/heureux", "person"),
    _adjective("sad", "triste", "person animal text"),
    _adjective("rich", "riche", "person"),
    _adjective("famous", "célèbre", "person text place"),
    _adjective("sick", "malade", "person animal"),
    _adjective("intelligent", "intelligent", "person animal"),
    _adjective("expensive", "cher/chère", "thing text food"),
    _adjective("quiet", "tranquille", "animal place"),
    _adjective("interesting", "intéressant", "person text place"),
)

PLACES = (
    Preposition("in", "dans", _kinds("place")),
    Preposition("with", "avec", LIVING),
    Preposition("behind", "derrière", _kinds("person thing place")),
    Preposition("in front of", "devant", _kinds("person thing place")),
    Preposition("near", "près de", _kinds("person thing place")),
)

_TO = Preposition("to", "à", _kinds("person"), clitic=True)
_TO_PLACE = Preposition("to", "à", _kinds("place"))
_OF = Preposition("of", "à", _kinds("person place"))
_ABOUT = Preposition("about", "de", _kinds("person animal text place"))


def third_person(english: str) -> str:
    """``watch`` → ``watches``; only the first word of ``look for`` is inflected."""
    verb, space, particle = english.partition(" ")
    if verb == "have":
        verb = "has"
    elif verb.endswith("y") and verb[-2] not in "aeiou":
        verb = verb[:-1] + "ies"
    else:
        verb += "es" if verb.endswith(("s", "x", "ch", "sh", "o")) else "s"
    return verb + space + particle


def conjugate(infinitive: str) -> tuple[str, ...]:
    """The present of an -er verb. ``acheter`` opens its vowel before a mute ending; ``manger`` keeps its soft g."""
    stem = infinitive.removesuffix("er")
    mute = stem.replace("achet", "achèt")
    plural = stem + "e" if stem.endswith("g") else stem
    return (mute + "e", mute + "es", mute + "e", plural + "ons", mute + "ent")


_IRREGULAR = {
    "aller": "vais vas va allons vont",
    "attendre": "attends attends attend attendons attendent",
    "avoir": "ai as a avons ont",
    "connaître": "connais connais connaît connaissons connaissent",
    "devoir": "dois dois doit devons doivent",
    "dormir": "dors dors dort dormons dorment",
    "lire": "lis lis lit lisons lisent",
    "pouvoir": "peux peux peut pouvons peuvent",
    "prendre": "prends prends prend prenons prennent",
    "suivre": "suis suis suit suivons suivent",
    "voir": "vois vois voit voyons voient",
    "vouloir": "veux veux veut voulons veulent",
    "être": "suis es est sommes sont",
}


def _verb(
    english: str, infinitive: str, objects: frozenset[str] = frozenset(), complement: Preposition | None = None
) -> Verb:
    forms = tuple(_IRREGULAR[infinitive].split()) if infinitive in _IRREGULAR else conjugate(infinitive)
    return Verb(english, third_person(english), infinitive, forms, objects, complement)


BE = Verb("be", "is", "être", tuple(_IRREGULAR["être"].split()))
WANT = _verb("want", "vouloir")
CAN = Verb("can", "can", "pouvoir", tuple(_IRREGULAR["pouvoir"].split()))
MUST = Verb("must", "must", "devoir", tuple(_IRREGULAR["devoir"].split()))

TRANSITIVE = (
    _verb("love", "aimer", ANY),
    _verb("see", "voir", ANY),
    _verb("look for", "chercher", ANY),
    _verb("find", "trouver", ANY),
    _verb("watch", "regarder", ANY),
    _verb("draw", "dessiner", ANY),
    _verb("admire", "admirer", ANY),
    _verb("forget", "oublier", ANY),
    _verb("help", "aider", LIVING),
    _verb("listen to", "écouter", LIVING),
    _verb("wait for", "attendre", LIVING),
    _verb("follow", "suivre", LIVING),
    _verb("thank", "remercier", _kinds("person")),
    _verb("know", "connaître", _kinds("person place")),
    _verb("visit", "visiter", _kinds("place")),
    _verb("buy", "acheter", GOODS),
    _verb("have", "avoir", GOODS),
    _verb("take", "prendre", _kinds("thing text food")),
    _verb("carry", "porter", _kinds("thing text food")),
    _verb("eat", "manger", _kinds("food")),
    _verb("read", "lire", _kinds("text")),
)
OBLIQUE = (
    _verb("give", "donner", GOODS, _TO),
    _verb("show", "montrer", ANY - {"person"}, _TO),
    _verb("talk", "parler", complement=_TO),
    _verb("talk", "parler", complement=_ABOUT),
    _verb("think", "penser", complement=_OF),
    _verb("go", "aller", complement=_TO_PLACE),
)
INTRANSITIVE = tuple(
    _verb(english, infinitive)
    for english, infinitive in (
        ("sing", "chanter"),
        ("dance", "danser"),
        ("work", "travailler"),
        ("walk", "marcher"),
        ("sleep", "dormir"),
        ("stay", "rester"),
    )
)

FREQUENCY = {"often": "souvent", "always": "toujours"}
DEGREE = {"very": "très", "too": "trop"}
TIME = {"now": "maintenant", "here": "ici", "tonight": "ce soir"}
CONJUNCTIONS = {"and": "et", "but": "mais", "because": "parce que"}

# Before a vowel or a mute h.
ELIDED = {
    "je": "j'",
    "me": "m'",
    "te": "t'",
    "le": "l'",
    "la": "l'",
    "ne": "n'",
    "de": "d'",
    "que": "qu'",
    "ce": "cet",
    "ma": "mon",
    "ta": "ton",
    "sa": "son",
}
CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
