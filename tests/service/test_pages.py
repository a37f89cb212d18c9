"""The pages in a real chromium: an analyst's minute, an owner's afternoon, and what must not happen."""

import contextlib
import json
import re
from pathlib import Path

from reticent.apps.collect.collecting import Collecting
from reticent.query.language import tree

from .person_at_pages import kept, service, visiting
from .running import until

__all__ = ["service", "visiting"]  # fixtures


def spent(service, name):
    return service.desk.balance(name).spent


# An analyst's minute


def test_ask_repeat_refine_exhaust_and_look_back(service, visiting):
    alice = visiting()
    alice.build("story", "mean", "income")
    assert "of the budget" in alice.price()
    first = alice.ask()
    assert re.search(r"± [\d,]+: between [-\d,]+ and [\d,]+, 19 times out of 20", first)
    paid = spent(service, "story")
    assert paid > 0
    number = alice.page.inner_text("#answer .number")

    assert "Free" in alice.price()
    assert re.search(r"Paid now\s+nothing", alice.ask())
    assert spent(service, "story") == paid
    assert alice.page.inner_text("#answer .number") == number

    alice.page.locator("#exactness").fill("70")
    assert "only the missing part is bought" in alice.price()
    finer = alice.ask()
    assert "Refined: only the missing part" in finer
    assert re.search(
        r"Earlier purchases that it rests on\s+mean of income, by alice on [0-9-]+: 1 % of the budget", finer
    )
    wanted = int(10 ** (-4 * 0.3) * service.desk.data("story").terms.cap)
    assert abs(spent(service, "story") - wanted) <= 1  # what was paid before counts
    assert "6.31 % spent" in alice.page.inner_text("#left")

    before, number = spent(service, "story"), alice.page.inner_text("#answer .number")
    alice.page.fill("#error", "500")
    assert "More than is left" in alice.price()
    refused = alice.ask()
    assert "Refused, and nothing was charged" in refused
    assert "The best that is free" in refused.replace("\n", " ")
    assert alice.page.inner_text("#answer .number") == number
    assert spent(service, "story") == before

    alice.page.goto("/datasets/story/answers")
    alice.follow("ul.lines a")
    assert alice.page.inner_text(".number") == number
    alice.page.goto("/datasets/story/reuse")
    assert "3 questions so far, 1 of them free" in alice.page.inner_text("main")
    assert spent(service, "story") == before


def test_a_refusal_without_anything_bought_says_so(service, visiting):
    alice = visiting()
    alice.build("priced", "sum", "hours")
    alice.page.fill("#error", "0.5")
    assert "there is no free answer" in alice.ask()
    assert spent(service, "priced") == 0


def test_the_price_moves_with_the_slider_and_says_the_error(visiting):
    alice = visiting()
    alice.build("priced", "mean", "income")
    found = []
    for place in ("10", "40", "80"):
        alice.page.locator("#exactness").fill(place)
        said = alice.price()
        cost, error = re.search(r"Costs ([\d.]+) %.*± ([\d,.]+),", said, re.DOTALL).groups()
        found.append((float(cost), float(error.replace(",", ""))))
    costs, errors = zip(*found, strict=True)
    assert costs == tuple(sorted(costs))
    assert errors == tuple(sorted(errors, reverse=True))
    alice.build("private", "mean", "income")
    assert "say how many you expect" in alice.price()
    alice.page.fill("#rows", "100")
    assert "19 times out of 20" in alice.price()


KINDS = {
    "count": ("#by-1", "age"),
    "sum": ("#column", "hours"),
    "mean": ("#column", "income"),
    "proportion": ("[name=of_column]", "race"),
    "variance": ("#column", "age"),
    "histogram": ("#by-1", "race"),
    "median": ("#column", "age"),
    "quantile": ("#column", "hours"),
}


def test_every_kind_can_be_built_and_shows_only_its_fields(visiting):
    alice = visiting()
    for kind, (place, column) in KINDS.items():
        alice.build("priced", kind)
        alice.page.select_option(place, column)
        if kind == "proportion":
            alice.page.fill("[name=of_value]", "white")
        alice.page.select_option("[name=where_column]", "sex")
        alice.page.fill("[name=where_value]", "female")
        said = alice.price()
        assert re.search("Costs .* of the budget", said), (kind, said)
        page = alice.page
        shown = {name: page.is_visible(name) for name in ("#column", "#levels", "[name=of_column]", "#by-1")}
        assert shown == {
            "#column": kind in ("sum", "mean", "variance", "median", "quantile"),
            "#levels": kind == "quantile",
            "[name=of_column]": kind == "proportion",
            "#by-1": kind not in ("median", "quantile"),
        }, kind


