//! A connection of HTTP/2 (RFC 9113), as its client: each request is a stream, and streams are
//! answered in any order.
//!
//! | frame | what is done |
//! |---|---|
//! | SETTINGS | the first makes the session ready; acknowledged |
//! | HEADERS, CONTINUATION | the status is read of a whole block; one of 1xx is passed over |
//! | DATA | counted and passed over; the connection's window is opened again after half of it. In a conversation a whole message lets the next one of the request go |
//! | WINDOW_UPDATE | what waits of requests goes on |
//! | PING | answered |
//! | RST_STREAM | the stream is answered with that error |
//! | GOAWAY | no new stream; those that the server has not taken are answered with its error |
//! | PUSH_PROMISE | malformed: it was declared unwanted |
//! | others | passed over, as the RFC asks |
//!
//! The crate h2 is a client over a runtime's sockets, with a lock and several allocations for each
//! stream: time that would be in every latency. What a load needs of the protocol is this file.
//!
//! Invariant: a server that breaks its limits ends the connection, and makes nothing grow: streams
//! are as many as requests outstanding, a block of headers is bounded, bodies are not held.

mod frame;
mod hpack;
mod message_window;

use std::collections::VecDeque;

use self::frame::{
    ACK, END_HEADERS, END_STREAM, FRAME_LEN_MAX, FrameHead, HEAD_LEN, Kind, PADDED, PRIORITY,
    error_name, write_frame, write_head,
};
pub(super) use self::hpack::{write_indexed, write_literal, write_named};
use self::message_window::MessageWindow;
pub(super) use self::message_window::PREFIX_LEN;
use super::codec::{Login, Session};
use super::lines::{HeldHead, skip};
use super::reply::{
    After, Answer, BODY_BYTES_MAX, ErrorCode, ErrorKind, Malformed, Outcome, Reply,
};

/// Function that gives the meaning of a reply from its status and that of gRPC.
pub(super) type Judge = fn(status: u16, grpc_status: Option<u16>) -> (Outcome, ErrorCode);

/// One connection.
#[derive(Debug)]
pub(super) struct Http2 {
    judge: Judge,
    head: HeldHead<HEAD_LEN>,
    at: At,
    /// The payload that is being collected, if it came in pieces.
    payload: Vec<u8>,
    /// The block of headers that goes on in further frames.
    block: Block,
    /// Streams from the oldest that is open on.
    streams: VecDeque<Stream>,
    /// Number of the first of them.
    first: u64,
    /// Those that are open.
    open_count: u64,
    /// Rests of requests that the server still has to be sent, the oldest first.
    unsent: VecDeque<Unsent>,
    /// Buffers of such rests that are free; as many as there were rests at a time, at most.
    spare: Vec<Vec<u8>>,
    peer: Peer,
    /// Bytes of bodies since the connection's window was last opened.
    received: u64,
    is_ready: bool,
    /// Contents of the server's GOAWAY.
    leaving: Option<Leaving>,
    /// Error code of the last reply.
    code: ErrorCode,
}

/// Position of the next byte in a frame.
#[derive(Clone, Copy, Debug)]
enum At {
    Head,
    /// Bytes of no meaning, so many left.
    Passing(FrameHead, u64),
    Payload(FrameHead),
}

/// A block of headers in the making.
#[derive(Debug, Default)]
struct Block {
    /// The stream whose block it is; 0 for none.
    stream_id: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    is_open: bool,
    status: Option<u16>,
    grpc_status: Option<u16>,
    body_len: u64,
}

/// The rest of a request that the server has no window for, or that waits for its turn.
#[derive(Debug)]
struct Unsent {
    number: u64,
    /// Bytes that the stream may send.
    window: i64,
    body: Vec<u8>,
    sent: usize,
    /// Part of the body that may be sent; all of it, where there are none.
    turns: Option<MessageWindow>,
}

/// A part of a body on its way out.
struct Outgoing<'a> {
    stream_id: u32,
    /// All that is left of the body.
    rest: &'a [u8],
    /// Bytes of it that may be sent.
    len: usize,
}

/// Limits that the server has declared.
#[derive(Clone, Copy, Debug)]
struct Peer {
    streams_max: u64,
    frame_len_max: usize,
    /// Bytes that a new stream may send.
    stream_window: i64,
    /// Bytes that the connection may send.
    window: i64,
}

/// Contents of a GOAWAY.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// The number of the first stream that the server has not taken.
    first_refused: u64,
    error: u32,
}

