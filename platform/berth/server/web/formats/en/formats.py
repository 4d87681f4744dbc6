"""Date and time formats of the admin site, with seconds."""

DATE_FORMAT = "j M Y"
DATETIME_FORMAT = "j M Y, H:i:s"
SHORT_DATETIME_FORMAT = "j M Y, H:i"
TIME_FORMAT = "H:i:s"
