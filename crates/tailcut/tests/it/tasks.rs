//! Handlers that are tasks, beside other tasks of their runtime and after its end.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tailcut::{DropReason, Error, Failure, Responder};
use tokio::runtime::Builder;

use crate::library::{HOMA, OnDrop, R2P2, patient, server};

/// However many requests there are, other tasks run in between, though no handler awaits anything.
#[test]
fn other_tasks_have_their_turn_while_requests_come() {
    const CALLS: usize = 600;
    let (come, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut server = server(R2P2);
    let (address, handle) = (server.local_address(), server.stop_handle());
    server.classify(1, {
        let come = come.clone();
        move |_| {
            come.fetch_add(1, Ordering::SeqCst);
            0
        }
    });
    let runtime = Builder::new_current_thread().build().unwrap();
    let tasks = runtime.handle().clone();
    std::thread::scope(|scope| {
        let counted = runs.clone();
        let serving = scope.spawn(move || {
            server.run_async(&tasks, 1000, move |request| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { request.reply(b"done") }
            })
        });
        let guard = OnDrop(Some(|| handle.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        let calls: Vec<_> = (0..CALLS).map(|_| client.start(b"").unwrap()).collect();
        // All of them wait for the runtime, which nobody drives.
        while come.load(Ordering::SeqCst) < CALLS {
            assert!(!calls[0].is_done().unwrap());
        }
        // A task that can always run looks how many have between two turns of its own.
        let (mut before, mut most) = (0, 0);
        let look = poll_fn(move |context| {
            let now = runs.load(Ordering::SeqCst);
            most = most.max(now - before);
            before = now;
            if now == CALLS {
                return Poll::Ready(most);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let most = runtime.block_on(async { tokio::spawn(look).await.unwrap() });
        assert!(most <= CALLS / 4, "{most} of {CALLS} ran in a row");
        calls.into_iter().for_each(|call| assert_eq!(&call.wait().unwrap()[..], b"done"));
        drop(guard);
        serving.join().unwrap().unwrap();
    });
}

/// Whoever calls a server whose runtime is shut down is told at once: what had begun is unanswered,
/// and nothing else begins, however many call.
#[test]
fn a_runtime_that_is_shut_down_refuses() {
    fn reason(error: Error) -> DropReason {
        match error {
            Error::Failed { source: Failure::Refused(reason), .. } => reason,
            error => panic!("{error}"),
        }
    }
    for transport in [R2P2, HOMA] {
        for running_max in [1, 4] {
            let mut server = server(transport);
            let (address, handle) = (server.local_address(), server.stop_handle());
            let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
            let tasks = runtime.handle().clone();
            let (begun, begins) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let serving = scope.spawn(move || {
                    server.run_async(&tasks, running_max, move |request: Responder| {
                        begun.send(()).unwrap();
                        async {
                            pending::<()>().await;
                            drop(request);
                        }
                    })
                });
                let guard = OnDrop(Some(|| handle.stop()));
                let client = patient(transport).connect(address).unwrap();
                let call = client.start(b"").unwrap();
                begins.recv_timeout(Duration::from_secs(10)).unwrap();
                drop(runtime);
                assert_eq!(reason(call.wait().unwrap_err()), DropReason::Unanswered);
                for _ in 0..10 {
                    let error = client.call(b"").unwrap_err();
                    assert_eq!(reason(error), DropReason::Stopping, "{transport:?}");
                }
                drop(guard);
                serving.join().unwrap().unwrap();
            });
        }
    }
}
