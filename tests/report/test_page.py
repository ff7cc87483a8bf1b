"""The page: whole, safe, self-contained; and as a browser shows it."""

import copy
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from caplore.report.page import render
from caplore.report.runs import load

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Path]
VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """Every element with its attributes, and the text; refuses what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes something else at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="session")
def html(demo: Path) -> str:
    return render(load([demo], "test"), command="caplore report demo")


@pytest.fixture(scope="session")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_says_what_it_is_about(page: Page) -> None:
    assert "XE, SLL, SLL-ME and SLL-SLE on scenes" in page.text
    assert "test split · 500 pictures · 5 references each · model fc · features tiny · 3 seeds" in page.text
    for heading in ("The numbers", "Right, and varied", "Training", "What they say", "How it was made"):
        assert heading in page.text
    assert "caplore evaluate" in page.text
    assert "caplore report demo" in page.text
    assert "Signatures of all numbers" in page.text
    assert "cider_d|tok:ptb|n:4|df:train,4000" in page.text


def test_nothing_is_fetched_and_nothing_runs(html: str, page: Page) -> None:
    loaded = [
        a.get(k) for _, a in page.elements for k in ("src", "href", "srcset", "data", "action", "poster")
    ]
    assert all(url is None or url.startswith(("data:", "#")) for url in loaded)
    assert not page.all("script")
    assert not [k for _, attributes in page.elements for k in attributes if k.startswith("on")]
    assert not re.search(r"https?:|url\(|@import|//\w+\.\w", html)
    assert "default-src 'none'" in html


def test_ids_are_unique_and_references_lead_somewhere(page: Page) -> None:
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    pointed = [a.get(k) or "" for _, a in page.elements for k in ("for", "aria-labelledby")]
    anchors = [(a.get("href") or "")[1:] for a in page.all("a")]
    for name in " ".join([*pointed, *anchors]).split():
        assert name in ids, name


def test_it_can_be_read_without_seeing(page: Page) -> None:
    for head in page.all("th"):
        assert head.get("scope") in ("col", "row", "rowgroup")
    assert all(image.get("alt") for image in page.all("img"))
    svgs = [a for a in page.all("svg") if a.get("aria-hidden") != "true"]
    assert all(a.get("role") == "img" and a.get("aria-labelledby") for a in svgs)
    assert "lower is better" in page.text
    assert "not correct:" in page.text
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_pictures_are_small_and_inside(html: str, page: Page) -> None:
    pictures = [a["src"] or "" for a in page.all("img")]
    assert len(pictures) == 6
    assert all(p.startswith("data:image/webp;base64,") for p in pictures)
    assert len(html) < 400_000


def test_each_set_stands_under_its_objective_with_marks(page: Page) -> None:
    assert len([a for a in page.all("div") if re.match(r"set k\d", a.get("class") or "")]) == 6 * 4 * 3
    assert "random samples" in page.text
    assert "5 different" in page.text
    assert [a for a in page.all("span") if a.get("class") == "again"]
    assert {a.get("class") for a in page.all("li")} >= {"right", "wrong"}


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"


def test_other_peoples_text_is_only_text(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    value = copy.deepcopy(result_of("sll_sle"))
    value["run"] |= {"name": EVIL, "recipe": EVIL, "model": EVIL, "objective": EVIL, "encoder": EVIL}
    value["run"]["dataset"]["name"] = EVIL
    value["decoders"]["rs"]["scores"]["cider_d"]["signature"] = EVIL
    value["decoders"]["beam"]["scores"]["meteor"]["note"] = EVIL
    for example in value["examples"]:
        example |= {"id": example["id"] + EVIL, "references": [EVIL], "file": EVIL}
        for captions in example["sets"].values():
            captions[0]["caption"] = EVIL
    text = render(load([run_of(tmp_path / "a", value)], "test"), command=EVIL)
    found = Page(text)
    assert not found.all("script")
    assert not found.all("img")
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in found.text
    assert not [k for _, attributes in found.elements for k in attributes if k.startswith("on")]


def test_one_run_of_real_data_without_pictures(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    text = render(load([run_of(tmp_path / "a", result_of("xe", exact=False))], "test"))
    found = Page(text)
    assert "both sides of this run" in found.text
    assert "Pictures are not shown: the data set's folder was not found." in found.text
    assert "P(Y|x)" not in found.text
    assert "CIDEr 1" in found.text  # what is not known to be right or wrong shows its score
    assert not found.all("img")
    assert "One seed per row" in found.text


def test_a_run_that_was_stopped_is_announced(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    folder = run_of(tmp_path / "a", result_of("sll_me"))
    with (folder / "log.jsonl").open("a") as out:
        out.write('{"event": "stopped", "phase": "sequence", "step": 300, "why": "entropy ran away"}\n')
    assert "me-0 was stopped early: entropy ran away" in Page(render(load([folder], "test"))).text


@pytest.mark.parametrize(("epochs", "said"), [([0], True), ([0, 2], False)])
def test_a_run_that_kept_the_model_it_began_with_is_announced(
    tmp_path: Path, result_of: Make, run_of: Write, epochs: list[int], said: bool
) -> None:
    folder = run_of(tmp_path / "a", result_of("sll"))
    lines = [
        {
            "event": "validation",
            "phase": "sequence",
            "epoch": e,
            "step": e,
            "cider_d": 1.0,
            "best": e in epochs,
        }
        for e in range(3)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ("better than the model it began with" in Page(render(load([folder], "test"))).text) == said


def test_one_seed_is_said_to_prove_little(tmp_path: Path, demo: Path, result_of: Make, run_of: Write) -> None:
    one = [run_of(tmp_path / name, result_of(name)) for name in ("sll", "sll_sle")]
    assert "a marked change may be chance" in Page(render(load(one, "test"))).text
    assert "a marked change may be chance" not in Page(render(load([demo], "test"))).text


def test_clips_and_a_named_folder(tmp_path: Path, pictures: Path, result_of: Make, run_of: Write) -> None:
    value = copy.deepcopy(result_of("xe"))
    value["run"]["dataset"]["media"] = "clip"
    folder = run_of(tmp_path / "a", value, data=Path("gone"))
    assert "500 clips" in (text := Page(render(load([folder], "test"))).text)
    assert "Pictures are not shown" in text
    assert len(Page(render(load([folder], "test"), media=pictures)).all("img")) == 6


def test_fewer_examples_can_be_asked_for(demo: Path) -> None:
    runs = load([demo], "test")
    assert len(Page(render(runs, examples=2)).all("article")) == 2
    assert "What they say" not in Page(render(runs, examples=0)).text


def test_columns_beyond_the_paper_are_explained_where_they_are_shown(
    html: str, tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    value = copy.deepcopy(result_of("xe"))
    value["decoders"]["rs"]["scores"]["self_cider"] = {"value": 0.9, "signature": "s"}
    shown = render(load([run_of(tmp_path / "a", value)], "test"))
    assert ["self-CIDEr is near 1" in text for text in (html, shown)] == [False, True]


def test_only_inputs_that_every_run_has_are_shown_side_by_side(
    tmp_path: Path, result_of: Make, run_of: Write
) -> None:
    run_of(tmp_path / "a", result_of("xe"))
    fewer = copy.deepcopy(result_of("sll"))
    fewer["examples"] = fewer["examples"][2:4]
    run_of(tmp_path / "b", fewer)
    shown = Page(render(load([tmp_path], "test"))).all("article")
    assert [a["aria-label"] for a in shown] == ["Input test-00002", "Input test-00003"]


def test_recorded_commands_are_shown_as_typed(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    from caplore.files import read_json, write_json

    folder = run_of(tmp_path / "a run", result_of("xe"), start=None)
    assert (
        f"caplore train scenes-xe --data data/scenes --to '{folder}' --seed 0"
        in Page(render(load([folder], "test"))).text
    )
    write_json(folder / "run.json", read_json(folder / "run.json") | {"command": ["caplore", "train", "x y"]})
    assert "caplore train 'x y'" in Page(render(load([folder], "test"))).text


def test_signatures_stand_once_with_their_notes(tmp_path: Path, result_of: Make, run_of: Write) -> None:
    for seed in range(3):
        value = copy.deepcopy(result_of("xe", seed))
        value["exact"]["scores"]["precision"]["note"] = f"missed {seed}"
        run_of(tmp_path / str(seed), value)
    text = Page(render(load([tmp_path], "test"))).text
    assert text.count("exact|membership:grammar: missed 0 (and 2 like it)") == 1
    assert "not computed: SPICE is not set up: caplore setup spice" in text


WIDTHS = (1280, 390, 320)
# Not window.innerWidth: on a phone that grows with what overflows.
OVERFLOW = """
(() => {
  const wide = document.documentElement.scrollWidth - WIDTH;
  const out = [...document.querySelectorAll('main *')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && box.right > WIDTH + 1 && !e.closest('.box, pre, .sr');
  });
  return [wide, out.slice(0, 3).map(e => e.outerHTML.slice(0, 120))];
})()
"""
SMALL_TEXT = """
[...document.querySelectorAll('svg text')].map(t => {
  const box = t.ownerSVGElement.getBoundingClientRect();
  return parseFloat(getComputedStyle(t).fontSize) * box.width / t.ownerSVGElement.viewBox.baseVal.width;
}).filter(size => size < 10.5).length
"""
CLIPPED = """
[...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const box = t.getBoundingClientRect();
    return box.left < frame.left - 14 || box.right > frame.right + 14;
  }).map(t => t.textContent);
})
"""
SHOWN_SETS = "[...document.querySelectorAll('.set')].filter(e => e.offsetParent).map(e => e.className.match(/k\\d/)[0])"


@pytest.fixture(scope="session")
def files(
    tmp_path_factory: pytest.TempPathFactory, html: str, result_of: Make, run_of: Write
) -> dict[str, Path]:
    """Three pages: the made world, the paper's data, a grid of models with long names."""
    folder = tmp_path_factory.mktemp("pages")
    for objective in ("xe", "sll", "sll_sle"):
        run_of(folder / "coco" / objective, result_of(objective, exact=False, dataset="coco"))
        for model in ("fc", "transformer"):
            value = copy.deepcopy(result_of(objective, exact=False, dataset="a" * 60))
            value["run"]["model"] = model
            value["examples"][0]["sets"]["rs"][0]["caption"] = "x" * 300
            run_of(folder / "grid" / f"{objective}-{model}", value)
    pages = {"demo": folder / "demo.html", "coco": folder / "coco.html", "grid": folder / "grid.html"}
    pages["demo"].write_text(html)
    for name in ("coco", "grid"):
        pages[name].write_text(
            render(load([folder / name], "test"), command="caplore report " + "runs/x " * 60)
        )
    return pages


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["demo", "coco", "grid"])
def test_it_fits_the_screen(browser: Any, files: dict[str, Path], name: str, width: int, dark: bool) -> None:
    browser.open(files[name], width=width, dark=dark)
    assert browser.evaluate(OVERFLOW.replace("WIDTH", str(width))) == [0, []]
    assert browser.evaluate(CLIPPED) == []
    if width >= 390:
        assert browser.evaluate(SMALL_TEXT) == 0
    assert browser.problems() == []


