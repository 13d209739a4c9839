//! Requests that the server's thread runs itself because workers were quick at thousands of them,
//! and what becomes of everybody else when one of them takes long after all.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use tailcut::{
    Client, DispatchConfig, DropReason, Error, Failure, InPlace, InPlaceCounts, Pending, Request,
    ServerHandle, Wait,
};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

use crate::library::{HOMA, OnDrop, R2P2, Transport, patient, server, serving};

/// Requests that ask for something else than an echo.
#[derive(Default)]
struct Odd {
    /// Those that have begun.
    begun: AtomicU64,
    /// Those of them that began in place.
    in_place: AtomicU64,
}

/// A server whose requests run in place where they are short, as `client` sees it.
fn in_place(
    transport: Transport,
    odd: &Odd,
    client: impl FnOnce(&Client, &ServerHandle, &Sender<()>),
) {
    let mut server = server(transport);
    let (address, handle) = (server.local_address(), server.stop_handle());
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        let config = DispatchConfig::new(2).in_place(InPlace::Below(50_000));
        let thread =
            scope.spawn(|| server.run_workers(config, |request| moody(request, &receiver, odd)));
        // Dropped after the guard: a request that waits for a word ends by it, too.
        let sender = sender;
        let guard = OnDrop(Some(|| handle.stop()));
        client(&patient(transport).connect(address).unwrap(), &handle, &sender);
        drop((guard, sender));
        thread.join().expect("the server does not panic").expect("the socket holds");
    });
}

fn moody(request: Request<'_>, word: &Mutex<Receiver<()>>, odd: &Odd) {
    let is_odd =
        matches!(request.bytes(), b"wait" | b"panic" | b"drop" | b"reject" | b"defer" | b"reply");
    if is_odd {
        odd.begun.fetch_add(1, Ordering::SeqCst);
        odd.in_place.fetch_add(u64::from(!is_at_worker()), Ordering::SeqCst);
    }
    let answered = match request.bytes() {
        b"wait" => {
            let _ = word.lock().unwrap().recv();
            request.reply(b"at last")
        }
        b"panic" => panic!("on purpose"),
        b"drop" => return,
        b"reject" => request.reject(404, "none"),
        b"defer" => {
            let responder = request.defer();
            std::thread::spawn(move || responder.reply(b"later"));
            return;
        }
        b"reply" => request.reply(b"answer"),
        _ => request.reply_in_place(|_| ()),
    };
    // A client that has gone needs no answer.
    let _ = answered;
}

fn is_at_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("tailcut-worker"))
}

fn counts(handle: &ServerHandle) -> InPlaceCounts {
    handle.dispatch_metrics().unwrap_or_default().in_place
}

/// Calls until some more have run in place.
fn warm_up(client: &Client, handle: &ServerHandle) {
    let before = counts(handle).run;
    while counts(handle).run < before + 100 {
        echo(client, 32);
    }
}

/// So many calls at once. Where others have the workers' cores for long their queue stands, and
/// refuses some.
fn echo(client: &Client, count: u32) {
    let calls: Vec<_> = (0..count).map(|n| client.start(&n.to_be_bytes()).unwrap()).collect();
    for (n, call) in (0..count).zip(calls) {
        match call.wait() {
            Ok(reply) => assert_eq!(&reply[..], n.to_be_bytes()),
            Err(error) => assert!(error.is_refused(), "{error}"),
        }
    }
}

/// A call whose request waits for a word on a thread that was relieved for it, while others are
/// answered.
fn relieved<'a>(
    client: &'a Client,
    handle: &ServerHandle,
    (odd, word): (&Odd, &Sender<()>),
) -> Pending<'a> {
    loop {
        warm_up(client, handle);
        let [begun, in_place] =
            [&odd.begun, &odd.in_place].map(|count| count.load(Ordering::SeqCst));
        // Amid others, which were to run in place behind it.
        let others: Vec<_> = (0..10).map(|_| client.enqueue(b"echo").unwrap()).collect();
        let call = client.enqueue(b"wait").unwrap();
        echo(client, 20);
        others.into_iter().for_each(|other| drop(other.wait()));
        for _ in 0..200 {
            echo(client, 1);
        }
        if odd.in_place.load(Ordering::SeqCst) > in_place {
            return call;
        }
        // A worker has it, or it was refused.
        while odd.begun.load(Ordering::SeqCst) == begun && !call.is_done().unwrap() {}
        if odd.begun.load(Ordering::SeqCst) > begun {
            word.send(()).unwrap();
            assert_eq!(&call.wait().unwrap()[..], b"at last");
        } else {
            assert!(call.wait().unwrap_err().is_refused());
        }
    }
}

#[test]
fn one_that_takes_long_after_thousands_that_did_not_holds_nobody_up() {
    for transport in [R2P2, HOMA] {
        let odd = Odd::default();
        in_place(transport, &odd, |client, handle, word| {
            // Twice, so that either thread leads and is relieved.
            for _ in 0..2 {
                let call = relieved(client, handle, (&odd, word));
                // While nobody is the deputy the workers have all.
                let before = counts(handle);
                (0..10).for_each(|_| echo(client, 10));
                assert_eq!(counts(handle), before);
                assert!(before.taken_over > 0);
                word.send(()).unwrap();
                assert_eq!(&call.wait().unwrap()[..], b"at last", "{transport:?}");
                // Its type is the workers' from here on, and then learned anew.
                warm_up(client, handle);
                let after = counts(handle);
                assert!(
                    after.ended > before.ended && after.begun > before.begun,
                    "{transport:?}: {before:?} {after:?}"
                );
            }
        });
    }
}

