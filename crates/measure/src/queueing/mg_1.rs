//! M/G/1: random placement, or one server, with any service time of finite mean.
//!
//! A request waits for the residual services of a geometric number of requests: W is a sum of N
//! independent residuals, where P(N = n) = (1 - load) load^n, and the residual's density is the
//! service's tail over its mean (Pollaczek and Khinchine; Asmussen, Applied Probability and Queues,
//! VIII.5). So a sojourn is a service alone with probability 1 - load, and otherwise a service
//! after W+, which is one residual and a sum like W:
//!
//! P(T > t) = (1 - load) P(S > t) + load P(W+ + S > t).
//!
//! The second term is continuous, whatever jumps the service has. It is computed on grids by the
//! Fourier transform. Each residual is split between the next three points of the grid so that its
//! mean and variance are kept; the service is integrated over cells. Tilting by r^k keeps what lies
//! beyond a grid from folding back into it (Grübel and Hermesmeier, Computation of compound
//! distributions I, 1999).
//!
//! A heavy tail spans decades, so the grids widen: each has [`CELLS`] cells four times as wide as
//! the one before, and takes over where that ends. On the first grid a cell is 1/2048 of the mean
//! service time, on the others at most 1/8192 of the time that it serves. A wide grid merges the
//! cells of the one before it, so the body of the service is integrated once, finely.
//!
//! Invariant: a grid is computed when a time first asks for it, from nothing but the service and
//! the load.

use std::f64::consts::TAU;
use std::sync::OnceLock;

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex64;
use rustfft::{Fft as _, FftDirection};

use super::{QueueingError, Sojourn, check_load};
use crate::distribution::Distribution;

/// One server behind a Poisson stream, first come first served.
#[derive(Clone, Debug)]
pub struct MG1 {
    service: Distribution,
    /// In the base unit of `service`.
    service_mean: f64,
    load: f64,
    /// Mean of the sojourn, in mean services; may be infinite.
    mean: f64,
    /// By width, as they are asked for.
    grids: Vec<OnceLock<Grid>>,
}

impl MG1 {
    /// `service` at `load` of the server's capacity. A service of infinite variance is accepted:
    /// its queue settles, though its mean sojourn is infinite.
    ///
    /// # Errors
    ///
    /// A load outside of (0, 1), or a service whose mean is zero or infinite.
    pub fn new(service: &Distribution, load: f64) -> Result<Self, QueueingError> {
        check_load(load)?;
        let service_mean =
            service.mean().filter(|mean| *mean > 0.0).ok_or(QueueingError::Service)?;
        let variance = service.variance().unwrap_or(f64::INFINITY);
        let squared_variation = variance / service_mean / service_mean;
        // Pollaczek and Khinchine.
        let mean_wait = load * (1.0 + squared_variation) / (2.0 * (1.0 - load));
        let grids = vec![OnceLock::new(); GRIDS];
        Ok(Self { service: service.clone(), service_mean, load, mean: 1.0 + mean_wait, grids })
    }

    /// The probability that a service exceeds `time`, which is in mean services.
    fn service_tail(&self, time: f64) -> f64 {
        self.service.tail(time * self.service_mean)
    }

    /// The grid whose cells are 4^`index` times as wide as the first one's.
    fn grid(&self, index: usize) -> &Grid {
        self.grids[index].get_or_init(|| {
            let step = STEP * 4f64.powi(index as i32);
            let finer = (index > 0).then(|| self.grid(index - 1));
            let cells = cells(step, finer.map(|grid| grid.cells.as_slice()), |time| {
                self.service_tail(time)
            });
            let waited = waited_tail(self.load, step, &cells);
            Grid { step, cells, waited }
        })
    }
}

impl Sojourn for MG1 {
    /// Infinite where the variance of the service is.
    fn mean(&self) -> f64 {
        self.mean
    }

    /// With an error of at most about 1e-7, and nothing below 1e-12.
    fn tail(&self, time: f64) -> f64 {
        if time < 0.0 {
            return 1.0;
        }
        let mut grids = (0..GRIDS).map(|index| self.grid(index));
        let waited = grids
            .find(|grid| time <= grid.end() || grid.is_spent())
            .map_or(0.0, |grid| grid.waited_tail(time));
        (1.0 - self.load) * self.service_tail(time) + self.load * waited
    }
}

/// One width of cells, from time 0 on; times are in mean services.
#[derive(Clone, Debug)]
struct Grid {
    step: f64,
    cells: Vec<Cell>,
    /// P(W+ + S > t) at the middles of the cells.
    waited: Vec<f64>,
}

