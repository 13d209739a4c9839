//! The switch's response filter: of two responses to a cloned request the slower is dropped.
//!
//! | the cell of the id holds | the response is | and the cell |
//! |---|---|---|
//! | the same id | the slower: dropped | is emptied |
//! | another id, or none | the faster: forwarded | takes this id, whatever it held |
//!
//! Ids are compared in full. So no first response is ever dropped: where two ids share a cell, the
//! one that is put out leaks its slower response, which leaves the id behind in the cell. A clone
//! that its server discards leaves one too.

/// Two tables of cells; the client picks the table at random, the id picks the cell.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Ids that wait for their second response; 0 is none.
    tables: [Vec<u32>; 2],
}

/// The fate of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Drop,
}

impl Filter {
    pub(super) fn new() -> Self {
        Self { tables: [(); 2].map(|()| vec![0; CELLS]) }
    }

    /// Judges a response to a cloned request. `table` is 0 or 1, the same for both copies; `id` is
    /// not 0.
    pub(super) fn judge(&mut self, table: u8, id: u32) -> Verdict {
        let cell = &mut self.tables[usize::from(table)][id as usize % CELLS];
        if *cell == id {
            *cell = 0;
            return Verdict::Drop;
        }
        *cell = id;
        Verdict::Forward
    }
}

/// Cells of a table; with 32-bit ids the two tables are a MiB of the switch's memory.
const CELLS: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::Verdict::{Drop, Forward};
    use super::*;

    const FAR: u32 = CELLS as u32;

    /// Responses by table and id, and what becomes of them.
    fn check(responses: &[(u8, u32, Verdict)]) {
        let mut filter = Filter::new();
        for (at, &(table, id, expected)) in responses.iter().enumerate() {
            assert_eq!(filter.judge(table, id), expected, "response {at} of {responses:?}");
        }
    }

    #[test]
    fn the_slower_response_is_dropped() {
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
    fn a_collision_leaks_the_slower_response_of_the_one_put_out() {
        check(&[(0, 7, Forward), (0, 7 + FAR, Forward), (0, 7, Forward), (0, 7 + FAR, Forward)]);
    }

    #[test]
    fn a_residue_does_not_drop_a_first_response() {
        // The clone of 7 was discarded, so nothing emptied its cell.
        check(&[(0, 7, Forward), (0, 7 + FAR, Forward), (0, 7 + FAR, Drop)]);
    }
}
