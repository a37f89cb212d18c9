"""The bytes of the device ledger: as documented, and no other bytes are taken for them."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import stat
import time
from pathlib import Path

import pytest

from reticent.errors import BudgetExceeded, LedgerDamaged
from reticent.ledger.base import Balance, Terms, Unit
from reticent.ledger.device import records as device_records
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import MAGIC

from .device_history import LOCAL, history, opened, parts, pay, put, units, view

pytestmark = pytest.mark.usefixtures("no_waiting")


GOLDEN = [
    ["open", "phone", "epsilon", "ANY_TWO_VALUES", "the owner of the phone", "1000", "2"],
    ["request", "0", "a", "100"],
    ["fulfil", "0", "3"],
    ["request", "0", "b", "10", "10", "once"],
    ["request", "0", "a", "50"],
    ["fulfil", "2", "-7"],
    ["open", "map", "epsilon_per_km", "METRIC", "the ß car", "50", "1"],
    ["fulfil", "1", "2305843009213693952,0"],
    ["request", "0", "c/é", "40"],
    ["pay", "0", "paid", "30", "30", "p"],
]


def sealed(*records):
    """A file of these records, written from the documentation and not with the library's code."""
    content = b"reticent device ledger 1\n"
    tip = hashlib.sha256(content).digest()
    for record in records:
        body = record if isinstance(record, bytes) else json.dumps(record, separators=(",", ":")).encode()
        head = len(body).to_bytes(4, "big")
        head += hashlib.sha256(tip + head).digest()[:4]
        tip = hashlib.sha256(tip + head + body).digest()
        content += head + body + tip
    return content


def test_the_bytes_are_as_documented(path):
    views, contents = history(path)
    assert contents == [sealed(*GOLDEN[:n]) for n in range(len(GOLDEN) + 1)]
    assert [hashlib.sha256(content).hexdigest() for content in contents[-2:]] == GOLDEN_HASHES
    assert opened(path) == views[-1]


GOLDEN_HASHES = [
    "a7e495014df123705dd618a9d935c6add18c741d2a7b8444e8d8bb1e767a6329",  # before there was "pay"
    "edfaf1139c23235a9b85862eea3f5c2c909084fee1626485a9bdfbceab44fbdf",
]