impl Grid {
    /// As far as it serves.
    fn end(&self) -> f64 {
        self.step * (CELLS - 1) as f64
    }

    /// True if nothing is left beyond its end.
    fn is_spent(&self) -> bool {
        self.waited[CELLS - 1] == 0.0
    }

    fn waited_tail(&self, time: f64) -> f64 {
        // From the middle of one cell to the middle of the next; before the first one nobody has
        // left.
        let at = time / self.step + 0.5;
        let cell = (at as usize).min(CELLS - 1);
        let share = (at - cell as f64).min(1.0);
        let before = if cell == 0 { 1.0 } else { self.waited[cell - 1] };
        before * (1.0 - share) + self.waited[cell] * share
    }
}

/// The residual service within a cell, as moments of its place there, from 0 at the cell's lower
/// end to 1: the integrals of 1, x and x^2 over its density.
#[derive(Clone, Copy, Debug, Default)]
struct Cell([f64; 3]);

/// A point of the service's tail.
#[derive(Clone, Copy, Debug)]
struct Point {
    time: f64,
    /// The share of services that are longer.
    tail: f64,
}

impl Cell {
    /// Between two times, where the tail of the service is `tail`: of unit mean, the service has
    /// its tail for the residual's density.
    fn between(from: f64, to: f64, tail: &impl Fn(f64) -> f64) -> Self {
        let point = |time| Point { time, tail: tail(time) };
        Self::halved(point(from), point(to), SPLITS_MAX, tail)
    }

    /// By Gauss's rule of two points, in halves where the tail falls steeply: at a jump down to
    /// 2^-[`SPLITS_MAX`] of the cell.
    fn halved(from: Point, to: Point, splits: u32, tail: &impl Fn(f64) -> f64) -> Self {
        let half = (to.time - from.time) / 2.0;
        let middle = from.time + half;
        if from.tail - to.tail > FALL_MAX && splits > 0 {
            let middle = Point { time: middle, tail: tail(middle) };
            return Self::merged(&[
                Self::halved(from, middle, splits - 1, tail),
                Self::halved(middle, to, splits - 1, tail),
            ]);
        }
        let weighted = [-GAUSS_POINT, GAUSS_POINT]
            .map(|at| ((1.0 + at) / 2.0, half * tail(middle + half * at)));
        Self(
            [0, 1, 2].map(|power| {
                weighted.iter().map(|(place, weight)| weight * place.powi(power)).sum()
            }),
        )
    }

    /// One cell in the place of `parts`, which are equally wide.
    fn merged(parts: &[Self]) -> Self {
        let count = parts.len() as f64;
        let mut merged = [0.0; 3];
        for (Self([zeroth, first, second]), at) in parts.iter().zip(0u32..) {
            let at = f64::from(at);
            merged[0] += zeroth;
            merged[1] += (at * zeroth + first) / count;
            merged[2] += (at * at * zeroth + 2.0 * at * first + second) / (count * count);
        }
        Self(merged)
    }
}

/// The residual service on the grid of `step`, the first quarter of which is `finer`.
fn cells(step: f64, finer: Option<&[Cell]>, tail: impl Fn(f64) -> f64) -> Vec<Cell> {
    let mut cells: Vec<Cell> =
        finer.map_or(Vec::new(), |finer| finer.chunks(4).map(Cell::merged).collect());
    for index in cells.len()..CELLS {
        let from = index as f64 * step;
        cells.push(if tail(from) > 0.0 {
            Cell::between(from, from + step, &tail)
        } else {
            Cell::default()
        });
    }
    cells
}

/// P(W+ + S > t) at the middles of the cells.
///
/// As power series in z, one term a cell, let M0, M1 and M2 be the moments of the cells. A residual
/// at the place x of its cell goes to the next three points by Lagrange's weights (1 - x)(2 - x) /
/// 2, x (2 - x) and -x (1 - x) / 2, so on the grid the residual is A = M0 - M1 (1 - z)(3 - z) / 2 +
/// M2 (1 - z)^2 / 2, and W+ is (1 - load) A / (1 - load A). What is at a point is taken as spread
/// over half a cell to either side, where the service's distribution function has the mean 1 / (1 -
/// z) - M0 / step.
fn waited_tail(load: f64, step: f64, cells: &[Cell]) -> Vec<f64> {
    let forward = Radix4::new(POINTS, FftDirection::Forward);
    let [zeroth, first, second] = [0, 1, 2].map(|power| {
        let tilted = cells
            .iter()
            .enumerate()
            .map(|(index, cell)| Complex64::from(cell.0[power] * tilt(index)));
        let mut series: Vec<_> = tilted.collect();
        series.resize(POINTS, Complex64::ZERO);
        forward.process(&mut series);
        series
    });
    let mut waited: Vec<Complex64> = (0..POINTS)
        .map(|point| {
            let z = Complex64::from_polar(tilt(1), -TAU * point as f64 / POINTS as f64);
            let back = 1.0 - z;
            let residual = zeroth[point] - first[point] * back * (3.0 - z) / 2.0
                + second[point] * back * back / 2.0;
            let wait = (1.0 - load) * residual / (1.0 - load * residual);
            (1.0 - wait * (1.0 - back * zeroth[point] / step)) / back
        })
        .collect();
    Radix4::new(POINTS, FftDirection::Inverse).process(&mut waited);
    let tails = waited
        .iter()
        .take(CELLS)
        .enumerate()
        .map(|(index, value)| value.re / tilt(index) / POINTS as f64);
    tails.map(|tail| if tail < NEGLIGIBLE { 0.0 } else { tail }).collect()
}

