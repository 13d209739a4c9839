//! Arrivals: the requests of a seed, which no policy can change.
//!
//! Invariant: times never decrease and do not drift, because the part of a picosecond that a time
//! leaves out is carried to the next. A jitter of 0 draws the same services as none.

use rand::RngExt;
use rand_distr::Exp1;
use tailcut_measure::distribution::{Distribution, Form};
use tailcut_measure::generator::{Generator, generator};

use super::system::{System, SystemError};
use super::trace::Replay;
use super::{ARRIVALS, JITTER, SERVICES};

/// A request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Arrival time at the router; picoseconds from the start.
    pub arrived_ps: u64,
    /// Service time on a worker of speed 1; picoseconds.
    pub service_ps: u64,
}

/// The requests of a system under a seed, in the order of their arrival. It never ends.
#[derive(Clone, Debug)]
pub struct Requests {
    /// Gaps in picoseconds.
    gaps: Gaps,
    /// The last arrival, whole picoseconds.
    whole_ps: u64,
    /// The rest of the last arrival's time, in `[0, 1)` picoseconds.
    fraction_ps: f64,
    arrivals: Generator,
    /// Services in picoseconds.
    service: Samples,
    services: Generator,
    /// Probability and factor of a longer service, where there is one.
    jitter: Option<(f64, f64)>,
    jitters: Generator,
}

impl System {
    /// The requests that arrive under `seed`, whatever the policy does with them.
    ///
    /// # Errors
    ///
    /// Why the system has no answer, see [`System::check`].
    pub fn requests(&self, seed: u64) -> Result<Requests, SystemError> {
        self.check()?;
        let mut arrivals = generator(seed, ARRIVALS);
        let gaps = match &self.trace {
            Some(trace) => {
                Gaps::Traced(trace.replay(self.gap_scale_ps(trace.mean()), &mut arrivals))
            }
            None => {
                let (gaps, gap_scale_ps) = self.gaps()?;
                Gaps::Drawn(Samples::new(gaps, gap_scale_ps))
            }
        };
        Ok(Requests {
            gaps,
            whole_ps: 0,
            fraction_ps: 0.0,
            arrivals,
            service: Samples::new(self.service.clone(), crate::PS_PER_NS as f64),
            services: generator(seed, SERVICES),
            jitter: Some((self.jitter.probability, self.jitter.factor))
                .filter(|&(probability, _)| probability > 0.0),
            jitters: generator(seed, JITTER),
        })
    }
}

impl Requests {
    /// The next request.
    #[inline]
    pub(super) fn draw(&mut self) -> Request {
        let arrived_ps = self.arrival_ps();
        Request { arrived_ps, service_ps: self.service_ps() }
    }

    #[inline]
    fn arrival_ps(&mut self) -> u64 {
        let gap_ps = match &mut self.gaps {
            Gaps::Drawn(gaps) => gaps.sample(&mut self.arrivals),
            Gaps::Traced(gaps) => gaps.draw(),
        };
        let advance_ps = self.fraction_ps + gap_ps;
        let whole_ps = whole(advance_ps);
        self.fraction_ps = advance_ps - whole_ps as f64;
        self.whole_ps = self.whole_ps.saturating_add(whole_ps).min(TIME_MAX_PS);
        self.whole_ps
    }

    #[inline]
    fn service_ps(&mut self) -> u64 {
        let mut service_ps = self.service.sample(&mut self.services);
        if let Some((probability, factor)) = self.jitter
            && self.jitters.random::<f64>() < probability
        {
            service_ps *= factor;
        }
        whole(service_ps + 0.5)
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        Some(self.draw())
    }
}

/// The source of gaps between arrivals.
#[derive(Clone, Debug)]
enum Gaps {
    Drawn(Samples),
    Traced(Replay),
}

/// A distribution times a constant. The two forms of most simulations are drawn without its general
/// machinery, which costs as much as all else that a request needs; the samples are the same.
#[derive(Clone, Debug)]
enum Samples {
    Constant(f64),
    Exponential(f64),
    Other(Distribution, f64),
}

impl Samples {
    fn new(distribution: Distribution, scale: f64) -> Self {
        match *distribution.form() {
            Form::Fixed { value } => Self::Constant((distribution.offset() + value) * scale),
            Form::Exponential { mean } if distribution.offset() == 0.0 => {
                Self::Exponential(mean * scale)
            }
            _ => Self::Other(distribution, scale),
        }
    }

    #[inline]
    fn sample(&self, rng: &mut Generator) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Exponential(mean) => mean * rng.sample::<f64, _>(Exp1),
            Self::Other(distribution, scale) => distribution.sample(rng) * scale,
        }
    }
}

/// The whole part of a time; it saturates. Signed, because the unsigned conversion is three times
/// as long.
#[inline]
fn whole(time_ps: f64) -> u64 {
    (time_ps as i64) as u64
}

/// Latest arrival time, so that the delays after it fit: 107 days.
const TIME_MAX_PS: u64 = u64::MAX / 2;
