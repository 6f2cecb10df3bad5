"""Rate limits: a bucket of requests does not see a long prompt, a bucket of tokens does."""

from notebooks.gallery.rate_limit import measure


def test_a_bucket_of_tokens_helps_and_a_bucket_of_requests_does_not() -> None:
    measured = measure()
    assert measured["p95_ttft_by_requests_ms"] > 0.7 * measured["p95_ttft_ms"] > 1_500
    assert measured["p95_ttft_by_tokens_ms"] < measured["p95_ttft_by_requests_ms"] / 50
    assert measured["refused_requests"] > 300
    assert measured["refused_documents_by_requests"] <= 2
    assert measured["refused_chats_by_tokens"] == 0
    assert 5 <= measured["refused_documents_by_tokens"] < measured["documents"]
