"""Flickr8k as its authors gave it: a token file, and lists of the pictures of each split.

Flickr8k.token.txt          1000268201_693b08cb0e.jpg#0 <tab> A child in a pink dress ...
Flickr_8k.trainImages.txt   a file name per line; devImages, testImages
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from caplore.data.importers.source import Finding, Item, Source, lines_of, media_folder_in, the_file

LISTS = {"train": "*trainImages.txt", "val": "*devImages.txt", "test": "*testImages.txt"}
MEDIA = ("Flicker8k_Dataset", "Flickr8k_Dataset", "images", "Images")


def read_flickr8k(folder: Path, media: Path | None = None) -> Source:
    tokens = the_file(folder, ("*.token.txt", "*token*.txt"), "Flickr8k's token file")
    source = Source("flickr8k", "image", [], media or media_folder_in(folder, MEDIA))
    captions: dict[str, list[str]] = {}
    for number, line in lines_of(tokens, "token file"):
        picture, tab, caption = line.partition("\t")
        if not tab:
            source.findings.append(Finding("malformed", f"{tokens.name}, line {number}", line[:100]))
            continue
        captions.setdefault(picture.partition("#")[0].strip(), []).append(caption)
    split_of = read_split_lists({split: sorted(folder.glob(p)) for split, p in LISTS.items()}, source)
    for picture in sorted(set(split_of) - set(captions)):
        source.findings.append(Finding("not-captioned", picture, f"in the list of {split_of[picture]}"))
    source.items = [Item(p, split_of.get(p), p, said, tokens.name) for p, said in captions.items()]
    return source


def read_split_lists(files: Mapping[str, Sequence[Path]], source: Source) -> dict[str, str]:
    """The split of each name in some lists, a name per line; one in two splits is said and keeps the first."""
    split_of: dict[str, str] = {}
    for split, lists in files.items():
        for path in lists:
            for number, line in lines_of(path, "split list"):
                name = line.strip()
                if split_of.setdefault(name, split) != split:
                    detail = f"{split_of[name]}, and {split} by {path.name}, line {number}"
                    source.findings.append(Finding("in-two-splits", name, detail))
    return split_of
