//! The clients: when they send, and which responses are news to them.

use tailcut_measure::arrivals::{Arrivals, ArrivalsError, Process};
use tailcut_measure::distribution::{Distribution, Form};
use tailcut_measure::generator::generator;
use tailcut_measure::quantity::Unit;

use super::Sending;

/// Departures of all clients, in order; ps.
#[derive(Clone, Debug)]
pub(super) struct Departures {
    /// One for each client.
    schedules: Vec<Arrivals>,
    /// The next departure of each.
    next_ps: Vec<u64>,
}

impl Departures {
    /// Departures at `rate_per_s` in all. Client i draws from stream `stream + i` of `seed`.
    pub(super) fn new(
        sending: Sending,
        rate_per_s: f64,
        seed: u64,
        stream: u64,
    ) -> Result<Self, ArrivalsError> {
        let (clients, process) = match sending {
            Sending::Poisson => (1, Process::Poisson),
            Sending::Artifact => {
                let gaps = Distribution::new(Form::Uniform { max: 1.0 }, Unit::Plain)
                    .expect("the constant is in range");
                (2, Process::Shaped(gaps))
            }
        };
        // Arrivals at a rate per millisecond tell the time in thousandths of a nanosecond: ps.
        let rate_per_ms = rate_per_s / 1e3 / clients as f64;
        let schedule =
            |client| Arrivals::new(process.clone(), rate_per_ms, generator(seed, stream + client));
        let mut schedules = (0..clients).map(schedule).collect::<Result<Vec<_>, _>>()?;
        let next_ps = schedules.iter_mut().map(Arrivals::next_ns).collect();
        Ok(Self { schedules, next_ps })
    }
}

impl Iterator for Departures {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (client, &sent_ps) =
            self.next_ps.iter().enumerate().min_by_key(|&(_, sent_ps)| sent_ps)?;
        self.next_ps[client] = self.schedules[client].next_ns();
        Some(sent_ps)
    }
}

/// A bit for each request that was answered, as the artifact's clients and coordinator keep it.
#[derive(Clone, Debug)]
pub(super) struct Answered(Vec<u64>);

impl Answered {
    /// Nothing answered, of the ids up to `id_max`.
    pub(super) fn new(id_max: u32) -> Self {
        Self(vec![0; id_max as usize / 64 + 1])
    }

    /// Notes a response; whether it is the first of its request.
    pub(super) fn is_first(&mut self, id: u32) -> bool {
        let (word, bit) = (&mut self.0[id as usize / 64], 1 << (id % 64));
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean gap and its squared coefficient of variation.
    fn check_gaps(sending: Sending, squared_variation: f64) {
        // Five standard errors of 200,000 gaps are 1.2 %.
        const COUNT: usize = 200_000;
        let times: Vec<u64> = Departures::new(sending, 2e6, 1, 0).unwrap().take(COUNT).collect();
        assert!(times.is_sorted());
        let mean_ps = times[COUNT - 1] as f64 / COUNT as f64;
        assert!((mean_ps / 500_000.0 - 1.0).abs() < 0.012, "{mean_ps}");
        let spread = times
            .windows(2)
            .map(|pair| ((pair[1] - pair[0]) as f64 / mean_ps - 1.0).powi(2))
            .sum::<f64>()
            / COUNT as f64;
        assert!((spread / squared_variation - 1.0).abs() < 0.03, "{spread}");
    }

    #[test]
    fn poisson_gaps_vary_as_much_as_their_mean() {
        check_gaps(Sending::Poisson, 1.0);
    }

    /// Two renewal streams of gaps U(0, 4): the gap of both exceeds t with probability (1 - t/4)^2
    /// (1 - t/4) (one is at the start of a gap, the other anywhere in one), so its mean is 1 and
    /// its second moment 8/5.
    #[test]
    fn two_clients_with_uniform_gaps_are_smoother() {
        check_gaps(Sending::Artifact, 0.6);
    }

    #[test]
    fn only_one_response_is_the_first() {
        let mut answered = Answered::new(64);
        assert_eq!([64, 63, 64, 63].map(|id| answered.is_first(id)), [true, true, false, false]);
    }
}