def test_a_compacted_file_is_as_documented(path):
    history(path)
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.fulfil(3, [8])
        last = view(ledger)
    accounts = [
        [
            GOLDEN[0][1:],
            [
                ["a", "150", "-50", "-7", []],
                ["b", "10", "23058430092136939520,0", "2305843009213693952,0", []],
                ["c/é", "40", "320", "8", []],
                ["paid", "30", "", "", []],
            ],
            [["once", "b", "10", "10", "10"], ["p", "paid", "30", "30", "30", "pay"]],
        ],
        [GOLDEN[6][1:], [], []],
    ]
    tip = sealed(*GOLDEN, ["fulfil", "3", "8"])[-32:].hex()
    assert path.read_bytes() == sealed(["state", tip, "5", accounts])
    assert opened(path) == last
    with DeviceLedger(path, compact_bytes=0) as ledger:
        assert ledger._compact_at == 2 * path.stat().st_size, "not again at the next record"


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{",
        b"\xff",
        b"5",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'["request","0","a",1e999]',
        ["burn"],
        [["open"]],
        ["open", "phone", "epsilon", "ANY_TWO_VALUES", "again", "5", "1"],
        ["open", "car", "dollars", "ANY_TWO_VALUES", "x", "5", "1"],
        ["open", "car", "epsilon", "ANYBODY", "x", "5", "1"],
        ["open", "car", "epsilon", "ANY_TWO_VALUES", "", "5", "1"],
        ["open", "car", "epsilon", "ANY_TWO_VALUES", "x", "5", "6"],
        ["open", "car"],
        ["request", "1", "a", "5"],
        ["request", "0", "a", "1001"],
        ["request", "0", "a", "-5"],
        ["request", "0", "a", "five"],
        ["request", "0", [], "5"],
        ["request", "0", "a", "5", "x", "once"],
        ["request", "0", "a", "5", "5"],
        ["request", "0", "a", "5", "5", "i", "i"],
        ["request", "0", "a", 5],
        ["pay", "0", "a"],
        ["pay", "0", "a", "0", "0", "p"],
        ["fulfil", "0", "1"],
        ["state", "00" * 32, "0", []],
        ["state", "00", "0", []],
    ],
)
def test_sealed_nonsense_is_damage(path, record):
    content = sealed(GOLDEN[0], record)
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="makes no sense"):
        DeviceLedger(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "accounts",
    [
        5,
        [[]],
        [[GOLDEN[0][1:], [["a", "1001", "1", "1", []]], []]],
        [[GOLDEN[0][1:], [["a", "900", "1", "1", [["0", "101"]]]], []]],
        [[GOLDEN[0][1:], [["a", "-1", "1", "1", []]], []]],
        [[GOLDEN[0][1:], [], [["once", "a", "1", "1"]]]],
        [[GOLDEN[0][1:], [], []], [GOLDEN[0][1:], [], []]],
        *(
            [[GOLDEN[0][1:], [["a", "30", "", "", []]], [["i", "a", "30", "30", "30", *verb]]]]
            for verb in [["request"], ["refund"], ["pay", "pay"], [""]]
        ),
    ],
)
def test_a_nonsense_state_is_damage(path, accounts):
    path.write_bytes(sealed(["state", "00" * 32, "3", accounts]))
    with pytest.raises(LedgerDamaged, match="record at byte 25 makes no sense"):
        DeviceLedger(path)


def kept(*keys, answered=(), measured="9", tip="00" * 32, terms=GOLDEN[0][1:]):
    """A "state" record of one account."""
    return ["state", tip, measured, [[terms, list(keys), list(answered)]]]


