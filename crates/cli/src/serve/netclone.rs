//! NetClone's published format.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | the clone of two | requests wait | discarded, without a word |
//! | any other, or a clone where none waits | | served, or dropped where the queue is full |
//! | served | its service ends | answered: `op`, `sid` and `load` are this server's, the rest is the request's |
//!
//! `load` is how many waited when the service ended, before the next of them began, as the
//! published server reports it; of services that threads compute, when the loop learns that they
//! have ended. A request whose body is empty, as those of the published client are, gets a service
//! time that is drawn here. Packets of the published baselines, NoClone and C-Clone, are answered
//! at the same port.

use tailcut_proto::node::Path;
use tailcut_wire::netclone::{CloneMark, HEADER_LEN, Header, Op, PACKET_LEN, Packet, Plain};
use zerocopy::FromBytes;

use super::datagrams::Framing;

/// The framing of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetClone {
    /// Its own id, from 0.
    pub(super) sid: u32,
}

/// Parts of a reply besides its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    path: Path,
    /// The packet of the request, without its body.
    head: [u8; PACKET_LEN],
    head_len: u8,
    mark: CloneMark,
    /// The request has a body, and so has the reply.
    has_body: bool,
}

impl Framing for NetClone {
    type Asked = Asked;

    const FRAME_BYTES_MAX: usize = PACKET_LEN;

    fn read(path: Path, bytes: &[u8]) -> Option<(Asked, &[u8])> {
        let (mark, body) = match Plain::parse(bytes) {
            Ok(Plain::NoClone(Op::Request, _) | Plain::CClone(Op::Request, _)) => {
                (CloneMark::Single, &[][..])
            }
            Ok(_) => return None,
            Err(_) => {
                let packet = Packet::parse(bytes).ok()?;
                (packet.op == Op::Request).then_some((packet.mark, packet.body))?
            }
        };
        let (head, has_body) = (&bytes[..bytes.len() - body.len()], !body.is_empty());
        let mut kept = [0; PACKET_LEN];
        kept.get_mut(..head.len())?.copy_from_slice(head);
        Some((Asked { path, head: kept, head_len: head.len() as u8, mark, has_body }, body))
    }

    fn path(asked: &Asked) -> Path {
        asked.path
    }

    fn is_clone(asked: &Asked) -> bool {
        asked.mark == CloneMark::Clone
    }

    fn draws_time(asked: &Asked) -> bool {
        !asked.has_body
    }

    fn reply(&self, asked: &Asked, load: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(&asked.head[..usize::from(asked.head_len)]);
        if asked.has_body {
            write(out);
        }
        // The first field of every format.
        out[..4].copy_from_slice(&(Op::Response as u32).to_be_bytes());
        if asked.is_netclone()
            && let Ok((header, _)) = Header::mut_from_prefix(out)
        {
            (header.sid, header.load) = (self.sid.into(), load.into());
        }
    }
}

