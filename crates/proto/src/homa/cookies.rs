//! Cookies over Homa: a server that asks for them does nothing for a request before a packet of it
//! has shown that its sender receives at its address, and has made that packet.
//!
//! | who | event | then |
//! |---|---|---|
//! | server | DATA that would begin a request, without a tag or with another | its address is told its cookie by COOKIE, if it is the first of the request or is sent again; nothing is remembered |
//! | server | with a tag of its address | as if none were asked for; the address is validated, without an echo |
//! | server | with a tag by the cookie of the period before | besides, it is told the one of this period |
//! | server | the same without a tag, of a peer that knows no flags | dropped: the kernel's module knows no cookies |
//! | client | a cookie for a request that has gone without a tag by it | what has gone of it goes again, under tags |
//! | client | a cookie of the next period | packets bear tags by that |
//!
//! Tagged is what may begin a request: what needs no grant, and what is sent again.

use tailcut_wire::homa::tagged::{blanked, set_tag, tag_of};
use tailcut_wire::homa::{
    CommonHeader, CookiePacket, DATA_LEN, DataFlags, DataHeader, PacketType, Ports,
};
use tailcut_wire::r2p2::DropReason;
use zerocopy::{FromBytes, IntoBytes};

use super::ids::ClientId;
use super::outgoing::{Level, Piece};
use super::transmit::Control;
use super::{Carrier, Endpoint, Origin, Phase, Shown};
use crate::node::Time;
use crate::peer::cookies::{self, Extent};
use tailcut_placement::slab::SlotId;

impl Endpoint {
    /// Looks at what a packet shows that would begin a request, all of which has come or not.
    #[inline]
    pub(super) fn look_for_tag(
        &mut self,
        now: Time,
        origin: &Origin,
        (header, payload): (&DataHeader, &[u8]),
    ) -> Shown {
        match self.gate.cookies.are_given() {
            true => self.look_for_cookie(now, origin, (header, payload)),
            false => Shown::Unasked,
        }
    }

    fn look_for_cookie(
        &mut self,
        now: Time,
        origin: &Origin,
        (header, payload): (&DataHeader, &[u8]),
    ) -> Shown {
        self.gate.cookies.turn(now);
        let address = origin.path.peer;
        let tag = tag_of(header);
        let cookie = tag.and_then(|tag| self.gate.cookies.cookie_of(address, tag));
        if let Some((tag, cookie)) = tag.zip(cookie)
            && tag == made_of(cookie, header, payload)
        {
            if cookie != self.gate.cookies.cookie(address) {
                self.tell_cookie(origin, 0);
            }
            return Shown::Tag;
        }
        let is_whole = header.message_length.get() as usize <= payload.len();
        let extent = if is_whole { Extent::Whole } else { Extent::Several };
        let is_loaded = self.holdings.waiting > self.gate.workers;
        match self.gate.cookies.are_asked(now, is_loaded, extent)
            && !self.config.serving.is_trusted(address.ip())
        {
            true => Shown::Lacking,
            false => Shown::Unasked,
        }
    }

    /// Answers a packet whose sender must show a cookie first.
    #[cold]
    pub(super) fn ask_for_cookie(&mut self, origin: &Origin, header: &DataHeader) {
        if !header.flags().has(DataFlags::KNOWN) {
            return self.metrics.drop(DropReason::Unvalidated);
        }
        // Each packet of a long request comes here: one is answered.
        if header.offset() == 0 || header.retransmit != 0 {
            self.metrics.validations += 1;
            self.tell_cookie(origin, 1);
        }
    }

    fn tell_cookie(&mut self, origin: &Origin, is_demand: u8) {
        let (to, id) = (origin.path, ClientId(origin.common.sender_id.get()));
        let Ports { source, destination } = origin.common.ports();
        let ports = Ports { source: destination, destination: source };
        self.push_control(Control::Cookie { to, ports, id, is_demand });
    }

    /// A server tells a cookie.
    pub(super) fn handle_cookie(&mut self, now: Time, origin: &Origin, packet: &CookiePacket) {
        let Some(index) = self.hear(now, origin) else {
            return;
        };
        let slot = &mut self.rpcs[index];
        let is_fit = self.seal.is_none() && self.config.carrier == Carrier::Own;
        if !slot.is_client() || !is_fit {
            self.metrics.unexpected += 1;
            return;
        }
        let (cookie, peer) = (packet.cookie.get(), &mut self.peers[slot.peer]);
        peer.state.shown.cookie = cookie;
        // Where the reply has begun, the request has been taken, tagged or not.
        if packet.is_demand == 0 || !matches!(slot.phase, Phase::Calling(_)) {
            return;
        }
        if slot.client.tagged_by == cookie {
            // What has been asked for is under way.
            self.metrics.duplicates += 1;
            return;
        }
        // One of several copies may have been taken: what goes again stays as old as it is.
        if slot.out.has_repeated {
            let priority = peer.state.cutoffs.level(slot.out.len());
            slot.out.resend(0, slot.out.sent_len(), priority);
        } else {
            // That was all that has gone of it: it has run nowhere, and is as young as what goes
            // now.
            slot.out.restart();
            slot.timing.first_sent_at = 0;
        }
        self.rank_out(index);
    }

    /// The cookie by which a piece of what an RPC sends is to be tagged; 0 for none.
    #[inline]
    pub(super) fn cookie_for(&self, index: SlotId, piece: Piece) -> u64 {
        let slot = &self.rpcs[index];
        let may_begin = piece.level == Level::Unscheduled || piece.is_again;
        if may_begin && slot.is_client() { self.peers[slot.peer].state.shown.cookie } else { 0 }
    }

    /// Tags a piece, which is otherwise ready, if its server asks for that.
    #[inline]
    pub(super) fn tag_piece(&mut self, index: SlotId, piece: Piece, packet: &mut [u8]) {
        let cookie = self.cookie_for(index, piece);
        if cookie != 0 {
            write_tag(packet, cookie);
        }
        if piece.offset == 0 {
            self.rpcs[index].client.tagged_by = cookie;
        }
    }

    /// The packet that tells a cookie.
    pub(super) fn cookie_packet(&self, control: Control) -> Option<CookiePacket> {
        let Control::Cookie { to, ports, id, is_demand } = control else { return None };
        let common = CommonHeader::new(PacketType::Cookie, ports, id.0 | 1);
        let cookie = self.gate.cookies.cookie(to.peer).into();
        Some(CookiePacket { common, cookie, is_demand })
    }
}

/// Writes the tag of a DATA packet.
fn write_tag(packet: &mut [u8], cookie: u64) {
    let Ok((header, payload)) = DataHeader::mut_from_prefix(packet) else { return };
    let tag = made_of(cookie, header, payload);
    set_tag(header, tag);
}

/// The tag of a packet by a cookie.
fn made_of(cookie: u64, header: &DataHeader, payload: &[u8]) -> u64 {
    cookies::tag_of(cookie, blanked(header).as_bytes(), payload)
}

/// A COOKIE costs no more bytes than the DATA that it answers.
const _: () = assert!(size_of::<CookiePacket>() <= DATA_LEN);

#[cfg(test)]
mod tests;
