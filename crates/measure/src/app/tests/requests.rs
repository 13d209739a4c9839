//! Requests: their bytes against the documents, their shares against what was asked for, and what
//! they cost.

use super::super::payload::{DATAGRAM_BYTES_MAX, FILL};
use super::*;
use crate::generator::generator;

#[test]
fn the_binary_requests_are_those_of_the_document() {
    // `get Hello` there is this header, with an opaque word of zero, and its key.
    let mut get = b"\x80\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec();
    let (bytes, expected) = only("memcached-binary:keys=1,key=fixed:5,get=1");
    get[12..16].copy_from_slice(&(expected.tag as u32).to_be_bytes());
    assert_eq!(bytes, [&get[..], b"0...."].concat());
    assert_eq!(expected.due, GET);
    // `add` there has eight bytes of extras, a body of 18, and the opcode 2; a set has 1.
    let mut set = b"\x80\x01\x00\x05\x08\x00\x00\x00\x00\x00\x00\x12\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec();
    let (bytes, expected) = only("memcached-binary:keys=1,key=fixed:5,value=fixed:5,get=0");
    set[12..16].copy_from_slice(&(expected.tag as u32).to_be_bytes());
    assert_eq!(bytes, [&set[..], &[0; 8], b"0....", &[FILL; 5]].concat());
    assert_eq!(expected.due, SET);
}

