//! Redis's replies: the examples of its page on RESP, and what contradicts it.

use super::*;

#[test]
fn every_type_of_the_document_is_a_reply() {
    let ok: [&[u8]; 24] = [
        b"+OK\r\n",
        b"+\r\n",
        b":0\r\n",
        b":-1000\r\n",
        b":+7\r\n",
        b"$5\r\nhello\r\n",
        b"$0\r\n\r\n",
        b"*0\r\n",
        b"*2\r\n$5\r\nhello\r\n$5\r\nworld\r\n",
        b"*3\r\n:1\r\n:2\r\n:3\r\n",
        b"*5\r\n:1\r\n:2\r\n:3\r\n:4\r\n$5\r\nhello\r\n",
        b"*2\r\n*3\r\n:1\r\n:2\r\n:3\r\n*2\r\n+Hello\r\n-World\r\n",
        b"*3\r\n$5\r\nhello\r\n$-1\r\n$5\r\nworld\r\n",
        b"#t\r\n",
        b",1.23\r\n",
        b",-inf\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"=15\r\ntxt:Some string\r\n",
        b"%2\r\n+first\r\n:1\r\n+second\r\n:2\r\n",
        b"~2\r\n+a\r\n#f\r\n",
        b"$?\r\n;4\r\nHell\r\n;6\r\no worl\r\n;1\r\nd\r\n;0\r\n",
        b"*?\r\n:1\r\n:2\r\n:3\r\n.\r\n",
        b"%?\r\n+a\r\n:1\r\n+b\r\n*?\r\n.\r\n.\r\n",
        b"*2\r\n*0\r\n*1\r\n*1\r\n%0\r\n",
    ];
    for bytes in ok {
        check(&app("redis"), 0, bytes, keep(OK));
    }
}

#[test]
fn each_null_is_a_miss() {
    for bytes in ["$-1\r\n", "*-1\r\n", "_\r\n"] {
        check(&app("redis"), 0, bytes.as_bytes(), keep(MISS));
    }
}

#[test]
fn each_error_has_its_kind() {
    let kinds = [
        ("-ERR unknown command 'asdf'\r\n", ErrorKind::Refused),
        ("-WRONGTYPE Operation against a key\r\n", ErrorKind::Refused),
        ("-NOAUTH Authentication required.\r\n", ErrorKind::Unauthorised),
        ("-LOADING Redis is loading the dataset in memory\r\n", ErrorKind::Busy),
        ("-OOM command not allowed\r\n", ErrorKind::Failed),
        ("-MOVED 3999 127.0.0.1:6381\r\n", ErrorKind::Elsewhere),
        ("!21\r\nSYNTAX invalid syntax\r\n", ErrorKind::Refused),
    ];
    for (bytes, kind) in kinds {
        check(&app("redis"), 0, bytes.as_bytes(), keep(Outcome::Error(kind)));
    }
}

#[test]
fn attributes_describe_and_pushes_are_passed_over() {
    let cases: [(&[u8], Outcome); 6] = [
        (b"|1\r\n+key-popularity\r\n%2\r\n$1\r\na\r\n,0.19\r\n$1\r\nb\r\n,0.0\r\n*2\r\n:2039123\r\n:9543892\r\n", OK),
        (b"|1\r\n+ttl\r\n_\r\n$-1\r\n", MISS),
        (b"*3\r\n:1\r\n:2\r\n|1\r\n+ttl\r\n:3600\r\n:3\r\n", OK),
        (b">4\r\n+pubsub\r\n+message\r\n+somechannel\r\n+this is the message\r\n$9\r\nGet-Reply\r\n", OK),
        (b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n_\r\n", MISS),
        (b">0\r\n|0\r\n-ERR x\r\n", REFUSED),
    ];
    for (bytes, outcome) in cases {
        check(&app("redis:resp=3"), 0, bytes, keep(outcome));
    }
}

#[test]
fn only_pushes_come_unasked() {
    let redis = app("redis:resp=3");
    let push = b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n".as_slice();
    assert_eq!(steps(&redis, None, [push, push]), []);
    assert_eq!(steps(&redis, None, [push, b"+OK\r\n"]), [Err(Malformed::Unsolicited)]);
    for app in ["memcached-ascii", "memcached-binary", "http", "echo:4"].map(app) {
        assert_eq!(
            steps(&app, None, [b"END\r\n".as_slice()]),
            [Err(Malformed::Unsolicited)],
            "{app}"
        );
    }
}

#[test]
fn what_is_no_value_is_malformed() {
    let cases: [&[u8]; 19] = [
        b"\r\n",
        b"+OK\n",
        b"HTTP/1.1\r\n",
        b":\r\n",
        b":1x\r\n",
        b"#x\r\n",
        b"_x\r\n",
        b"$-2\r\n",
        b"$5\r\nhello!\r\n",
        b"$2000000000\r\n",
        b"*-2\r\n",
        b"*3000000000\r\n",
        b"*99999999999999999999\r\n",
        b".\r\n",
        b"*1\r\n.\r\n",
        b"$?\r\n$4\r\n",
        b"*2\r\n+a\r\n>1\r\n+x\r\n",
        b",\r\n",
        b"*?\r\n;4\r\n",
    ];
    for bytes in cases {
        check_malformed(&app("redis"), 0, bytes);
    }
    check_malformed(&app("redis"), 0, &[b'+'; 70_000]);
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    check(&app("redis"), 0, &nested(16), keep(OK));
    check_malformed(&app("redis"), 0, &nested(17));
}