/// Requests of eight types, 64 outstanding, of which some compute for long where they run in place.
#[test]
fn each_request_runs_once_however_often_a_thread_is_relieved() {
    let runs: Vec<AtomicU64> = (0..8_000).map(|_| AtomicU64::new(0)).collect();
    let mut server = server(R2P2);
    server.classify(8, |request| request[3] % 8);
    let (address, handle) = (server.local_address(), server.stop_handle());
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let config = DispatchConfig::new(2).in_place(InPlace::Below(50_000));
            server.run_workers(config, |request| {
                let (number, began_at) = (number(request.bytes()), Clock.now());
                runs[number].fetch_add(1, Ordering::SeqCst);
                let is_long = !is_at_worker() && number.is_multiple_of(501);
                while is_long && Clock.now() < began_at + 3_000_000 {}
                let _ = request.reply_in_place(|_| ());
            })
        });
        let guard = OnDrop(Some(|| handle.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        while counts(&handle).taken_over < 4 {
            let mut calls = VecDeque::new();
            let conclude = |number: usize, call: Pending<'_>| match call.wait() {
                Ok(reply) => {
                    assert_eq!(&reply[..], (number as u32).to_be_bytes());
                    assert_eq!(runs[number].swap(0, Ordering::SeqCst), 1);
                }
                Err(error) => assert!(error.is_refused(), "{error}"),
            };
            for number in 0..runs.len() {
                if calls.len() == 64 {
                    let (number, call) = calls.pop_front().unwrap();
                    conclude(number, call);
                }
                calls.push_back((number, client.enqueue(&(number as u32).to_be_bytes()).unwrap()));
            }
            calls.into_iter().for_each(|(number, call)| conclude(number, call));
            // Of those that were refused none has run.
            assert!(runs.iter().all(|runs| runs.load(Ordering::SeqCst) == 0));
        }
        drop(guard);
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn what_takes_longer_than_a_hand_off_may_never_runs_in_place() {
    let mut server = server(R2P2);
    let (address, handle) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            server.run_workers(2, |request| {
                assert!(is_at_worker());
                let began_at = Clock.now();
                while Clock.now() < began_at + 10_000 {}
                let _ = request.reply_in_place(|_| ());
            })
        });
        let guard = OnDrop(Some(|| handle.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        (0..400).for_each(|_| echo(&client, 32));
        drop(guard);
        thread.join().unwrap().unwrap();
    });
    assert_eq!((counts(&handle), handle.panics()), (InPlaceCounts::default(), 0));
}

/// A thread that a deputy could not take the core from runs nothing itself.
#[test]
fn a_server_of_the_real_time_class_runs_nothing_in_place() {
    if std::env::var_os("TAILCUT_NO_REAL_TIME").is_some() {
        println!("SKIPPED: real-time threads are not run by this kernel");
        return;
    }
    // Nobody of that class spins: other tests want the cores.
    let asleep = Wait::Block { spin_ns: 0 };
    let mut server = serving(R2P2).wait(asleep).bind("127.0.0.1:0").unwrap();
    let (address, handle) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let config = DispatchConfig { spin_ns_max: 0, ..DispatchConfig::new(2) };
            let config = config.in_place(InPlace::Below(50_000));
            if affinity::set_fifo(1).is_err() {
                println!("SKIPPED: the real-time class needs CAP_SYS_NICE");
                return Ok(());
            }
            server.run_workers(config, |request| {
                let _ = request.reply_in_place(|_| ());
            })
        });
        let guard = OnDrop(Some(|| handle.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        // A little more than a type is learned from.
        for _ in 0..140 {
            if !thread.is_finished() {
                echo(&client, 32);
            }
        }
        drop(guard);
        thread.join().unwrap().unwrap();
    });
    assert_eq!(counts(&handle), InPlaceCounts::default());
}

#[test]
fn a_stop_at_its_limit_says_that_one_on_a_relieved_thread_is_uncertain() {
    let odd = Odd::default();
    in_place(R2P2, &odd, |client, handle, word| {
        let call = relieved(client, handle, (&odd, word));
        handle.stop_within(std::time::Duration::ZERO);
        let error = call.wait().unwrap_err();
        assert!(
            matches!(error, Error::Failed { source: Failure::Refused(DropReason::Uncertain), .. }),
            "{error}"
        );
    });
}

#[test]
fn whatever_a_handler_does_in_place_ends_its_own_request_alone() {
    let odd = Odd::default();
    in_place(R2P2, &odd, |client, handle, _| {
        // Some calls may be a worker's: as many as it takes until one ran in place.
        let check = |request: &str, reply: Option<&str>| {
            let counts = || [&odd.begun, &odd.in_place].map(|count| count.load(Ordering::SeqCst));
            let before = counts();
            while counts()[1] == before[1] {
                warm_up(client, handle);
                let others: Vec<_> = (0..20).map(|_| client.start(b"echo").unwrap()).collect();
                let begun = counts()[0];
                let result = client.call(request.as_bytes());
                let has_begun = counts()[0] > begun;
                match (result, reply) {
                    (Ok(found), Some(reply)) => assert_eq!(&found[..], reply.as_bytes()),
                    (Err(error), None) => assert!(error.is_refused(), "{request}: {error}"),
                    // Where others have the workers' cores for long their queue stands.
                    (result, _) => {
                        assert!(!has_begun && result.unwrap_err().is_refused(), "{request}");
                    }
                }
                for call in others {
                    match call.wait() {
                        Ok(reply) => assert_eq!(&reply[..], b"echo"),
                        Err(error) => assert!(error.is_refused(), "{error}"),
                    }
                }
            }
            counts()[0] - before[0]
        };
        check("reply", Some("answer"));
        check("defer", Some("later"));
        check("reject", None);
        check("drop", None);
        let panics = check("panic", None);
        assert_eq!(handle.panics(), panics);
    });
}
