//! Aeron: its C driver and client, called by the thread that also sends and receives (its mode
//! INVOKER), over UDP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusteron_media_driver::bindings::aeron_threading_mode_enum;
use rusteron_media_driver::{
    Aeron, AeronContext, AeronDriver, AeronDriverContext, AeronExclusivePublication,
    AeronSubscription, Handlers, IntoCString,
};
use tailcut_net::clock::Clock;

use crate::slices::{MESSAGE, RoundTrips, Slice, beside};

/// Echoes for so long, with `outstanding` messages under way.
pub(crate) fn run(outstanding: usize, slice_ns: u64) -> Slice {
    let is_over = AtomicBool::new(false);
    beside(
        || answer(&is_over),
        || {
            let slice = call(outstanding, slice_ns);
            is_over.store(true, Ordering::Relaxed);
            slice
        },
    )
}

fn call(outstanding: usize, slice_ns: u64) -> Slice {
    let node = Node::new();
    let (replies, requests) = (node.subscribe(REPLIES), node.publish(REQUESTS));
    while !requests.is_connected() || !replies.is_connected() {
        node.work();
    }
    let (mut under_way, mut round_trips) = (0, RoundTrips::default());
    let (began_at, mut message) = (Clock.now(), MESSAGE);
    loop {
        while under_way < outstanding {
            message[..8].copy_from_slice(&Clock.now().to_le_bytes());
            if requests.offer(&message, Handlers::no_reserved_value_supplier_handler()) < 0 {
                break;
            }
            under_way += 1;
        }
        node.work();
        replies
            .poll_once(
                |reply, _| {
                    let sent_at = reply.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                    round_trips.note(Clock.now() - sent_at);
                    under_way -= 1;
                },
                FRAGMENTS_MAX,
            )
            .expect("replies");
        let took_ns = Clock.now() - began_at;
        if took_ns >= slice_ns && round_trips.len() > 0 {
            return round_trips.over(took_ns);
        }
    }
}

fn answer(is_over: &AtomicBool) {
    let node = Node::new();
    let (requests, replies) = (node.subscribe(REQUESTS), node.publish(REPLIES));
    while !is_over.load(Ordering::Relaxed) {
        node.work();
        requests
            .poll_once(
                |request, _| {
                    while replies.offer(request, Handlers::no_reserved_value_supplier_handler()) < 0
                        && !is_over.load(Ordering::Relaxed)
                    {
                        node.work();
                    }
                },
                FRAGMENTS_MAX,
            )
            .expect("requests");
    }
}

/// A driver and its client, on one thread.
struct Node {
    driver: AeronDriver,
    client: Aeron,
}

impl Node {
    fn new() -> Self {
        static NODES: AtomicU64 = AtomicU64::new(0);
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let directory = format!("/dev/shm/tailcut-aeron-{}-{number}", std::process::id());
        let directory = directory.into_c_string();
        let settings = AeronDriverContext::new().expect("a context");
        let all_set = [
            settings.set_dir(&directory),
            settings.set_dir_delete_on_start(true),
            settings.set_dir_delete_on_shutdown(true),
            settings.set_threading_mode(aeron_threading_mode_enum::AERON_THREADING_MODE_INVOKER),
            settings.set_term_buffer_length(TERM_BYTES),
        ];
        assert!(all_set.iter().all(Result::is_ok), "{all_set:?}");
        let driver = AeronDriver::new(&settings).expect("a driver");
        driver.start(true).expect("a driver that starts");
        let settings = AeronContext::new().expect("a context");
        settings.set_dir(&directory).expect("its driver's directory");
        settings.set_use_conductor_agent_invoker(true).expect("the setting");
        let client = Aeron::new(&settings).expect("a client");
        client.start().expect("a client that starts");
        Self { driver, client }
    }

    fn work(&self) {
        self.driver.main_do_work().expect("the driver's work");
        self.client.main_do_work().expect("the client's work");
    }

    fn publish(&self, (channel, stream): (&str, i32)) -> AeronExclusivePublication {
        let adding = self.client.async_add_exclusive_publication(&channel.into_c_string(), stream);
        let adding = adding.expect("a publication");
        loop {
            self.work();
            if let Some(publication) = adding.poll().expect("a publication") {
                return publication;
            }
        }
    }

    fn subscribe(&self, (channel, stream): (&str, i32)) -> AeronSubscription {
        let adding = self.client.async_add_subscription(
            &channel.into_c_string(),
            stream,
            Handlers::no_available_image_handler(),
            Handlers::no_unavailable_image_handler(),
        );
        let adding = adding.expect("a subscription");
        loop {
            self.work();
            if let Some(subscription) = adding.poll().expect("a subscription") {
                return subscription;
            }
        }
    }
}

const REQUESTS: (&str, i32) = ("aeron:udp?endpoint=127.0.0.1:40123", 1);
const REPLIES: (&str, i32) = ("aeron:udp?endpoint=127.0.0.1:40124", 2);

/// Messages that are taken at once.
const FRAGMENTS_MAX: usize = 64;

/// A third of the buffer of each stream; 64 MiB by default, which a container's shared memory may
/// lack.
const TERM_BYTES: usize = 4 << 20;
