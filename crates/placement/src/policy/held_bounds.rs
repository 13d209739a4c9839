//! The bound of `jbsq:auto` by how many requests are held.
//!
//! A server of W workers that has W requests idles for D after each conclusion, where D is the way
//! there and back, and of every E more that it has, E conclusions within D cost nothing. How many a
//! server concludes within D is about Poisson with the mean L = W D/S, where S is a service. So the
//! E-th request more saves W workers some S L^E / E! in all, S L^E / (E! W) each, and all that are
//! held are served earlier by that over the M W workers of M servers. It costs a part of what
//! passes until a worker there is free, S/W, because another server may be idle before: C V of it,
//! where V is how much services vary, since what is left of one when another comes grows with its
//! variance. It pays, then, from
//!
//! `Q = C V M W E! / L^E`
//!
//! held requests on. Few are worth a request more where the way is long or services are alike, and
//! many, or none ever, where the way is short.
//!
//! Invariant: the bound grows with what is held, from W to W and [`MORE_MAX`].

/// The bound by how many requests are held.
#[derive(Clone, Debug)]
pub struct HeldBounds {
    /// Measurements from which it was derived.
    basis: Basis,
    /// Held requests from which on a server may have one more than its workers, two more, and so
    /// on; ascending.
    more_from: [u32; MORE_MAX],
    /// As many of these as there are.
    more_count: usize,
    /// The held requests for which `bound` holds: from the first, below the second.
    range: (u32, u32),
    /// The bound.
    bound: u32,
}

/// Measurements from which bounds are derived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// Servers that take requests, at least 1.
    pub servers: u32,
    /// Workers of each, at least 1.
    pub workers: u32,
    /// Requests that a busy server concludes within the way there and back.
    pub way: f64,
    /// Spread of services, over exponential ones.
    pub spread: f64,
}

impl Basis {
    /// True if bounds derived from the other serve as well.
    fn is_near(&self, other: &Self) -> bool {
        let is_near = |one: f64, other: f64| (one - other).abs() * NEAR <= other;
        let is_near = is_near(self.way, other.way) && is_near(self.spread, other.spread);
        (self.servers, self.workers) == (other.servers, other.workers) && is_near
    }
}

impl HeldBounds {
    /// The bounds that follow.
    pub fn new(basis: Basis) -> Self {
        let (servers, workers) = (f64::from(basis.servers), f64::from(basis.workers));
        let way = basis.way.max(WAY_MIN);
        let cost = COST * basis.spread.powi(2).clamp(VARIES_MIN, VARIES_MAX);
        let mut from = cost * servers * workers;
        let (mut more_from, mut more_count) = ([HELD_MAX; MORE_MAX], 0);
        for (index, place) in more_from.iter_mut().enumerate() {
            let more = index as f64 + 1.0;
            from *= more / way;
            if more > way && from > f64::from(HELD_MAX) {
                break;
            }
            *place = from.ceil() as u32;
            more_count += 1;
        }
        // Up to L each one more pays sooner than the one before.
        for index in (1..more_count).rev() {
            more_from[index - 1] = more_from[index - 1].min(more_from[index]);
        }
        Self { basis, more_from, more_count, range: (0, 0), bound: 0 }
    }

    /// Derives them anew, unless that would hardly make a difference; true if it has.
    pub fn update(&mut self, basis: Basis) -> bool {
        let is_new = !basis.is_near(&self.basis);
        if is_new {
            *self = Self::new(basis);
        }
        is_new
    }

    /// The bound while so many requests are held, those that are about to be placed among them.
    #[inline]
    pub fn at(&mut self, held: usize) -> u32 {
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        if held < self.range.0 || held >= self.range.1 {
            self.find(held);
        }
        self.bound
    }

    #[inline(never)]
    fn find(&mut self, held: u32) {
        let more_from = &self.more_from[..self.more_count];
        let more = more_from.partition_point(|&from| from <= held);
        let from = more.checked_sub(1).map_or(0, |index| more_from[index]);
        self.range = (from, more_from.get(more).copied().unwrap_or(u32::MAX));
        self.bound = self.basis.workers + more as u32;
    }
}

