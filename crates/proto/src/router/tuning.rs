//! Fields of a router's configuration that may change while it runs.
//!
//! | field | what was there before the change |
//! |---|---|
//! | `upstreams` | what others have placed here is still accounted for |
//! | `queue_len_max` | requests held beyond it stay held; none comes to them |
//! | `hold_ns_max`, `lease_ns` | requests that are held or leased keep their ends |
//! | `probe_interval_ns` | the probes that are due next come when they were due |
//! | `silent_ns`, `silent_ns_max`, `outliers` | servers that are out stay out until they answer, or are tried again |
//!
//! The policy, the way of forwarding and the sizes of tables are what a router is made of: they
//! stay.

use super::Router;
use super::config::{RouterConfig, RouterError};

impl Router {
    /// Takes over from `config` what may change while a router runs, as the module says; the other
    /// fields are not looked at but for what is wrong with them.
    ///
    /// # Errors
    /// When a field is out of its range. Then nothing has changed.
    pub fn tune(&mut self, config: &RouterConfig) -> Result<(), RouterError> {
        config.check()?;
        let RouterConfig { queue_len_max, hold_ns_max, lease_ns, .. } = *config;
        let RouterConfig { probe_interval_ns, silent_ns, silent_ns_max, outliers, .. } = *config;
        self.config.upstreams.clone_from(&config.upstreams);
        (self.config.queue_len_max, self.config.hold_ns_max) = (queue_len_max, hold_ns_max);
        (self.config.lease_ns, self.config.probe_interval_ns) = (lease_ns, probe_interval_ns);
        (self.config.silent_ns, self.config.silent_ns_max) = (silent_ns, silent_ns_max);
        self.config.outliers = outliers;
        self.queues.set_queue_len_max(queue_len_max);
        self.outbox.set_held_len_max(queue_len_max);
        Ok(())
    }
}
