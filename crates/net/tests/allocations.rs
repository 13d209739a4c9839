//! A warm driver allocates nothing.

#![allow(unsafe_code)]

mod toy;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tailcut_net::driver::Wait;
use tailcut_net::udp::Coalescing;
use toy::{Echo, Pinger, V4};

#[test]
fn a_warm_turn_allocates_nothing() {
    for (outstanding, coalescing) in [(1, Coalescing::On), (64, Coalescing::On), (64, Coalescing::Off)] {
        let mut server = toy::driver(V4, Echo::new(coalescing), Wait::BusyPoll);
        let pinger = Pinger::new(server.port(0).local_address(), 64, outstanding, coalescing);
        let mut client = toy::driver(V4, pinger, Wait::BusyPoll);
        toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 1_000);
        let before = ALLOCATIONS.get();
        toy::turn_until(&mut server, &mut client, |_, client| client.completed >= 20_000);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{outstanding} outstanding, coalescing {coalescing:?}");
    }
}

#[test]
fn a_warm_sleep_allocates_nothing() {
    let mut server = toy::driver(V4, Echo::new(Coalescing::On), Wait::Block { spin_ns: 0 });
    let pinger = Pinger::new(server.port(0).local_address(), 64, 1, Coalescing::On);
    let mut client = toy::driver(V4, pinger, Wait::Block { spin_ns: 0 });
    let mut run = |answers: u64| {
        while client.node(0).completed < answers {
            client.turn().expect("a turn");
            server.wait(None, None).expect("a sleep");
            server.turn().expect("a turn");
            client.wait(None, None).expect("a sleep");
        }
    };
    run(100);
    let before = ALLOCATIONS.get();
    run(1_000);
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

/// Counts each thread's allocations.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps to the trait's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the trait's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps to the trait's contract.
        unsafe { System.realloc(pointer, layout, new_len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}