impl Asked {
    /// It is of the format that a switch reads: the baselines' are shorter.
    fn is_netclone(&self) -> bool {
        let len = usize::from(self.head_len);
        len == PACKET_LEN || len == HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::app::{App, HandlerConfig, RequestHandler};
    use crate::serve::datagrams::Port;
    use crate::serve::emulated::Cancelled;
    use std::net::SocketAddr;
    use tailcut_measure::app::serving::Limits;
    use tailcut_proto::node::{Node, Time};
    use tailcut_wire::netclone::{CClone, NoClone, Trailer};
    use zerocopy::IntoBytes;

    fn port(app: &str) -> Port<NetClone> {
        let limits =
            Limits { service_ns_max: 1 << 30, payload_bytes_max: 100, reply_bytes_max: 100 };
        let config = HandlerConfig {
            worker_count: 1,
            queue_len_max: 10,
            limits,
            jitter: 0.0,
            cancelled: Cancelled::Runs,
            seed: 1,
            stream: 0,
        };
        let handler = RequestHandler::new(App::parse(app).unwrap(), config, None);
        Port::new(NetClone { sid: 3 }, handler)
    }

    fn send(port: &mut Port<NetClone>, now: Time, bytes: &[u8]) {
        let path = SocketAddr::from(([10, 0, 0, 1], 40_000)).into();
        port.handle_datagram(now, path, &mut bytes.to_vec());
    }

    fn replies(port: &mut Port<NetClone>, now: Time) -> Vec<Vec<u8>> {
        port.handle_timeout(now);
        let mut buffer = [0; 2_000];
        let next = || {
            let transmit = port.poll_transmit(now, &mut buffer)?;
            Some(buffer[..transmit.len].to_vec())
        };
        std::iter::from_fn(next).collect()
    }

    const TRAILER: Trailer = Trailer { stamp: [7; 8], address: [8; 16] };

    fn request(seq: u32, clo: u32, body: &[u8]) -> Vec<u8> {
        let header = Header {
            seq: seq.into(),
            grp: 5.into(),
            sid: 9.into(),
            clo: clo.into(),
            tidx: 1.into(),
            ..Header::default()
        };
        [header.as_bytes(), TRAILER.as_bytes(), body].concat()
    }

    #[test]
    fn a_reply_differs_from_its_request_in_three_fields() {
        let mut port = port("echo");
        let asked = request(7, 1, b"and more");
        send(&mut port, 0, &asked);
        let header =
            Header { op: 1.into(), sid: 3.into(), ..*Packet::parse(&asked).unwrap().header };
        assert_eq!(replies(&mut port, 0), [[header.as_bytes(), &asked[28..]].concat()]);
    }

    #[test]
    fn the_load_is_what_waits_before_the_next_begins_and_clones_are_discarded_there() {
        let mut port = port("synthetic:fixed:100ns");
        for seq in 1..=3 {
            send(&mut port, 0, &request(seq, 1, &[]));
        }
        // Two wait.
        send(&mut port, 0, &request(4, 2, &[]));
        assert_eq!(port.handler.counts.clones_discarded, 1);
        let loads = |replies: Vec<Vec<u8>>| {
            let header = |reply: &Vec<u8>| *Packet::parse(reply).unwrap().header;
            replies.iter().map(header).map(|it| (it.seq.get(), it.load.get())).collect::<Vec<_>>()
        };
        // However late it looks.
        assert_eq!(loads(replies(&mut port, 250)), [(1, 2), (2, 1)]);
        // One runs and none waits.
        send(&mut port, 250, &request(5, 2, &[]));
        assert_eq!(loads(replies(&mut port, 1_000)), [(3, 1), (5, 0)]);
        assert_eq!(port.handler.counts.clones_discarded, 1);
    }

    #[test]
    fn the_load_counts_what_ended_before_a_request_came() {
        let mut port = port("synthetic:fixed:100ns");
        send(&mut port, 0, &request(1, 0, &[]));
        send(&mut port, 0, &request(2, 0, &[]));
        send(&mut port, 150, &request(3, 0, &[]));
        let found = replies(&mut port, 400);
        let load = |reply: &Vec<u8>| Packet::parse(reply).unwrap().header.load.get();
        assert_eq!(found.iter().map(load).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn baselines_are_answered_by_their_length() {
        let mut port = port("synthetic:fixed:100ns");
        let plain = NoClone { op: 0.into(), key: 9.into(), trailer: TRAILER };
        let copy = CClone { op: 0.into(), key: 9.into(), seq: [1, 2, 3, 4], trailer: TRAILER };
        send(&mut port, 0, plain.as_bytes());
        send(&mut port, 0, copy.as_bytes());
        let replied = [
            NoClone { op: 1.into(), ..plain }.as_bytes().to_vec(),
            CClone { op: 1.into(), ..copy }.as_bytes().to_vec(),
        ];
        assert_eq!(replies(&mut port, 1_000), replied);
    }

    #[test]
    fn nothing_else_is_answered() {
        let mut port = port("echo");
        let asked = request(1, 0, &[]);
        let mut response = asked.clone();
        response[3] = 1;
        for bytes in [&asked[..27], &response, &[][..]] {
            send(&mut port, 0, bytes);
        }
        assert_eq!(replies(&mut port, 0), [[0; 0]; 0]);
        assert_eq!(port.handler.counts.malformed, 3);
    }
}
