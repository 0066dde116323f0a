"""Private methods of PySyncObj are overridden, so the installed version must be exactly the audited one."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import pysyncobj.syncobj

AUDITED = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"


def test_the_library_is_the_audited_one() -> None:
    source = Path(pysyncobj.syncobj.__file__).read_bytes()
    assert (version("pysyncobj"), hashlib.sha256(source).hexdigest()) == ("0.3.17", AUDITED)