impl Http2 {
    pub(super) fn new(judge: Judge) -> Self {
        Self {
            judge,
            head: HeldHead::new(),
            at: At::Head,
            payload: Vec::new(),
            block: Block::default(),
            streams: VecDeque::new(),
            first: 0,
            open_count: 0,
            unsent: VecDeque::new(),
            spare: Vec::new(),
            peer: Peer {
                streams_max: u64::MAX,
                frame_len_max: FRAME_LEN_MAX,
                stream_window: WINDOW_INITIAL,
                window: WINDOW_INITIAL,
            },
            received: 0,
            is_ready: false,
            leaving: None,
            code: ErrorCode::default(),
        }
    }
}

impl Session for Http2 {
    fn begin(&mut self, _: Option<Login<'_>>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let settings = [
            (SETTING_TABLE_SIZE, 0),
            (SETTING_PUSH, 0),
            (SETTING_STREAM_WINDOW, WINDOW_MAX as u32),
            (SETTING_HEADERS_LEN_MAX, BLOCK_LEN_MAX as u32),
        ];
        write_head(settings.len() * SETTING_LEN, Kind::Settings, 0, 0, out);
        for (name, value) in settings {
            out.extend_from_slice(&u16::to_be_bytes(name));
            out.extend_from_slice(&u32::to_be_bytes(value));
        }
        write_window((WINDOW_MAX - WINDOW_INITIAL) as u32, out);
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.is_ready
            && self.leaving.is_none()
            && self.open_count < self.peer.streams_max
            && self.first + (self.streams.len() as u64) < STREAMS_MAX
    }

    fn is_spent(&self) -> bool {
        let is_over = self.leaving.is_some() || self.end() >= STREAMS_MAX;
        is_over && self.open_count == 0
    }

    fn write(&mut self, request: &[u8], out: &mut Vec<u8>) {
        let number = self.first + self.streams.len() as u64;
        let Request { head, body, message_len } = Request::split(request);
        self.streams.push_back(Stream { is_open: true, ..Stream::default() });
        self.open_count += 1;
        let id = stream_id(number);
        let flags = if body.is_empty() { END_STREAM } else { 0 };
        let mut parts = head.chunks(self.peer.frame_len_max);
        let first = parts.next().unwrap_or_default();
        let rest = head.len() - first.len();
        let ends = |rest: usize| if rest == 0 { END_HEADERS } else { 0 };
        write_frame(Kind::Headers, flags | ends(rest), id, first, out);
        let mut left = rest;
        for part in parts {
            left -= part.len();
            write_frame(Kind::Continuation, ends(left), id, part, out);
        }
        if body.is_empty() {
            return;
        }
        let mut window = self.peer.stream_window;
        let mut turns = (message_len > 0).then(|| MessageWindow::of(message_len));
        let len = turns.map_or(body.len(), |turns| turns.allowed().min(body.len()));
        let outgoing = Outgoing { stream_id: id, rest: body, len };
        let sent = self.peer.write_body(&outgoing, &mut window, out);
        if sent < body.len() {
            let rest = &body[sent..];
            let mut body = self.spare.pop().unwrap_or_default();
            body.clear();
            body.extend_from_slice(rest);
            turns.iter_mut().for_each(|turns| turns.note_sent(sent));
            self.unsent.push_back(Unsent { number, window, body, sent: 0, turns });
        }
    }

    fn take(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, Malformed> {
        loop {
            if let Some(answer) = self.refuse_next() {
                return Ok(Some(answer));
            }
            let answer = match self.at {
                At::Head if bytes.is_empty() => return Ok(None),
                At::Head => {
                    let Some(head) = self.head.take(bytes, HEAD_LEN) else { return Ok(None) };
                    let head = FrameHead::read(head);
                    self.at = self.enter(head)?;
                    None
                }
                At::Passing(head, mut left) => {
                    let is_over = skip(bytes, &mut left);
                    self.at = At::Passing(head, left);
                    if !is_over {
                        return Ok(None);
                    }
                    self.at = At::Head;
                    self.handle_passed(head, out)
                }
                At::Payload(head) => {
                    let wanted = head.len - self.payload.len();
                    let (part, rest) = bytes.split_at(bytes.len().min(wanted));
                    *bytes = rest;
                    if part.len() < wanted {
                        self.payload.extend_from_slice(part);
                        return Ok(None);
                    }
                    self.at = At::Head;
                    if self.payload.is_empty() {
                        self.handle_payload(head, part, out)?
                    } else {
                        let mut payload = std::mem::take(&mut self.payload);
                        payload.extend_from_slice(part);
                        let answer = self.handle_payload(head, &payload, out);
                        payload.clear();
                        self.payload = payload;
                        answer?
                    }
                }
            };
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    fn cancel(&mut self, number: u64, out: &mut Vec<u8>) -> bool {
        if self.stream(number).is_some() {
            self.release(number);
            write_reset(stream_id(number), out);
        }
        true
    }

    fn error_code(&self) -> ErrorCode {
        self.code
    }
}

impl Http2 {
    /// Handling of a frame's payload, by the frame's head.
    fn enter(&mut self, head: FrameHead) -> Result<At, Malformed> {
        if head.len > FRAME_LEN_MAX {
            return Err(if self.is_ready { Malformed::TooLong("frames") } else { NOT_HTTP2 });
        }
        if !self.is_ready && (head.kind != Some(Kind::Settings) || head.has(ACK)) {
            return Err(NOT_HTTP2);
        }
        let goes_on = self.block.stream_id != 0;
        if goes_on != (head.kind == Some(Kind::Continuation))
            || (goes_on && head.stream_id != self.block.stream_id)
        {
            return Err(Malformed::Syntax("the rest of a block of headers"));
        }
        let of_stream = match head.kind {
            Some(Kind::Data | Kind::Headers | Kind::Continuation | Kind::Reset) => true,
            Some(Kind::Settings | Kind::Ping | Kind::GoAway) => false,
            Some(Kind::PushPromise) => {
                return Err(Malformed::Mismatched("a push that is unwanted"));
            }
            Some(Kind::WindowUpdate) | None => return Ok(self.place(head)),
        };
        if of_stream != (head.stream_id != 0) {
            return Err(Malformed::Syntax("a frame on a stream where it may be"));
        }
        if of_stream && number(head.stream_id).is_none_or(|number| number >= self.end()) {
            return Err(Malformed::Unsolicited);
        }
        Ok(self.place(head))
    }

    fn place(&self, head: FrameHead) -> At {
        match head.kind {
            Some(Kind::Data) if self.has_turns(head.stream_id) => At::Payload(head),
            Some(Kind::Data) | None => At::Passing(head, head.len as u64),
            Some(_) => At::Payload(head),
        }
    }

    /// True if the request of a stream waits for messages of its reply.
    fn has_turns(&self, id: u32) -> bool {
        let number = number(id);
        self.unsent.iter().any(|unsent| Some(unsent.number) == number && unsent.turns.is_some())
    }

    /// A part of the reply in a conversation has come: what it allows is sent.
    fn handle_messages(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let part = without_padding(head, payload)?;
        let number = number(head.stream_id);
        let mut unsent = self.unsent.iter_mut();
        if let Some(unsent) = unsent.find(|unsent| Some(unsent.number) == number)
            && let Some(turns) = &mut unsent.turns
        {
            turns.take(part);
            if self.peer.write_rest(unsent, out) {
                self.drop_unsent(|unsent| Some(unsent.number) == number);
            }
        }
        Ok(())
    }

    /// A frame has been passed over.
    fn handle_passed(&mut self, head: FrameHead, out: &mut Vec<u8>) -> Option<Answer> {
        if head.kind != Some(Kind::Data) {
            return None;
        }
        self.received += head.len as u64;
        if self.received >= WINDOW_MAX as u64 / 2 {
            write_window(self.received as u32, out);
            self.received = 0;
        }
        let number = number(head.stream_id)?;
        let stream = self.stream(number)?;
        stream.body_len += head.len as u64;
        if stream.body_len > BODY_BYTES_MAX {
            write_reset(head.stream_id, out);
            return Some(self.answer_with(number, ErrorKind::Failed, b"BODY_TOO_LONG"));
        }
        if head.has(END_STREAM) { self.end_stream(number, out) } else { None }
    }

    fn handle_payload(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer>, Malformed> {
        match head.kind {
            Some(Kind::Headers) => {
                self.block.stream_id = head.stream_id;
                self.block.ends_stream = head.has(END_STREAM);
                let part = unpadded(head, payload)?;
                if head.has(END_HEADERS) {
                    return self.handle_block(part, out);
                }
                self.block.bytes.extend_from_slice(part);
            }
            Some(Kind::Continuation) => {
                if self.block.bytes.len() + payload.len() > BLOCK_LEN_MAX {
                    return Err(Malformed::TooLong("headers"));
                }
                self.block.bytes.extend_from_slice(payload);
                if head.has(END_HEADERS) {
                    let mut block = std::mem::take(&mut self.block.bytes);
                    let answer = self.handle_block(&block, out);
                    block.clear();
                    self.block.bytes = block;
                    return answer;
                }
            }
            Some(Kind::Settings) => self.handle_settings(head, payload, out)?,
            Some(Kind::Ping) if payload.len() != 8 => return Err(BAD_LENGTH),
            Some(Kind::Ping) if !head.has(ACK) => write_frame(Kind::Ping, ACK, 0, payload, out),
            Some(Kind::WindowUpdate) => self.handle_window(head, payload, out)?,
            Some(Kind::Reset) => {
                let error = word(payload, 0).filter(|_| payload.len() == 4).ok_or(BAD_LENGTH)?;
                return Ok(self.handle_reset(head.stream_id, error));
            }
            Some(Kind::GoAway) => {
                let [Some(last), Some(error)] = [0, 4].map(|at| word(payload, at)) else {
                    return Err(BAD_LENGTH);
                };
                let first_refused = u64::from(last & ID_MAX).div_ceil(2);
                self.leaving = Some(Leaving { first_refused, error });
            }
            Some(Kind::Data) => {
                self.handle_messages(head, payload, out)?;
                return Ok(self.handle_passed(head, out));
            }
            Some(Kind::Ping | Kind::PushPromise) | None => {}
        }
        Ok(None)
    }

    /// A block of headers is whole.
    fn handle_block(
        &mut self,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer>, Malformed> {
        let id = std::mem::take(&mut self.block.stream_id);
        let ends_stream = self.block.ends_stream;
        // Of a stream that is given up too: what it says of the table holds for all.
        let head = hpack::Head::read(block)?;
        let Some(number) = number(id) else { return Ok(None) };
        let Some(stream) = self.stream(number) else { return Ok(None) };
        match head.status {
            Some(100..=199) if !ends_stream => return Ok(None),
            Some(status) => stream.status = Some(status),
            None if stream.status.is_none() => {
                return Err(Malformed::Syntax("a head with a :status"));
            }
            None => {}
        }
        stream.grpc_status = head.grpc_status.or(stream.grpc_status);
        Ok(if ends_stream { self.end_stream(number, out) } else { None })
    }

    fn handle_settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let (settings, rest) = payload.as_chunks::<SETTING_LEN>();
        if !rest.is_empty() || (head.has(ACK) && !payload.is_empty()) {
            return Err(BAD_LENGTH);
        }
        if head.has(ACK) {
            return Ok(());
        }
        for &[name_high, name_low, a, b, c, d] in settings {
            let value = u32::from_be_bytes([a, b, c, d]);
            match u16::from_be_bytes([name_high, name_low]) {
                SETTING_STREAMS_MAX => self.peer.streams_max = u64::from(value),
                SETTING_STREAM_WINDOW => {
                    let window = i64::from(value);
                    if window > WINDOW_MAX {
                        return Err(BAD_WINDOW);
                    }
                    let change = window - self.peer.stream_window;
                    self.peer.stream_window = window;
                    self.unsent.iter_mut().for_each(|unsent| unsent.window += change);
                }
                SETTING_FRAME_LEN_MAX if (FRAME_LEN_MAX as u32..1 << 24).contains(&value) => {
                    self.peer.frame_len_max = value as usize;
                }
                SETTING_FRAME_LEN_MAX => return Err(Malformed::Syntax("a size of frames")),
                _ => {}
            }
        }
        self.is_ready = true;
        write_frame(Kind::Settings, ACK, 0, &[], out);
        self.send_on(out);
        Ok(())
    }

    fn handle_window(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let more = word(payload, 0).filter(|_| payload.len() == 4).ok_or(BAD_LENGTH)? & ID_MAX;
        let window = match number(head.stream_id) {
            None if head.stream_id == 0 => Some(&mut self.peer.window),
            None => return Err(Malformed::Unsolicited),
            Some(number) if number >= self.end() => return Err(Malformed::Unsolicited),
            // One that has been sent whole needs none.
            Some(number) => self
                .unsent
                .iter_mut()
                .find(|unsent| unsent.number == number)
                .map(|unsent| &mut unsent.window),
        };
        if let Some(window) = window {
            *window += i64::from(more);
            if *window > WINDOW_MAX {
                return Err(BAD_WINDOW);
            }
            self.send_on(out);
        }
        Ok(())
    }

    fn handle_reset(&mut self, id: u32, error: u32) -> Option<Answer> {
        let number = number(id)?;
        self.stream(number)?;
        // REFUSED_STREAM and ENHANCE_YOUR_CALM: it was asked for too much.
        let kind = if matches!(error, 7 | 11) { ErrorKind::Busy } else { ErrorKind::Failed };
        Some(self.answer_with(number, kind, error_name(error).as_bytes()))
    }

    /// The next stream that the server has said it does not take.
    fn refuse_next(&mut self) -> Option<Answer> {
        let Leaving { first_refused, error } = self.leaving?;
        let number = (first_refused.max(self.first)..self.end())
            .find(|&number| self.stream(number).is_some())?;
        let (kind, name) = match error {
            0 => (ErrorKind::Busy, "GOAWAY"),
            error => (ErrorKind::Failed, error_name(error)),
        };
        Some(self.answer_with(number, kind, name.as_bytes()))
    }

    /// The server has ended a stream.
    fn end_stream(&mut self, number: u64, out: &mut Vec<u8>) -> Option<Answer> {
        let Stream { status, grpc_status, .. } = *self.stream(number)?;
        let (outcome, code) = match status {
            Some(status) => (self.judge)(status, grpc_status),
            None => (Outcome::Error(ErrorKind::Failed), ErrorCode::of(b"NO_STATUS")),
        };
        self.code = code;
        // It has answered before it had the whole request, and does not want the rest.
        if self.unsent.iter().any(|unsent| unsent.number == number) {
            write_reset(stream_id(number), out);
        }
        self.release(number);
        Some(Answer { number, reply: Reply { outcome, after: self.after() } })
    }

    fn answer_with(&mut self, number: u64, kind: ErrorKind, code: &[u8]) -> Answer {
        self.code = ErrorCode::of(code);
        self.release(number);
        Answer { number, reply: Reply { outcome: Outcome::Error(kind), after: self.after() } }
    }

    /// A connection on which no more streams may be opened is closed with its last one.
    fn after(&self) -> After {
        if self.is_spent() { After::Close } else { After::Keep }
    }

    fn release(&mut self, number: u64) {
        if let Some(stream) = self.stream(number) {
            stream.is_open = false;
            self.open_count -= 1;
        }
        self.drop_unsent(|unsent| unsent.number == number);
        while self.streams.front().is_some_and(|stream| !stream.is_open) {
            self.streams.pop_front();
            self.first += 1;
        }
    }

    /// Sends what is allowed and there is a window for.
    fn send_on(&mut self, out: &mut Vec<u8>) {
        for unsent in &mut self.unsent {
            self.peer.write_rest(unsent, out);
        }
        self.drop_unsent(|unsent| unsent.sent == unsent.body.len());
    }

    /// Drops rests of requests, and keeps their buffers.
    fn drop_unsent(&mut self, is_over: impl Fn(&Unsent) -> bool) {
        let Self { unsent, spare, .. } = self;
        unsent.retain_mut(|unsent| {
            let is_over = is_over(unsent);
            if is_over {
                spare.push(std::mem::take(&mut unsent.body));
            }
            !is_over
        });
    }

    /// The stream of a number, as long as it is open.
    #[inline]
    fn stream(&mut self, number: u64) -> Option<&mut Stream> {
        let place = number.checked_sub(self.first)?;
        self.streams.get_mut(place as usize).filter(|stream| stream.is_open)
    }

    /// Number of the next stream.
    fn end(&self) -> u64 {
        self.first + self.streams.len() as u64
    }
}

impl Peer {
    /// Appends what is allowed of a rest and there is a window for; whether that was all of it.
    fn write_rest(&mut self, unsent: &mut Unsent, out: &mut Vec<u8>) -> bool {
        let rest = &unsent.body[unsent.sent..];
        let len = unsent.turns.map_or(rest.len(), |turns| turns.allowed().min(rest.len()));
        let outgoing = Outgoing { stream_id: stream_id(unsent.number), rest, len };
        let sent = self.write_body(&outgoing, &mut unsent.window, out);
        unsent.sent += sent;
        unsent.turns.iter_mut().for_each(|turns| turns.note_sent(sent));
        unsent.sent == unsent.body.len()
    }

    /// Appends as much of a body as there is a window for, and returns how much.
    fn write_body(
        &mut self,
        outgoing: &Outgoing<'_>,
        window: &mut i64,
        out: &mut Vec<u8>,
    ) -> usize {
        let Outgoing { stream_id, rest, len: end } = *outgoing;
        let mut sent = 0;
        while sent < end {
            let room = (*window).min(self.window).clamp(0, self.frame_len_max as i64) as usize;
            let len = room.min(end - sent);
            if len == 0 {
                break;
            }
            let flags = if sent + len == rest.len() { END_STREAM } else { 0 };
            write_frame(Kind::Data, flags, stream_id, &rest[sent..sent + len], out);
            sent += len;
            *window -= len as i64;
            self.window -= len as i64;
        }
        sent
    }
}

/// A request, as [`Session::write`] reads it.
pub(super) struct Request<'a> {
    /// Its block of headers.
    pub(super) head: &'a [u8],
    pub(super) body: &'a [u8],
    /// Bytes of each message of the body, where messages of the reply let them go one by one; 0
    /// where the body goes at once.
    pub(super) message_len: usize,
}

impl<'a> Request<'a> {
    /// Appends it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.head.len() as u32).to_be_bytes());
        out.extend_from_slice(&(self.message_len as u32).to_be_bytes());
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.body);
    }

    fn split(request: &'a [u8]) -> Self {
        let (lens, rest) = request.split_at(8);
        let [head_len, message_len] = [0, 4].map(|at| word(lens, at).map_or(0, |len| len as usize));
        let (head, body) = rest.split_at(head_len.min(rest.len()));
        Self { head, body, message_len }
    }
}

