//! Number of workers that a server seems to have, and the search for it.

use std::net::SocketAddr;
use std::num::NonZeroU8;

use tailcut_wire::r2p2::{FeedbackBody, MessageType, Policy, RequestRepr, Route, RpcId, Segment};
use zerocopy::IntoBytes;

use super::*;
use crate::node::Node;
use crate::router::crew::WORKERS_MAX;
use crate::router::server::Reported;
use crate::router::{RouterConfig, ServerConfig, Speaks};

fn addr(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 1], 8_000 + index))
}

/// A router over two servers that derives its bound.
fn router() -> Router {
    let servers =
        [0, 1].map(|index| ServerConfig { addr: addr(index), speaks: Speaks::Extension }).into();
    let config =
        RouterConfig { servers, policy: "jbsq:auto".parse().unwrap(), ..RouterConfig::default() };
    Router::new(0, config).expect("a good configuration")
}

/// A report (requests, of these waiting), and what is known after it: has it changed, workers seen,
/// are they counted, workers assumed.
type Step = ((u32, u32), (bool, u32, bool, u32));

/// Gives the first server reports and checks after each what is known.
fn check(prepare: impl Fn(&mut Server), steps: &[Step]) {
    let mut router = router();
    let server = &mut router.fleet[WorkerId(0)];
    prepare(server);
    for &((reported, waiting), expected) in steps {
        server.reported = Reported { requests: reported, waiting };
        let is_new = server.learn_workers();
        let known = (is_new, server.crew.seen, server.crew.is_counted, server.crew.assumed());
        assert_eq!(known, expected, "{reported} of which {waiting} wait");
    }
}

#[test]
fn there_may_be_more_workers_than_run_until_one_waits() {
    check(
        |_| {},
        &[
            ((0, 0), (false, 1, false, 3)),
            ((5, 0), (true, 5, false, 11)),
            ((3, 0), (false, 5, false, 11)),
            ((7, 1), (true, 6, true, 6)),
            // As many run, and none waits: that is no news.
            ((6, 0), (false, 6, true, 6)),
            ((4, 1), (true, 3, true, 3)),
            ((9, 0), (true, 9, false, 19)),
        ],
    );
}

#[test]
fn a_server_that_does_not_tell_what_waits_is_not_given_everything() {
    let max = WORKERS_MAX;
    check(
        |_| {},
        &[
            ((max / 2, 0), (true, max / 2, false, max)),
            ((max, 0), (true, max, true, max)),
            ((2 * max, 1), (false, max, true, max)),
        ],
    );
    check(|_| {}, &[((5 * max, 0), (true, max, true, max))]);
    // All that it has waits: somebody must serve it.
    check(|_| {}, &[((4, 4), (true, 1, true, 1))]);
}

/// A router of two servers at weight 3, with 24 requests, of which 6 wait.
#[test]
fn workers_are_those_of_one_server_for_each_unit_of_weight() {
    let prepare = |server: &mut Server| {
        server.note_members(2);
        server.rank.weight = NonZeroU8::new(3).expect("it is 3");
    };
    check(prepare, &[((24, 6), (true, 3, true, 3))]);
}

/// Held requests that `router` has placed since a report told that some wait.
fn unseen(router: &mut Router) -> &mut u32 {
    &mut router.auto.as_mut().expect("it derives its bound").unseen
}

#[test]
fn a_report_that_some_wait_ends_the_search() {
    let mut router = router();
    *unseen(&mut router) = 7;
    router.learn_workers(WorkerId(0));
    assert_eq!(*unseen(&mut router), 7, "none waits");
    router.fleet[WorkerId(0)].reported.waiting = 1;
    router.learn_workers(WorkerId(0));
    assert_eq!(*unseen(&mut router), 0);
}

fn request(id: u64) -> Vec<u8> {
    let repr = RequestRepr {
        policy: Policy::Unrestricted,
        segment: Segment { message_len: 4, segment_len: 1_400, ..Segment::CONTROL },
        ..RequestRepr::control(MessageType::Request, id as u16, RpcId(id))
    };
    [repr.header().as_bytes(), Route::default().as_bytes(), b"ping"].concat()
}

/// Requests are held beyond the bound of two servers that have reported.
#[test]
fn after_many_held_requests_one_goes_past_the_bound_and_a_probe_behind_it() {
    let mut router = router();
    for slot in 0..2 {
        let server = &mut router.fleet[WorkerId(slot)];
        let placement_seen = server.shared_counts().placed.into();
        let body = FeedbackBody { epoch: 1.into(), placement_seen, ..FeedbackBody::default() };
        server.take_feedback(0, &body, 0, &router.config).expect("it is new");
        router.refresh(0, WorkerId(slot));
    }
    let client = SocketAddr::from(([10, 1, 0, 1], 4_000));
    for id in 1.. {
        router.handle_datagram(0, client.into(), &mut request(id));
        if router.queue_len() == 2 {
            break;
        }
    }
    let placed = |router: &Router| router.servers().map(|server| server.placed).sum::<u64>();
    let before = placed(&router);
    *unseen(&mut router) = UNSEEN_MAX - 1;
    router.look_for_workers(1);
    assert_eq!((placed(&router), router.queue_len()), (before, 2), "it is not time yet");
    *unseen(&mut router) = UNSEEN_MAX;
    router.look_for_workers(1);
    assert_eq!((placed(&router), router.queue_len()), (before + 1, 1));
    assert_eq!(*unseen(&mut router), 0);
    let probed = router.fleet.iter().filter(|server| server.next_event() <= 1);
    assert_eq!(probed.count(), 1, "the one that got it");
    router.look_for_workers(1);
    assert_eq!(router.queue_len(), 1, "the next only after as many again");
}