@pytest.mark.browser
def test_light_and_dark_differ(browser: Any, files: dict[str, Path]) -> None:
    seen = []
    for dark in (False, True):
        browser.open(files["demo"], width=1280, dark=dark)
        seen.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == ["rgb(251, 250, 246)", "rgb(21, 23, 26)"]


@pytest.mark.browser
def test_choosing_a_kind_of_set_shows_that_one(browser: Any, files: dict[str, Path]) -> None:
    browser.open(files["demo"], width=390)
    assert set(browser.evaluate(SHOWN_SETS)) == {"k0"}
    browser.evaluate("document.querySelector('label[for=set-2]').click()")
    assert set(browser.evaluate(SHOWN_SETS)) == {"k2"}


@pytest.mark.browser
def test_the_browser_test_sees_what_it_should(browser: Any, tmp_path: Path) -> None:
    """A page with a script error, a request and an overflow is caught, so the tests above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<main><p style='width:2000px'>x</p></main><script>nothing()</script><img src='http://127.0.0.1:9/x'>"
    )
    browser.open(bad, width=390)
    wide, out = browser.evaluate(OVERFLOW.replace("WIDTH", "390"))
    assert wide > 1000
    assert out
    found = " ".join(browser.problems())
    assert "nothing is not defined" in found
    assert "http://127.0.0.1:9/x" in found
