"""The forms of names in Kubernetes, as regular expressions that RE2 and Python read alike, and the words about them.

They are as strict as Kubernetes itself, so what they let pass is not refused later, when children are made. They are
kept short: the API server prices a rule by the length of its pattern.
"""

from __future__ import annotations

from typing import Final

SUBDOMAIN: Final = r"[a-z0-9]+(([.]|-+)[a-z0-9]+)*"
"""A DNS subdomain: the name of most objects, and the part of a key before its `/`."""

SUBDOMAIN_CHARACTERS: Final = 253

DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""The name of a namespace, and of something inside an object."""

LABEL_TEXT: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""The value of a label, and the part of a key behind its `/`: at most 63 characters."""

LABEL_VALUE: Final = rf"^({LABEL_TEXT})?$"

LABEL_VALUE_MESSAGE: Final = "must be letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit"

KEY: Final = rf"^({SUBDOMAIN}/)?{LABEL_TEXT}$"
"""The key of a label, an annotation or a taint, and the name of a resource: `name` or `example.com/name`."""

KEY_CHARACTERS: Final = SUBDOMAIN_CHARACTERS
"""Kubernetes allows so many before the `/` alone; a shorter bound for the whole is one that a schema can state."""

KEY_MESSAGE: Final = "must be a key such as team or example.com/team, at most 63 characters after `/`"

CSI_DRIVER: Final = r"^[A-Za-z0-9]+(([.]|-+)[A-Za-z0-9]+)*$"

CSI_DRIVER_MESSAGE: Final = "must be a driver's name, such as csi.example.com"
