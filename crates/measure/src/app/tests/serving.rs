//! The other side: what our servers read and answer.

use proptest::prelude::*;

use super::super::serving::{Limits, Tasks};
use super::*;
use crate::generator::generator;

const LIMITS: Limits =
    Limits { service_ns_max: 1_000_000, payload_bytes_max: 1_000, reply_bytes_max: 2_000 };

#[test]
fn what_asks_for_too_much_is_malformed() {
    let stss =
        |time: u64, payload: u64, reply: u64| [time, payload, reply].map(u64::to_be_bytes).concat();
    for head in
        [stss(1_000_001, 0, 0), stss(0, 1_001, 0), stss(0, 0, 2_001), stss(0, u64::MAX, u64::MAX)]
    {
        let mut tasks = Tasks::new(form("stss"), LIMITS);
        assert!(matches!(tasks.take(&mut &head[..]), Err(Malformed::TooLong(_))));
        assert!(tasks.take(&mut &b"x"[..]).is_err(), "it stays malformed");
        assert!(Tasks::read(form("stss"), LIMITS, &head).is_err());
    }
    assert!(Tasks::read(form("synthetic"), LIMITS, &1_000_001u64.to_be_bytes()).is_err());
}

#[test]
fn a_message_is_exactly_a_request() {
    let head = [5u64, 3, 10].map(u64::to_be_bytes).concat();
    for payload in ["ab", "abcd", ""] {
        assert!(Tasks::read(form("stss"), LIMITS, &[&head, payload.as_bytes()].concat()).is_err());
    }
    let task = Tasks::read(form("stss"), LIMITS, &[&head[..], b"abc"].concat()).unwrap();
    let mut reply = Vec::new();
    task.write_reply(&mut reply);
    assert_eq!((task.service_ns, &reply[..]), (5, &b"abcZZZZZZZ"[..]));
    for len in [0, 7, 9, 15, 17] {
        assert!(Tasks::read(form("synthetic"), LIMITS, &vec![0; len]).is_err());
    }
}

#[test]
fn a_synthetic_reply_is_the_service_time() {
    let mut reply = Vec::new();
    Tasks::read(form("synthetic"), LIMITS, &77u64.to_be_bytes()).unwrap().write_reply(&mut reply);
    assert_eq!(reply, 77u64.to_be_bytes());
}

proptest! {
    /// Requests of ours, cut anywhere, are the same tasks, and their replies, cut anywhere, are
    /// what the client waits for.
    #[test]
    fn client_and_server_agree_over_any_stream(
        stss in any::<bool>(),
        seed in any::<u64>(),
        cuts in prop::collection::vec(1usize..200, 1..50),
    ) {
        let text = if stss { "stss:time=uni:100us,request=uni:900,reply=1+uni:1900" } else { "synthetic:uni:100us" };
        let form = if stss { form("stss") } else { form("synthetic") };
        let app = app(text);
        let mut requests = Requests::new(&app, Setting { carrier: Carrier::Stream, authority: "", is_tls: false }, generator(seed, 0)).unwrap();
        let (mut sent, mut replies) = (Vec::new(), Vec::new());
        let expected: Vec<Expected> = (0..20).map(|_| requests.write(&mut sent)).collect();
        let mut tasks = Tasks::new(form, LIMITS);
        for mut part in fragments::cut(&sent, &cuts) {
            while !part.is_empty() {
                match tasks.take(&mut part) {
                    Ok(None) => {}
                    Ok(Some(task)) => task.write_reply(&mut replies),
                    Err(malformed) => prop_assert!(false, "{}", malformed),
                }
            }
        }
        let mut client = Replies::new(&app);
        let mut due = expected.iter();
        let mut next = due.next();
        for mut part in fragments::cut(&replies, &cuts) {
            while !part.is_empty() {
                match client.take(&mut part, next.copied()) {
                    Ok(None) => {}
                    step => {
                        prop_assert_eq!(step, keep(OK));
                        next = due.next();
                    }
                }
            }
        }
        prop_assert_eq!((next, client.finish()), (None, Ok(None)));
    }

    #[test]
    fn no_bytes_panic_a_server(bytes in prop::collection::vec(any::<u8>(), 0..200), stss in any::<bool>()) {
        let form = if stss { form("stss") } else { form("synthetic") };
        let mut tasks = Tasks::new(form, LIMITS);
        let mut rest = &bytes[..];
        while !rest.is_empty() && tasks.take(&mut rest).is_ok() {}
        if let Ok(task) = Tasks::read(form, LIMITS, &bytes) {
            prop_assert!(task.reply_len() <= 2_000);
        }
    }
}