/// Most requests that a server may have besides one for each worker: what a server of 1 us does in
/// the longest round trip of a datacenter.
const MORE_MAX: usize = 256;

/// Cost of a request that waits at a server where services are exponential, in mean services, as
/// found by simulation (`tailcut sim reproduce jbsq-auto`): with less, a p99 suffers from requests
/// that wait behind long ones, with more, from servers that idle.
const COST: f64 = 0.04;

/// The least that services are taken to vary: where they are equal, servers still pause.
const VARIES_MIN: f64 = 0.25;

/// The most: more is not of services but of servers that wait for cores.
const VARIES_MAX: f64 = 2.0;

/// No more are ever held.
const HELD_MAX: u32 = 1 << 31;

/// A way that is shorter is nothing.
const WAY_MIN: f64 = 1e-6;

/// A way that is within one part of so many is no other.
const NEAR: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SIXTEEN: Basis = Basis { servers: 16, workers: 1, way: 0.02, spread: 1.0 };

    fn check(basis: Basis, bounds: &[(usize, u32)]) {
        let mut held_bounds = HeldBounds::new(basis);
        for &(held, bound) in bounds {
            assert_eq!(held_bounds.at(held), bound, "{held} held, {basis:?}");
        }
    }

    #[test]
    fn a_short_way_is_worth_a_request_where_many_are_held() {
        // C M / L = 0.04 x 16 / 0.02; two more want 2 C M / L^2.
        check(SIXTEEN, &[(1, 1), (31, 1), (32, 2), (3_199, 2), (3_200, 3), (1, 1)]);
        check(Basis { servers: 2, ..SIXTEEN }, &[(3, 1), (4, 2), (399, 2), (400, 3)]);
    }

    #[test]
    fn services_that_are_alike_hide_the_way_sooner() {
        check(Basis { spread: 0.0, ..SIXTEEN }, &[(7, 1), (8, 2)]);
        check(Basis { spread: 1.3, ..SIXTEEN }, &[(54, 1), (55, 2)]);
        check(Basis { spread: 9.0, ..SIXTEEN }, &[(63, 1), (64, 2)]);
    }

    #[test]
    fn a_long_way_is_filled_at_once() {
        // Poisson with the mean of 20, and the deviation of 4.5.
        check(Basis { way: 20.0, ..SIXTEEN }, &[(1, 52), (16, 55), (4_096, 60)]);
        check(Basis { way: 2.0, ..SIXTEEN }, &[(1, 5), (16, 7), (4_096, 11)]);
        check(Basis { way: 1e6, ..SIXTEEN }, &[(1, 257), (4_096, 257)]);
    }

    #[test]
    fn each_worker_has_one_first() {
        let basis = Basis { servers: 4, workers: 16, way: 0.32, spread: 1.0 };
        check(basis, &[(1, 16), (7, 16), (8, 17)]);
        check(Basis { workers: 1, way: 0.0, ..SIXTEEN }, &[(1, 1), (4_096, 1)]);
    }

    #[test]
    fn bounds_grow_with_what_is_held() {
        for way in [0.001, 0.1, 1.0, 7.0, 300.0] {
            let mut bounds = HeldBounds::new(Basis { way, ..SIXTEEN });
            let found: Vec<u32> = (0..5_000).map(|held| bounds.at(held)).collect();
            assert!(found.is_sorted(), "{way}");
            assert!((1..=1 + MORE_MAX as u32).contains(&found[4_999]), "{way}");
        }
    }

    #[test]
    fn noise_derives_nothing_anew() {
        let mut bounds = HeldBounds::new(SIXTEEN);
        assert!(!bounds.update(Basis { way: 0.021, spread: 0.97, ..SIXTEEN }));
        assert!(bounds.update(Basis { way: 0.022, ..SIXTEEN }));
        assert!(bounds.update(Basis { way: 0.022, workers: 2, ..SIXTEEN }));
        assert_eq!(bounds.at(1), 2);
    }
}
