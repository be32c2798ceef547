"""Tables that users give."""

import pytest

from flint.errors import UsageError
from flint.host.csv_files import csv_lines


def test_a_table_that_a_spreadsheet_marks_as_utf_8_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffop,seconds\nadd,1e-6\n", "utf-8")
    assert csv_lines(tmp_path / "a.csv", "a table") == [["op", "seconds"], ["add", "1e-6"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "a.csv: cannot be read: No such file or directory"),
        (b"op\xff", "a.csv: cannot be read: not UTF-8 text (at byte 2)"),
    ],
)
def test_why_a_table_cannot_be_read_is_one_line(tmp_path, content, said):
    if content is not None:
        (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UsageError) as raised:
        csv_lines(tmp_path / "a.csv", "a table")
    assert str(raised.value) == f"{tmp_path}/{said}"
