//! Whatever a measured server sends, however it is cut: nothing panics, the cut changes nothing,
//! and what is malformed stays so. What is sent to a server of our own, and what a person writes
//! for an application, is tried with the same bytes.
//!
//! The input is a byte that picks the application, one that says how long fragments are, and the
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_measure::app::serving::{Limits, TaskForm, Tasks};
use tailcut_measure::app::{
    App, CODECS, Carrier, Conversation, Expected, Malformed, Replies, Reply, Requests, Serves,
    Setting,
};
use tailcut_measure::generator::generator;

fuzz_target!(|bytes: &[u8]| {
    let [kind, fragment_len, bytes @ ..] = bytes else {
        return;
    };
    let fragment_len = usize::from(*fragment_len).max(1);
    let app = App::parse(APPS[usize::from(*kind) % APPS.len()]).expect("it is an application");
    try_conversation(&app, bytes, fragment_len);
    if app.alpn().is_some() {
        return;
    }
    try_stream(&app, bytes, fragment_len);
    try_datagrams(&app, bytes, fragment_len);
    for entry in CODECS.iter().copied().flatten() {
        if let Serves::Tasks(form) = entry.serves {
            try_server(form, bytes, fragment_len);
        }
    }
    if let Some(app) = std::str::from_utf8(bytes).ok().and_then(|text| App::parse(text).ok()) {
        assert_eq!(App::parse(&app.to_string()), Ok(app), "an application is read back as equal");
    }
});

fn try_stream(app: &App, bytes: &[u8], fragment_len: usize) {
    let expected = expected(app, Carrier::Stream).expect("streams carry all of them");
    for due in [Some(expected), None] {
        let whole = steps(app, due, bytes, bytes.len().max(1));
        assert_eq!(steps(app, due, bytes, fragment_len), whole, "the cut changes nothing");
    }
    let _ = Replies::new(app).judge(bytes, expected);
}

/// A connection with four requests outstanding, or whose handshake is not over.
fn try_conversation(app: &App, bytes: &[u8], fragment_len: usize) {
    let converse = |fragment_len: usize| {
        let setting = Setting { carrier: Carrier::Stream, authority: "", is_tls: false };
        let mut requests =
            Requests::new(app, setting, generator(1, 0)).expect("streams carry all of them");
        let (mut conversation, mut out) = (Conversation::new(app), Vec::new());
        conversation.begin(None, &mut out);
        // What a server of HTTP/2 begins with.
        if app.alpn().is_some() {
            let taken = conversation.take(&mut &[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &mut out);
            assert_eq!(taken, Ok(None));
        }
        for _ in 0..4 {
            conversation.write(&mut out, &mut |out| requests.write(out));
        }
        let mut found = Vec::new();
        for mut fragment in bytes.chunks(fragment_len) {
            loop {
                match conversation.take(&mut fragment, &mut out) {
                    Ok(None) => break,
                    Ok(Some(answer)) => found.push(answer),
                    Err(malformed) => return (found, Some(malformed)),
                }
            }
        }
        (found, None)
    };
    let whole = converse(bytes.len().max(1));
    assert_eq!(converse(fragment_len), whole, "the cut changes nothing");
    let mut numbers: Vec<u64> = whole.0.iter().map(|answer| answer.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), whole.0.len(), "a request is answered once");
}

fn try_datagrams(app: &App, bytes: &[u8], datagram_len: usize) {
    let (Some(expected), Ok(mut datagrams)) = (expected(app, Carrier::Datagram), app.datagrams())
    else {
        return;
    };
    for datagram in bytes.chunks(datagram_len) {
        if datagrams.key(datagram).is_ok() {
            let _ = datagrams.take(datagram, expected);
        }
    }
    datagrams.release(expected.tag);
}

fn try_server(form: &'static dyn TaskForm, bytes: &[u8], fragment_len: usize) {
    let limits =
        Limits { service_ns_max: u64::MAX, payload_bytes_max: 1 << 20, reply_bytes_max: 1 << 10 };
    let find = |fragment_len| {
        let mut tasks = Tasks::new(form, limits);
        let mut found = Vec::new();
        for mut fragment in bytes.chunks(fragment_len) {
            while !fragment.is_empty() {
                match tasks.take(&mut fragment) {
                    Ok(None) => {}
                    step @ Ok(Some(_)) => found.push(step),
                    step @ Err(_) => {
                        found.push(step);
                        return found;
                    }
                }
            }
        }
        found
    };
    assert_eq!(find(fragment_len), find(bytes.len().max(1)), "the cut changes nothing");
    if let Ok(task) = Tasks::read(form, limits, bytes) {
        let mut reply = Vec::new();
        task.write_reply(&mut reply);
        assert_eq!(reply.len(), task.reply_len());
    }
}

/// Replies that are found, up to what is malformed.
fn steps(
    app: &App,
    due: Option<Expected>,
    bytes: &[u8],
    fragment_len: usize,
) -> Vec<Result<Option<Reply>, Malformed>> {
    let mut replies = Replies::new(app);
    let mut found = Vec::new();
    for mut fragment in bytes.chunks(fragment_len) {
        while !fragment.is_empty() {
            match replies.take(&mut fragment, due) {
                Ok(None) => assert!(fragment.is_empty(), "more is asked for while there is some"),
                step @ Ok(Some(_)) => found.push(step),
                step @ Err(malformed) => {
                    assert_eq!(replies.finish(), Err(malformed), "what is malformed stays so");
                    found.push(step);
                    return found;
                }
            }
        }
    }
    found.extend(replies.finish().transpose().map(|reply| reply.map(Some)));
    found
}

fn expected(app: &App, carrier: Carrier) -> Option<Expected> {
    let mut requests =
        Requests::new(app, Setting { carrier, authority: "", is_tls: false }, generator(1, 0))
            .ok()?;
    Some(requests.write(&mut Vec::new()))
}

const APPS: [&str; 11] = [
    "echo:16",
    "synthetic:fixed:1us",
    "memcached-binary:get=1",
    "memcached-binary:get=0",
    "memcached-ascii:get=1",
    "memcached-ascii:get=0",
    "redis",
    "http",
    "http:HEAD:/",
    "http2:POST:/,body=hello",
    "grpc:a.B/C",
];
