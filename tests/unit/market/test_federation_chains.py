"""Acts as chains and folders: nothing is changed, left out or half written."""

import json
import random
from pathlib import Path

import pytest

from reticent.errors import ParameterError, ParameterTypeError, StorageUnavailable
from reticent.fleet import signing
from reticent.market.federations import (
    Tabled,
    acts,
    deals,
    folder,
)
from reticent.market.federations.federation import Federation
from reticent.market.federations.purchases import (
    Arrived,
    Award,
    Wanted,
)

from .federating import (
    EPSILON,
    FULL,
    REFUSALS,
    WORTH,
    Story,
    key_of,
    public,
    three,
)


def test_a_chain_that_was_changed_is_refused():
    story = three()
    story.whole_deal(FULL)
    drawn = random.Random(5)
    for place in range(len(story.files)):
        for cut in (story.files[:place] + story.files[place + 1 :], _swapped(story.files, place)):
            if cut != story.files[:-1] and cut != story.files:
                with pytest.raises(REFUSALS):
                    Federation.through(cut)
        flipped = bytearray(story.files[place])
        flipped[drawn.randrange(len(flipped))] ^= 1 << drawn.randrange(7)
        with pytest.raises(REFUSALS, match=rf"^act {place}: "):
            Federation.through([*story.files[:place], bytes(flipped), *story.files[place + 1 :]])
    with pytest.raises(ParameterError, match="got no acts"):
        Federation.through([])


def _swapped(files, place):
    changed = list(files)
    if place + 1 < len(files):
        changed[place], changed[place + 1] = changed[place + 1], changed[place]
    return changed


def test_planted_acts_that_name_no_predecessor_can_be_left_out(monkeypatch):
    """Without `after` a vote could be taken out of the middle."""
    story = three()
    story.do("anna", acts.Vote(public("anna")))
    story.do("bruno", acts.Vote(public("anna")))
    without = [*story.files[:-2], story.files[-1]]
    with pytest.raises(ParameterError, match="comes after"):
        Federation.through(without)
    real = Federation.apply

    def careless(self, file, **options):
        self.heads[-1] = acts.read(file).after
        return real(self, file, **options)

    monkeypatch.setattr(Federation, "apply", careless)
    assert Federation.through(without).votes == {public("bruno"): public("anna")}


def mutations(drawn, file):
    """A signed act with one field of its text changed, and signed again by the same."""
    given = json.loads(json.loads(file)["act"])
    odd = [None, -1, 0, 1.5, "x", 10**30, True, [], {}, float("1e308"), "0" * 64, {"x": 1}, ["y"], 2**62]
    name = drawn.choice(list(given))
    given[name] = drawn.choice(odd)
    if drawn.random() < 0.1:
        given["more"] = 1
    return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()


def test_bad_acts_are_refused_in_one_line():
    story = three()
    story.whole_deal(FULL)
    drawn, taken = random.Random(6), 0
    for _ in range(1_500):
        place = drawn.randrange(1, len(story.files))
        before = Federation.through(story.files[:place]) if drawn.random() < 0.02 else None
        text = mutations(drawn, story.files[place])
        signer = next(
            name for name in ("founder", *FULL) if public(name) == json.loads(story.files[place])["signer"]
        )
        file = signing.sealed(acts.Act.field, acts.Act.head, text, key_of(signer))
        said = ""
        try:
            acts.read(file)
            taken += 1
            if before is not None:
                before.apply(file)
        except REFUSALS as error:
            said = str(error)
        assert "\n" not in said
        assert len(said) < 400
    assert taken < 500


def test_an_act_is_written_in_one_way_only():
    story = three()
    text = json.dumps(json.loads(json.loads(story.files[1])["act"]), sort_keys=True).encode()  # with spaces
    with pytest.raises(ParameterError, match="sorted fields, no spaces"):
        acts.read(signing.sealed(acts.Act.field, acts.Act.head, text, key_of("anna")))