/// The payload of HEADERS without padding and priority.
fn unpadded(head: FrameHead, payload: &[u8]) -> Result<&[u8], Malformed> {
    let part = without_padding(head, payload)?;
    if head.has(PRIORITY) { part.get(5..).ok_or(BAD_LENGTH) } else { Ok(part) }
}

/// A payload without its padding.
fn without_padding(head: FrameHead, payload: &[u8]) -> Result<&[u8], Malformed> {
    if !head.has(PADDED) {
        return Ok(payload);
    }
    let (&padding, part) = payload.split_first().ok_or(BAD_LENGTH)?;
    let len = part.len().checked_sub(usize::from(padding)).ok_or(BAD_LENGTH)?;
    Ok(&part[..len])
}

fn write_window(more: u32, out: &mut Vec<u8>) {
    write_frame(Kind::WindowUpdate, 0, 0, &more.to_be_bytes(), out);
}

/// Ends a stream: CANCEL.
fn write_reset(id: u32, out: &mut Vec<u8>) {
    write_frame(Kind::Reset, 0, id, &8u32.to_be_bytes(), out);
}

/// The id of the client's stream of a number.
fn stream_id(number: u64) -> u32 {
    (2 * number + 1) as u32
}

/// The number of a client's stream; none for other ids.
fn number(stream_id: u32) -> Option<u64> {
    (stream_id % 2 == 1).then_some(u64::from(stream_id / 2))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

const NOT_HTTP2: Malformed = Malformed::Syntax("the SETTINGS that HTTP/2 begins with");
const BAD_LENGTH: Malformed = Malformed::Syntax("a frame of its length");
const BAD_WINDOW: Malformed = Malformed::Syntax("a window below 2^31");

const SETTING_TABLE_SIZE: u16 = 1;
const SETTING_PUSH: u16 = 2;
const SETTING_STREAMS_MAX: u16 = 3;
const SETTING_STREAM_WINDOW: u16 = 4;
const SETTING_FRAME_LEN_MAX: u16 = 5;
const SETTING_HEADERS_LEN_MAX: u16 = 6;
const SETTING_LEN: usize = 6;

const ID_MAX: u32 = 0x7fff_ffff;
/// Streams of a connection: the client's are the odd ids.
const STREAMS_MAX: u64 = 1 << 30;
/// Size of both windows, before anybody has said otherwise.
const WINDOW_INITIAL: i64 = 65_535;
const WINDOW_MAX: i64 = 0x7fff_ffff;
/// Requests outstanding on a connection, by default: what servers declare most, so that none is
/// refused.
pub(in crate::app) const STREAMS_USUAL: u32 = 100;
/// The longest block of headers in pieces.
const BLOCK_LEN_MAX: usize = 1 << 16;