BOUGHT = ["a", "30", "60", "2", [["5", "10"], ["7", "4"]]]
ASKED, PAID = ["i", "a", "30", "30", "30"], ["p", "paid", "30", "30", "30", "pay"]
RIGHT = [
    [GOLDEN[0], ["request", "0", "a", "2"], ["fulfil", "0", ""]],
    [GOLDEN[0], ["request", "0", "a", "2", "1", "i"], ["request", "0", "a", "0", "2", "j"]],
    [GOLDEN[0], ["request", "0", "\u0378", "5"]],  # unassigned: a later Python may have called it printable
    [GOLDEN[0], ["pay", "0", "a", "5"], ["request", "0", "a", "5"], ["fulfil", "1", ""]],
    [kept(BOUGHT, ["paid", "30", "", "", []], answered=[ASKED, PAID])],
    [kept(["b", "2", "4", "2", []], answered=[["i", "b", "1", "2", "2"]], measured="1")],  # at the minimum
    [["state", "00" * 32, "0", []], GOLDEN[0]],
]
# Sealed as they should be, and nothing that a ledger writes. Each is refused by its own check alone.
FORGED = [
    [GOLDEN[0], ["request", "0", "a", "1"]],  # below the minimum
    [GOLDEN[0], ["pay", "0", "a", "1"]],
    [GOLDEN[0], ["request", "0", "a", "0"]],  # nothing happened
    [GOLDEN[0], ["request", "0", "a", "1", "1", "i"]],
    [GOLDEN[0], ["request", "0", "a", "0", "5", "i"]],  # free
    [GOLDEN[0], ["pay", "0", "a", "4", "5", "p"]],
    [GOLDEN[0], ["request", "0", "a", "0", "0", "i"]],
    [GOLDEN[0], ["request", "0", "a", "6", "5", "i"]],
    [GOLDEN[0], ["request", "0", "a", "5"], ["request", "0", "a", "5", "5", "i"]],
    [GOLDEN[0], ["request", "0", "a", "5", "5", "i"], ["request", "0", "b", "5", "5", "i"]],
    [GOLDEN[0], ["request", "0", "a", "5", "5", "i"], ["pay", "0", "b", "5", "5", "i"]],
    [GOLDEN[0], ["request", "0", "a", "5"], ["pay", "0", "a", "5"]],  # not fresh
    [GOLDEN[0], ["request", " 0", "a", "5"]],
    [GOLDEN[0], ["request", "0", "a", "0_5"]],
    [GOLDEN[0], ["request", "0", "a", "05"]],
    [GOLDEN[0], ["request", "0", "a", "+5"]],
    [GOLDEN[0], ["request", "0", "a", "\u0665"]],  # a five elsewhere
    [GOLDEN[0], ["request", "-1", "a", "5"]],
    [GOLDEN[0], ["request", "0", "a", "5\n"]],
    [GOLDEN[0], ["request", "0", "", "5"]],
    [GOLDEN[0], ["request", "0", "a\n", "5"]],
    [GOLDEN[0], ["request", "0", "a\u2028", "5"]],
    [GOLDEN[0], ["request", "0", "\ud800", "5"]],
    [GOLDEN[0], ["request", "0", "a" * 1001, "5"]],
    [GOLDEN[0], ["request", "0", "a", "5", "5", ""]],
    [GOLDEN[0], ["request", "0", "a", "5", "5", "two words"]],
    [GOLDEN[0], ["request", "0", "a", "5", "5", "i\n"]],
    *(
        [GOLDEN[0], ["request", "0", "a", "5"], ["fulfil", number, values]]
        for number, values in [
            *((" 0", "1"), ("00", "1"), ("0", " 1"), ("0", "1_0"), ("0", "01"), ("0", "-0"), ("0", "1\n")),
            *(("0", str(1 << 62)), ("0", str(-(1 << 62))), ("0", ",".join("1" * 65537))),
        ]
    ),
    [GOLDEN[0], b'["request","0","a", "5"]'],
    [GOLDEN[0], b'["request","0","a","5"]\n'],
    [GOLDEN[0], b'["request","0","\\u0061","5"]'],
    [GOLDEN[0], '["request","0","é","5"]'.encode()],
    [["state", "00" * 32, "0", []], ["state", "00" * 32, "0", []]],  # two
    [kept(tip="00 " * 32)],
    [kept(tip="AA" * 32, measured="0")],
    [kept(measured="1")],  # with nothing spent
    [kept(BOUGHT, measured="7")],  # a number that is given again
    [kept(BOUGHT, measured="2")],
    [kept(BOUGHT, ["b", "0", "", "", [["5", "3"]]])],  # one number under two keys
    [kept(BOUGHT, [*BOUGHT[:4], []])],
    [kept(["a", "30", "60", "2", [["7", "4"], ["5", "10"]]])],
    [kept(["a", "30", "60", "2", [["5", "10"], ["5", "4"]]])],
    [kept(["a", "30", "60", "2", [["5", "1"]]])],
    [kept(["a", "1", "2", "2", [["5", "10"]]], measured="6")],
    [kept(["a", "0", "", "", []], measured="0")],
    [kept(["a", "0", "5", "5", [["0", "5"]]], measured="1")],  # sums of nothing
    [kept(["a", "5", "5,5", "5", []], measured="1")],
    [kept(["a", "5", "5", "5,5", []], measured="1")],
    [kept(["a", "5", str(5 << 62), "5", []], measured="1")],
    [kept(["a", "5", "5", str(1 << 62), []], measured="1")],
    [kept(["a\n", "5", "5", "1", []], measured="1")],
    *(
        [kept(BOUGHT, ["paid", "30", "", "", []], answered=answered)]
        for answered in [
            [ASKED, ASKED],
            [["i\n", *ASKED[1:]]],
            [["i", "a", "0", "30", "0"]],
            [["i", "a", "31", "30", "0"]],
            [["i", "a", "30", "45", "30"]],  # more than was bought
            [["i", "a", "30", "30", "31"]],
            [["i", "a", "30", "30", "29"]],
            [["i", "a", "20", "30", "10"]],
            [["p", "a", "30", "30", "30", "pay"]],  # measured here
            [["p", "paid", "30", "30", "0", "pay"]],
        ]
    ),
]


