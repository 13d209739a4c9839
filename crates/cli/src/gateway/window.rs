//! Limit of the calls that a gateway has under way: what its clients ask for beyond that waits
//! here, as it would in the sockets of a server, and is not refused.
//!
//! | event | the window |
//! |---|---|
//! | a call is answered while it is full | grows by one for each window of answers |
//! | a call is refused for overload | shrinks to 0.7 of it, once in a while |
//!
//! That is TCP's control of congestion, whose sign of it is here a refusal: routers and bridges
//! refuse where a queue stands.

use tailcut_proto::node::Time;

/// The window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: f64,
    /// Time from which it may shrink again.
    shrink_at: Time,
}

impl Window {
    /// As at the beginning.
    pub(super) fn new() -> Self {
        Self { size: FIRST, shrink_at: 0 }
    }

    /// True if one more call than `under_way` may go.
    pub(super) fn has_room(&self, under_way: usize) -> bool {
        (under_way as f64) < self.size
    }

    /// A call was answered, of so many.
    pub(super) fn note_answered(&mut self, under_way: usize) {
        if under_way as f64 + 1.0 >= self.size {
            self.size = (self.size + 1.0 / self.size).min(MOST);
        }
    }

    /// A call was refused for overload.
    pub(super) fn note_overload(&mut self, now: Time) {
        if now >= self.shrink_at {
            self.size = (self.size * 0.7).max(1.0);
            self.shrink_at = now.saturating_add(SHRINK_NS);
        }
    }

    /// Calls that may be under way.
    pub(super) fn size(&self) -> u64 {
        self.size as u64
    }
}

/// Window of a gateway that knows nothing.
const FIRST: f64 = 64.0;

/// A quarter of what a transport has.
const MOST: f64 = 4096.0;

/// A queue that stands refuses many at once: they count once.
const SHRINK_NS: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_one_for_a_window_of_answers_and_shrinks_once_for_many_refusals() {
        let mut window = Window::new();
        (0..64).for_each(|_| window.note_answered(64));
        assert!((64.9..65.0).contains(&window.size), "{}", window.size);
        (0..10).for_each(|_| window.note_overload(0));
        assert_eq!(window.size(), 45);
        assert!(window.has_room(45) && !window.has_room(46));
        (0..100).for_each(|at| window.note_overload(at * SHRINK_NS));
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = Window::new();
        (0..1000).for_each(|_| window.note_answered(3));
        assert_eq!(window.size(), 64);
    }
}
