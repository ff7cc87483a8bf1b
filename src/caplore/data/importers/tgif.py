"""TGIF: tgif-v1.0.tsv (URL <tab> sentence) and the official lists of URLs in splits/{train,val,test}.txt.

An input is called as its GIF file is (the last part of its URL). Many GIFs have left the web, and others
have become still pictures: those are left out and listed, so that what is evaluated is said exactly.
"""

from pathlib import Path

from caplore.data.importers.flickr import read_split_lists
from caplore.data.importers.source import Finding, Item, Source, lines_of, media_folder_in, the_file

MEDIA = ("gifs", "GIFs", "gif", "media", "tgif")


def read_tgif(folder: Path, media: Path | None = None) -> Source:
    table = the_file(folder, ("tgif*.tsv", "data/tgif*.tsv"), "TGIF's table tgif-v1.0.tsv")
    source = Source("tgif", "clip", [], media or media_folder_in(folder, MEDIA))
    lists = table.parent / "splits"
    files = {split: sorted(lists.glob(f"{split}.txt")) for split in ("train", "val", "test")}
    split_of = {_file_of(url): split for url, split in read_split_lists(files, source).items()}
    items: dict[str, Item] = {}
    urls: dict[str, str] = {}
    for number, line in lines_of(table, "table"):
        url, tab, sentence = line.partition("\t")
        name = _file_of(url)
        if not tab or not name:
            source.findings.append(Finding("malformed", f"{table.name}, line {number}", line[:100]))
            continue
        if urls.setdefault(name, url) != url:
            source.findings.append(Finding("duplicate-id", name, f"two addresses: {urls[name]} and {url}"))
            continue
        item = items.setdefault(name, Item(Path(name).stem, split_of.get(name), name, [], table.name))
        item.captions.append(sentence)
    for name in sorted(set(split_of) - set(items)):
        source.findings.append(Finding("not-captioned", name, f"in the list of {split_of[name]}"))
    source.items = list(items.values())
    return source


def _file_of(url: str) -> str:
    return url.strip().rstrip("/").rpartition("/")[2]
