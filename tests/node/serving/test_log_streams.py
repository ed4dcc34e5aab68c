"""What is asked of a log."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from allot.http1.heads import HttpError, parse_head
from allot.http1.requests import Request
from allot.node.serving.log_streams import log_options


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "x"])
def test_numbers_in_queries_are_digits(text: str) -> None:
    request = Request(parse_head(f"GET /containerLogs?tailLines={quote(text)} HTTP/1.1\r\nHost: x".encode()))
    with pytest.raises(HttpError, match="invalid tailLines"):
        log_options(request, 0.0)
