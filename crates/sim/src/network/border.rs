//! The border of a network that is one region of several: what crosses it, out and in.
//!
//! | a datagram | then |
//! |---|---|
//! | is on a link whose end is in another region | it leaves, and enters there as a packet on that link |
//! | goes beside the links to a host of another | it leaves, and is delivered there |
//!
//! Invariant: what leaves arrives later than now by the least delay between regions, so that
//! regions which are no further apart in time may run at once.

use std::mem;
use std::net::SocketAddr;
use std::ops::Range;

use tailcut_proto::node::Node;

use super::members::Members;
use super::{Datagram, Event, Hop, HostDelays, Network, Wire};
use crate::PS_PER_NS;
use crate::fabric::port::Element;
use crate::fabric::topology::{Split, Topology};
use crate::fabric::{Left, Packet};

/// Border of a region.
#[derive(Debug)]
pub(crate) struct Border {
    split: Split,
    /// Places of the hosts within.
    hosts: Range<u32>,
    /// Datagrams that have left.
    left: Outbox,
}

/// Datagrams that have left a region, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    crossings: Vec<Crossing>,
    /// Their heads, one behind the other.
    heads: Vec<u8>,
}

/// A datagram that has left a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    /// The region that it enters.
    region: u32,
    /// Time at which it enters, ps.
    at_ps: u64,
    /// The end of the link that it is on, and the packet; `None` where it goes beside the links.
    link: Option<(Element, Packet)>,
    hop: Hop,
    sent_ps: u64,
    extra_ps: u64,
    is_damaged: bool,
    len: usize,
    head_len: usize,
}

impl Border {
    /// True if a host is in another region.
    pub(super) fn is_beyond(&self, host: u32) -> bool {
        !self.hosts.contains(&host)
    }
}

impl Outbox {
    /// Datagrams that enter one of some regions, each with its head, in the order in which they
    /// left.
    pub(crate) fn to(&self, regions: Range<u32>) -> impl Iterator<Item = (u32, &Crossing, &[u8])> {
        let mut rest = &self.heads[..];
        let all = self.crossings.iter().map(move |crossing| {
            let (head, behind) = rest.split_at(crossing.head_len);
            rest = behind;
            (crossing.region, crossing, head)
        });
        all.filter(move |(region, ..)| regions.contains(region))
    }

    fn clear(&mut self) {
        self.crossings.clear();
        self.heads.clear();
    }
}

impl<N: Node> Network<N> {
    /// A region of a network over links and switches, whose members stand at the hosts that it has;
    /// `addresses` are those of all. As [`Network::over`] otherwise.
    pub(crate) fn region(
        topology: &Topology,
        (split, region): (Split, u32),
        addresses: &[SocketAddr],
        seed: u64,
    ) -> Self {
        let count = addresses.len() as u32;
        let mut network = Self::over(topology, count, seed);
        let is_within = |host: &u32| split.of_host(*host) == region;
        let first = (0..count).find(is_within).unwrap_or(count);
        let end = (first..count).find(|host| !is_within(host)).unwrap_or(count);
        network.members = Members::from(first as usize);
        let Wire { fabric, places, delays, border, .. } = &mut network.wire;
        fabric.iter_mut().for_each(|fabric| fabric.set_region(split, region));
        for host in (0..count).filter(|host| !(first..end).contains(host)) {
            places.insert(addresses[host as usize], host);
        }
        *delays = vec![HostDelays::default(); addresses.len()];
        *border = Some(Box::new(Border { split, hosts: first..end, left: Outbox::default() }));
        network
    }

    /// Places of the hosts of this region.
    pub(crate) fn region_hosts(&self) -> Range<u32> {
        self.wire.border.as_ref().map_or(0..0, |border| border.hosts.clone())
    }

    /// The least time from one region to another, ps.
    pub(crate) fn lookahead_ps(&self) -> u64 {
        let Wire { border, delays, .. } = &self.wire;
        let links_ps = border.as_ref().map_or(u64::MAX, |border| border.split.lookahead_ps());
        let software_ns = delays.iter().map(|delays| delays.transmit_ns).min();
        links_ps.min(software_ns.map_or(0, |ns| ns * PS_PER_NS))
    }

    /// Tells how long the software of a host takes that is in another region.
    pub(crate) fn set_delays_beyond(&mut self, place: usize, delays: HostDelays) {
        self.wire.delays[place] = delays;
    }

    /// Hands over what has left, for an outbox that has been read.
    pub(crate) fn swap_left(&mut self, outbox: &mut Outbox) {
        outbox.clear();
        if let Some(border) = &mut self.wire.border {
            mem::swap(&mut border.left, outbox);
        }
    }

    /// A datagram enters that has left another region.
    pub(crate) fn enter(&mut self, crossing: &Crossing, head: &[u8]) {
        let Crossing { at_ps, link, hop, sent_ps, extra_ps, is_damaged, len, .. } = *crossing;
        let wire = &mut self.wire;
        let index = wire.take_datagram();
        let place = &mut wire.datagrams[index as usize];
        let mut kept = mem::take(&mut place.head);
        kept.clear();
        kept.extend_from_slice(head);
        *place = Datagram { hop, sent_ps, extra_ps, is_damaged, len, head: kept };
        match (link, &mut wire.fabric) {
            (Some((next, packet)), Some(fabric)) => {
                let packet = Packet { tag: index, ..packet };
                fabric
                    .enter(Left { at_ps, next, region: crossing.region, packet }, &mut wire.agenda);
            }
            _ => wire.agenda.post(at_ps, Event::Deliver(index).into()),
        }
    }
}

impl Wire {
    /// Takes what the fabric has sent over the border.
    pub(super) fn emigrate(&mut self) {
        while let Some(left) = self.fabric.as_mut().and_then(|fabric| fabric.poll_left()) {
            let Left { at_ps, next, region, packet } = left;
            self.leave(packet.tag, (at_ps, region), Some((next, packet)));
        }
    }

    /// A datagram goes to a host of another region beside the links.
    pub(super) fn leave_aside(&mut self, index: u32, at_ps: u64, to: u32) {
        let region = self.border.as_ref().map_or(0, |border| border.split.of_host(to));
        self.leave(index, (at_ps, region), None);
    }

    /// A datagram leaves for another region.
    fn leave(&mut self, index: u32, (at_ps, region): (u64, u32), link: Option<(Element, Packet)>) {
        self.free.push(index);
        let Some(border) = &mut self.border else { return };
        let datagram = &self.datagrams[index as usize];
        let Datagram { hop, sent_ps, extra_ps, is_damaged, len, .. } = *datagram;
        border.left.heads.extend_from_slice(&datagram.head);
        let head_len = datagram.head.len();
        border.left.crossings.push(Crossing {
            region,
            at_ps,
            link,
            hop,
            sent_ps,
            extra_ps,
            is_damaged,
            len,
            head_len,
        });
    }
}