def test_groups_conditions_and_sql_give_the_same_question(service, visiting):
    alice = visiting()
    alice.build("priced", "count")
    page = alice.page
    page.select_option("[name=where_column]", "age")
    page.select_option("[name=where_op]", ">=")
    page.fill("[name=where_value]", "40")
    page.click(".for-build > fieldset [data-add]")
    page.select_option("[name=where_column] >> nth=1", "race")
    page.select_option("[name=where_op] >> nth=1", "one of")
    page.fill("[name=where_value] >> nth=1", "white, black")
    assert page.get_attribute("[name=where_value] >> nth=1", "list")  # its categories are offered
    page.select_option("#by-1", "age")
    page.fill("#bins-1", "50, 60")
    page.select_option("#by-2", "sex")
    said = alice.ask()
    assert "count where age ≥ 40 and race in ('white', 'black') by age cut at 50, 60, sex" in said
    assert page.locator("#answer tbody tr").count() == 6
    page.wait_for_selector("#answer canvas")
    page.check("#mode-sql")
    page.fill("#sql", "SELECT COUNT(*) FROM priced WHERE age >= 40 AND race IN ('white', 'black')")
    assert "Costs" in alice.price()  # the total is another question
    page.fill("#sql", "DROP TABLE priced")
    said = alice.price()
    assert "SELECT" in said
    assert page.locator("#price [role=alert]").count() == 1


def test_the_overview_moves_while_others_ask_and_keeps_the_focus(service, visiting):
    alice = visiting()
    page = alice.page
    page.goto("/")
    page.evaluate("""() => { window.shift = 0; new PerformanceObserver((list) => {
        for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
    }).observe({ type: "layout-shift", buffered: true }); }""")
    page.focus("#ask-live")
    meter = "article[aria-labelledby=name-live] [role=meter]"
    assert page.get_attribute(meter, "aria-valuenow") == "0.0"
    bob = service.desk.state.named("bob")
    service.desk.ask(bob, "live", tree.mean("age"), information=0.5)
    page.wait_for_selector(f"{meter}:not([aria-valuenow='0.0'])")
    assert "the last by bob" in page.inner_text("article[aria-labelledby=name-live]")
    assert page.evaluate("document.activeElement.id") == "ask-live"
    assert page.evaluate("window.shift") < 0.01


def test_a_keyboard_is_enough_to_sign_in_ask_and_download(service, visiting):
    alice = visiting(None, viewport={"width": 390, "height": 700})
    page = alice.page
    page.goto("/signin")
    page.wait_for_function("document.activeElement.id === 'key'")  # the browser gives it the focus by itself
    page.keyboard.type(service.keys["alice"])
    page.keyboard.press("Enter")
    page.wait_for_selector("#cards")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"

    def go(to):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == to:
                return
        raise AssertionError(f"no key leads to {to}")

    go("ask-live")
    page.keyboard.press("Enter")
    page.wait_for_selector("#price .notice")
    go("kind")
    page.keyboard.press("s")  # for sum
    go("exactness")
    page.keyboard.press("ArrowRight")
    go("send")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .number")
    assert "sum of income" in page.inner_text("#answer")
    until(
        lambda: page.evaluate("document.getElementById('answer').getBoundingClientRect().top < innerHeight")
    )
    go("download-csv")
    with page.expect_download() as taken:
        page.keyboard.press("Enter")
    assert taken.value.suggested_filename == "live-sum.csv"
    value = Path(taken.value.path()).read_text().splitlines()[1].split(",")[0]
    shown = page.inner_text("#answer .number").replace(",", "")
    assert abs(float(value) - float(shown)) <= 0.5 * 10 ** (len(shown) - len(shown.rstrip("0")))
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # opens the texts to copy
    go_to_copy = page.locator("[data-copy=copy-SQL]")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    go_to_copy.focus()
    page.keyboard.press("Enter")
    go_to_copy.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "SELECT SUM(income) FROM live\n"


