"""The images that a page shows: only those inside it, since it loads nothing from other hosts."""

from __future__ import annotations

import re
from typing import NamedTuple

from convserver.rendering.text import addresses, visible

DATA_MAX_CHARS = 12_000_000  # a regular expression reads all of it
IMAGES_MAX = 20  # the images that are shown of one event
# No SVG, which is a document and can contain scripts.
_DATA = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]+", re.IGNORECASE)
_AUDIO = re.compile(r"data:audio/[\w.+-]{1,60};base64,[A-Za-z0-9+/=]+", re.IGNORECASE | re.ASCII)
_FILE = re.compile(r"data:([\w.+-]{1,60}/[\w.+-]{1,60});base64,[A-Za-z0-9+/=]+", re.IGNORECASE | re.ASCII)


class Image(NamedTuple):
    """An image to show (`src`), or a link to it (`href`), or only its name."""

    src: str
    href: str
    name: str
    audio: str = ""
    file: str = ""  # any other file, for a download


def is_shown(url: str) -> bool:
    """Return whether the URL contains the image."""
    return len(url) <= DATA_MAX_CHARS and _DATA.fullmatch(url) is not None


def returned(url: str) -> Image:
    """Return an image or another file that a tool returned, as it is shown."""
    if len(url) > DATA_MAX_CHARS or is_shown(url):
        return image(url)
    if _AUDIO.fullmatch(url):
        return Image("", "", "Audio", audio=url)
    if found := _FILE.fullmatch(url):  # as bytes: a browser does not show what it downloads
        data = url.partition(",")[2]
        return Image("", "", f"File ({found[1]})", file=f"data:application/octet-stream;base64,{data}")
    return image(url)


def image(url: str) -> Image:
    """Return the image with this URL as it is shown."""
    if is_shown(url):
        return Image(url, "", "Image")
    name = visible.name(url[:200])
    return Image("", url, name) if addresses.is_link(url) else Image("", "", name)
