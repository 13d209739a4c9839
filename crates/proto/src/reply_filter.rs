//! The filter in the path of replies: of two replies to a cloned request the slower is dropped
//! (NetClone, SIGCOMM'23).
//!
//! | the cell of the id holds | the reply is | and the cell |
//! |---|---|---|
//! | the same id | the slower: dropped | is emptied |
//! | another id, or none | the faster: forwarded | takes this id, whatever it held |
//!
//! Ids are compared in full. So no first reply is ever dropped: where two ids share a cell, the
//! one that is evicted leaks its slower reply, which leaves the id behind in the cell. A clone that
//! its server discards leaves one too. Who receives the replies must take a second one for what it
//! is.
//!
//! Invariant: an id is dropped only where it was forwarded before, by this filter. So ids must not
//! be used again while replies to their first use may come: callers scope them by an epoch.

/// Two tables of cells, as a switch has them: a pass of a packet touches one cell.
#[derive(Clone, Debug)]
pub struct ReplyFilter<I> {
    /// Ids that wait for their second reply, of both tables.
    cells: Box<[Option<I>]>,
    /// Ids that another has taken the cell of.
    evicted: u64,
}

/// The fate of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the first of two, as far as the filter knows.
    Forward,
    /// The first has been forwarded.
    Drop,
}

impl<I: Copy + Eq> ReplyFilter<I> {
    /// Cells of each published table: with ids of 32 bits both are a MiB of the switch's memory.
    pub const PUBLISHED_LEN: usize = 1 << 17;

    /// Two empty tables of `len` cells each.
    ///
    /// # Panics
    /// When `len` is 0.
    pub fn new(len: usize) -> Self {
        assert!(len > 0, "a table of a filter has a cell");
        Self { cells: vec![None; 2 * len].into(), evicted: 0 }
    }

    /// Judges a reply to a cloned request. Both copies have the same `table`, of which the lowest
    /// bit counts, and the same `hash`, which picks the cell.
    #[inline]
    pub fn judge(&mut self, table: u32, hash: u64, id: I) -> Verdict {
        let len = self.cells.len() / 2;
        let place = (hash % len as u64) as usize + (table & 1) as usize * len;
        let cell = &mut self.cells[place];
        if *cell == Some(id) {
            *cell = None;
            return Verdict::Drop;
        }
        self.evicted += u64::from(cell.is_some());
        *cell = Some(id);
        Verdict::Forward
    }

    /// Ids whose cell another has taken: clones that their server discarded, and requests whose
    /// slower reply then passes.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::Verdict::{Drop, Forward};
    use super::*;

    const FAR: u32 = ReplyFilter::<NonZeroU32>::PUBLISHED_LEN as u32;

    /// Replies by table and id, and what becomes of them.
    fn check(replies: &[(u32, u32, Verdict)]) {
        let mut filter = ReplyFilter::new(FAR as usize);
        for (at, &(table, id, expected)) in replies.iter().enumerate() {
            let found = filter.judge(table, id.into(), NonZeroU32::new(id).unwrap());
            assert_eq!(found, expected, "reply {at} of {replies:?}");
        }
    }

    #[test]
    fn published_tables_are_a_mebibyte() {
        assert_eq!(2 * FAR as usize * size_of::<Option<NonZeroU32>>(), 1 << 20);
    }

    #[test]
    fn the_slower_reply_is_dropped() {
        check(&[(0, 7, Forward), (0, 7, Drop)]);
    }

    #[test]
    fn a_cell_is_free_again_after_both() {
        check(&[(0, 7, Forward), (0, 7, Drop), (0, 7 + FAR, Forward), (0, 7 + FAR, Drop)]);
    }

    #[test]
    fn tables_do_not_share_cells() {
        check(&[(0, 7, Forward), (1, 7 + FAR, Forward), (0, 7, Drop), (1, 7 + FAR, Drop)]);
    }

    #[test]
    fn a_collision_leaks_the_slower_reply_of_the_one_evicted() {
        check(&[(0, 7, Forward), (0, 7 + FAR, Forward), (0, 7, Forward), (0, 7 + FAR, Forward)]);
    }

    #[test]
    fn a_residue_does_not_drop_a_first_reply() {
        // The clone of 7 was discarded, so nothing emptied its cell.
        check(&[(0, 7, Forward), (0, 7 + FAR, Forward), (0, 7 + FAR, Drop)]);
    }

    #[test]
    fn evictions_are_counted() {
        let mut filter = ReplyFilter::new(1);
        let judged = [1u8, 2, 2, 3].map(|id| filter.judge(0, 0, id));
        assert_eq!((judged, filter.evicted()), ([Forward, Forward, Drop, Forward], 1));
    }
}
