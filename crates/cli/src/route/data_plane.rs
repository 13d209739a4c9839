//! `--dataplane xdp`: the program at an interface that places requests before the router does, and
//! what must hold for it.
//!
//! It is pinned in a folder of its own for each interface, so that a router that is killed leaves
//! it placing, and the next one takes it over. A router that ends by itself detaches it, unless it
//! is to leave it too.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use tailcut_net::datapath::AnyDatapath;
use tailcut_net::datapath::udp::{SegmentedSend, UdpConfig};
use tailcut_net::datapath::xdp::{self as datapath, Lanes, XdpPort};
use tailcut_net::ebpf::router::{COUNT_NAMES, SERVERS_MAX, XdpConfig, XdpRouter};
use tailcut_net::ebpf::{Mode, interface_index};
use tailcut_net::raw::RawPort;
use tailcut_proto::netclone::SwitchConfig;
use tailcut_proto::node::Time;
use tailcut_proto::router::Router;
use tailcut_proto::sealed::TRAILER_LEN;

use super::cloner_plane::ClonerPlane;
use super::{Args, FilterPlace, policy};
use crate::counters::Counters;

/// What places requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DataPlane {
    /// The router itself, over sockets
    Sockets,
    /// A program in the kernel, before its network stack (XDP); the router has what that cannot
    /// place
    Xdp,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum XdpMode {
    /// In the interface's driver
    Native,
    /// Behind the driver: on every interface, and slower on a fast one
    Generic,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DataPlaneFlags {
    /// What places requests. `xdp` needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, keeps the client
    /// as the source, and knows random, rr, jsq:2, jbsq:N and jbsq:auto; with --transport netclone
    /// both of its policies
    #[arg(long, value_name = "PLANE", default_value = "sockets")]
    pub(super) dataplane: DataPlane,
    /// The interface that requests come in by, for --dataplane xdp
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Where the program runs
    #[arg(long, value_name = "MODE", default_value = "native")]
    xdp_mode: XdpMode,
    /// If XDP is not available, say why and continue without it
    #[arg(long)]
    xdp_or_sockets: bool,
    /// At the end leave the program where it is: it places on until the next router on the
    /// interface takes it over
    #[arg(long)]
    xdp_keep: bool,
}

/// An attached program; detached when it is dropped, unless it is to stay.
pub(super) struct Plane {
    xdp: XdpRouter,
    /// It stays. Until the router runs, one that an earlier router has left does, so that it
    /// survives a start that fails.
    is_kept: bool,
    /// By which the client is kept as the source, until the router has it.
    raw: Option<RawPort>,
    /// The way to the router past the kernel's stack, until its port has it; or why there is none.
    lanes: Option<io::Result<Lanes>>,
    /// Nobody else has the interface while this is bound.
    _lock: UnixListener,
}

impl DataPlaneFlags {
    /// Refuses what does not go together, for a router that listens at `listen`, where that is
    /// known.
    pub(super) fn check(&self, args: &Args, listen: Option<SocketAddr>) -> Result<()> {
        self.check_with(listen, |listen| check(args, listen))
    }

    /// As [`DataPlaneFlags::check`], for a switch of NetClone.
    pub(super) fn check_cloner(&self, listen: Option<SocketAddr>) -> Result<()> {
        ensure!(!self.xdp_keep, "NetClone's program ends with its process: leave --xdp-keep out");
        self.check_with(listen, check_address)
    }

    fn check_with(
        &self,
        listen: Option<SocketAddr>,
        check: impl FnOnce(SocketAddr) -> Result<()>,
    ) -> Result<()> {
        match (self.dataplane, &self.interface) {
            (DataPlane::Sockets, Some(_)) => bail!("--interface is for --dataplane xdp"),
            (DataPlane::Sockets, None) if self.xdp_keep => {
                bail!("--xdp-keep is for --dataplane xdp")
            }
            (DataPlane::Sockets, None) => Ok(()),
            // Then it goes on without.
            (DataPlane::Xdp, _) if self.xdp_or_sockets => Ok(()),
            (DataPlane::Xdp, None) => bail!(NO_INTERFACE),
            (DataPlane::Xdp, Some(_)) => listen.map_or(Ok(()), check),
        }
    }

    /// The data plane with the most room, of those that it may come to.
    pub(super) fn widest(&self) -> DataPlane {
        if self.xdp_or_sockets { DataPlane::Sockets } else { self.dataplane }
    }

    /// Attaches the program that is to be before a router, if it is asked for. A new one has no
    /// servers yet.
    pub(super) fn open(&self, args: &Args, listen: SocketAddr) -> Result<Option<Plane>> {
        let plane = self.open_with(|| self.attach(args, listen))?;
        if plane.is_none() {
            self.clear();
        }
        Ok(plane)
    }

    /// The router runs from now on.
    pub(super) fn settle(&self, plane: &mut Plane) {
        plane.is_kept = self.xdp_keep;
    }

    /// Without XDP: the program of an earlier router would take the requests. That of the interface
    /// goes; of others people are told.
    fn clear(&self) {
        let Ok(space) = space() else { return };
        let left = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        for folder in left.filter_map(|entry| entry.file_name().into_string().ok()) {
            let Some(name) = folder.strip_suffix(&space) else { continue };
            // A router that runs has it.
            let Ok(_lock) = lock(name) else { continue };
            let path = Path::new(FOLDER).join(&folder);
            let is_own = self.interface.as_deref().is_some_and(|own| file_name(own) == name);
            if !is_own || XdpRouter::remove_pinned(&path).is_err() {
                let path = path.display();
                tracing::warn!(%path, "an earlier router's XDP program is still attached, and takes requests: remove this folder, or take --dataplane xdp");
            }
        }
    }

    /// Puts NetClone's switch in the kernel before that of user space, if it is asked for.
    pub(super) fn open_cloner(
        &self,
        config: &SwitchConfig,
        listen: SocketAddr,
    ) -> Result<Option<ClonerPlane>> {
        self.open_with(|| {
            let interface = self.interface()?;
            let at = (interface_index(interface)?, self.mode());
            let lock = lock(&file_name(interface))?;
            let plane = ClonerPlane::attach(config, listen, at, lock);
            plane.with_context(|| format!("no XDP on {interface}"))
        })
    }

    fn open_with<T>(&self, attach: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        if self.dataplane == DataPlane::Sockets {
            return Ok(None);
        }
        match attach() {
            Err(error) if self.xdp_or_sockets => {
                eprintln!("tailcut: no XDP, the router goes on without: {error:#}");
                Ok(None)
            }
            plane => plane.map(Some),
        }
    }

    /// The router's port, which takes by AF_XDP what the program does not place. Where that cannot
    /// be had, it comes by the kernel's stack.
    pub(super) fn put_behind(&self, plane: &mut Plane, port: AnyDatapath) -> Result<AnyDatapath> {
        let AnyDatapath::Udp(mut port) = port else {
            bail!("--dataplane xdp has the interface: leave --datapath out");
        };
        match plane.lanes.take().expect("a router has one port") {
            Ok(lanes) => {
                // A batch would come past the stack as one datagram.
                port.set_segmented_send(SegmentedSend::Off)?;
                Ok(XdpPort::behind(lanes, port, UdpConfig::default())?.into())
            }
            Err(error) => {
                tracing::warn!(%error, "no AF_XDP: what XDP does not place comes by the kernel's stack");
                Ok(port.into())
            }
        }
    }

    fn interface(&self) -> Result<&str> {
        self.interface.as_deref().context(NO_INTERFACE)
    }

    fn mode(&self) -> Mode {
        if self.xdp_mode == XdpMode::Native { Mode::Native } else { Mode::Generic }
    }

    fn attach(&self, args: &Args, listen: SocketAddr) -> Result<Plane> {
        let interface = self.interface()?;
        check(args, listen)?;
        let index = interface_index(interface)?;
        check_forwarding(interface, listen)?;
        let _lock = lock(&file_name(interface))?;
        let raw = Some(RawPort::open(listen.ip())?);
        let folder = Path::new(FOLDER).join(file_name(interface) + &space()?);
        let xdp =
            XdpRouter::load_pinned(&folder).map_err(|error| explain_folder(error, &folder))?;
        let config = datapath::XdpConfig {
            mode: Some(self.mode()),
            ..datapath::XdpConfig::new(interface.parse().map_err(anyhow::Error::msg)?)
        };
        // Queues that a router before has left may take a while: what it has pinned places on.
        let lanes = Some(Lanes::behind(&xdp, listen, config));
        let mut plane = Plane { xdp, is_kept: false, raw, lanes, _lock };
        let policy = policy(args);
        let is_sealed = args.seal.is_some();
        let packet_len_max = PACKET_LEN_MAX - if is_sealed { TRAILER_LEN } else { 0 };
        plane.xdp.configure(&XdpConfig { listen, policy, packet_len_max, is_sealed });
        let attached = plane.xdp.attach(index, self.mode());
        plane.is_kept = attached.with_context(|| format!("no XDP on {interface}"))?;
        Ok(plane)
    }
}

impl Plane {
    /// Gives the program a router's servers, and the router what it needs to speak as their
    /// clients.
    pub(super) fn share(&mut self, now: Time, router: &mut Router) -> Option<RawPort> {
        let places = self.xdp.places();
        places.keep_only(&router.servers().map(|server| server.addr).collect::<Vec<_>>());
        router.share_places(now, Box::new(places));
        self.raw.take()
    }

    /// Counters of the program since it was first loaded.
    pub(super) fn counts(&self) -> [u64; COUNT_NAMES.len()] {
        self.xdp.counts()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = self.xdp.detach() {
            eprintln!("tailcut: the XDP program cannot be detached: {error}");
        }
    }
}

/// The program's counters by name.
pub(super) fn counters(counts: &[u64; COUNT_NAMES.len()]) -> Counters {
    COUNT_NAMES.iter().zip(counts).map(|(name, &count)| ((*name).to_owned(), count)).collect()
}

/// Refuses what the program cannot do.
fn check(args: &Args, listen: SocketAddr) -> Result<()> {
    let policy = policy(args);
    if !XdpRouter::knows(policy) {
        bail!(
            "--dataplane xdp knows the policies random, rr, jsq:2, jbsq:N and jbsq:auto, and not {policy}"
        );
    }
    check_address(listen)?;
    if args.serving.threads != 1 || !args.upstream.is_empty() {
        bail!("--dataplane xdp goes with one thread and without --upstream");
    }
    if args.servers.resolve(Some(listen))?.len() > XDP_SERVERS_MAX {
        bail!("--dataplane xdp takes at most {XDP_SERVERS_MAX} servers");
    }
    if args.filter == FilterPlace::Router {
        bail!("replies do not come back through an XDP router: leave --filter out");
    }
    Ok(())
}

fn check_address(listen: SocketAddr) -> Result<()> {
    ensure!(
        !listen.ip().is_unspecified(),
        "--dataplane xdp takes requests for one address: name it in --listen"
    );
    Ok(())
}

/// The kernel tells the way to a server only of an interface on which it forwards.
fn check_forwarding(interface: &str, listen: SocketAddr) -> Result<()> {
    let family = if listen.is_ipv4() { "ipv4" } else { "ipv6" };
    let path = format!("/proc/sys/net/{family}/conf/{interface}/forwarding");
    let state = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    if state.trim() == "0" {
        bail!(
            "XDP learns the ways to servers from the kernel, which tells them where it forwards: \
             sysctl -w net.{family}.conf.{interface}.forwarding=1"
        );
    }
    Ok(())
}

/// An interface in the name of a folder, which may have no dot.
fn file_name(interface: &str) -> String {
    interface.replace('.', "_")
}

/// The end of the names of this network namespace's folders, since others may have interfaces of
/// the same names.
fn space() -> Result<String> {
    let space =
        fs::metadata("/proc/thread-self/ns/net").context("cannot tell the network namespace")?;
    Ok(format!("-{}", space.ino()))
}

/// An abstract name, which goes with the process, and is apart for each network namespace.
fn lock(interface: &str) -> Result<UnixListener> {
    let address = UnixAddress::from_abstract_name(format!("tailcut-xdp-{interface}"))?;
    UnixListener::bind_addr(&address)
        .map_err(|_| anyhow!("another router has the XDP program of {interface}"))
}

fn explain_folder(error: io::Error, folder: &Path) -> anyhow::Error {
    match error.raw_os_error() {
        Some(_) => anyhow!(
            "{}: {error}; it must be in a file system of type bpf: mount -t bpf bpf /sys/fs/bpf",
            folder.display()
        ),
        None => error.into(),
    }
}

const NO_INTERFACE: &str = "--dataplane xdp needs --interface IF, the one that requests come in by";

/// Folder of the routers of this host, one for each interface of each network namespace.
const FOLDER: &str = "/sys/fs/bpf/tailcut";

/// Longest UDP payload that is placed: what fits an Ethernet frame of 9,000 bytes.
const PACKET_LEN_MAX: usize = 9_000 - 48;

/// The most servers.
pub(super) const XDP_SERVERS_MAX: usize = SERVERS_MAX;
