//! Departure of answers from elsewhere: together while more keep coming, and all that there are at
//! a stop's limit.

use std::collections::VecDeque;

use std::time::Duration;

use tailcut::{DropReason, Error, Failure, Pending, Request, Responder, Server};

use crate::library::{HOMA, OnDrop, R2P2, Transport, patient, server, serving};

/// Has `check` look at a server that this thread turns, at `count` requests that it keeps, and at
/// their calls.
fn with_kept(
    transport: Transport,
    count: usize,
    check: impl FnOnce(&mut Server, VecDeque<Responder>, &[Pending<'_>]),
) {
    let mut server = serving(transport).bind("127.0.0.1:0").unwrap();
    let client = patient(transport).connect(server.local_address()).unwrap();
    let calls: Vec<_> = (0..count).map(|_| client.start(b"later").unwrap()).collect();
    let mut kept = VecDeque::new();
    while kept.len() < count {
        server.turn(&mut |request: Request<'_>| kept.push_back(request.defer())).unwrap();
        assert_eq!(done(&calls), 0);
    }
    assert!(!server.has_waiting());
    check(&mut server, kept, &calls);
}

fn turn(server: &mut Server) {
    server.turn(&mut |_: Request<'_>| panic!("nobody calls")).unwrap();
}

fn done(calls: &[Pending<'_>]) -> usize {
    calls.iter().filter(|call| call.is_done().unwrap()).count()
}

/// A program with a loop of its own must not sleep on answers that it has given.
#[test]
fn answers_that_wait_for_others_are_something_that_waits() {
    for transport in [R2P2, HOMA] {
        with_kept(transport, 3, |server, mut kept, calls| {
            kept.drain(..2).for_each(|responder| responder.reply(b"now"));
            turn(server);
            assert!(server.has_waiting(), "{transport:?}: another is owed");
            assert_eq!(done(calls), 0, "{transport:?}");
            turn(server);
            assert!(!server.has_waiting(), "{transport:?}: no more came");
            assert_eq!(done(calls), 2, "{transport:?}: together");
            // The last that is owed waits for nothing.
            kept.drain(..).for_each(|responder| responder.reply(b"now"));
            turn(server);
            assert_eq!(done(calls), 3, "{transport:?}");
            // A client that was descheduled for long has asked once more.
            let is_idle = (0..100).any(|_| {
                turn(server);
                !server.has_waiting()
            });
            assert!(is_idle, "{transport:?}");
        });
    }
}

/// Answers that are given before a stop's limit arrive, though the server's thread has yet to look
/// at them then; of the rest nobody knows.
#[test]
fn a_stop_at_its_limit_sends_the_answers_that_there_are() {
    for transport in [R2P2, HOMA] {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        std::thread::scope(|scope| {
            let stop = handle.clone();
            let serving = scope.spawn(move || {
                let mut kept = VecDeque::new();
                server.run(|request| {
                    if request.bytes() == b"keep" {
                        return kept.push_back(request.defer());
                    }
                    kept.drain(..2).for_each(|responder| responder.reply(b"just in time"));
                    stop.stop_within(Duration::ZERO);
                    request.reply(b"stopped").unwrap();
                })
            });
            let guard = OnDrop(Some(|| handle.stop_within(Duration::ZERO)));
            let client = patient(transport).connect(address).unwrap();
            let mut calls: Vec<_> = (0..3).map(|_| client.start(b"keep").unwrap()).collect();
            let last = client.start(b"stop").unwrap();
            let unanswered = calls.pop().unwrap();
            for call in calls {
                assert_eq!(&call.wait().unwrap()[..], b"just in time", "{transport:?}");
            }
            assert_eq!(&last.wait().unwrap()[..], b"stopped", "{transport:?}");
            let error = unanswered.wait().unwrap_err();
            let uncertain = Failure::Refused(DropReason::Uncertain);
            assert!(
                matches!(&error, Error::Failed { source, .. } if *source == uncertain),
                "{error}"
            );
            drop(guard);
            serving.join().unwrap().unwrap();
        });
    }
}
