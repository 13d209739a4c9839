//! Whatever a Redis client says to a gateway, a caller to a bridge, or a server to it: nothing
//! panics, how it is cut changes nothing, and what is sent to a server is whole commands alone.
//!
//! The input is a byte that says how long fragments are, and the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_bridge::resp::keys::Groups;
use tailcut_bridge::resp::message;
use tailcut_bridge::resp::reply::ReplyEnd;
use tailcut_bridge::resp::session::Session;
use tailcut_bridge::{App, Call, Limits};

fuzz_target!(|bytes: &[u8]| {
    let [fragment_len, bytes @ ..] = bytes else {
        return;
    };
    let fragment_len = usize::from(*fragment_len).max(1);
    assert_eq!(
        converse(bytes, fragment_len),
        converse(bytes, bytes.len().max(1)),
        "the cut changes nothing"
    );
    assert_eq!(
        reply_end(bytes, fragment_len),
        reply_end(bytes, bytes.len().max(1)),
        "the cut changes nothing"
    );
    if let Ok(commands) = message::read(bytes) {
        let most =
            if commands.is_transaction { message::QUEUED_MAX + 2 } else { message::COMMANDS_MAX };
        assert!(commands.count <= most && commands.start < bytes.len());
    }
});

/// All that a client is answered, where each call is by its own bytes, by servers in two groups.
fn converse(bytes: &[u8], fragment_len: usize) -> Vec<u8> {
    let limits = Limits { message_len_max: 1 << 10, ..Limits::default() };
    let groups = Groups::new([(0, 8191, 0), (8192, 16383, 1)]).expect("each slot has one");
    let mut session = Session::new(limits, groups);
    let mut out = Vec::new();
    for fragment in bytes.chunks(fragment_len) {
        session.receive(fragment);
        loop {
            let calls: Vec<Call> = std::iter::from_fn(|| session.poll_call()).collect();
            for call in &calls {
                let read =
                    App::Redis.read(&call.message).expect("a bridge takes what a gateway calls");
                assert_eq!(read.is_idempotent, call.is_idempotent);
                // A run is cut where the bytes are.
                session.answer(call.ticket, Ok(call.message[read.start..].to_vec()));
            }
            let len = out.len();
            session.write(&mut out);
            if calls.is_empty() && out.len() == len {
                break;
            }
        }
    }
    // Of a transaction that has not ended, inline commands are kept as arrays, each of 2 bytes in
    // at most 11.
    assert!(session.held() <= 6 * bytes.len());
    out
}

fn reply_end(bytes: &[u8], fragment_len: usize) -> Option<usize> {
    let (mut end, mut seen) = (ReplyEnd::default(), 0);
    for fragment in bytes.chunks(fragment_len) {
        if let Some(taken) = end.take(fragment).ok()? {
            return Some(seen + taken);
        }
        seen += fragment.len();
    }
    None
}
