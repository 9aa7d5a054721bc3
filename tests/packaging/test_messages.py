"""Each message has a test that quotes it, and the page of messages says what the program says."""
from __future__ import annotations

import re
from collections import Counter

from messages import ROOT, Message, messages, quoted_in_tests, runs, words

PAGE = ROOT / "docs" / "reference" / "messages.md"


def all_in_order(pieces: list[str], line: str) -> bool:
    at = 0
    for piece in pieces:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def unquoted(all_of: list[Message], quotes: str) -> list[Message]:
    """Quoted is a message by four of its words in a row, by two or three that no other has, by a whole piece of several
    words, or by all of its pieces in one line, in their order."""
    of_tests = {length: {run for line in quotes.split("\n") for run in runs(line, length)} for length in (2, 3, 4)}
    texts = {message.text for message in all_of}
    whose = Counter(run for text in texts for length in (2, 3)
                    for run in {run for piece in text.split("{}") for run in runs(piece, length)})

    lines = quotes.split("\n")

    def is_quoted(message: Message) -> bool:
        if any(run in of_tests[4] for piece in message.pieces for run in runs(piece, 4)):
            return True
        if any(whose[run] == 1 and run in of_tests[length]
               for piece in message.pieces for length in (2, 3) for run in runs(piece, length)):
            return True
        if any(len(words(piece)) > 1 and piece in quotes for piece in message.pieces):
            return True
        return any(all_in_order(message.pieces, line) for line in lines)

    return [message for message in all_of if not is_quoted(message)]


def test_a_message_without_a_quote_is_found() -> None:
    known = [Message("a.py", "there is no store at {}: say where"), Message("b.py", "the disk of {} is full"),
             Message("c.py", "{} read, {} written")]
    assert unquoted(known, "no store at") == known[1:]
    assert unquoted(known, "no store at\ndisk of x is full\nread\nwritten") == known[2:]
    assert unquoted(known, "no store at\nis full\n5 read, 6 written") == []
    assert unquoted(known, "a store\nand full\nof the disks") == known
    assert unquoted(known, "store at\nis full") == known[2:]


def test_every_message_has_a_test_that_quotes_it() -> None:
    all_of = messages()
    assert len(all_of) > 350
    assert [f"{message.file}: {message.text}" for message in unquoted(all_of, quoted_in_tests())] == []


def is_said(quote: str, pieces: set[str]) -> bool:
    """Whether the program says this line of the page, in which names, numbers and `…` stand for anything."""
    return any(piece in quote for piece in pieces) \
        or any(len(words(part)) > 1 and any(part.strip(" .,:;()'") in piece for piece in pieces)
               for part in re.split(r" ?…|[A-Z]{2,}|\d[\w.:-]*|'", quote))


def test_the_page_says_what_the_program_says() -> None:
    rows = re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", PAGE.read_text(), re.MULTILINE)
    quotes = [quote for row in rows for quote in re.findall(r"`([^`]*)`", row)]
    pieces = {piece for message in messages() for piece in message.pieces if len(words(piece)) > 2}
    assert len(quotes) > 25
    assert not is_said("the moon is not tracked by anybody", pieces)
    assert [quote for quote in quotes if not is_said(quote, pieces | {"is missing"})] == []
