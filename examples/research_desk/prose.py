"""Plain prose out of long descriptions: no badges, tables, code, headings or change logs."""

import re

MAX_PARAGRAPH = 600
"""Characters of a paragraph that are kept."""

_MIN_WORDS = 7
_MIN_LETTER_SHARE = 0.72
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)\"'][.!?])\s+(?=[A-Z\"'(])")
_LIST_ITEM = re.compile(r"^\s{0,3}(?:[-*+•]|\d+[.)])\s+")
_ABOUT_THE_PROJECT = re.compile(
    r"^(?:Fix(?:ed|es)?|Add(?:ed|s)|Bump(?:ed|s)?|Removed|Deprecated|Dropped|Updated|Changed)\b|\B@\w+|#\d+|https?://"
    r"|\b(?:contribut\w+|pull requests?|stack ?overflow|sponsors?|change ?log|issue tracker|release notes|tidelift)\b"
    r"|\bcode of conduct\b",
    re.IGNORECASE,
)
"""What helps nobody who wants to know what a distribution does: change logs, calls for help, bare addresses."""


_REMOVED = (
    re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL),  # fenced code
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<(pre|table|script|style)\b.*?</\1>", re.DOTALL | re.IGNORECASE),
    re.compile(r"</?[a-zA-Z]\w*(?:\s[^<>]*)?/?>"),  # tags, but not the addresses of reStructuredText
    re.compile(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])"),  # images, badges
    re.compile(r"^\s*\[[^\]]+\]:.*$", re.MULTILINE),  # the targets of reference links
    re.compile(r"^\s*\|.*$", re.MULTILINE),  # tables
    re.compile(r"^#{1,6}\s.*$", re.MULTILINE),  # headings
    re.compile(r"^.+\n[ \t]*([=\-~^\"'*+#.:])\1{2,}[ \t]*$", re.MULTILINE),  # underlined headings
    re.compile(r"^\s*>?\s*\[!\w+\]\s*$", re.MULTILINE),
)
_UNWRAPPED = (
    re.compile(r"\[([^\[\]]*)\](?:\([^)]*\)|\[[^\]]*\])"),  # links
    re.compile(r":[\w:+-]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`"),  # roles
    re.compile(r"`([^`<]+?)\s*<[^>]*>`_{1,2}"),  # links of reStructuredText
    re.compile(r"(?<!\w)\*{1,3}([^*\n]+?)\*{1,3}(?!\w)"),
    re.compile(r"`+([^`\n]+?)`+_{0,2}"),
    re.compile(r"\|([\w-]+)\|_?"),
)


def paragraphs(description: str) -> list[str]:
    """Return the paragraphs and list items of a Markdown or reStructuredText description that read as prose."""
    found: list[str] = []
    for block in re.split(r"\n[ \t]*\n", _without_markup(description)):
        if not re.match(r"\s{2,}\S|\s*\.\. ", block.strip("\n")):
            found.extend(_pieces_of(block))
    return [shorten(piece) for piece in dict.fromkeys(found) if _is_prose(piece)]


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def shorten(text: str, limit: int = MAX_PARAGRAPH) -> str:
    """Return as many whole sentences of `text` as fit into `limit` characters, or its beginning when none fits."""
    if len(text) <= limit:
        return text
    kept = ""
    for sentence in sentences(text):
        if len(kept) + len(sentence) + 1 > limit:
            break
        kept = f"{kept} {sentence}".strip()
    return kept or f"{text[: limit - 1].rsplit(' ', 1)[0]}…"


def _without_markup(text: str) -> str:
    text = text.replace("\r\n", "\n").expandtabs(4)
    for pattern in _REMOVED:
        text = pattern.sub("", text)
    for pattern in _UNWRAPPED:
        text = pattern.sub(r"\1", text)
    return text


def _pieces_of(block: str) -> list[str]:
    """Return a block as one paragraph, or its list items one by one."""
    pieces: list[str] = []
    for line in block.splitlines():
        content = _LIST_ITEM.sub("", line).lstrip("> ").strip()
        if not pieces or _LIST_ITEM.match(line):
            pieces.append(content)
        else:
            pieces[-1] = f"{pieces[-1]} {content}".strip()
    return [re.sub(r"\s+(?=[.,;:]\s|[.,]$)", "", re.sub(r"\s+", " ", piece)) for piece in pieces]


def _is_prose(text: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in text)
    return (
        len(text.split()) >= _MIN_WORDS
        and text[-1] in ".!?"
        and not text.endswith("...")
        and letters / len(text) >= _MIN_LETTER_SHARE
        and not _ABOUT_THE_PROJECT.search(text)
    )
