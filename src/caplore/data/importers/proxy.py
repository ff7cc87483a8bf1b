"""coco-proxy: COCO's captions with a text embedding where the picture would be (media: none)."""

import gzip
import json
from pathlib import Path

from caplore.data.importers.source import Finding, Item, Source, known_split, text_of, texts_of, the_file
from caplore.errors import InputError


def read_coco_proxy(folder: Path) -> Source:
    """captions.jsonl, gzipped or not: {id, split, captions} per line, in the order of the embeddings' rows."""
    path = the_file(folder, ("captions.jsonl", "captions.jsonl.gz"), "coco-proxy's captions")
    source = Source("coco-proxy", "none", [])
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})") from None
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path.name}, line {number}"
        try:
            row = json.loads(line)
            source.items.append(
                Item(text_of(row["id"]), known_split(row["split"]), None, texts_of(row["captions"]), where)
            )
        except (json.JSONDecodeError, KeyError, TypeError):
            source.findings.append(Finding("malformed", where, line[:100]))
    return source