# The ledger


def verified(page):
    page.click("#verify-all")
    page.wait_for_selector("#verified:not(:empty)")
    return page.inner_text("#verified")


def test_the_ledger_page_verifies_entries_and_that_the_log_only_grew(service, visiting):
    alice = visiting()
    page, log = alice.page, service.desk.ledger
    page.goto("/ledger")
    said, state = kept(page)
    assert "saw no head of this log before" in said
    assert "fine" in state
    seen = json.loads(page.evaluate("name => localStorage.getItem(name)", f"reticent head {log.origin}"))
    size = seen["size"]  # data sets may still be opening, each with an entry
    assert seen["root"] == log.root(size).hex()
    shown = page.locator("#entries tbody tr").count()
    assert f"All {shown} are in the log with root {seen['root'][:16]}" in verified(page)
    assert page.locator("td.proof.good").count() == shown

    service.desk.ask(service.desk.state.named("bob"), "live", tree.mean("hours"), information=0.01)
    page.reload()
    assert f"The log only grew since this browser saw it: {size} entries" in kept(page)[0]
    for old in (0, 1, 2, 3, 4, 5, 6, 8, log.head().size - 1):  # proofs of every shape, and none
        remember(page, log, old, log.root(old).hex())
        page.reload()
        assert "only grew" in kept(page)[0], old
        remember(page, log, old, "00" * 32)
        page.reload()
        assert "REWRITTEN" in kept(page)[0], old
    page.goto("/ledger?last=1")
    assert "All 1 are" in verified(page)


def remember(page, log, size, root):
    """Put a head into the browser as if it had been seen."""
    told = json.dumps({"origin": log.origin, "size": size, "root": root, "checkpoint": f"head of {size}"})
    page.evaluate("([name, text]) => localStorage.setItem(name, text)", [f"reticent head {log.origin}", told])


def test_a_rolled_back_ledger_is_shown_in_red_and_can_be_forgotten(service, visiting):
    alice = visiting()
    page, log = alice.page, service.desk.ledger
    page.goto("/ledger")
    kept(page)
    remember(page, log, log.head().size + 1, "ab" * 32)
    page.reload()
    said, state = kept(page)
    assert "ROLLED BACK" in said
    assert f"head of {log.head().size + 1}" in said  # the evidence
    assert "bad" in state
    page.reload()
    assert "ROLLED BACK" in kept(page)[0]  # what was seen is not overwritten
    page.click("#forget")
    page.locator("#kept", has_text="saw no head").wait_for()


def test_a_tampered_proof_does_not_hold(service, visiting):
    alice = visiting()
    page = alice.page

    def tamper(route):
        reply = route.fetch()
        told = reply.json()
        path = told["proofs"]["2"]
        path[0] = ("0" if path[0][0] != "0" else "1") + path[0][1:]
        route.fulfill(response=reply, json=told)

    page.route("**/ledger/proofs*", tamper)
    page.goto("/ledger")
    assert "1 of " in verified(page)
    assert page.inner_text("tr[data-number='2'] td.proof") == "DOES NOT HOLD"
    assert page.inner_text("tr[data-number='1'] td.proof") == "holds"
    page.unroute("**/ledger/proofs*")

    def rewrite(route):
        reply = route.fetch()
        body = reply.text().replace("&#34;charged&#34;:&#34;", "&#34;charged&#34;:&#34;1", 1)
        route.fulfill(response=reply, body=body)

    bob = service.desk.state.named("bob")
    service.desk.ask(bob, "live", tree.variance("hours"), information=0.01)  # a charge to rewrite
    page.route("**/ledger", rewrite)
    page.goto("/ledger")
    assert "1 of " in verified(page)


# An owner's afternoon


