"""The words by which logs say that a request succeeded, failed, was refused, went away or was answered from a cache.

A word that is not here is a failure where a status is expected, and no cache hit where one is: an unknown status must
not put a row of unknown worth into the length law, and its rows are counted and shown.

Sources: LiteLLM ``status`` and ``cache_hit``, Langfuse ``level``, Portkey ``cache_status`` and ``is_success``, Kong
``cache_status``, OpenTelemetry ``StatusCode`` and ``finish_reasons``, RFC 9110 and RFC 6585 for HTTP codes, nginx for
499 (client closed request), Anthropic's error list for 529 (overloaded).
"""

from __future__ import annotations

SUCCESS = (
    "success", "succeeded", "successful", "ok", "true", "t", "yes", "1", "completed", "complete", "done", "finished",
    "2xx", "status_code_ok", "status_code_unset", "unset", "none", "null",
    "default", "debug", "info", "warning",  # severities below error
    "stop", "length", "tool_calls", "function_call", "end_turn", "max_tokens", "stop_sequence", "tool_use",
)  # fmt: skip
COMMON_SUCCESS = ("success", "SUCCESS", "Success", "ok", "OK", "true", "True", "1", "200", "DEFAULT", "stop", "length")
"""Tried first, as they stand, because they are nearly all there is in a log."""
REFUSED_CODES = (429, 503, 529)
"""Too many requests, service unavailable, overloaded: answered before any token was computed."""
REFUSED_PATTERN = (
    r"(^|[^0-9])(429|503|529)([^0-9]|$)|rate.?limit|throttl|too.?many.?requests|overloaded|service.?unavailable"
    r"|quota.?exceeded|queue.?full"
)
"""In lower case: the same in words, in a status or an error."""
ABORTED_CODE = 499
ABORTED = (
    "499", "499.0", "cancelled", "canceled", "aborted", "abort", "client_disconnect", "client_disconnected",
    "client disconnected", "client closed request", "disconnected", "interrupted",
)  # fmt: skip
TRUE = ("true", "t", "yes", "y", "1", "1.0")
FALSE = ("false", "f", "no", "n", "0", "0.0")
CACHE_HIT = (*TRUE, "hit", "semantic hit", "semantic_hit", "cache_hit", "cache hit", "exact hit", "simple hit")
NO_ERROR = ("none", "null", "nil", "nan", "{}", "[]", '""', "false", "0", "-", "no error", "noerror")
