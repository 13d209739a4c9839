//! Programs of the kernel: loaded, tried on packets, attached to an interface and detached.

use std::io;

use tailcut_net::ebpf::{Mode, Object, PASS, Verdict, interface_index};

use crate::veth::{VethPair, enter, run};

/// `None`, said aloud, where this process may not load programs.
pub(crate) fn load(bytes: &[u8]) -> Option<Object> {
    match Object::load(bytes) {
        Ok(object) => Some(object),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("the kernel takes it: {error}"),
    }
}

#[test]
fn a_program_is_tried_on_a_packet() {
    let Some(object) = load(PASS) else { return };
    let packet: Vec<u8> = (0..64).collect();
    let tested = object.test("pass", &packet, 1).expect("a run");
    assert_eq!((tested.verdict, tested.packet), (Verdict::Pass, packet));
}

#[test]
fn a_program_is_attached_until_it_is_dropped() {
    let Some(object) = load(PASS) else { return };
    let Some(hosts) = VethPair::create() else { return };
    // A thread of its own, since it does not come back from the namespace.
    let near = hosts.near.clone();
    std::thread::spawn(move || {
        enter(&near);
        let interface = interface_index(&format!("v{near}")).expect("the interface");
        for mode in [Mode::Native, Mode::Generic] {
            let attached = object.attach("pass", interface, mode).expect("it is attached");
            let again = object.attach("pass", interface, mode).expect_err("one is there");
            assert!(again.to_string().contains("another XDP program"), "{again}");
            drop(attached);
        }
        object.attach("pass", interface, Mode::Native).expect("the last was detached");
    })
    .join()
    .expect("no failure");
}

#[test]
fn an_mtu_that_is_too_long_is_named() {
    let Some(object) = load(PASS) else { return };
    let Some(hosts) = VethPair::create() else { return };
    // Its driver looks at what the far end may send.
    for end in [&hosts.near, &hosts.far] {
        run("ip", &format!("-n {end} link set v{end} mtu 9000")).expect("an MTU");
    }
    let near = hosts.near.clone();
    std::thread::spawn(move || {
        enter(&near);
        let interface = interface_index(&format!("v{near}")).expect("the interface");
        let error = object.attach("pass_whole", interface, Mode::Native).expect_err("too long");
        assert!(
            error.to_string().contains("MTU is more than its driver takes with XDP"),
            "{error}"
        );
        drop(object.attach("pass", interface, Mode::Native).expect("it takes long ones"));
        object.attach("pass_whole", interface, Mode::Generic).expect("the kernel joins them");
    })
    .join()
    .expect("no failure");
}

#[test]
fn what_is_not_there_is_named() {
    let error = interface_index("no-such").expect_err("nothing has that name");
    assert_eq!(error.to_string(), "no interface is named no-such");
    let error = Object::load(b"no object").expect_err("it is none");
    assert_eq!(error.to_string(), "no object of the BPF target");
}