#[test]
fn text_requests_are_those_of_the_documents() {
    let check =
        |app: &str, expected: &str| assert_eq!(String::from_utf8(only(app).0).unwrap(), expected);
    check("memcached-ascii:keys=1,key=fixed:3,get=1", "get 0..\r\n");
    check("memcached-ascii:keys=1,key=fixed:3,value=fixed:2,get=0", "set 0.. 0 0 2\r\nZZ\r\n");
    check("redis:keys=1,key=fixed:3,get=1", "*2\r\n$3\r\nGET\r\n$3\r\n0..\r\n");
    check(
        "redis:keys=1,key=fixed:3,value=fixed:2,get=0",
        "*3\r\n$3\r\nSET\r\n$3\r\n0..\r\n$2\r\nZZ\r\n",
    );
    check("redis:scan,keys=1", "*4\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nCOUNT\r\n$2\r\n10\r\n");
    check("http:GET:/a?b", "GET /a?b HTTP/1.1\r\nHost: target:80\r\n\r\n");
    check(
        "http:method=POST,path=/,host=h,header=A: b,body=xy",
        "POST / HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 2\r\n\r\nxy",
    );
    check("http:PUT:/", "PUT / HTTP/1.1\r\nHost: target:80\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_connection_to_redis_agrees_on_its_version_first() {
    let check = |app_text: &str, login: Option<Login<'_>>, expected: &str| {
        let mut bytes = Vec::new();
        let due = app(app_text).write_greeting(login, &mut bytes);
        assert_eq!(due.is_some(), !expected.is_empty());
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    };
    check("redis", None, "");
    check("http", None, "");
    check("redis:resp=3", None, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
    let login = |user| Some(Login { user, password: "pw" });
    check("redis", login(None), "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
    check("redis", login(Some("me")), "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n");
    check(
        "redis:resp=3",
        login(None),
        "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$2\r\npw\r\n",
    );
}

#[test]
fn reads_have_their_share() {
    // 10,000 draws at 0.9: a standard error of 30.
    let mut requests = requests("memcached-binary", Carrier::Stream).unwrap();
    let mut out = Vec::new();
    let reads = (0..10_000).filter(|_| requests.write(&mut out).due == GET).count();
    assert!(reads.abs_diff(9_000) < 150, "{reads}");
}

#[test]
fn a_preload_sets_every_key_that_is_read() {
    for text in ["memcached-ascii:keys=500,etc", "memcached-ascii:keys=500,key=uni:6,value=exp:10"]
    {
        let preload = app(text).preload(Carrier::Stream).unwrap().unwrap();
        let word =
            |bytes: &[u8]| bytes.split(|&c| c == b' ' || c == b'\r').nth(1).unwrap().to_vec();
        let mut set = std::collections::BTreeSet::new();
        for index in 0..preload.key_count {
            let mut bytes = Vec::new();
            assert_eq!((preload.write)(index, &mut bytes).due, SET);
            set.insert(word(&bytes));
        }
        assert_eq!(set.len(), 500);
        let mut requests = requests(&format!("{text},get=1"), Carrier::Stream).unwrap();
        for _ in 0..2_000 {
            let mut bytes = Vec::new();
            requests.write(&mut bytes);
            assert!(set.contains(&word(&bytes)), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn what_has_no_store_has_no_preload() {
    for text in ["echo:4", "http", "redis:command=PING"] {
        assert!(app(text).preload(Carrier::Stream).unwrap().is_none());
    }
    assert!(
        app("redis:command=PING,preload=SET {key} 1").preload(Carrier::Stream).unwrap().is_some()
    );
}

#[test]
fn what_a_carrier_cannot_carry_is_refused() {
    let cases = [
        ("redis", Carrier::Datagram, "not spoken over UDP"),
        ("http", Carrier::Datagram, "not spoken over UDP"),
        ("echo:0", Carrier::Stream, "1 to"),
        ("echo:66kB", Carrier::Datagram, "to 65507"),
        ("stss:time=fixed:0,request=fixed:0,reply=fixed:0", Carrier::Stream, "1 to"),
        ("stss:time=fixed:0,request=fixed:7,reply=fixed:9", Carrier::Datagram, "8 to"),
        ("memcached-ascii:value=fixed:2MB", Carrier::Stream, "0 to 1000000"),
        ("memcached-binary:value=fixed:65507", Carrier::Datagram, "0 to 65193"),
        ("memcached-binary:key=fixed:251", Carrier::Stream, "to 250 bytes"),
        ("redis:key=fixed:1,keys=1k", Carrier::Stream, "2 to"),
    ];
    for (text, carrier, reason) in cases {
        let error = requests(text, carrier).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn whatever_is_drawn_is_a_request_that_fits() {
    let sizes = [
        "fixed:40",
        "uni:600",
        "exp:60",
        "lognorm:4:2",
        "gamma:2:30",
        "pareto:0:100:2",
        "gev:30:8:0.2",
        "zipf:1000000:0.5",
    ];
    let apps = |size| {
        let stss = format!("stss:time=pareto:0:1us:2,request={size},reply={size}");
        [format!("memcached-binary:key={size},value={size},pick=zipf:0.5,get=0.5"), stss]
    };
    for text in sizes.into_iter().flat_map(apps) {
        let mut requests = requests(&text, Carrier::Datagram).unwrap();
        let mut out = Vec::new();
        for _ in 0..2_000 {
            out.clear();
            requests.write(&mut out);
            assert!(out.len() <= DATAGRAM_BYTES_MAX as usize, "{text}: {}", out.len());
        }
    }
}

#[test]
fn warm_requests_and_replies_do_not_allocate() {
    let hit = b"VALUE k 0 3\r\nabc\r\nEND\r\n".as_slice();
    let cases = [
        ("memcached-ascii:etc,get=1", hit),
        ("redis:command=GET x{index}:{key}", b"$3\r\nabc\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        ("synthetic:exp:1us", b"12345678"),
    ];
    for (text, reply) in cases {
        let app = app(text);
        let mut requests = requests(text, Carrier::Stream).unwrap();
        let mut replies = Replies::new(&app);
        let mut out = Vec::with_capacity(1_000);
        let counted = allocation_counter::measure(|| {
            for _ in 0..1_000 {
                out.clear();
                let expected = requests.write(&mut out);
                for part in reply.chunks(7) {
                    let mut part = part;
                    assert!(replies.take(&mut part, Some(expected)).is_ok(), "{text}");
                }
            }
        });
        assert_eq!(counted.count_total, 0, "{text}");
    }
}

#[test]
fn a_seed_replays_and_streams_differ() {
    let bytes = |stream| {
        let setting = Setting { carrier: Carrier::Stream, authority: "", is_tls: false };
        let mut requests =
            Requests::new(&app("memcached-binary:etc"), setting, generator(1, stream)).unwrap();
        let mut out = Vec::new();
        for _ in 0..100 {
            requests.write(&mut out);
        }
        out
    };
    assert_eq!(bytes(0), bytes(0));
    assert_ne!(bytes(0), bytes(1));
}

fn requests(text: &str, carrier: Carrier) -> Result<Requests, AppError> {
    Requests::new(
        &app(text),
        Setting { carrier, authority: "target:80", is_tls: false },
        generator(1, 0),
    )
}

fn only(text: &str) -> (Vec<u8>, Expected) {
    let mut bytes = Vec::new();
    let expected = requests(text, Carrier::Stream).unwrap().write(&mut bytes);
    (bytes, expected)
}
