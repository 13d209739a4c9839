//! Endpoints of R2P2 and of Homa, each on a port of its own.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::driver::Driver;
use tailcut_net::entropy;
use tailcut_net::stamps::StampConfig;
use tailcut_net::udp::Coalescing;
use tailcut_proto::endpoint::Endpoint;
use tailcut_proto::{homa, r2p2};

use crate::network;

/// What endpoints speak, and how.
#[derive(Clone, Debug)]
pub enum Speech {
    /// R2P2.
    R2p2(Box<r2p2::Config>),
    /// Homa inside UDP.
    Homa(Box<homa::Config>),
    /// Homa directly over IP.
    HomaIp(Box<homa::Config>),
}

impl Speech {
    /// Adds an endpoint to a driver, with a port at `address`. What only its port knows is filled
    /// in: credit, the port of its calls, a secret.
    pub fn open(
        &self,
        driver: &mut Driver<Endpoint>,
        address: SocketAddr,
        coalescing: Coalescing,
        stamps: StampConfig,
    ) -> Result<()> {
        let mut port = match self {
            Self::R2p2(_) => AnyDatapath::from(network::bind(address, coalescing)?),
            Self::Homa(_) => AnyDatapath::from(network::bind_homa(address, coalescing)?),
            Self::HomaIp(_) => AnyDatapath::from(network::bind_homa_ip(address)?),
        };
        port.set_stamps(stamps).context("cannot ask for timestamps")?;
        let secret = entropy::secret().context("cannot draw a secret")?;
        let now = driver.clock().now();
        let endpoint: Endpoint = match self {
            Self::R2p2(config) => {
                let credit_bytes = network::credit_bytes(&port)?;
                r2p2::Endpoint::new(
                    now,
                    r2p2::Config { secret, credit_bytes, ..(**config).clone() },
                )
                .into()
            }
            Self::Homa(config) => {
                homa::Endpoint::new(now, homa::Config { secret, ..(**config).clone() }).into()
            }
            Self::HomaIp(config) => {
                let (client_port, framing) = (port.local_address().port(), homa::Framing::IP);
                homa::Endpoint::new(
                    now,
                    homa::Config { secret, client_port, framing, ..(**config).clone() },
                )
                .into()
            }
        };
        driver.add(endpoint, port, None);
        Ok(())
    }
}
