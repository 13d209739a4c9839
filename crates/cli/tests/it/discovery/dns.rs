//! Names, of a name server that the test has in its hand.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use super::{router, value, wait_for_servers, wait_until};
use crate::harness::{Service, assert_all_replied, finish, start_measure};
use crate::port;

/// Answer to every question.
#[derive(Clone)]
enum Say {
    /// These addresses of any name.
    Addresses(Vec<u8>),
    /// Services at these addresses, by names that have them, when it is asked over TCP.
    Services(Vec<(u8, u16)>),
    Code(RCODE),
}

/// A name server on loopback; it ends with the process.
struct Names {
    address: SocketAddr,
    says: Arc<Mutex<Say>>,
}

impl Names {
    fn start(says: Say) -> Self {
        let port = port::free();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let address = socket.local_addr().expect("an address");
        let names = Self { address, says: Arc::new(Mutex::new(says)) };
        let says = names.says.clone();
        thread::spawn(move || {
            let mut bytes = [0; 1_500];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let answer = answer(&bytes[..len], &says.lock().expect("a lock"), false);
                socket.send_to(&answer, from).expect("it is sent");
            }
        });
        let says = names.says.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut len = [0; 2];
                stream.read_exact(&mut len).expect("a length");
                let mut bytes = vec![0; u16::from_be_bytes(len).into()];
                stream.read_exact(&mut bytes).expect("a question");
                let answer = answer(&bytes, &says.lock().expect("a lock"), true);
                let len = u16::try_from(answer.len()).expect("it fits").to_be_bytes();
                stream.write_all(&[&len[..], &answer].concat()).expect("it is sent");
            }
        });
        names
    }

    fn say(&self, says: Say) {
        *self.says.lock().expect("a lock") = says;
    }
}

fn answer(question: &[u8], says: &Say, is_stream: bool) -> Vec<u8> {
    let question = Packet::parse(question).expect("a question");
    let asked = &question.questions[0];
    let name = asked.qname.to_string();
    let mut answer = Packet::new_reply(question.id());
    answer.questions.push(asked.clone());
    let a = |last: u8| RData::A(A::from(Ipv4Addr::new(127, 0, 0, last)));
    let record = |data| ResourceRecord::new(asked.qname.clone(), CLASS::IN, 1, data);
    match (says, asked.qtype) {
        (Say::Code(code), _) => *answer.rcode_mut() = *code,
        (Say::Addresses(all), QTYPE::TYPE(TYPE::A)) => {
            answer.answers.extend(all.iter().map(|&last| record(a(last))));
        }
        (Say::Services(_), QTYPE::TYPE(TYPE::SRV)) if !is_stream => {
            answer.set_flags(PacketFlag::TRUNCATION);
        }
        (Say::Services(all), QTYPE::TYPE(TYPE::SRV)) => {
            for (priority, &(last, port)) in all.iter().enumerate() {
                // The last is for when the others are away.
                let priority = u16::from(priority + 1 == all.len());
                let target =
                    Name::new(&format!("host-{last}.example")).expect("a name").into_owned();
                answer.answers.push(record(RData::SRV(SRV { priority, weight: 0, port, target })));
            }
        }
        (Say::Services(_), QTYPE::TYPE(TYPE::A)) => {
            let last = name.trim_start_matches("host-").split('.').next();
            let last = last.and_then(|last| last.parse().ok()).expect("a host of ours");
            answer.answers.push(record(a(last)));
        }
        _ => {}
    }
    answer.build_bytes_vec().expect("an answer")
}

/// Servers at 127.0.0.2 and so on, all at one port.
fn servers(count: u8) -> (Vec<Service>, Vec<String>, u16) {
    let port = port::free();
    let addresses: Vec<String> =
        (2..2 + count).map(|last| format!("127.0.0.{last}:{port}")).collect();
    let start =
        |address: &String| Service::start(&["serve", "--app", "synthetic", "--listen", address], 1);
    (addresses.iter().map(start).collect(), addresses, port)
}

#[test]
fn addresses_are_asked_for_again_and_what_fails_changes_nothing() {
    let (_servers, at, port) = servers(3);
    let names = Names::start(Say::Addresses(vec![2, 3]));
    let source = format!("dns:servers.example:{port}?resolver={}", names.address);
    let (router, admin) = router(&source, &[]);
    wait_for_servers(&admin, &[&at[0], &at[1]]);
    let load =
        ["--app", "synthetic:exp:500us", "--rate", "300", "--duration", "3s", "--warmup", "0"];
    let measurement = start_measure(router.address(), &load);
    admin.wait_for("tailcut_route_forwarded_total", 20.0);
    names.say(Say::Addresses(vec![3, 4]));
    wait_for_servers(&admin, &[&at[1], &at[2]]);
    names.say(Say::Code(RCODE::ServerFailure));
    wait_until("away", || value(&admin, "up") == 0.0);
    names.say(Say::Code(RCODE::NameError));
    wait_until("empty", || value(&admin, "empty") == 1.0 && value(&admin, "up") == 1.0);
    wait_for_servers(&admin, &[&at[1], &at[2]]);
    assert_all_replied(&finish(measurement));
}

#[test]
fn services_bring_their_ports_also_over_tcp() {
    let (_servers, at, port) = servers(2);
    // The third is of a lower rank: nobody goes there.
    let names = Names::start(Say::Services(vec![(2, port), (3, port), (9, port)]));
    let source = format!("srv:_tailcut._udp.example?resolver={}", names.address);
    let (_router, admin) = router(&source, &[]);
    wait_for_servers(&admin, &[&at[0], &at[1]]);
}
