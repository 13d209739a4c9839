//! A server as gRPC's programs know it: services, an address, and a future that serves.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tailcut::{Error, ServerHandle};
use tokio::runtime::Handle;

use crate::service::{Service, Services};

/// Serves services by tasks of the runtime that it is awaited in. A thread of its own drives the
/// socket.
#[derive(Debug)]
pub struct Server {
    services: Services,
    running_max: u32,
}

impl Server {
    /// A server without services.
    pub fn builder() -> Self {
        Self { services: Services::new(), running_max: RUNNING_MAX }
    }

    /// With one service more.
    ///
    /// # Panics
    ///
    /// As [`Services::add_service`].
    #[must_use]
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.services = self.services.add_service(service);
        self
    }

    /// Number of handlers that may run at once; requests beyond wait for their turn. Default 1024.
    #[must_use]
    pub fn running_max(mut self, running_max: u32) -> Self {
        self.running_max = running_max;
        self
    }

    /// Serves at an address. Dropping the future stops the server.
    ///
    /// # Errors
    ///
    /// As [`tailcut::Server::bind`] and [`tailcut::Server::run_async`].
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub async fn serve(self, address: SocketAddr) -> Result<(), Error> {
        self.serve_with_shutdown(address, pending()).await
    }

    /// Serves at an address until `signal` is there; what runs then is answered, within five
    /// seconds.
    ///
    /// # Errors
    ///
    /// As [`Server::serve`].
    ///
    /// # Panics
    ///
    /// As [`Server::serve`].
    pub async fn serve_with_shutdown(
        self,
        address: SocketAddr,
        signal: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.serve_on(tailcut::Server::bind(address)?, signal).await
    }

    /// Serves by a server that has been bound, with options of its own, until `signal` is there.
    ///
    /// # Errors
    ///
    /// As [`tailcut::Server::run_async`].
    ///
    /// # Panics
    ///
    /// As [`Server::serve`].
    pub async fn serve_on(
        self,
        mut server: tailcut::Server,
        signal: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let stop = StopOnDrop(server.stop_handle());
        let (runtime, services) = (Handle::current(), Arc::new(self.services));
        let mut serving = tokio::task::spawn_blocking(move || {
            services.serve_tasks(&mut server, self.running_max, &runtime)
        });
        let mut signal = pin!(signal);
        let mut is_stopped = false;
        let ended = poll_fn(|context| {
            if !is_stopped && signal.as_mut().poll(context).is_ready() {
                is_stopped = true;
                stop.0.stop();
            }
            Pin::new(&mut serving).poll(context)
        });
        ended.await.unwrap_or_else(|error| Err(Error::Io(io::Error::other(error))))
    }
}

/// Stops a server whose future is dropped.
struct StopOnDrop(ServerHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Handlers that run at once where nobody says.
const RUNNING_MAX: u32 = 1024;
