//! The model that answers for a system, and its answer. Policies are known by the
//! [`QueueModel`] that their entry in the registry names.
//!
//! | policy in a group of U servers | service | model |
//! |---|---|---|
//! | any, where U is 1; `random`, `jsq:1` | any | M/G/1: M/M/1 where it is exponential, M/D/1 where it is fixed |
//! | `rr` | exponential | E_U/M/1 |
//! | `rr` | fixed | M/D/U, sample path for sample path |
//! | `jbsq:1` | exponential, fixed | M/M/U, M/D/U |
//! | `jbsq:N` | exponential | the chain of the bounds, up to the states that [`Jbsq`] solves |
//!
//! Everything else has no exact answer here, and neither have delays, unequal servers or jitter.

use std::num::NonZeroU32;

use tailcut_placement::policy::{PolicySpec, QueueModel};

use super::{EkM1, Jbsq, MDk, MG1, MMk, QueueingError, Sojourn, check_count, check_load};
use crate::distribution::{Distribution, Form};

/// Groups of servers behind a Poisson stream: a request goes to one of the groups, all equally
/// likely, and the policy places it among the servers of that group. The layout "4x4" is 4 groups
/// of 4 servers.
#[derive(Clone, Copy, Debug)]
pub struct System<'a> {
    /// Groups, each with a policy of its own.
    pub groups: usize,
    /// Servers in each group; they serve in the order in which they are given requests.
    pub servers: usize,
    /// Places requests within a group, without delay.
    pub policy: PolicySpec,
    /// Service time of every server.
    pub service: &'a Distribution,
    /// The share of the servers' capacity that the arrivals need.
    pub load: f64,
}

/// The exact answer for a system.
pub struct Exact {
    /// The model's name, for people: "M/M/16".
    pub model: String,
    /// The sojourn time, in units of the mean service time.
    pub sojourn: Box<dyn Sojourn + Send + Sync>,
}

/// The sojourn time of `system`, where theory has it; `None` where it has not, or where its model
/// is too large to solve.
///
/// # Errors
///
/// No group, no server, a load outside of (0, 1), or a service whose mean is zero or infinite.
pub fn exact(system: &System<'_>) -> Result<Option<Exact>, QueueingError> {
    check_count("the number of groups", system.groups)?;
    check_count("the number of servers", system.servers)?;
    check_load(system.load)?;
    if !system.service.mean().is_some_and(|mean| mean > 0.0) {
        return Err(QueueingError::Service);
    }
    match solve(system) {
        Err(QueueingError::TooLarge(_)) => Ok(None),
        answer => answer,
    }
}

fn solve(system: &System<'_>) -> Result<Option<Exact>, QueueingError> {
    let &System { servers, policy, service, load, .. } = system;
    let answer = match (policy.model(), Shape::of(service)) {
        (model, shape) if servers == 1 || model == QueueModel::Independent => {
            single(shape, service, load)?
        }
        (QueueModel::Cyclic, Shape::Exponential) => {
            Exact::new(format!("E{servers}/M/1"), EkM1::new(servers, load)?)
        }
        (QueueModel::Cyclic, Shape::Fixed) => fixed(servers, load)?,
        (QueueModel::Bounded(Some(NonZeroU32::MIN)), Shape::Fixed) => fixed(servers, load)?,
        (QueueModel::Bounded(Some(NonZeroU32::MIN)), Shape::Exponential) => {
            exponential(servers, load)?
        }
        (QueueModel::Bounded(Some(bound)), Shape::Exponential) => Exact::new(
            format!("JBSQ({bound}) chain"),
            Jbsq::new(servers, bound.get() as usize, load)?,
        ),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn single(shape: Shape, service: &Distribution, load: f64) -> Result<Exact, QueueingError> {
    match shape {
        Shape::Exponential => exponential(1, load),
        Shape::Fixed => fixed(1, load),
        Shape::General => Ok(Exact::new("M/G/1".to_owned(), MG1::new(service, load)?)),
    }
}

fn exponential(servers: usize, load: f64) -> Result<Exact, QueueingError> {
    Ok(Exact::new(format!("M/M/{servers}"), MMk::new(servers, load)?))
}

fn fixed(servers: usize, load: f64) -> Result<Exact, QueueingError> {
    Ok(Exact::new(format!("M/D/{servers}"), MDk::new(servers, load)?))
}

impl Exact {
    fn new(model: String, sojourn: impl Sojourn + Send + Sync + 'static) -> Self {
        Self { model, sojourn: Box::new(sojourn) }
    }
}

/// Shape of a service, as closed forms ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Exponential,
    Fixed,
    General,
}

impl Shape {
    fn of(service: &Distribution) -> Self {
        if matches!(service.form(), Form::Exponential { .. }) && service.offset() == 0.0 {
            return Self::Exponential;
        }
        // However a constant is written, nothing is below or above it.
        if service.quantile(0.0) == service.quantile(1.0) { Self::Fixed } else { Self::General }
    }
}
