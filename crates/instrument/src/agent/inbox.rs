//! Queue of an agent's events that nobody has taken yet, bounded in bytes.
//!
//! Invariant: what was told last, why the agent is gone, always finds a place, and is handed out
//! after all before it, once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tailcut_measure::slices::{Unanswered, Unusual};
use tailcut_measure::stamps::Latencies;
use tailcut_measure::statistics::series::Timed;

use crate::job::AgentEvent;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    told: VecDeque<(AgentEvent, usize)>,
    bytes: usize,
    closed: bool,
}

impl Inbox {
    /// Waits for a place. What comes after the end is dropped.
    pub(super) fn push(&self, told: AgentEvent) {
        let bytes = footprint(&told);
        let mut state = self.lock();
        while !state.closed && state.bytes > BYTES_MAX {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            state.push(told, bytes);
            self.changed.notify_all();
        }
    }

    /// Tells why this is the end.
    pub(super) fn close(&self, why: String) {
        let mut state = self.lock();
        if !state.closed {
            state.closed = true;
            state.push(AgentEvent::Failed(why), 0);
            self.changed.notify_all();
        }
    }

    /// Takes the oldest, waiting for so long at most.
    pub(super) fn pop(&self, wait_ns: u64) -> Option<AgentEvent> {
        let state = self.lock();
        let wait = Duration::from_nanos(wait_ns);
        let is_idle = |state: &mut State| state.told.is_empty() && !state.closed;
        let mut state = match wait_ns {
            0 => state,
            _ => {
                self.changed
                    .wait_timeout_while(state, wait, is_idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        let (told, bytes) = state.told.pop_front()?;
        state.bytes -= bytes;
        self.changed.notify_all();
        Some(told)
    }

    /// True if [`Inbox::push`] waits.
    pub(super) fn is_full(&self) -> bool {
        self.lock().bytes > BYTES_MAX
    }

    /// Drops everything.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        if !state.closed {
            state.told.clear();
            state.bytes = 0;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, told: AgentEvent, bytes: usize) {
        self.bytes += bytes;
        self.told.push_back((told, bytes));
    }
}

/// About what it takes in memory.
fn footprint(told: &AgentEvent) -> usize {
    match told {
        AgentEvent::Slice { slice, .. } => {
            let lists = [
                slice.samples.len() * size_of::<Timed>(),
                slice.unusual.len() * size_of::<Unusual>(),
                slice.unanswered.len() * size_of::<Unanswered>(),
            ];
            OVERHEAD + lists.iter().sum::<usize>()
        }
        AgentEvent::Client { stamped, .. } => OVERHEAD + stamped.len() * size_of::<Latencies>(),
        AgentEvent::Ready { .. } | AgentEvent::Done | AgentEvent::Failed(_) => OVERHEAD,
    }
}

/// Three million samples. Beyond, the agent is kept waiting, and ends if nobody takes anything for
/// seconds.
const BYTES_MAX: usize = 64 << 20;
const OVERHEAD: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::thread;

    use tailcut_measure::slices::Slice;

    use super::*;

    fn large(index: u32) -> AgentEvent {
        let samples = vec![Timed::default(); BYTES_MAX / size_of::<Timed>()];
        AgentEvent::Slice { thread: 0, slice: Slice { index, samples, ..Slice::default() } }
    }

    fn index(told: Option<AgentEvent>) -> Option<u32> {
        match told {
            Some(AgentEvent::Slice { slice, .. }) => Some(slice.index),
            _ => None,
        }
    }

    #[test]
    fn what_is_beyond_the_bound_waits_for_a_place() {
        let inbox = Inbox::default();
        inbox.push(large(0));
        assert!(inbox.is_full());
        thread::scope(|scope| {
            scope.spawn(|| inbox.push(large(1)));
            assert_eq!(index(inbox.pop(0)), Some(0));
            assert_eq!(index(inbox.pop(u64::MAX)), Some(1));
        });
    }

    #[test]
    fn the_end_is_told_last_and_once_and_frees_who_waits() {
        let inbox = Inbox::default();
        inbox.push(large(0));
        thread::scope(|scope| {
            scope.spawn(|| inbox.push(large(1)));
            inbox.close("gone".to_owned());
        });
        inbox.close("gone again".to_owned());
        let mut told = std::iter::from_fn(|| inbox.pop(u64::MAX));
        assert_eq!(index(told.next()), Some(0));
        let last = told.last();
        assert!(matches!(&last, Some(AgentEvent::Failed(why)) if why == "gone"), "{last:?}");
    }

    #[test]
    fn nothing_comes_of_an_empty_one() {
        assert!(Inbox::default().pop(0).is_none());
        assert!(Inbox::default().pop(1_000).is_none());
    }
}