def test_an_owner_registers_a_data_set_step_by_step(service, visiting):
    olga = visiting("olga")
    page = olga.page
    page.goto("/owner/register")
    olga.follow("text=survey.csv")
    assert page.input_value("#unit") == ""  # nothing is protected by default
    page.select_option("#unit", "person")
    assert page.is_visible("#person")
    page.select_option("#unit", "row")
    assert not page.is_visible("#person")
    page.fill("#epsilon", "1")
    page.fill("#delta", "1e-6")
    page.fill("#rows", "2")
    page.select_option("#type-1", "integer")
    page.fill("#low-1", "0")
    page.select_option("#type-2", "category")
    page.fill("#values-2", "a, b")
    assert not page.is_visible("#low-2")
    olga.follow("main button")
    assert "columns.age.high must be a number" in page.inner_text("[role=alert]")
    assert "columns.age.missing must be filled in" in page.inner_text("[role=alert]")
    assert page.input_value("#values-2") == "a, b"  # what was typed stays
    olga.hear("Failed to load resource: the server responded with a status of 400")
    page.fill("#high-1", "120")
    page.fill("#missing-1", "0")
    olga.follow("main button")
    assert "Budget: epsilon 1 at delta 1e-06, for ever" in page.inner_text("main")
    page.click("main button:text-is('Register')")
    page.wait_for_url("**/datasets/survey")
    assert [column.name for column in service.desk.data("survey").columns] == ["age", "kind"]
    assert service.desk.state.owner("survey") == service.desk.state.named("olga").number


def test_an_owner_makes_a_key_limits_it_and_takes_it_back(service, visiting):
    olga = visiting("olga")
    page = olga.page
    page.goto("/owner/keys")
    page.fill("#name", "carol")
    olga.follow("text=Make a key")
    key = page.inner_text("#secret")
    page.goto("/owner/keys")
    assert key not in page.content()
    page.goto("/datasets/limited")
    row = page.locator("form", has_text="carol")
    row.locator("[name=share]").fill("0.5")
    with page.expect_navigation():
        row.locator("button").click()

    carol = visiting(None)
    carol.sign_in(key)
    carol.page.wait_for_url(f"{service.url}/")
    carol.build("limited", "mean", "income")
    assert "More than your quota" in carol.price()
    before = spent(service, "limited")
    refused = carol.ask()
    assert "Refused, and nothing was charged" in refused
    assert "Your quota has 0.5 % of the budget left" in refused
    assert spent(service, "limited") == before
    carol.page.locator("#exactness").fill("30")
    assert "Paid now" in carol.ask()

    page.goto("/owner/keys")
    olga.follow("tr:has-text('carol') button")
    assert "taken back" in page.inner_text("tr:has-text('carol')")
    carol.page.goto("/")
    carol.page.wait_for_url("**/signin")
    carol.sign_in(key)
    assert "not known, or was taken back" in carol.page.inner_text("[role=alert]")
    carol.hear("401")


# Surveys


def test_a_survey_is_watched_and_harms_nobody(service, visiting):
    """Names and labels of a survey are its author's to choose; none becomes an element."""
    person = visiting("alice")
    page = person.page
    page.goto("/surveys")
    person.follow("main h2 a")
    page.wait_for_selector("#live .chart canvas")
    assert page.inner_text("#live .number") == "200"
    assert page.evaluate("window.hit") is None
    assert page.locator("main script, main img").count() == 0
    with contextlib.closing(Collecting(service.desk.settings)) as collecting:
        collecting.collector.receive([b"nonsense"])
    page.locator("#live table:last-of-type", has_text="version").wait_for()
    assert person.said == []


# A dashboard before it is bought


def test_plan_a_dashboard_and_buy_what_comes_first(service, visiting):
    alice = visiting()
    page = alice.page
    page.goto("/datasets/story/plan")
    asked = [f"SELECT COUNT(*) FROM story WHERE age >= {age} AND sex = '{sex}'" for age in (20, 40, 60)
             for sex in ("female", "male")]  # fmt: skip
    page.fill("#sql", "-- error 400\n" + ";\n".join(asked))
    before = spent(service, "story")
    page.click("#send")
    page.wait_for_selector("#proposal table")
    told = page.inner_text("#proposal")
    assert "Buy first" in told
    assert "number of rows by age (cut at 20, 40, 60) and sex" in told
    assert spent(service, "story") == before
    page.click("#proposal button")
    page.wait_for_selector("#bought-1 table")
    assert spent(service, "story") > before
    page.fill("#sql", "SELECT nothing")
    page.fill("#error", "3")
    page.click("#send")
    page.wait_for_selector("#proposal .bad")
