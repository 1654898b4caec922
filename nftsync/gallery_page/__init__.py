"""NFTs as one self-contained page, in a notebook and as a file.

What the page shows was written by strangers. It is cleaned and cut before it enters the page
(`_cards`), enters it as data that cannot end its element (`_page`), and is put into the document
as text by the page's own script (`gallery.js`), the only one that the page's policy lets run.
"""

from __future__ import annotations

from nftsync.gallery_page._cards import Images
from nftsync.gallery_page._gallery import Gallery, make_gallery

__all__ = ["Gallery", "Images", "make_gallery"]
