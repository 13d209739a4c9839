//! Cooperative preemption of handlers that compute for long: Shinjuku's and Concord's time slice,
//! with checkpoints that the handler has.
//!
//! | a checkpoint | then |
//! |---|---|
//! | within the slice | the handler goes on at once |
//! | past it | the runtime's other tasks go first, and a new slice begins |

use std::time::Duration;

use tailcut_net::clock::Clock;
use tailcut_proto::node::Time;

/// A bound on the time that a handler of [`Server::run_async`](crate::Server::run_async) computes
/// before it lets others go first, so that short requests do not wait for long ones to complete.
///
/// A request of 1 ms that has a slice of 20 us and a checkpoint every few microseconds holds a
/// short one up for 20 us. `running_max` has to be more than the long requests that run at once.
/// A checkpoint reads the clock, some 20 ns; a shorter slice costs a switch of tasks more often.
///
/// ```
/// # async fn handle(request: tailcut::Responder) {
/// let mut slice = tailcut::TimeSlice::new(std::time::Duration::from_micros(20));
/// let mut sum = 0_u64;
/// for block in request.bytes().chunks(4096) {
///     sum += block.iter().map(|&byte| u64::from(byte)).sum::<u64>();
///     slice.checkpoint().await;
/// }
/// request.reply(&sum.to_be_bytes());
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TimeSlice {
    /// Its length, ns.
    len_ns: u64,
    /// Time at which it is over.
    ends_at: Time,
}

impl TimeSlice {
    /// A slice of this length that begins now.
    #[must_use]
    pub fn new(len: Duration) -> Self {
        let len_ns = u64::try_from(len.as_nanos()).unwrap_or(u64::MAX);
        Self { len_ns, ends_at: Clock.now().saturating_add(len_ns) }
    }

    /// Returns at once while the slice lasts; after it, once the runtime's other tasks that can run
    /// have had their turn. When the request is cancelled, the handler is dropped there.
    #[inline]
    pub async fn checkpoint(&mut self) {
        if Clock.now() >= self.ends_at {
            tokio::task::yield_now().await;
            self.ends_at = Clock.now().saturating_add(self.len_ns);
        }
    }
}
