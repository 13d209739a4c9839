//! HTTP replies: the cases of RFC 9112, section 6.3, in its order, and what contradicts it.

use super::*;

const PAGE: u32 = 0;
const FAILED: Outcome = Outcome::Error(ErrorKind::Failed);

#[test]
fn a_reply_ends_where_its_head_says() {
    let cases = [
        // No body, whatever the head says.
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", keep(OK)),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", keep(OK)),
        // Chunks, with extensions, and trailers.
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n7\r\npedia i\r\nB\r\nn \r\nchunks.\r\n0\r\n\r\n",
            keep(OK),
        ),
        (
            "HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: gzip, Chunked\r\n\r\na;x=\"y\";z\r\n0123456789\r\n0\r\nETag: x\r\nA: b\r\n\r\n",
            keep(OK),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            close(OK),
        ),
        // A length.
        ("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length:5 \r\n\r\nhello", keep(OK)),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", keep(REFUSED)),
        ("HTTP/1.1 500\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nno", keep(FAILED)),
        // Lines that end in LF alone are to be borne.
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", keep(OK)),
        // The end of the connection.
        ("HTTP/1.1 200 OK\r\n\r\nall of it", close(OK)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nall of it",
            close(OK),
        ),
        ("HTTP/1.0 200 OK\r\n\r\nall of it", close(OK)),
    ];
    for (text, expected) in cases {
        check(&app("http"), PAGE, text.as_bytes(), expected);
    }
}

#[test]
fn a_reply_to_head_has_no_body() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    check(&app("http:HEAD:/"), 1, bytes, keep(OK));
}

#[test]
fn informational_replies_are_passed_over() {
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    check(&app("http"), PAGE, bytes, keep(OK));
}

#[test]
fn a_connection_that_closes_is_told() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", close(OK)),
        ("HTTP/1.1 200 OK\r\ncOnNeCtIoN: upgrade, CLOSE\r\nContent-Length: 1\r\n\r\nx", close(OK)),
        ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", keep(OK)),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", keep(OK)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", close(OK)),
    ];
    for (text, expected) in cases {
        check(&app("http"), PAGE, text.as_bytes(), expected);
    }
}

#[test]
fn each_status_has_its_kind() {
    let kinds = [
        ("200", OK),
        ("206", OK),
        ("302", OK),
        ("401", Outcome::Error(ErrorKind::Unauthorised)),
        ("404", REFUSED),
        ("429", Outcome::Error(ErrorKind::Busy)),
        ("502", FAILED),
        ("503", Outcome::Error(ErrorKind::Busy)),
    ];
    for (status, outcome) in kinds {
        let text = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
        check(&app("http"), PAGE, text.as_bytes(), keep(outcome));
    }
}

#[test]
fn what_is_no_reply_is_malformed() {
    let cases = [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ];
    for text in cases {
        check_malformed(&app("http"), PAGE, text.as_bytes());
    }
}

#[test]
fn heads_and_trailers_are_bounded() {
    let headers = "X: 34567890\r\n".repeat(6_000);
    check_malformed(&app("http"), PAGE, format!("HTTP/1.1 200 OK\r\n{headers}").as_bytes());
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    check_malformed(&app("http"), PAGE, format!("{chunked}{headers}").as_bytes());
    check_malformed(
        &app("http"),
        PAGE,
        format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(70_000)).as_bytes(),
    );
}

#[test]
fn a_long_header_that_means_nothing_here_is_borne() {
    let text = format!(
        "HTTP/1.1 200 OK\r\nSet-Cookie: {}\r\nContent-Length: 1\r\n\r\nx",
        "c".repeat(4_000)
    );
    check(&app("http"), PAGE, text.as_bytes(), keep(OK));
    let text = format!("HTTP/1.1 200 OK\r\nConnection: {}close\r\n", "x,".repeat(400));
    check_malformed(&app("http"), PAGE, text.as_bytes());
}

#[test]
fn a_reply_cut_short_is_told() {
    let truncated = [Err(Malformed::Truncated)];
    for text in
        ["HTTP/1.1 200", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"]
    {
        assert_eq!(steps(&app("http"), Some(due(PAGE)), [text.as_bytes()]), truncated, "{text}");
    }
}
