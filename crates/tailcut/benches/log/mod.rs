//! A log at WARN, the command's default, that is switched on and off while calls run.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the log on until it is dropped.
pub(crate) struct Listening;

impl Listening {
    /// Switches it on.
    pub(crate) fn begin() -> Self {
        static SET: Once = Once::new();
        SET.call_once(|| tracing::subscriber::set_global_default(Warnings).expect("no other log"));
        switch(true);
        Self
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        switch(false);
    }
}

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Off, it is to the library as none at all.
fn switch(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// Takes warnings, and writes nothing.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, line: &Metadata<'_>) -> bool {
        IS_ON.load(Ordering::Relaxed) && *line.level() <= LevelFilter::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if IS_ON.load(Ordering::Relaxed) { LevelFilter::WARN } else { LevelFilter::OFF })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
