//! Places on the chip, and the distances between them.
//!
//! Cores lie in a square of [`ROWS`] x [`COLUMNS`]; a network interface backend stands at one edge
//! beside each row. A message goes along its row and its column, a hop for each tile that it
//! enters.
//!
//! ```text
//!   B0 -  0  1  2  3
//!   B1 -  4  5  6  7      B1 is the dispatcher of the single queue
//!   B2 -  8  9 10 11
//!   B3 - 12 13 14 15
//! ```
//!
//! The dispatcher of the single queue stands beside the second row. It is 1 to 6 hops from the
//! cores there, which is what the published ranges of the delays imply: 1 ns for the decision, 8
//! for the queue entry, 10 for the poll and 1.5 for each hop make 20.5 to 28 ns, and the way back 7
//! to 14.5 ns.

/// Rows of cores, each with a backend at the edge.
pub const ROWS: usize = 4;
/// Cores in a row.
pub const COLUMNS: usize = 4;
/// Cores of the chip.
pub const CORES: usize = ROWS * COLUMNS;
/// The backend that dispatches for all cores.
pub const DISPATCHER: Backend = Backend(1);

/// A backend of the network interface, by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(pub usize);

/// A core, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core(pub usize);

impl Core {
    /// Its row, which is the number of its backend.
    pub fn row(self) -> usize {
        self.0 / COLUMNS
    }

    /// Its distance from the edge of the backends; the first column has 0.
    pub fn column(self) -> usize {
        self.0 % COLUMNS
    }
}

impl Backend {
    /// Hops to another backend, along the edge.
    pub fn hops_to(self, other: Backend) -> u64 {
        self.0.abs_diff(other.0) as u64
    }

    /// Hops to a core: along the edge, and into the mesh.
    pub fn hops_to_core(self, core: Core) -> u64 {
        (self.0.abs_diff(core.row()) + core.column() + 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dispatcher_is_one_to_six_hops_from_the_cores() {
        let hops: Vec<u64> = (0..CORES).map(|core| DISPATCHER.hops_to_core(Core(core))).collect();
        assert_eq!(hops, [2, 3, 4, 5, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6]);
    }

    #[test]
    fn the_dispatcher_is_up_to_two_rows_from_the_backends() {
        assert_eq!([0, 1, 2, 3].map(|row| Backend(row).hops_to(DISPATCHER)), [1, 0, 1, 2]);
    }

    #[test]
    fn a_backend_is_one_to_four_hops_from_its_row() {
        assert_eq!([12, 13, 14, 15].map(|core| Backend(3).hops_to_core(Core(core))), [1, 2, 3, 4]);
    }
}
