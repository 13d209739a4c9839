//! Streams whose opening is refused: what is asked again, and what is told.

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Time};
use tailcut_proto::rpc::{Call, CallId, DropReason, Failure};
use tailcut_proto::stream::{Config, Fault, StreamId, Streams};
use tailcut_wire::stream::{Message, Reply, ReplyHeader, Status};
use zerocopy::IntoBytes;

use crate::stream_support::Fake;

const MS: Time = 1_000_000;
const START: Time = 1_000 * MS;
const UNCERTAIN: Failure = Failure::Refused(DropReason::Uncertain);

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 33_000))
}

/// A stream that has been asked for, with the call that asks.
fn opening() -> (Streams<Fake>, Fake, StreamId, (CallId, Call)) {
    let fake = Fake::default();
    let mut streams = Streams::new(fake.clone(), Config::default());
    let id = streams.connect(START, peer()).expect("there is room");
    let call = fake.next_call().expect("it is asked for");
    (streams, fake, id, call)
}

fn fault(streams: &Streams<Fake>, id: StreamId) -> Option<Fault> {
    streams.status(id).and_then(|status| status.fault)
}

/// The peer may have started since: another session tells them apart.
#[test]
fn a_peer_that_cannot_tell_is_asked_again_in_a_moment() {
    let (mut streams, fake, id, first) = opening();
    fake.end(&first, Err(UNCERTAIN));
    streams.handle_timeout(START + MS);
    assert_eq!((fault(&streams, id), fake.next_call().is_none()), (None, true));
    streams.handle_timeout(START + 15 * MS);
    let again = fake.next_call().expect("it is asked for again");
    assert_eq!(again.1.payload, first.1.payload, "with the same number");
    assert_eq!(again.1.deadline, first.1.deadline, "and no longer in all");
    let opener = Message::parse(&again.1.payload).expect("a message").header.opener;
    assert_ne!(opener.get(), 0);
    let reply = Reply { status: Status::Taken, acceptor: 7, limit: 100 };
    fake.end(&again, Ok(ReplyHeader::new(reply).as_bytes().to_vec()));
    streams.handle_timeout(START + 16 * MS);
    assert!(streams.status(id).is_some_and(|status| status.is_open));
}

#[test]
fn a_peer_that_can_never_tell_has_refused_the_stream_in_the_end() {
    let (mut streams, fake, id, mut call) = opening();
    let (mut now, mut asked) = (START, 1);
    while fault(&streams, id).is_none() {
        fake.end(&call, Err(UNCERTAIN));
        now += 15 * MS;
        streams.handle_timeout(now);
        now += 15 * MS;
        streams.handle_timeout(now);
        if let Some(next) = fake.next_call() {
            (call, asked) = (next, asked + 1);
        }
        assert!(now < START + 6_000 * MS);
    }
    assert_eq!(fault(&streams, id), Some(Fault::Refused));
    assert!(asked > 100, "{asked}");
    streams.close(now, id);
    assert!(streams.is_empty() && streams.poll_timeout().is_none());
}

/// A stream that is closed while it waits to be asked for again is asked for no more.
#[test]
fn who_does_not_want_a_stream_any_more_asks_no_more() {
    let (mut streams, fake, id, call) = opening();
    fake.end(&call, Err(UNCERTAIN));
    streams.handle_timeout(START + MS);
    streams.close(START + 2 * MS, id);
    streams.handle_timeout(START + 50 * MS);
    assert!(fake.next_call().is_none() && streams.is_empty());
    assert_eq!(streams.poll_timeout(), None);
}

#[test]
fn what_a_policy_rejects_is_denied_and_all_else_refused_or_lost() {
    for (failure, expected) in [
        (Failure::Rejected { code: 7 }, Fault::Denied),
        (Failure::Refused(DropReason::Overload), Fault::Refused),
        (Failure::Deadline, Fault::Lost(Failure::Deadline)),
    ] {
        let (mut streams, fake, id, call) = opening();
        fake.end(&call, Err(failure));
        streams.handle_timeout(START + MS);
        assert_eq!(fault(&streams, id), Some(expected));
    }
}