def test_a_folder_is_the_federation(tmp_path):
    place = tmp_path / "north"
    made = folder.founded(place, acts.Found("north", "to test", 2, 1, 10**13), key_of("founder"))
    folder.done(place, made, acts.Join(5, EPSILON), key_of("anna"))
    assert folder.opened(place).waiting == {public("anna"): deals.Limits(5, EPSILON)}
    assert folder.opened(place).head == made.head
    with pytest.raises(ParameterError, match=r"000000.json is there already"):
        folder.founded(place, acts.Found("north", "to test", 2, 1, 10**13), key_of("founder"))
    late = folder.opened(place)
    folder.done(place, made, acts.Join(6, EPSILON), key_of("bruno"))
    before = dict(late.__dict__)
    with pytest.raises(ParameterError, match="another act came first"):
        folder.done(place, late, acts.Join(7, EPSILON), key_of("cleo"))
    assert late.__dict__ == before
    assert sorted(one.name for one in place.iterdir()) == ["000000.json", "000001.json", "000002.json"]
    (place / "000001.json").unlink()
    with pytest.raises(ParameterError, match=r"000001.json is missing"):
        folder.opened(place)
    with pytest.raises(ParameterError, match="folder must hold the acts"):
        folder.opened(Path(tmp_path / "nowhere"))


def test_a_disk_that_fails_keeps_nothing(tmp_path, monkeypatch):
    place = tmp_path / "north"
    made = folder.founded(place, acts.Found("north", "to test", 2, 1, 10**13), key_of("founder"))
    before = dict(made.__dict__)

    def full(*paths):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.link", full)
        with pytest.raises(StorageUnavailable, match=r"000001.json cannot be written: No space left"):
            folder.done(place, made, acts.Join(5, EPSILON), key_of("anna"))
    assert made.__dict__ == before
    assert [one.name for one in place.iterdir()] == ["000000.json"]
    folder.done(place, made, acts.Join(5, EPSILON), key_of("anna"))
    assert folder.opened(place).head == made.head


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: acts.Found("no name", "x", 1, 1, 1), "name must be"),
        (lambda: acts.Found("n", "x", 0, 1, 1), "rounds must be >= 1"),
        (lambda: acts.Found("n", "x", 1, 1, 0), "tolerated must be >= 1"),
        (lambda: acts.Join(0, 1), "points must be >= 1"),
        (lambda: acts.Join(1, float("nan")), "threshold must be a whole number"),
        (lambda: acts.Admit("x", {}), "member must be a public key"),
        (lambda: acts.Give(1, 1, 2**63), "units must be <="),
        (lambda: Wanted("n", "1", "x", 0, 4, WORTH), "budget must be >= 1"),
        (lambda: Wanted("n", "1", "x", 1, 1, WORTH), "k must be >= 2"),
        (lambda: Tabled(()), "1 to 64 points"),
        (lambda: Tabled(((1.0, 2.0), (2.0, 2.0))), "more level for more money"),
        (lambda: Tabled(((float("nan"), 2.0),)), "money must be finite"),
        (lambda: Award("n", "1", "x", "0" * 16, 0.5, ()), "at least one federation"),
        (lambda: Arrived(public("a"), 1, 0, 1), "points must be >= 1"),
        (lambda: deals.bid({}, 4), "must have members"),
    ],
)
def test_bad_texts_name_their_rule(make, rule):
    with pytest.raises((ParameterError, ParameterTypeError), match=rule):
        make()


def test_valuations_by_points_go_both_ways():
    worth = Tabled(((10.0, 1.0), (30.0, 2.0)))
    assert [worth.level(money) for money in (0.0, 5.0, 20.0, 99.0)] == [0.0, 0.5, 1.5, 2.0]
    assert [worth.money(level) for level in (0.0, 0.5, 1.5, 9.0)] == [0.0, 5.0, 20.0, 30.0]
    wanted = Wanted("n", "1", "x", 100, 4, worth)
    assert Wanted.parse(wanted.text) == wanted


@pytest.mark.slow
def test_five_hundred_members_deal():
    story = Story(tolerated=10**20).members(*((i, 1 + i % 7, 0.5 + i % 9 / 3) for i in range(500)))
    given = {i: (1 + i % 7, 0.4 + i % 9 / 3) for i in range(500)}
    settlement = story.whole_deal(given, budget=5_000)
    assert settlement.reached
    assert sum(settlement.paid.values()) == story.federation.settled[0][0].terms.cents
    assert Federation.through(story.files).settled[0][1] == settlement
