"""Lines and options for tests of the verbs that predict each line of a corpus."""

LINES = [
    "the old cat sleeps",
    "",
    "she sees a tree",
    "  ",
    "I love you",
    "a Ж dog",
    "the cat",
    "you sleep",
    "a bird",
    "I",
]
WORDS = [line for line in LINES if line.strip()]
TRANSLATE = ["--beam-size", 1, "-s", "max_extra=2"]
VERBS = {
    "translate": ("", [*TRANSLATE, "--json"], LINES),
    "classify": ("classification", ["--json"], WORDS),
    "tag": ("tagging", [], LINES),
    "embed": ("masked", [], LINES),
}
"""Task of the run, options and lines of each verb that reads one text per line."""
