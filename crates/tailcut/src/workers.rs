//! Handlers on worker threads, behind the dispatcher; short ones on the thread that serves.

use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tailcut_net::dispatch::{Config as DispatchConfig, Dispatcher, InPlace};

use crate::error::Error;
use crate::leader::Leadership;
use crate::request::{Request, Task};
use crate::server::Server;

impl Server {
    /// Answers requests on worker threads until it is stopped: a number of them, or a
    /// [`DispatchConfig`].
    ///
    /// One queue feeds them: a request goes to the worker that has the fewest, over lanes without
    /// locks, and no worker has more than the hand-off's cost asks for, which is measured (JBSQ;
    /// [`Bound`](tailcut_net::dispatch::Bound)). A request that a worker has not begun goes to
    /// another that is idle. A request that is cancelled or whose deadline passes while it waits
    /// does not run; one that runs is not interrupted, but can ask ([`Request::is_cancelled`]).
    /// This returns when the handlers that run have returned.
    ///
    /// Requests of types that are shorter than a hand-off, as measured over thousands of them, run
    /// on the thread that receives them. Where one of them takes long after all, another thread
    /// takes over from that one within about 2 ms: so there may be one handler more at once than
    /// there are workers. Where that must not be, [`InPlace::Never`]
    /// ([`DispatchConfig::in_place`]).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the socket has become useless or no thread is to be had, of kind
    /// InvalidInput for a configuration that cannot be.
    pub fn run_workers(
        &mut self,
        config: impl Into<DispatchConfig>,
        handler: impl Fn(Request<'_>) + Send + Sync,
    ) -> Result<(), Error> {
        let mut config = config.into();
        config.types = self.told_types().unwrap_or(config.types);
        self.set_workers(config.workers);
        let (waker, outbox) = (self.waker(), self.outbox().clone());
        let run = |task: &mut Task| {
            outbox.guard(|| handler(Request::at_worker(task)));
        };
        let work = |task: &mut Task| {
            // What nobody waits for is left without a verdict: its endpoint has given it up, or is
            // about to.
            if task.as_ref().is_some_and(|job| job.is_wanted(Clock.now())) {
                run(task);
            }
        };
        // A deputy could not take over from a thread that gives its core to nobody.
        let is_in_place = config.in_place != InPlace::Never && !affinity::is_realtime();
        let leadership = Leadership::new(&run, self.outbox().clone());
        std::thread::scope(|scope| {
            let crew = Dispatcher::start(scope, &config, &waker, &work)?;
            if is_in_place { leadership.serve(scope, self, crew) } else { self.run_crew(crew) }
        })
    }
}