fn tilt(index: usize) -> f64 {
    (-TILT * index as f64 / POINTS as f64).exp()
}

/// Step of the first grid, in mean services.
const STEP: f64 = 1.0 / 2048.0;
const CELLS: usize = 1 << 15;
/// As far as an `f64` counts.
const GRIDS: usize = 512;
/// Points of the transform: what folds back begins a whole transform later, and is e^-28 of itself;
/// what rounds is lifted by e^7 at most.
const POINTS: usize = 4 * CELLS;
// For which a single algorithm will do, in place of all that a planner may choose from.
const _: () = assert!(POINTS.is_power_of_two());
const TILT: f64 = 28.0;
/// Residue that rounding leaves of a tail.
const NEGLIGIBLE: f64 = 1e-12;
/// A cell in which the service's tail falls by more is integrated in halves.
const FALL_MAX: f64 = 1.0 / 4096.0;
const SPLITS_MAX: u32 = 40;
/// 1 / sqrt(3).
const GAUSS_POINT: f64 = 0.577_350_269_189_625_8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Unit;

    #[test]
    fn grids_agree_where_one_takes_over_from_another() {
        for (service, load) in [
            ("exp:1us", 0.99),
            ("fixed:1us", 0.9),
            ("bimodal:1us:1ms:0.99", 0.7),
            ("pareto:0:350ns:0.65", 0.5),
        ] {
            let queue = MG1::new(&Distribution::parse(service, Unit::Time).unwrap(), load).unwrap();
            for index in 0..3 {
                let end = queue.grid(index).end();
                let [fine, wide] =
                    [index, index + 1].map(|index| queue.grid(index).waited_tail(end));
                assert!((fine - wide).abs() <= 1e-7, "{service} at {end}: {fine} is not {wide}");
            }
        }
    }

    #[test]
    fn a_grid_holds_the_mean_and_the_variance_of_the_residual() {
        // Of uniform service on [0, 2]: the density is 1 - t / 2, so the mean is 2/3 and the second
        // moment is 2/3.
        let cells = cells(STEP, None, |time| (1.0 - time / 2.0).max(0.0));
        let moment = |of: fn(f64, &Cell) -> f64| {
            cells.iter().enumerate().map(|(index, cell)| of(index as f64, cell)).sum::<f64>()
        };
        let total = moment(|_, cell| cell.0[0]);
        let first = moment(|index, cell| index * cell.0[0] + cell.0[1]) * STEP;
        let second =
            moment(|index, cell| index * index * cell.0[0] + 2.0 * index * cell.0[1] + cell.0[2])
                * STEP
                * STEP;
        for (value, expected) in [(total, 1.0), (first, 2.0 / 3.0), (second, 2.0 / 3.0)] {
            assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
        }
    }

    #[test]
    fn a_jump_within_a_cell_is_found() {
        let Cell(moments) = Cell::between(3.0, 5.0, &|time| if time < 3.5 { 1.0 } else { 0.0 });
        for (moment, expected) in moments.into_iter().zip([0.5, 0.0625, 0.5 / 48.0]) {
            assert!((moment - expected).abs() < 1e-12, "{moment} is not {expected}");
        }
    }

    #[test]
    fn merged_cells_have_the_moments_of_their_parts() {
        let density = |time: f64| 1.0 - time / 16.0;
        let parts = [0.0, 1.0, 2.0, 3.0].map(|from| Cell::between(from, from + 1.0, &density));
        let (Cell(merged), Cell(whole)) = (Cell::merged(&parts), Cell::between(0.0, 4.0, &density));
        for (merged, whole) in merged.into_iter().zip(whole) {
            assert!((merged - whole).abs() < 1e-3, "{merged} is not {whole}");
        }
    }
}
