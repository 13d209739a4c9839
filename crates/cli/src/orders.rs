//! Orders from other threads to a data-path loop, which looks for them each turn at the cost of one
//! load, and wakes for them where it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tailcut_net::driver::Waker;

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Orders<T> {
    orders: Receiver<T>,
    /// False where there is none: the channel need not be asked.
    is_pending: Arc<AtomicBool>,
}

/// The end of other threads; clones order from the same loop.
#[derive(Debug)]
pub(crate) struct Orderer<T> {
    orders: SyncSender<T>,
    is_pending: Arc<AtomicBool>,
    waker: Waker,
}

impl<T> Clone for Orderer<T> {
    fn clone(&self) -> Self {
        Self {
            orders: self.orders.clone(),
            is_pending: self.is_pending.clone(),
            waker: self.waker.clone(),
        }
    }
}

/// Both ends, for the loop of `waker`.
pub(crate) fn channel<T>(waker: Waker) -> (Orderer<T>, Orders<T>) {
    let (sender, orders) = mpsc::sync_channel(ORDERS_MAX);
    let is_pending = Arc::new(AtomicBool::new(false));
    (
        Orderer { orders: sender, is_pending: is_pending.clone(), waker },
        Orders { orders, is_pending },
    )
}

impl<T> Orders<T> {
    /// The next order, if there is one.
    #[inline]
    pub(crate) fn poll(&self) -> Option<T> {
        if !self.is_pending.load(Ordering::Relaxed) {
            return None;
        }
        self.orders.try_recv().ok().or_else(|| {
            self.is_pending.swap(false, Ordering::SeqCst);
            // One that came before the swap has set the flag for nothing.
            self.orders.try_recv().ok()
        })
    }
}

impl<T> Orderer<T> {
    /// Hands the loop an order that holds where its answer goes, and waits for that.
    ///
    /// # Errors
    ///
    /// That the loop has ended, or does not answer within [`ANSWER_WITHIN`].
    pub(crate) fn ask<R>(&self, order: impl FnOnce(SyncSender<R>) -> T) -> Result<R> {
        let (reply, replies) = mpsc::sync_channel(1);
        self.orders.try_send(order(reply)).map_err(|_| anyhow!("it is ending, or too busy"))?;
        self.is_pending.swap(true, Ordering::SeqCst);
        self.waker.wake();
        replies.recv_timeout(ANSWER_WITHIN).context("it does not answer")
    }
}

/// Longest that a loop that works leaves an order.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Orders that may wait: one each of the control socket, the admin port and a signal.
const ORDERS_MAX: usize = 4;
