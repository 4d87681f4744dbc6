"""Here we give the admin site Berth's name and colours."""

from typing import Any

# From light to dark, as the library counts them.
SHADES = (50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950)
LIGHTNESS = (97, 93, 87, 80, 71, 61, 53, 46, 40, 34, 25)

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Berth",
    "SITE_HEADER": "Berth",
    "SITE_SUBHEADER": "Admin site",
    "SITE_URL": "/",
    "SITE_SYMBOL": "anchor",
    "SHOW_VIEW_ON_SITE": True,
    "COLORS": {
        "primary": {
            str(shade): f"oklch({light}% 0.09 200)" for shade, light in zip(SHADES, LIGHTNESS, strict=True)
        }
    },
}
