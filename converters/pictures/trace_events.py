"""What slices of a node look like in the Trace Event Format, for every timeline.

The idea: a node in a loop is drawn once per iteration, and only the iteration and the times differ:
the rest is made once, with ``@`` in the iteration's place.

    slice_template("3.1", fields).replace("@", "7")
"""

from __future__ import annotations

import json
from typing import Any


def slice_template(path: str, fields: dict[str, Any]) -> str:
    """The part of an event that is the same for all instances of a node; ``@`` is the iteration."""
    shown = {key: value for key, value in fields.items() if value not in (0, "", ())}
    name, category = shown.pop("op"), shown.pop("category")
    shown.pop("kind", None)
    if "group" in shown:
        name = f"{name} ({shown['group']})"
    # The only bare @ of the text is ours: JSON may write any character as an escape.
    described = json.dumps({"node": path, **shown})[1:-1].replace("@", "\\u0040")
    title = json.dumps(name).replace("@", "\\u0040")
    return f'"name": {title}, "cat": "{category}", "args": {{"iteration": @, {described}}}'