def taken(path, files):
    """Those of the files that open."""
    found = []
    for records in files:
        put(path, sealed(*records))
        with contextlib.suppress(LedgerDamaged):
            DeviceLedger(path).close()
            found.append(records)
    return found


def test_what_no_writer_makes_is_damage(path):
    assert taken(path, FORGED) == []
    assert taken(path, RIGHT) == RIGHT


def test_the_forged_files_are_refused_by_nothing_else(path, monkeypatch):
    """Planted: a reader that believes what is sealed."""
    monkeypatch.setattr(device_records, "_must", lambda holds: None)
    monkeypatch.setattr(device_records, "_checked_name", lambda field, text: text)
    assert taken(path, FORGED) == FORGED


def test_values_of_another_length_are_damage(path):
    bought = [["request", "0", "a", "5"], ["fulfil", "0", ""], ["request", "0", "a", "5"]]
    path.write_bytes(sealed(GOLDEN[0], *bought))
    assert opened(path) is not None
    path.write_bytes(sealed(GOLDEN[0], *bought, ["fulfil", "1", "5"]))
    assert opened(path) is None


def test_a_spent_cap_is_not_regained_by_replay(path):
    path.write_bytes(sealed(GOLDEN[0], ["request", "0", "a", "1000"]))
    with DeviceLedger(path) as ledger:
        assert ledger.balance("phone").remaining == 0
        with pytest.raises(BudgetExceeded):
            ledger.request("phone", "b", units(2))


def test_a_year_of_reports_is_small(path):
    """Twelve a day for a year: at most 180 bytes a report, 140 when compacted from time to time."""
    tall = path.with_name("tall")
    for place, compact_bytes, most in [(tall, 1 << 40, 180), (path, 1 << 18, 140)]:
        with DeviceLedger(place, compact_bytes=compact_bytes) as ledger:
            ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61))
            for n in range(365 * 12):
                key = f"mobility-survey/speed/2026-11-15T{n:05}"
                grant = ledger.request("phone", key, units(10**11))
                ledger.fulfil(grant.pending[0].number, [n % 256])
        print(f"{place.stat().st_size / 4380:.1f} bytes a report")
        assert place.stat().st_size <= most * 4380
    start = time.perf_counter()
    assert opened(path)[0][1] == 4380 * 10**11
    print(f"opened in {time.perf_counter() - start:.3f} s")


def test_compaction_bounds_the_file_when_keys_are_few(path):
    with DeviceLedger(path, compact_bytes=2000) as ledger:
        ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61))
        for step in range(1, 500):
            ledger.fulfil(ledger.request("phone", "a", units(step)).pending[0].number, [step])
            assert path.stat().st_size <= 2200
        expected = view(ledger)
    assert opened(path) == expected
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger"]


# The example of docs/ledger-format.md

PAGE = Path(__file__).parents[3] / "docs" / "ledger-format.md"
ZOE = Terms("phone", Unit.EPSILON, LOCAL, "Zoë's phone", 10**12, 10**9)


def shown():
    """The bytes of the example's two files: the records one by one, and compacted."""
    (block,) = re.findall(r"^```text\n(line .*?)^```", PAGE.read_text(), re.M | re.S)
    files = [[line.partition(" ")[::2] for line in file.splitlines()] for file in block.split("\n\n")]
    return [
        b"".join(text.encode() if part == "body" else bytes.fromhex(text) for part, text in file)
        for file in files
    ]


