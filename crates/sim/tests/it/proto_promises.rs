//! Promises of calls over either transport: the same tests for an R2P2 and a Homa endpoint.

use crate::pair::{EndpointPair, Handler, Transport};
use tailcut_proto::rpc::{CallOptions, DropReason, Failure};
use tailcut_proto::{homa, r2p2};
use tailcut_sim::impair::Impairment;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const ONCE: CallOptions = CallOptions { idempotent: false, fixed: false, v1: false };
const IDEMPOTENT: CallOptions = CallOptions { idempotent: true, ..ONCE };

#[test]
fn a_call_ends_by_its_deadline_and_not_before() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment { loss: 1.0, ..Impairment::default() }, 1);
        pair.call(0, 32, 50 * MS, ONCE);
        pair.run_for(49 * MS);
        assert!(pair.outcomes.is_empty());
        pair.run_for(2 * MS);
        assert_eq!(pair.outcomes[0].result, Err(Failure::Deadline));
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn a_slow_server_is_asked_quietly() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        pair.handler = Handler { service_ns: 500 * MS, ..Handler::default() };
        pair.call(0, 32, SECOND, ONCE);
        pair.run_for(SECOND);
        assert!(pair.outcomes[0].result.is_ok());
        assert_eq!(pair.runs, [1]);
        // Half a second in steps of at most 32 ms, each a question and an answer.
        assert!(pair.statistics().sent < 60, "{} datagrams", pair.statistics().sent);
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn a_cancelled_call_is_taken_from_the_application() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        pair.handler = Handler { service_ns: 100 * MS, ..Handler::default() };
        let id = pair.call(0, 32, SECOND, ONCE);
        pair.run_for(10 * MS);
        pair.cancel(id);
        pair.run_for(SECOND);
        assert!(pair.outcomes.is_empty());
        assert_eq!((pair.cancelled, pair.gone), (1, 1));
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn a_handler_refuses_in_its_own_words() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        for (len, expected) in [(32, 32), (1024, 1024), (5000, 1024)] {
            pair.handler = Handler { code: Some(u32::MAX - 7), ..Handler::default() };
            pair.call(len, len as usize, SECOND, ONCE);
            pair.run_for(100 * MS);
            let outcome = pair.outcomes.pop().expect("the call has ended");
            assert_eq!(outcome.result, Err(Failure::Rejected { code: u32::MAX - 7 }));
            let text = pair.texts.pop().expect("a text");
            assert_eq!((text.len(), &text[..8]), (expected, &len.to_be_bytes()[..]));
        }
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn a_server_that_stops_answers_what_it_has_and_refuses_the_rest() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        pair.handler =
            Handler { service_ns: 50 * MS, reply_len: Some(100_000), ..Handler::default() };
        pair.call(0, 32, SECOND, ONCE);
        // Half of it has arrived when the server stops.
        pair.call(1, 200_000, SECOND, ONCE);
        pair.run_for(30_000);
        assert_eq!(pair.stop(), 0);
        for (number, options) in [(2, ONCE), (3, IDEMPOTENT)] {
            pair.call(number, 32, SECOND, options);
            pair.run_for(10 * MS);
            let outcome = pair.outcomes.pop().expect("the call has ended");
            assert_eq!(outcome.result, Err(Failure::Refused(DropReason::Stopping)));
        }
        pair.run_for(20 * MS);
        assert!(pair.outcomes.is_empty());
        pair.run_for(500 * MS);
        let mut contexts: Vec<u64> = pair.outcomes.iter().map(|outcome| outcome.context).collect();
        // Over Homa a long reply may wait until its client is validated.
        contexts.sort_unstable();
        assert_eq!((contexts, &pair.runs[..]), (vec![0, 1], &[1, 1][..]));
        assert!(pair.outcomes.iter().all(|outcome| outcome.result.is_ok()));
        assert_eq!(pair.stop(), 0);
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn a_request_never_answered_is_let_go_at_its_deadline() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        pair.handler = Handler { is_silent: true, ..Handler::default() };
        pair.call(0, 32, 100 * MS, ONCE);
        pair.run_for(200 * MS);
        assert_eq!(pair.outcomes[0].result, Err(Failure::Deadline));
        assert_eq!(pair.cancelled, 1);
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    fn check<E: Transport>() {
        let run = |seed| {
            let impairment = Impairment {
                loss: 0.1,
                duplicate: 0.1,
                corrupt: 0.1,
                delay_ns: 5000,
                jitter_ns: 50_000,
                ..Impairment::NONE
            };
            let mut pair = EndpointPair::<E>::new(impairment, seed);
            for context in 0..200 {
                pair.call(context, 5000, SECOND, IDEMPOTENT);
                pair.run_for(MS);
            }
            pair.run_for(2 * SECOND);
            pair.statistics()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}

#[test]
fn an_empty_message_arrives_empty() {
    fn check<E: Transport>() {
        let mut pair = EndpointPair::<E>::new(Impairment::default(), 1);
        pair.handler = Handler { reply_len: Some(0), ..Handler::default() };
        pair.call(0, 32, SECOND, ONCE);
        pair.run_for(MS);
        assert_eq!(pair.outcomes[0].result, Ok(Vec::new()));
    }
    check::<r2p2::Endpoint>();
    check::<homa::Endpoint>();
}
