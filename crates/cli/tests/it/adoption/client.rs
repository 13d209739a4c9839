//! A client of Redis that compares bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tailcut_bridge::resp::reply::ReplyEnd;
use tailcut_bridge::resp::scan;

/// A connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// Bytes that are no reply yet.
    held: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: impl std::net::ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        stream.set_nodelay(true).expect("the option");
        Self { stream, held: Vec::new() }
    }

    /// Says these commands in one go.
    pub(super) fn send(&mut self, commands: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        for command in commands {
            let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            scan::write(&arguments, &mut bytes);
        }
        self.stream.write_all(&bytes).expect("it takes bytes");
    }

    /// The next reply.
    pub(super) fn reply(&mut self) -> Vec<u8> {
        self.try_reply().expect("a reply")
    }

    /// The next reply; `None` where the connection ends.
    pub(super) fn try_reply(&mut self) -> Option<Vec<u8>> {
        let (mut end, mut seen) = (ReplyEnd::default(), 0);
        loop {
            if let Some(len) = end.take(&self.held[seen..]).expect("it is a reply") {
                let rest = self.held.split_off(seen + len);
                return Some(std::mem::replace(&mut self.held, rest));
            }
            seen = self.held.len();
            let mut bytes = vec![0; 1 << 16];
            let len = self.stream.read(&mut bytes).unwrap_or(0);
            if len == 0 {
                return None;
            }
            self.held.extend_from_slice(&bytes[..len]);
        }
    }

    /// One command's reply, as text.
    pub(super) fn ask(&mut self, line: &str) -> String {
        self.send(&[command(line)]);
        String::from_utf8_lossy(&self.reply()).into_owned()
    }
}

/// The words of a line.
pub(super) fn command(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