def zoe(path):
    """The ledger that the page tells of."""
    with DeviceLedger(path) as ledger:
        ledger.open(ZOE)
        grant = ledger.request("phone", "speed/2026-11", units(25 * 10**10), idempotency="r1")
        ledger.fulfil(grant.pending[0].number, [-7, 42])
        pay(ledger, "phone", "elsewhere", 10**11, "p1")


def test_the_page_shows_what_is_written(path):
    one_by_one, compacted = shown()
    zoe(path)
    assert path.read_bytes() == one_by_one == sealed(*(json.loads(body) for body in bodies(one_by_one)))
    state = device_records.State()
    for body in bodies(one_by_one):
        state.replay(body, at=0)
    record, _ = device_records.framed(device_records.START, state.dump(one_by_one[-32:]))
    assert compacted == MAGIC + record
    assert compacted == sealed(json.loads(*bodies(compacted)))


def bodies(content):
    return [part[8:-32] for part in parts(content)[1:]]


def test_the_page_can_be_read(path):
    for content in shown():
        path.write_bytes(content)
        with DeviceLedger(path) as ledger:
            assert ledger.balance("phone") == Balance(ZOE, 35 * 10**10)
            assert ledger.recorded("phone", "speed/2026-11") == (-7, 42)
            assert ledger.reading("phone", "speed/2026-11").estimate() == (-7, 42)
            again = ledger.request("phone", "speed/2026-11", units(25 * 10**10), idempotency="r1")
            assert (again.charged, again.pending) == (25 * 10**10, ())
            assert pay(ledger, "phone", "elsewhere", 10**11, "p1").charged == 10**11
        assert path.read_bytes() == content


def test_the_page_tells_a_torn_end_from_damage(path):
    """Each of its four cases, and the same with one byte that no crash leaves."""
    content = shown()[0]
    last = len(content) - len(parts(content)[-1])
    whole, record = content[:last], content[last:]
    path.write_bytes(whole)
    before = opened(path)
    for torn in [record[:7], b"\1" * 8 + bytes(9), record[:50], record[:-8] + bytes(8)]:
        path.write_bytes(whole + torn)
        assert opened(path) == before
        assert path.read_bytes() == whole
    for damage in [b"\1" * 9, b"\1" * 8 + bytes(9) + b"\1", record[:-8] + bytes(7) + b"\1"]:
        path.write_bytes(whole + damage)
        assert opened(path) is None


# Torn, edited, moved


def test_a_file_cut_anywhere_opens_at_a_record(path, tmp_path):
    views, contents = history(path)
    sizes = [len(content) for content in contents]
    copy = tmp_path / "copy"
    for size in range(sizes[-1] + 1):
        put(copy, contents[-1][:size])
        whole = max([n for n, end in enumerate(sizes) if end <= size], default=0)
        with DeviceLedger(copy) as ledger:
            assert view(ledger) == views[whole]
            assert ledger.cut_bytes == size - (sizes[whole] if size >= sizes[0] else 0)
        assert copy.read_bytes() == contents[whole]


def test_an_end_left_as_zeros_is_cut(path, tmp_path):
    """The file got its new length and not its bytes. If only some of the seal is missing, nothing is lost."""
    views, contents = history(path)
    copy = tmp_path / "copy"
    for n, (before, after) in enumerate(itertools.pairwise(contents)):
        for written in range(len(after) - len(before)):
            put(copy, after[: len(before) + written] + bytes(len(after) - len(before) - written))
            whole = written > len(after) - len(before) - 8
            assert opened(copy) == views[n + whole]
            assert copy.read_bytes() == (after if whole else before)
    for written in range(len(MAGIC)):
        put(copy, MAGIC[:written] + bytes(len(MAGIC) - written))
        assert opened(copy) == views[0]
    put(copy, bytes(len(MAGIC) + 1))
    assert opened(copy) is None


def test_zeros_at_the_end_do_not_excuse_damage_before(path):
    _, contents = history(path)
    edited = bytearray(contents[-1] + bytes(100))
    edited[len(contents[-2]) - 40] ^= 1
    path.write_bytes(edited)
    with pytest.raises(LedgerDamaged, match=f"damaged at byte {len(contents[-3])}"):
        DeviceLedger(path)
    assert path.read_bytes() == edited


def flips_missed(path, tmp_path, compact_bytes):
    """Flip each byte, by one bit, all bits and to zero; count the copies that open with another history.

    Or at all: but zeros for the end of the last seal are mended.
    """
    right = history(path, compact_bytes=compact_bytes)[0][-1]
    content = path.read_bytes()
    copy, missed = tmp_path / "copy", 0
    for place, byte in enumerate(content):
        for flipped in {byte ^ 1, byte ^ 0x80, byte ^ 0xFF, 0} - {byte}:
            damaged = content[:place] + bytes([flipped]) + content[place + 1 :]
            put(copy, damaged)
            mended = not flipped and place == len(content) - 1
            missed += opened(copy) != (right if mended else None)
            assert copy.read_bytes() == (content if mended else damaged) or missed
    return missed


@pytest.mark.parametrize("compact_bytes", [0, 1 << 20])
def test_every_flipped_byte_is_seen(path, tmp_path, compact_bytes):
    assert flips_missed(path, tmp_path, compact_bytes) == 0


def rearrangements_missed(path, tmp_path):
    """Delete, swap, repeat and insert whole records; count the copies that open with another history."""
    _, contents = history(path)
    line, *records = parts(contents[-1])
    foreign = parts(sealed(["open", "car", "epsilon", "ANY_TWO_VALUES", "x", "5", "1"]))[1]
    n = len(records)
    tried = [[*records[:i], *records[i + 1 :]] for i in range(n - 1)]
    tried += [[*records[:i], records[j], *records[i + 1 : j], records[i], *records[j + 1 :]]
              for i in range(n) for j in range(i + 1, n)]  # fmt: skip
    tried += [[*records[:i], records[j], *records[i:]] for i in range(n + 1) for j in range(n)]
    tried += [[*records[:i], foreign, *records[i:]] for i in range(n + 1)]
    tried = [records for records in tried if line + b"".join(records) not in contents]
    copy = tmp_path / "copy"
    missed = 0
    for changed in tried:
        put(copy, line + b"".join(changed))
        missed += opened(copy) is not None
    return missed, len(tried)


def test_moved_missing_and_foreign_records_are_seen(path, tmp_path):
    missed, tried = rearrangements_missed(path, tmp_path)
    assert tried > 100
    assert missed == 0


def test_the_search_sees_a_reader_without_the_chain(path, tmp_path, monkeypatch):
    chained_head, chained_seal = device_records._head, device_records._seal
    monkeypatch.setattr(device_records, "_head", lambda tip, length: chained_head(b"", length))
    monkeypatch.setattr(device_records, "_seal", lambda tip, head, body: chained_seal(b"", head, body))
    missed, _ = rearrangements_missed(path, tmp_path)
    assert missed > 0


def test_the_search_sees_a_reader_that_trusts_lengths(path, tmp_path, monkeypatch):
    """Without the check of the length, a wrong one would pass for a torn end and drop paid records."""
    monkeypatch.setattr(device_records, "_head", lambda tip, length: length.to_bytes(4, "big") + bytes(4))
    assert flips_missed(path, tmp_path, 1 << 20) > 0


def test_the_search_sees_a_reader_that_cuts_a_record_for_one_zero(path, tmp_path, monkeypatch):
    monkeypatch.setattr(device_records, "_UNWRITTEN", bytes(1))
    assert flips_missed(path, tmp_path, 1 << 20) > 0


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b"reticent device ledger 2\n", b"x", b"\n" * 100])
def test_another_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(LedgerDamaged, match="is no device ledger of this version"):
        DeviceLedger(path)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]
